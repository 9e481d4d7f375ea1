"""The placement integer program (docs/placement.md derives it).

Letters: k slot, n node, r replica, s pipeline rank, c chunk, (a, b) a pair of slots that exchange data.

    min  T + U                                   end of the last reduction; optimizer and gather after it
    sum_n y[k,n] = 1,  sum_k y[k,n] <= 1         one node per slot, y binary; rules: ``solver.placement.rule_rows``
    sum_m w[a,b,n,m] = y[a,n]                    w = 1 where a sits on n and b on m: one unit of flow per pair
    sum_n w[a,b,n,m] = y[b,m]
    d[r,way,s] >= sum w[a,b,n,m] hop[n,m]        a transfer waits for its slowest pair
    E[r,s]     >= every path found so far        paths of the event graph, added as they turn out critical
    sum w[a,b,n,m] over slow (n, m) and all hops >= hops - merges   hops form a forest on the slots, and links
                                               faster than a threshold join no more than ``merges`` pairs of parts
    E[r,0]     >= one round trip + the periods L_r after it; L_r: the program of ``solver.pipeline.period``
    X[s]       >= sum_y ring_y[s] - hidden       ring_y[s] >= sum w ring[n,m] for every hop of the ring
    T >= E[r,s] + X[s],  U >= optimizer[s] + gather[s]

Every row bounds the exact step time from below, so the program's bound is one for the placement; with the path of
an assignment added, its objective there is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from solver.candidates import FloatArray, IntArray
from solver.ilp import LinearModel, ModelBuilder, Terms
from solver.pipeline.period import Duration, add_period_bound
from solver.pipeline.simulation import critical_path, simulate
from solver.placement.exhaustive import rotation_slots
from solver.placement.problem import PlacementProblem
from solver.placement.rule_rows import add_rule_rows

Expression = Duration

SLOW_HOP_ROWS: Final = 8
"""Most thresholds for which the program counts slow hops."""
SLOW_HOP_STEP: Final = 0.02
"""Thresholds closer to the fastest hop than this say nothing worth a row."""


@dataclass(frozen=True, slots=True, eq=False)
class PlacementModel:
    """The program of one placement problem; paths are added to it as they are found.

    ``place`` (K, N) are the columns of y; ``duration`` and ``delay`` say how each replica's inputs follow from
    columns; ``end`` (R, P) are the columns of E.
    """

    problem: PlacementProblem
    builder: ModelBuilder
    place: IntArray
    duration: list[list[list[Expression]]]
    delay: list[list[list[Expression]]]
    end: IntArray
    finish: tuple[int, int]
    pairs: _Pairs

    def program(self) -> LinearModel:
        """The program with all paths added so far."""
        return self.builder.build()

    def add_cutoff(self, seconds: float) -> None:
        """Ask only for assignments whose step is at most ``seconds``."""
        self.builder.add_row([(column, 1.0) for column in self.finish], upper=seconds)

    def choices(self) -> IntArray:
        """The columns of y and w: 0 or 1 in every assignment."""
        return np.concatenate([self.place.reshape(-1), self.pairs.columns()])

    def assignment(self, values: FloatArray) -> IntArray:
        """The node of each slot (K,) in an integer solution."""
        return np.asarray(values[self.place].argmax(axis=1), dtype=np.int64)

    def add_paths(self, duration_s: FloatArray, delay_s: FloatArray) -> None:
        """Add, for every replica and rank, the path that is critical at these inputs (E, C) and (2, P)."""
        schedule = self.problem.schedule
        ends = simulate(schedule, duration_s, delay_s)
        for s, event in enumerate(schedule.last):
            work, hops = critical_path(schedule, ends, delay_s, int(event))
            for r in range(self.problem.replicas):
                self._add_path(r, s, work, hops)

    def add_paths_at(self, values: FloatArray, tolerance: float = 1e-7) -> bool:
        """Add the paths that are critical at a solution; whether any was violated there."""
        violated = False
        for r in range(self.problem.replicas):
            duration_s = np.array([[_value(e, values) for e in kind] for kind in self.duration[r]])
            delay_s = np.array([[_value(e, values) for e in way] for way in self.delay[r]])
            ends = simulate(self.problem.schedule, duration_s, delay_s)[self.problem.schedule.last]
            if (ends > values[self.end[r]] * (1 + tolerance)).any():
                violated = True
                self.add_paths(duration_s, delay_s)
        return violated

    def _add_path(self, r: int, s: int, work: IntArray, hops: IntArray) -> None:
        parts = [(self.duration[r][kind][c], work[kind, c]) for kind, c in np.argwhere(work)]
        parts += [(self.delay[r][way][h], hops[way, h]) for way, h in np.argwhere(hops)]
        constant, terms = _weighted(parts)
        self.builder.add_row([(int(self.end[r, s]), 1.0), *_negative(terms)], lower=constant)


def build_model(problem: PlacementProblem) -> PlacementModel:
    """The program with the period of each replica and no path yet."""
    builder = ModelBuilder()
    arrays = problem.arrays
    replicas, stages = problem.replicas, problem.schedule.pipeline
    place = builder.add_columns(problem.slots * problem.nodes, upper=1.0, integer=True)
    place = place.reshape(problem.slots, problem.nodes)
    for k in range(problem.slots):
        builder.add_row([(int(y), 1.0) for y in place[k]], lower=1.0, upper=1.0)
    for n in range(problem.nodes):
        builder.add_row([(int(y), 1.0) for y in place[:, n]], upper=1.0)
    add_rule_rows(builder, place, problem.arrays.rules)
    pairs = _Pairs(builder, place)
    duration = [_durations(problem, pairs, r) for r in range(replicas)]
    delay = [_delays(problem, pairs, r) for r in range(replicas)]
    end = builder.add_columns(replicas * stages).reshape(replicas, stages)
    finish = builder.add_columns(1, cost=1.0)[0], builder.add_columns(1, cost=1.0)[0]
    for s in range(stages):
        reduce = _ring(problem, pairs, s, arrays.reduce_s, arrays.reduce_local_s, arrays.reduce_hidden_s)
        gather = _ring(problem, pairs, s, arrays.gather_s, arrays.gather_local_s, arrays.gather_hidden_s)
        for r in range(replicas):
            builder.add_row([(finish[0], 1.0), (int(end[r, s]), -1.0), *_negative(reduce[1])], lower=reduce[0])
        after = gather[0] + float(arrays.optimizer_s[s])
        builder.add_row([(finish[1], 1.0), *_negative(gather[1])], lower=after)
    model = PlacementModel(problem, builder, place, duration, delay, end, (int(finish[0]), int(finish[1])), pairs)
    for r in range(replicas):
        add_period_bound(
            builder, end=int(end[r, 0]), schedule=problem.schedule, duration=duration[r], delay=delay[r]
        )
    _break_symmetry(model)
    _need_slow_hops(model)
    return model


class _Pairs:
    """The flow columns w of each pair of slots, made when first asked for."""

    def __init__(self, builder: ModelBuilder, place: IntArray) -> None:
        self.builder = builder
        self._place = place
        self._flow: dict[tuple[int, int], IntArray] = {}

    def slot_cost(self, slots: IntArray, cost: FloatArray) -> int:
        """Column at least ``sum y[k,n] cost[n]`` for every slot ``k`` given."""
        column = int(self.builder.add_columns(1)[0])
        for k in slots[slots >= 0]:
            terms = [(int(y), -float(value)) for y, value in zip(self._place[k], cost, strict=True)]
            self.builder.add_row([(column, 1.0), *terms], lower=0.0)
        return column

    def slowest(self, pairs: IntArray, between_s: FloatArray, inside_s: float) -> Expression:
        """Column at least the cost of every pair (u, 2) of slots; a constant where no pair leaves its slot."""
        crossing = {(int(a), int(b)) for a, b in pairs if a >= 0 and a != b}
        floor = inside_s if any(a >= 0 and a == b for a, b in pairs) else 0.0
        if not crossing:
            return floor, ()
        column = int(self.builder.add_columns(1, lower=floor)[0])
        for a, b in sorted(crossing):
            cost = between_s if a < b else between_s.T
            flow = self.flow(min(a, b), max(a, b))
            used = flow >= 0
            terms = [(int(w), -float(c)) for w, c in zip(flow[used], cost[used], strict=True)]
            self.builder.add_row([(column, 1.0), *terms], lower=0.0)
        return 0.0, ((column, 1.0),)

    def columns(self) -> IntArray:
        """All flow columns."""
        flows = [flow[flow >= 0] for flow in self._flow.values()]
        return np.concatenate(flows) if flows else np.empty(0, dtype=np.int64)

    def flow(self, a: int, b: int) -> IntArray:
        """Columns (N, N) of the flow between slots ``a < b``; -1 on the diagonal."""
        if (a, b) not in self._flow:
            nodes = self._place.shape[1]
            flow = np.full((nodes, nodes), -1, dtype=np.int64)
            off = ~np.eye(nodes, dtype=bool)
            flow[off] = self.builder.add_columns(int(off.sum()), upper=1.0)
            for n in range(nodes):
                leaving = [(int(w), 1.0) for w in flow[n] if w >= 0]
                arriving = [(int(w), 1.0) for w in flow[:, n] if w >= 0]
                self.builder.add_row([*leaving, (int(self._place[a, n]), -1.0)], lower=0.0, upper=0.0)
                self.builder.add_row([*arriving, (int(self._place[b, n]), -1.0)], lower=0.0, upper=0.0)
            self._flow[a, b] = flow
        return self._flow[a, b]


def _durations(problem: PlacementProblem, pairs: _Pairs, r: int) -> list[list[Expression]]:
    """Expressions (E, C) of a replica's times, by kind of event."""
    arrays, stages = problem.arrays, problem.schedule.pipeline
    chunks = stages * problem.schedule.virtual
    kinds = len(arrays.duration_s)
    result: list[list[Expression]] = [[(0.0, ())] * chunks for _ in range(kinds)]
    uneven = bool((arrays.slowdown != arrays.slowdown[0]).any())
    for s in range(stages):
        slow: Expression = (float(arrays.slowdown[0]), ())
        if uneven:
            slow = (0.0, ((pairs.slot_cost(arrays.cell_slots[r, s], arrays.slowdown), 1.0),))
        exposed = [_exposed(problem, pairs, r, s, kind) for kind in range(kinds)]
        for kind in range(kinds):
            for c in range(s, chunks, stages):
                parts = [(slow, float(arrays.duration_s[kind, c]))]
                parts += [(e, float(arrays.cross_count[x, kind, c])) for x, e in enumerate(exposed[kind])]
                result[kind][c] = _weighted(parts)
    return result


def _exposed(problem: PlacementProblem, pairs: _Pairs, r: int, s: int, kind: int) -> list[Expression]:
    """Exposed seconds of each kind of crossing traffic."""
    arrays = problem.arrays
    result: list[Expression] = []
    for x in range(len(arrays.cross_pairs)):
        slowest = pairs.slowest(arrays.cross_pairs[x, r, s], arrays.cross_s[x], 0.0)
        result.append(_beyond(pairs.builder, slowest, float(arrays.cross_hidden_s[x, kind])))
    return result


def _delays(problem: PlacementProblem, pairs: _Pairs, r: int) -> list[list[Expression]]:
    """Expressions (2, P) of a replica's transfers, by sending rank."""
    arrays = problem.arrays
    return [
        [pairs.slowest(slot_pairs, arrays.hop_s, arrays.local_hop_s) for slot_pairs in arrays.hop_pairs[r, way]]
        for way in range(2)
    ]


def _ring(
    problem: PlacementProblem,
    pairs: _Pairs,
    s: int,
    between_s: FloatArray,
    local_s: FloatArray,
    hidden_s: FloatArray,
) -> Expression:
    """Exposed seconds of the data parallel rings of pipeline rank ``s``."""
    kinds = []
    for y, ring in enumerate(problem.arrays.ring_pairs):
        slowest = pairs.slowest(ring[s], between_s[problem.arrays.ring_times[y, s]], 0.0)
        local = float(local_s[y, s])
        floor = _beyond(pairs.builder, (slowest[0] - local, slowest[1]), 0.0)
        kinds.append(((floor[0] + local, floor[1]), 1.0))
    return _beyond(pairs.builder, _weighted(kinds), float(hidden_s[s]))


def _beyond(builder: ModelBuilder, expression: Expression, hidden: float) -> Expression:
    """``max(0, expression - hidden)``, as a column where it is not a constant."""
    constant, terms = expression
    if not terms:
        return max(0.0, constant - hidden), ()
    column = int(builder.add_columns(1)[0])
    builder.add_row([(column, 1.0), *_negative(terms)], lower=constant - hidden)
    return 0.0, ((column, 1.0),)


def _break_symmetry(model: PlacementModel) -> None:
    """Where replicas are interchangeable by rotation, the first one takes the lowest node of the first rank."""
    first = rotation_slots(model.problem)
    if not len(first):
        return
    number = np.arange(model.problem.nodes, dtype=np.float64)
    for slot in first[1:]:
        later = [(int(y), float(n)) for y, n in zip(model.place[slot], number, strict=True)]
        earlier = [(int(y), -float(n)) for y, n in zip(model.place[first[0]], number, strict=True)]
        model.builder.add_row([*later, *earlier], lower=0.0)


def _need_slow_hops(model: PlacementModel) -> None:
    """Rows for the slowest links that the hops cannot do without.

    The hops between different slots contain a forest with ``E`` edges; laid onto distinct nodes it stays one.  A
    forest has at most ``N - parts`` edges among the links faster than a threshold, where ``parts`` counts what
    those links leave apart, so at least ``E - (N - parts)`` hops are as slow as the threshold.  The thresholds at
    which this changes are the edges of a minimum spanning tree (Kruskal 1956).
    """
    arrays, nodes = model.problem.arrays, model.problem.nodes
    ranks = model.problem.schedule.pipeline
    hops = arrays.hop_pairs[:, 0, : ranks - 1].reshape(-1, 2)
    import networkx as nx  # noqa: PLC0415 - a service starts sooner without

    graph = nx.Graph([(int(a), int(b)) for a, b in hops if a >= 0 and a != b])
    forest = sorted((min(edge), max(edge)) for edge in nx.minimum_spanning_edges(graph, data=False))
    if not forest or nodes < 2:
        return
    cost = np.minimum(arrays.hop_s, arrays.hop_s.T)
    tree = np.sort(scipy.sparse.csgraph.minimum_spanning_tree(cost).data)[: len(forest)]
    thresholds = np.unique(tree)[::-1]
    for threshold in thresholds[thresholds > tree[0] * (1 + SLOW_HOP_STEP)][:SLOW_HOP_ROWS]:
        slow = cost >= threshold * (1 - 1e-12)
        np.fill_diagonal(slow, val=False)
        terms = [(int(w), 1.0) for edge in forest for w in model.pairs.flow(*edge)[slow]]
        model.builder.add_row(terms, lower=float((tree >= threshold).sum()))


def _weighted(parts: list[tuple[Expression, float]]) -> Expression:
    constant = sum(part[0] * float(weight) for part, weight in parts)
    terms = tuple((column, factor * float(weight)) for part, weight in parts for column, factor in part[1])
    return constant, terms


def _negative(terms: Terms) -> list[tuple[int, float]]:
    return [(column, -factor) for column, factor in terms]


def _value(expression: Expression, values: FloatArray) -> float:
    return expression[0] + sum(factor * float(values[column]) for column, factor in expression[1])
