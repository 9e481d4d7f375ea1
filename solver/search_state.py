"""State of the search over candidates at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from solver.candidates import FloatArray
from solver.degrees.priced import PricedCandidates
from solver.ilp import OPTIMALITY_TOLERANCE
from solver.placement.fabric import Fabric
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import Candidate, Refined, prepare

FRESH_FIRST_PER_EFFORT: Final = 400
"""Candidates that are placed before any is refined further out of turn."""
MOST_READY: Final = 16
"""Candidates that stay prepared, for some are placed, refined and told of one after the other."""
MOST_READY_PAIRS: Final = 2**20
"""The most of them by pairs of nodes, of each of which a candidate has some tens of bytes."""


@dataclass(slots=True)
class SearchState:
    """The only mutable value of a search.

    ``fresh`` and ``deeper`` are heaps of (bound, level, candidate), bounds in units of the objective: candidates
    not yet placed, and those to refine further; ``first_bounds`` are those of all candidates, lowest first.
    ``known`` holds the placements found.  ``open_bound`` is the lowest bound of what was set aside: without a row,
    pruned within the gap or refined to the end.  ``unresolved`` counts those that could still have been better.
    ``placing_s``: what the longest first placement took.  ``ready``: candidates prepared last.
    """

    candidates: PricedCandidates
    fabrics: tuple[Fabric, ...]
    fresh: list[tuple[float, int, int]]
    first_bounds: FloatArray
    deeper: list[tuple[float, int, int]] = field(default_factory=list)
    known: dict[int, Refined] = field(default_factory=dict)
    best: int | None = None
    open_bound: float = np.inf
    unresolved: int = 0
    placing_s: float = 0.0
    ready: dict[int, Candidate] = field(default_factory=dict)

    def objective(self, index: int) -> float:
        """Objective of the best placement known of a candidate."""
        return self.known[index].step_s * float(self.candidates.weight[index])

    def left_below(self, objective: float) -> int:
        """How many candidates that are not ruled out may still be better than ``objective``."""
        gone = len(self.first_bounds) - len(self.fresh)
        fresh = int(np.searchsorted(self.first_bounds, objective)) - gone
        return max(0, fresh) + sum(bound < objective for bound, _, _ in self.deeper)

    def is_late(self, objective: float) -> bool:
        """Whether there was no time to price candidates that may be better than ``objective``."""
        left = self.candidates.left
        return left.unpriced + left.worlds > 0 and left.bound < objective * (1 - OPTIMALITY_TOLERANCE)

    @property
    def best_objective(self) -> float:
        """Objective of the best plan so far; ``inf`` before there is one."""
        return np.inf if self.best is None else self.objective(self.best)

    def target(self, options: SearchOptions) -> float:
        """Objective below which a candidate still matters; ``inf`` before there is a plan, whatever the gap."""
        return np.inf if self.best is None else self.best_objective * (1 - options.gap)

    @property
    def bound(self) -> float:
        """Objective that no plan can beat."""
        tops = [heap[0][0] for heap in (self.fresh, self.deeper) if heap]
        return min(*tops, self.open_bound, self.best_objective)

    def next_heap(self, options: SearchOptions) -> list[tuple[float, int, int]] | None:
        """The heap whose lowest bound to refine next, or ``None`` when no candidate matters any more.

        Placing is cheap and finds better plans, so fresh candidates go first, up to a share of the effort;
        after that the lowest bound decides.
        """
        target = self.target(options)
        fresh = self.fresh if self.fresh and self.fresh[0][0] < target else None
        deeper = self.deeper if self.deeper and self.deeper[0][0] < target else None
        if fresh and deeper and len(self.known) >= FRESH_FIRST_PER_EFFORT * options.effort:
            return min(fresh, deeper, key=lambda heap: heap[0])
        return fresh or deeper

    def placed(self, index: int, refined: Refined) -> None:
        """Remember a refinement, and the candidate as the best if it is."""
        self.known[index] = refined
        if refined.assignment is not None and (self.best is None or self.objective(index) < self.best_objective):
            self.best = index

    def prepared(self, problem: PlanningProblem, index: int) -> Candidate:
        """One candidate of the problem that was priced, ready to be placed."""
        fabric = self.fabrics[int(self.candidates.fabric[index])]
        found = self.ready.pop(index, None)
        if found is None:
            row = self.candidates.batch.take(np.array([index]))
            found = prepare(problem, fabric, row, *self.candidates.staging_of(index))
            while self.ready and len(self.ready) >= min(MOST_READY, MOST_READY_PAIRS // fabric.nodes**2):
                del self.ready[next(iter(self.ready))]
        self.ready[index] = found
        return found


def first_state(candidates: PricedCandidates, fabrics: tuple[Fabric, ...]) -> SearchState:
    """Nothing placed yet: all candidates that fit into memory, by their bounds."""
    fits = np.flatnonzero(candidates.excess_bytes <= 0)
    bounds = (candidates.bound_s * candidates.weight)[fits]
    order = np.argsort(bounds, kind="stable")
    first_bounds = bounds[order]
    fresh = [(bound, 0, index) for bound, index in zip(first_bounds.tolist(), fits[order].tolist(), strict=True)]
    return SearchState(candidates, fabrics, fresh, first_bounds, open_bound=candidates.left.bound)
