"""A bound from packing node-disjoint walks into the cluster, one for each lane.

Is a step of T seconds possible?  Then every lane is a walk over nodes whose paths through the event graph, and the
reduction after them, end within T, and no node is on two walks.  Node prices for which even the cheapest such walks
together cost more than all nodes prove that it is not (docs/placement.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled_bounds import UNREACHED, Walking, cheapest_walks, label_walks, least_rest
from solver.ilp import ModelBuilder, solve_relaxation
from solver.pipeline.simulation import critical_path, simulate
from solver.placement.bounds import least_inputs, least_rings, placement_bound_s
from solver.placement.packing_lanes import Lanes, lanes
from solver.placement.problem import PlacementProblem

NEAR: Final = 10
"""Nodes whose visits a walk remembers while it is close to them."""
MOST_STEPS: Final = 2e8
"""Steps between labels, times paths, that one question may take (about 1 ns each); fewer labels for more nodes."""
MOST_ARCS: Final = 6e7
"""Steps between labels that are held at a time, two bytes each."""
MOST_WALKS: Final = 64
"""Cheapest walks that each round of prices makes known to the program."""
MOST_WIDTH: Final = 64
MOST_PRICES: Final = 40
"""Rounds of prices for one step time."""
MOST_PATHS: Final = 96
PATH_ROUNDS: Final = 4
SHARE: Final = 0.35
"""Of what is between the bound and the best step, where the next question lies: no takes longer than yes."""
RESOLUTION: Final = 1e-4
"""Share of the step time at which the bisection ends."""
NS_PER_STEP: Final = 8.0
"""What a step between labels takes along one path, or in a round of prices."""
TOLERANCE: Final = 1e-9
PROOF: Final = 1e-6
"""What the walks must cost beyond the nodes; prices lie between -1 and 1."""


@dataclass(slots=True, eq=False)
class _Paths:
    """Paths of the event graph: the rank whose last backward each ends with, and how often it takes what."""

    problem: PlacementProblem
    rank: list[int] = field(default_factory=list)
    work: list[IntArray] = field(default_factory=list)
    hops: list[IntArray] = field(default_factory=list)
    seen: set[tuple[int, bytes, bytes]] = field(default_factory=set)

    def add(self, duration_s: FloatArray, delay_s: FloatArray, ranks: IntArray) -> bool:
        """Add the paths critical at these inputs to the ends of ``ranks``; whether any is new."""
        schedule = self.problem.schedule
        ends = simulate(schedule, duration_s, delay_s)
        before = len(self.rank)
        for s in ranks.tolist():
            work, hops = critical_path(schedule, ends, delay_s, int(schedule.last[s]))
            key = (s, work.tobytes(), hops.tobytes())
            if key not in self.seen and len(self.rank) < MOST_PATHS:
                self.seen.add(key)
                self.rank.append(s)
                self.work.append(work)
                self.hops.append(hops)
        return len(self.rank) > before


class Packing:
    """The question above for one problem; paths, walks and prices are kept from one step time to the next."""

    def __init__(self, problem: PlacementProblem, found: Lanes, tail_s: float) -> None:
        """``tail_s``: least optimizer step and parameter gather."""
        self._problem, self._lanes, self._tail_s = problem, found, tail_s
        self._all = np.arange(problem.schedule.pipeline)
        self._paths = _Paths(problem)
        self._slowdown = np.maximum(problem.arrays.slowdown, 1.0)
        hop_s = problem.arrays.hop_s
        away = hop_s + hop_s.T + np.diag(np.full(problem.nodes, np.inf))
        self._near = np.argsort(away, axis=1, kind="stable")[:, : min(NEAR, problem.nodes - 1)].astype(np.int64)
        self._index = np.full((problem.nodes, problem.nodes), -1, dtype=np.int64)
        np.put_along_axis(self._index, self._near, np.arange(self._near.shape[1]), axis=1)
        self._prices = np.zeros(problem.nodes)
        self.work = 0.0
        duration_s, delay_s = least_inputs(problem)
        self._paths.add(duration_s[0], delay_s[0], self._all)

    def learn(self, assignment: IntArray) -> None:
        """Take over the paths that are critical under an assignment (K,)."""
        slots = self._problem.arrays.cell_slots
        self._add_violated(assignment[slots.swapaxes(1, 2).reshape(-1, slots.shape[1])], 0.0)

    def impossible(self, step_s: float, out_of_time: Callable[[], bool]) -> bool:
        """Whether it is proven that no assignment reaches ``step_s``."""
        for _ in range(PATH_ROUNDS):
            proven, walks = self._proven(step_s, out_of_time)
            if proven:
                return True
            if out_of_time() or not self._add_violated(walks, step_s):
                return False
        return False

    def _proven(self, step_s: float, out_of_time: Callable[[], bool]) -> tuple[bool, IntArray]:
        """Whether prices prove it with the paths known, and the last walks (n, P) that were cheapest."""
        problem, count = self._problem, self._lanes.count
        node_s, there, back, limit_s = self._costs(step_s)
        rest_s = least_rest(problem.arrays.hop_s, node_s, there, back)
        walking = Walking(problem.arrays.hop_s, node_s, there, back, rest_s, limit_s, self._near, self._index)
        layers = problem.nodes**2 * len(self._all)
        width = int(np.clip(min(MOST_ARCS, MOST_STEPS / len(limit_s)) // layers, 1, MOST_WIDTH))
        labels, reached = label_walks(walking, width)
        arcs = float(labels.sum()) * problem.nodes
        self.work += NS_PER_STEP * arcs * len(limit_s)
        master, prices = _Master(problem.nodes, count, spare=problem.nodes > problem.slots), self._prices
        cheapest = np.empty((0, len(self._all)), dtype=np.int64)
        for round_ in range(MOST_PRICES):
            self.work += NS_PER_STEP * arcs
            ends, walks = cheapest_walks(labels, reached, np.tile(prices, (len(self._all), 1)))
            first = np.argsort(ends, kind="stable")[:count]
            if ends[first[-1]] >= UNREACHED or ends[first].sum() - prices.sum() > PROOF:
                self._prices = prices
                return True, cheapest
            cheapest = walks[np.argsort(ends, kind="stable")[: max(count, MOST_WALKS)]]
            cheapest = cheapest[cheapest[:, 0] >= 0]
            new = master.add(cheapest)
            if out_of_time() or (not new and round_ % 2 == 1):
                break
            best, value = master.solve()
            if value < PROOF:
                break
            # every second time half way, for prices jump; the other times exact, so that the end is seen
            prices = best if round_ % 2 == 0 or not new else 0.5 * (prices + best)
        return False, cheapest

    def _costs(self, step_s: float) -> tuple[FloatArray, IntArray, IntArray, FloatArray]:
        """Node costs (K, P, N), hops there and back (K, P), limits (K,) of the paths for a step of ``step_s``."""
        arrays, stages = self._problem.arrays, len(self._all)
        work, hops, rank = np.array(self._paths.work), np.array(self._paths.hops), np.array(self._paths.rank)
        chunks = (work * arrays.duration_s).sum(axis=1).reshape(len(rank), -1, stages).sum(axis=1)
        node_s = chunks[:, :, None] * self._slowdown
        node_s += np.where(np.isfinite(self._lanes.ring_s), 0.0, np.inf)[None]
        node_s[np.arange(len(rank)), rank] += self._lanes.ring_s[rank]
        there, back = np.zeros_like(hops[:, 0]), np.zeros_like(hops[:, 0])
        there[:, 1:], back[:, 1:] = hops[:, 0, :-1], hops[:, 1, 1:]
        round_hops = hops[:, 0, -1] + hops[:, 1, 0]
        fixed = (work * self._lanes.extra_s).sum(axis=(1, 2)) + round_hops * self._lanes.least_hop_s
        limit_s = step_s * (1.0 + TOLERANCE) - self._tail_s - fixed
        return node_s, there, back, limit_s

    def _inputs(self, walk: IntArray) -> tuple[FloatArray, FloatArray]:
        """Durations (2, C) and delays (2, P) of a walk (P,)."""
        arrays, lanes_ = self._problem.arrays, self._lanes
        slow = np.tile(self._slowdown[walk], self._problem.schedule.virtual)
        delay_s = np.zeros((2, len(walk)))
        delay_s[0, :-1] = arrays.hop_s[walk[:-1], walk[1:]]
        delay_s[1, 1:] = arrays.hop_s[walk[1:], walk[:-1]]
        if self._problem.schedule.virtual > 1:
            delay_s[0, -1] = delay_s[1, 0] = lanes_.least_hop_s
        return arrays.duration_s * slow + lanes_.extra_s, delay_s

    def _add_violated(self, walks: IntArray, step_s: float) -> bool:
        """Add the worst path of each walk that is slower than thought; whether there was any new one."""
        new = False
        for walk in walks:
            inputs = self._inputs(walk)
            ends = simulate(self._problem.schedule, *inputs)[self._problem.schedule.last]
            ends += self._lanes.ring_s[self._all, walk]
            worst = int(ends.argmax())
            if ends[worst] + self._tail_s > step_s * (1.0 + TOLERANCE):
                new |= self._paths.add(*inputs, np.array([worst]))
        return new


class _Master:
    """Prices that make the cheapest of all walks known cost as much as possible beyond their share of the nodes."""

    def __init__(self, nodes: int, count: int, *, spare: bool) -> None:
        self._builder, self._count, self._seen = ModelBuilder(), count, set[bytes]()
        self._price = self._builder.add_columns(nodes, lower=0.0 if spare else -1.0, upper=1.0, cost=1.0)
        self._walk = int(self._builder.add_columns(1, lower=-nodes, upper=nodes, cost=-count)[0])

    def add(self, walks: IntArray) -> bool:
        """Add walks (n, Q); whether any is new."""
        before = len(self._seen)
        for walk in walks:
            key = np.sort(walk).tobytes()
            if key not in self._seen:
                self._seen.add(key)
                terms = [(int(self._price[n]), -1.0) for n in walk]
                self._builder.add_row([(self._walk, 1.0), *terms], upper=0.0)
        return len(self._seen) > before

    def solve(self) -> tuple[FloatArray, float]:
        """The prices (N,), and what the walks then cost beyond all nodes."""
        outcome = solve_relaxation(self._builder.build())
        if outcome.values is None:
            return np.zeros(len(self._price)), 0.0
        return outcome.values[self._price], -outcome.objective


def packing_bound_s(
    problem: PlacementProblem,
    *,
    upper_s: float,
    target_s: float | None = None,
    work: float,
    out_of_time: Callable[[], bool] = lambda: False,
    assignment: IntArray | None = None,
    known_s: float = 0.0,
) -> float:
    """Seconds that no assignment of ``problem`` can beat, at least ``placement_bound_s`` and at most ``upper_s``.

    Narrows down between the bound known and ``upper_s``, the step time of the best assignment known, until the
    bound reaches ``target_s``, they are close, or ``work`` (about as many nanoseconds) is spent.  ``assignment``
    (K,) helps to find critical paths; ``known_s`` is a bound known from before.
    """
    bound_s = max(known_s, placement_bound_s(problem))
    found = lanes(problem)
    if found is None or bound_s >= upper_s:
        return min(bound_s, upper_s)
    packing = Packing(problem, found, tail_bound_s(problem))
    if assignment is not None:
        packing.learn(assignment)
    high_s = upper_s
    while high_s - bound_s > RESOLUTION * upper_s and packing.work < work and not out_of_time():
        step_s = bound_s + SHARE * (high_s - bound_s)
        if packing.impossible(step_s, out_of_time):
            bound_s = step_s
        else:
            high_s = step_s
        if target_s is not None and bound_s >= target_s:
            break
    return min(bound_s, upper_s)


def tail_bound_s(problem: PlacementProblem) -> float:
    """Least seconds after the last reduction: optimizer step and exposed parameter gather."""
    return float((problem.arrays.optimizer_s + least_rings(problem)[1]).max())
