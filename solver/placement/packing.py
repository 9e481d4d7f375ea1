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

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled_bounds import (
    UNREACHED,
    Labels,
    Walking,
    cheapest_through,
    cheapest_walks,
    label_walks,
    least_rest,
)
from solver.pipeline.simulation import critical_path, simulate
from solver.placement.bounds import least_inputs, least_rings, placement_bound_s
from solver.placement.packing_cases import SEEN, Case, Mixture, every_case, split
from solver.placement.packing_lanes import Lanes, lanes
from solver.placement.packing_prices import Master, Prices, half_way, shares_of
from solver.placement.problem import PlacementProblem

NEAR: Final = 10
"""Nodes whose visits a walk remembers while it is close to them."""
MOST_STEPS: Final = 2e8
"""Steps between labels, times paths, that one question may take (about 1 ns each); fewer labels for more nodes."""
MOST_ARCS: Final = 6e7
"""Steps between labels that are held at a time, two bytes each."""
ALIKE: Final = 4
"""Cheapest walks that become known at a time, before ..."""
AWAY: Final = 0.5
"""... is added to the price of their nodes, so that the next ones differ."""
EXACT: Final = 5
"""Every so many rounds prices are those of the program."""
MOST_WIDTH: Final = 8
MOST_PRICES: Final = 40
"""Rounds of prices for one step time."""
MOST_PATHS: Final = 96
PATH_ROUNDS: Final = 4
RESOLUTION: Final = 1e-4
"""Share of the step time at which the bisection ends."""
WAVE: Final = 0.35
"""Of what is between the bound and the best step, where the next question lies."""
PATIENCE: Final = 8
"""Cases of one question before less is asked for; more and more when all have been given up."""
MOST_KNOWN: Final = 256
"""Walks met before with which the program begins."""
NS_PER_ROW: Final = 5e4
"""What a walk adds to the time that the program takes."""
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
        self._prices = Prices(np.zeros(problem.nodes), np.zeros((len(self._all), problem.nodes)))
        self._known = np.empty((0, len(self._all)), dtype=np.int64)
        self.work = 0.0
        self.proven_s = 0.0
        self._asked_s, self._open_s = 0.0, np.inf
        self._pending = list[Case]()
        self._patience, self._cases, self._given_up = PATIENCE, 0, False
        duration_s, delay_s = least_inputs(problem)
        self._paths.add(duration_s[0], delay_s[0], self._all)

    def learn(self, assignment: IntArray) -> None:
        """Take over the paths that are critical under an assignment (K,)."""
        slots = self._problem.arrays.cell_slots
        walks = assignment[slots.swapaxes(1, 2).reshape(-1, slots.shape[1])]
        self._add_violated(walks, 0.0, self._lanes.ring_s)

    @property
    def is_asking(self) -> bool:
        """Whether a question has been left unanswered."""
        return bool(self._pending)

    def raised(
        self, bound_s: float, upper_s: float, target_s: float, work: float, out_of_time: Callable[[], bool]
    ) -> float:
        """The bound after some more ``work``, between ``bound_s`` and ``upper_s``; goes on where it was left.

        ``proven_s`` is the last step proven impossible, for whoever cannot wait until the work is done.
        """
        limit = self.work + work
        best_s, upper_s = upper_s, min(upper_s, self._open_s)
        while upper_s - bound_s > RESOLUTION * upper_s and bound_s < target_s:
            if self._given_up and upper_s - bound_s < WAVE**2 * (best_s - bound_s):
                self._given_up, self._patience = False, 4 * self._patience
                self._open_s, upper_s = np.inf, best_s
            if not self._pending or not bound_s < self._asked_s < upper_s:
                self._asked_s = bound_s + WAVE * (min(upper_s, target_s) - bound_s)
                self._pending, self._cases = [every_case(self._lanes.ring_s)], 0
            answer = self._answer(limit, out_of_time)
            if answer is None:
                break
            if answer:
                bound_s = self.proven_s = self._asked_s
            else:
                upper_s = self._open_s = self._asked_s
        return bound_s

    def _answer(self, limit: float, out_of_time: Callable[[], bool]) -> bool | None:
        """Whether the step asked for is impossible in all cases pending; ``None``: time was too short."""
        while self._pending:
            if self.work > limit or out_of_time():
                return None
            known = self._pending.pop()
            case, mixture = self._opened(known, self._asked_s, out_of_time)
            if mixture is None:
                continue
            lanes_, step_s = self._lanes, self._asked_s * (1.0 + TOLERANCE)
            parts = split(case, mixture, lanes_.ring_s, lanes_.link_s, lanes_.count, step_s)
            if out_of_time():
                self._pending.append(known)
                return None
            self._cases += 1
            if not parts or self._cases > self._patience:
                self._given_up |= bool(parts)
                self._pending.clear()
                return False
            self._pending += parts[::-1]
        return True

    def _opened(self, case: Case, step_s: float, out_of_time: Callable[[], bool]) -> tuple[Case, Mixture | None]:
        """The case with less in it, and a mixture of walks that it leaves open: ``None`` where it is impossible."""
        for _ in range(PATH_ROUNDS):
            spare = self._problem.nodes > self._problem.slots
            latest = case.until(self._latest(case, step_s))
            settled = latest.settled(self._lanes.ring_s, self._lanes.link_s, self._lanes.count, spare=spare)
            if settled is None:
                return case, None
            case = settled
            floor_s = case.floors(self._lanes.ring_s)
            proven, walks, ruled_out = self._proven(step_s, case, floor_s, out_of_time)
            if proven:
                return case, None
            case = case.without(ruled_out)
            shares = shares_of(walks, self._problem.nodes, self._lanes.count)
            walks, shares = walks[shares > SEEN], shares[shares > SEEN]
            if out_of_time() or not self._add_violated(walks, step_s, floor_s):
                break
        end_s = np.array([self._end_s(walk) for walk in walks]).reshape(-1, len(self._all)) + self._tail_s
        return case, Mixture(walks, shares, end_s)

    def _proven(
        self, step_s: float, case: Case, floor_s: FloatArray, out_of_time: Callable[[], bool]
    ) -> tuple[bool, IntArray, BoolArray]:
        """Whether prices prove it with the paths known, walks (n, P) met, and nodes (P, N) that are ruled out.

        ``floor_s`` (P, N): least reduction of a rank on a node.
        """
        problem, count = self._problem, self._lanes.count
        node_s, there, back, limit_s = self._costs(step_s, floor_s)
        rest_s = least_rest(problem.arrays.hop_s, node_s, there, back)
        walking = Walking(problem.arrays.hop_s, node_s, there, back, rest_s, limit_s, self._near, self._index)
        layers = problem.nodes**2 * len(self._all)
        width = int(np.clip(min(MOST_ARCS, MOST_STEPS / len(limit_s)) // layers, 1, MOST_WIDTH))
        labels, reached = label_walks(walking, width)
        arcs = float(labels.sum()) * problem.nodes
        self.work += NS_PER_STEP * arcs * len(limit_s)
        rows = case.neighbour_rows(self._lanes.ring_s, self._lanes.link_s, count)
        master = Master(problem.nodes, count, rows, spare=problem.nodes > problem.slots)
        prices = self._prices.without_rows()
        known = self._known[_within(self._known, walking)]
        known = known[np.argsort(prices.price[self._all, known].sum(axis=1), kind="stable")[:MOST_KNOWN]]
        met = [known]
        master.add(known)
        none = np.zeros_like(floor_s, dtype=np.bool_)
        best, highest = prices, -np.inf
        for round_ in range(MOST_PRICES):
            beyond, walks = self._cheapest(labels, reached, prices)
            self.work += NS_PER_STEP * arcs * count
            if beyond > PROOF:
                self._prices = prices
                return True, known, none
            if beyond > highest:
                best, highest = prices, beyond
            met.append(walks)
            new = master.add(walks)
            if out_of_time():
                break
            exact, value = master.solve()
            self.work += NS_PER_ROW * master.rows
            if value < PROOF:
                break
            # mostly half way to the best so far, for prices jump; at times exact, so that the end is seen
            prices = exact if round_ % EXACT == EXACT - 1 or not new else half_way(best, exact)
        self._known = np.unique(np.concatenate([self._known, *met]), axis=0)
        ruled_out = self._ruled_out(labels, reached, prices, case, out_of_time)
        return False, np.unique(np.concatenate(met), axis=0), ruled_out

    def _cheapest(self, labels: IntArray, reached: Labels, prices: Prices) -> tuple[float, IntArray]:
        """What walks cost beyond the budget at least, and cheap walks (n, P) that keep to different nodes."""
        ends, walks = cheapest_walks(labels, reached, prices.price)
        first = np.sort(ends)[: self._lanes.count]
        if first[-1] >= UNREACHED:
            return np.inf, walks[:0]
        met, price = list[IntArray](), prices.price.copy()
        for _ in range(self._lanes.count):
            cheap = np.argsort(ends, kind="stable")[:ALIKE]
            met.append(walks[cheap[ends[cheap] < UNREACHED]])
            price[:, np.unique(met[-1])] += AWAY
            ends, walks = cheapest_walks(labels, reached, price)
        return float(first.sum() - prices.budget), np.unique(np.concatenate(met), axis=0)

    def _ruled_out(
        self, labels: IntArray, reached: Labels, prices: Prices, case: Case, out_of_time: Callable[[], bool]
    ) -> BoolArray:
        """(P, N) nodes that a rank cannot be on, by the prices, in this case."""
        count, work = self._lanes.count, NS_PER_STEP * float(labels.sum()) * self._problem.nodes
        price, most = prices.price, prices.budget + PROOF
        through = cheapest_through(labels, reached, price)
        result = through + np.sort(through[-1])[: count - 1].sum() > most
        for s in range(len(self._all)):
            together = case.partners(s, self._lanes.link_s, count)
            for node in np.flatnonzero(~result[s] & ~case.chosen[s]):
                absent = ~together[node] & ~result[s]
                if not absent.any() or out_of_time():
                    continue
                self.work += work
                with_node = price.copy()
                with_node[:, node] = with_node[s, absent] = UNREACHED
                with_node[s, node] = price[s, node]
                through = cheapest_through(labels, reached, with_node)
                ends = np.sort(through[-1])[:count]
                result[s, node] = max(ends.sum(), through[s, node] + ends[:-1].sum()) > most
        return np.asarray(result, dtype=np.bool_)

    def _latest(self, case: Case, step_s: float) -> FloatArray:
        """(P,) the most that the reduction of each rank may take, for its walks take the least at least."""
        node_s, there, back, limit_s = self._costs(
            step_s, np.where(np.isfinite(case.floors(self._lanes.ring_s)), 0.0, np.inf)
        )
        rest_s = least_rest(self._problem.arrays.hop_s, node_s, there, back)
        latest_s = np.full(len(self._all), np.inf)
        np.minimum.at(latest_s, self._paths.rank, limit_s - (node_s[:, 0] + rest_s[:, 0]).min(axis=1))
        return latest_s

    def _costs(self, step_s: float, floor_s: FloatArray) -> tuple[FloatArray, IntArray, IntArray, FloatArray]:
        """Node costs (K, P, N), hops there and back (K, P), limits (K,) of the paths for a step of ``step_s``."""
        arrays, stages = self._problem.arrays, len(self._all)
        work, hops, rank = np.array(self._paths.work), np.array(self._paths.hops), np.array(self._paths.rank)
        chunks = (work * arrays.duration_s).sum(axis=1).reshape(len(rank), -1, stages).sum(axis=1)
        node_s = chunks[:, :, None] * self._slowdown
        node_s += np.where(np.isfinite(floor_s), 0.0, np.inf)[None]
        node_s[np.arange(len(rank)), rank] += floor_s[rank]
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

    def _end_s(self, walk: IntArray) -> FloatArray:
        """(P,) last backwards of a walk (P,)."""
        schedule = self._problem.schedule
        return np.asarray(simulate(schedule, *self._inputs(walk))[schedule.last])

    def _add_violated(self, walks: IntArray, step_s: float, floor_s: FloatArray) -> bool:
        """Add the worst path of each walk that is slower than thought; whether there was any new one."""
        new = False
        for walk in walks:
            ends = self._end_s(walk) + floor_s[self._all, walk]
            worst = int(ends.argmax())
            if ends[worst] + self._tail_s > step_s * (1.0 + TOLERANCE):
                new |= self._paths.add(*self._inputs(walk), np.array([worst]))
        return new


def _within(walks: IntArray, walking: Walking) -> BoolArray:
    """(n,) which of the walks (n, P) keep the limits."""
    cost_s = np.zeros((len(walking.limit_s), len(walks)))
    for q in range(walks.shape[1]):
        cost_s += walking.node_s[:, q, walks[:, q]]
        if q > 0:
            before, at = walks[:, q - 1], walks[:, q]
            cost_s += walking.there[:, q, None] * walking.hop_s[before, at]
            cost_s += walking.back[:, q, None] * walking.hop_s[at, before]
    return np.asarray((cost_s <= walking.limit_s[:, None]).all(axis=0))


def packing_of(problem: PlacementProblem) -> Packing | None:
    """What ``packing_bound_s`` goes on with from call to call; ``None`` where slots are no lanes."""
    found = lanes(problem)
    return None if found is None else Packing(problem, found, tail_bound_s(problem))


def packing_bound_s(
    problem: PlacementProblem,
    *,
    upper_s: float,
    target_s: float | None = None,
    work: float,
    out_of_time: Callable[[], bool] = lambda: False,
    assignment: IntArray | None = None,
    known_s: float = 0.0,
    packing: Packing | None = None,
) -> float:
    """Seconds that no assignment of ``problem`` can beat, at least ``placement_bound_s`` and at most ``upper_s``.

    Narrows down between the bound known and ``upper_s``, the step time of the best assignment known, until the
    bound reaches ``target_s``, they are close, or ``work`` (about as many nanoseconds) is spent.  ``assignment``
    (K,) helps to find critical paths; ``known_s`` is a bound known from before, ``packing`` what
    was tried before.
    """
    bound_s = max(known_s, placement_bound_s(problem))
    packing = packing or packing_of(problem)
    if packing is None or bound_s >= upper_s:
        return min(bound_s, upper_s)
    if assignment is not None:
        packing.learn(assignment)
    raised_s = packing.raised(bound_s, upper_s, np.inf if target_s is None else target_s, work, out_of_time)
    return min(raised_s, upper_s)


def tail_bound_s(problem: PlacementProblem) -> float:
    """Least seconds after the last reduction: optimizer step and exposed parameter gather."""
    return float((problem.arrays.optimizer_s + least_rings(problem)[1]).max())
