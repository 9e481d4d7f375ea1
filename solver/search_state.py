"""What the search over candidates knows at any moment."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from solver.fabric import Fabric
from solver.priced import PricedCandidates
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import Candidate, Refined, prepare


@dataclass(slots=True)
class SearchState:
    """The only mutable value of a search.

    ``heap`` holds (bound, level, candidate), bounds in units of the objective; ``known`` the placements found.
    ``open_bound`` is the lowest bound of what was set aside, pruned within the gap or refined to the end, and
    ``unresolved`` counts those that could still have been better.
    """

    candidates: PricedCandidates
    fabrics: tuple[Fabric, ...]
    heap: list[tuple[float, int, int]]
    known: dict[int, Refined] = field(default_factory=dict)
    best: int | None = None
    open_bound: float = np.inf
    unresolved: int = 0

    def objective(self, index: int) -> float:
        """Objective of the best placement known of a candidate."""
        return self.known[index].step_s * float(self.candidates.weight[index])

    @property
    def best_objective(self) -> float:
        """Objective of the best plan so far; ``inf`` before there is one."""
        return np.inf if self.best is None else self.objective(self.best)

    def target(self, options: SearchOptions) -> float:
        """Objective below which a candidate still matters."""
        return self.best_objective * (1 - options.gap)

    def prepared(self, problem: PlanningProblem, index: int) -> Candidate:
        """One candidate, ready to be placed."""
        fabric = self.fabrics[int(self.candidates.fabric[index])]
        return prepare(problem, fabric, self.candidates.batch.take(np.array([index])))

    @property
    def bound(self) -> float:
        """Objective that no plan can beat."""
        top = self.heap[0][0] if self.heap else np.inf
        return min(top, self.open_bound, self.best_objective)
