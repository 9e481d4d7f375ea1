"""A lower bound by branch and price: node-disjoint routes, one for each chain of slots, that end within a step.

Is a step of T seconds possible?  Then every chain is a route over nodes whose critical paths, and the reduction
after them, end within T, and no node is on two routes.  Lagrangian prices of nodes at which even the cheapest such
routes together cost more than all nodes prove that it is not (docs/placement.md, "The bound by branch and price").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final

import numpy as np

from solver.candidates import BoolArray, IntArray
from solver.placement.bounds import least_rings, placement_bound_s
from solver.placement.branching import SEEN, Branch, FractionalSolution, Split, root, split_of
from solver.placement.chains import Chains, chains_of
from solver.placement.critical_paths import CriticalPaths
from solver.placement.master import Master, Prices, combined
from solver.placement.pricing import PROOF, Pricing, memory_of
from solver.placement.problem import PlacementProblem

MOST_PRICES: Final = 40
"""Rounds of prices of one branch at one step time."""
RESOLUTION: Final = 1e-4
"""Share of the step time below which a gap is no longer narrowed down."""
TRIAL: Final = 0.2
"""Share of the way from the bound to the goal at which the next trial step lies."""
LEAST_STRIDE: Final = 4e-3
"""Share of the goal by which a trial lies beyond the bound at least."""
PATIENCE: Final = 16.0
"""Times the work of the last proof, or ``SLOW_TRIAL``, after which the stride of a trial is halved."""
SLOW_TRIAL: Final = 1e9
"""Work on a trial beyond which a lower step is tried before the branch is parted, which repeats that work often."""
COARSE: Final = 1.5e-3
"""Share of the step by which a trial must lie above the bound for that."""
MOST_KNOWN: Final = 256
"""Routes met before with which a master problem begins."""
MOST_KEPT: Final = 4096
"""Routes that are kept from one branch to the next."""
NS_PER_MASTER: Final = 3e6
NS_PER_ROW: Final = 5e4
"""Nanoseconds that a master problem takes, and that a route adds."""


@dataclass(frozen=True, slots=True, order=True)
class _Open:
    """A branch in which no step of ``bound_s`` is possible; among equals the latest is explored first."""

    bound_s: float
    number: int
    branch: Branch
    failed_s: float = np.inf
    """Step time at which nothing was left to decide, though prices did not prove it impossible."""


class BranchAndPrice:
    """The open branches of one problem; paths, routes and prices are kept from one to the next.

    ``bound_s`` is what is proven, ``work`` what was spent on it, about in nanoseconds; ``exhausted``: more work
    proves nothing more.
    """

    def __init__(self, problem: PlacementProblem, chains: Chains, tail_s: float) -> None:
        """``tail_s``: least optimizer step and parameter gather."""
        self._problem, self._chains = problem, chains
        self._paths = CriticalPaths(problem, chains, tail_s)
        self._memory = memory_of(problem.arrays.hop_s)
        self._prices = Prices(np.zeros(problem.nodes), np.zeros((problem.schedule.pipeline, problem.nodes)))
        self._known = np.empty((0, problem.schedule.pipeline), dtype=np.int64)
        self._spare = problem.nodes > problem.slots
        self._number = 0
        self._trial_s = self._stride_s = self._begun = self._proof_work = 0.0
        self._open = list[_Open]()
        self._push(root(chains.ring_s), 0.0)
        self.work, self.bound_s, self.exhausted = 0.0, 0.0, False

    def learn(self, assignment: IntArray) -> None:
        """Take over the paths that are critical under an assignment (K,)."""
        self._paths.add_of_assignment(assignment)

    def _push(self, branch: Branch, bound_s: float, failed_s: float = np.inf) -> None:
        self._number -= 1
        heappush(self._open, _Open(bound_s, self._number, branch, failed_s))

    def raised(
        self, bound_s: float, upper_s: float, target_s: float, work: float, out_of_time: Callable[[], bool]
    ) -> float:
        """The bound after some more ``work``, between ``bound_s`` and ``upper_s``; goes on where it was left."""
        limit = self.work + work
        while self.work < limit and not out_of_time():
            self.bound_s = low_s = max(bound_s, self.bound_s, self._open[0].bound_s)
            self.exhausted = self._open[0].failed_s * (1.0 - RESOLUTION) <= low_s
            if upper_s - low_s <= RESOLUTION * upper_s or low_s >= target_s or self.exhausted:
                break
            self._choose_trial(low_s, min(target_s, upper_s * (1.0 - RESOLUTION)))
            lowest = heappop(self._open)
            if not self._explore(lowest, low_s, out_of_time):
                heappush(self._open, lowest)
        self.bound_s = max(self.bound_s, self._open[0].bound_s)
        return max(bound_s, min(self.bound_s, upper_s))

    def _choose_trial(self, low_s: float, goal_s: float) -> None:
        """Set the trial step: a stride beyond what is proven, and half of it where that takes long.

        All branches are looked at again at each trial, so that a goal approached by ever smaller shares of what is
        left would cost a whole proof for each of them.
        """
        spent = self.work - self._begun
        if low_s >= self._trial_s:
            self._proof_work = spent
            self._stride_s = max(TRIAL * (goal_s - low_s), LEAST_STRIDE * goal_s)
        elif spent > PATIENCE * max(SLOW_TRIAL, self._proof_work) and self._stride_s > RESOLUTION * low_s:
            self._stride_s = 0.5 * (self._trial_s - low_s)
        else:
            self._trial_s = min(self._trial_s, goal_s)
            return
        self._begun = self.work
        self._trial_s = goal_s if low_s + 1.5 * self._stride_s > goal_s else low_s + self._stride_s

    def _explore(self, lowest: _Open, low_s: float, out_of_time: Callable[[], bool]) -> bool:
        """Prove the trial step impossible in a branch, or part it; whether time sufficed."""
        step_s = self._trial_s
        if lowest.failed_s <= step_s:
            step_s = 0.5 * (max(low_s, lowest.bound_s) + lowest.failed_s)
        before = self.work
        tightened, fraction = self._bounded(lowest.branch, step_s, out_of_time)
        if fraction is None:
            self._push(lowest.branch, step_s, lowest.failed_s)
            return True
        if self.work - before > SLOW_TRIAL and step_s - max(low_s, lowest.bound_s) > COARSE * step_s:
            self._push(lowest.branch, lowest.bound_s, step_s)
            return True
        split = split_of(tightened, fraction, self._chains, step_s)
        if out_of_time():
            return False
        if split is None:
            self._push(lowest.branch, lowest.bound_s, step_s)
        else:
            ranks = np.flatnonzero(tightened.may[:, split.node])
            share = fraction.on_ranks(self._problem.nodes)[ranks, split.node]
            self._part(lowest, split, ranks[np.argsort(share, kind="stable")], step_s)
        return True

    def _part(self, lowest: _Open, split: Split, ranks: IntArray, step_s: float) -> None:
        """Push the branches that ``split`` makes; ``ranks`` are those that its node may serve in ``step_s``.

        They are made of the branch as it was, for what tightened it holds at this step alone.
        """
        branch = lowest.branch
        if split.node < 0:
            low_s, high_s = branch.low_s.copy(), branch.high_s.copy()
            low_s[split.rank] = high_s[split.rank] = split.threshold_s
            self._push(branch.beyond(low_s), lowest.bound_s)
            self._push(branch.until(high_s), lowest.bound_s)
            return
        others = branch.without(np.zeros_like(branch.may))
        others.may[ranks, split.node] = False
        # where no node is to spare, the step is impossible with the node on any other rank
        if self._spare or others.may[:, split.node].any():
            self._push(others, lowest.bound_s if self._spare else step_s)
        for s in ranks.tolist():
            self._push(branch.serving(s, split.node), lowest.bound_s)

    def _bounded(
        self, branch: Branch, step_s: float, out_of_time: Callable[[], bool]
    ) -> tuple[Branch, FractionalSolution | None]:
        """The branch tightened, and a fraction of routes that it leaves open: ``None`` where it is impossible."""
        tightened = branch
        while True:
            self.work += NS_PER_MASTER
            latest_s = self._paths.latest_s(step_s, np.isfinite(tightened.floors(self._chains.ring_s)))
            again = tightened.tightened(self._chains, latest_s, spare=self._spare)
            if again is None:
                return tightened, None
            tightened = again
            priced = self._priced(step_s, tightened, out_of_time)
            if priced is None:
                return tightened, None
            ruled_out, routes = priced
            tightened = tightened.without(ruled_out)
            shares = combined(routes, self._problem.nodes, self._chains.count)
            routes, shares = routes[shares > SEEN], shares[shares > SEEN]
            if out_of_time() or not self._paths.add_violated(routes, step_s, tightened.floors(self._chains.ring_s)):
                return tightened, FractionalSolution(routes, shares, self._paths.ends_s(routes))

    def _priced(
        self, step_s: float, branch: Branch, out_of_time: Callable[[], bool]
    ) -> tuple[BoolArray, IntArray] | None:
        """Nodes (P, N) that prices rule out and routes (n, P) met; ``None`` where prices prove it impossible."""
        problem, count = self._problem, self._chains.count
        floor_s = branch.floors(self._chains.ring_s)
        pricing = Pricing(self._paths.resources(step_s, floor_s), self._memory, count)
        rows = branch.neighbour_rows(self._chains)
        master = Master(problem.nodes, count, rows, spare=self._spare)
        prices = self._prices.without_rows()
        known = self._known[pricing.contains(self._known)]
        order = np.argsort(prices.price[np.arange(known.shape[1]), known].sum(axis=1), kind="stable")
        met = [known[order[:MOST_KNOWN]]]
        master.add(met[0])
        proven = False
        for round_ in range(MOST_PRICES):
            beyond, routes = pricing.cheapest(prices)
            proven = beyond > PROOF
            if proven:
                self._prices = prices
                break
            met.append(routes)
            new = master.add(routes)
            if (round_ > 0 and not new) or out_of_time():
                break
            prices, value = master.solve()
            self.work += NS_PER_MASTER + NS_PER_ROW * master.rows
            if value < PROOF:
                break
        self._known = np.concatenate([*met[1:], self._known])[:MOST_KEPT]
        result = (
            None if proven else (pricing.ruled_out(prices, branch, self._chains, out_of_time), np.concatenate(met))
        )
        self.work += pricing.work
        return result


def branch_and_price_of(problem: PlacementProblem) -> BranchAndPrice | None:
    """Search that ``priced_bound_s`` continues from call to call; ``None`` where slots are not chains."""
    chains = chains_of(problem)
    return None if chains is None else BranchAndPrice(problem, chains, tail_bound_s(problem))


def priced_bound_s(
    problem: PlacementProblem,
    *,
    upper_s: float,
    target_s: float | None = None,
    work: float,
    out_of_time: Callable[[], bool] = lambda: False,
    assignment: IntArray | None = None,
    known_s: float = 0.0,
    search: BranchAndPrice | None = None,
) -> float:
    """Seconds that no assignment of ``problem`` can beat, at least ``placement_bound_s`` and at most ``upper_s``.

    Narrows down between the bound known and ``upper_s``, the step time of the incumbent, until the bound reaches
    ``target_s``, they are close, or ``work`` (about as many nanoseconds) is spent.  ``assignment`` (K,) helps to
    find critical paths; ``known_s`` is a bound known from before, ``search`` what was explored before.
    """
    bound_s = max(known_s, placement_bound_s(problem))
    search = search or branch_and_price_of(problem)
    if search is None or bound_s >= upper_s:
        return min(bound_s, upper_s)
    if assignment is not None:
        search.learn(assignment)
    raised_s = search.raised(bound_s, upper_s, np.inf if target_s is None else target_s, work, out_of_time)
    return min(raised_s, upper_s)


def tail_bound_s(problem: PlacementProblem) -> float:
    """Least seconds after the last reduction: optimizer step and exposed parameter gather."""
    return float((problem.arrays.optimizer_s + least_rings(problem)[1]).max())
