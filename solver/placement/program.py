"""Integer program of a placement: its relaxation as a bound, then branch and bound for the rest.

The relaxation also rules out columns.  Where its optimum is ``v`` and a column at 0 has reduced cost ``d``, every
assignment that uses the column takes at least ``v + d``; if that is no better than the cutoff, the column
may go, and the program to branch on is smaller (docs/placement.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from solver.candidates import IntArray
from solver.compiled import step_seconds, violations
from solver.ilp import IlpOutcome, IlpStatus, LinearModel, solve_integer, solve_relaxation
from solver.placement.least_inputs import between_slots, least_inputs
from solver.placement.model import PlacementModel, build_model
from solver.placement.problem import PlacementProblem
from solver.placement.solve import PlacementOutcome
from solver.problem import Backend

FLOW_COLUMNS_PER_EFFORT: Final = 60_000
"""Programs with more flow columns than this are not solved: their relaxation alone takes minutes."""
SIMPLEX_ITERATIONS_PER_EFFORT: Final = 60_000
BRANCH_NODES_PER_EFFORT: Final = 2_000
CUT_ROUNDS: Final = 8
PROGRAM_TIME_S: Final = 6.0
"""Longest single solve of a program, so that progress and cancellation are seen."""
FIXING_TOLERANCE: Final = 1e-6
"""Relative distance by which a reduced cost must clear the cutoff: the back end's own tolerances are 1e-7."""


def relax(
    problem: PlacementProblem,
    best: PlacementOutcome,
    *,
    target_s: float,
    effort: int,
    remaining_s: Callable[[], float],
) -> PlacementOutcome:
    """``best`` with the bound of the relaxation, paths added until none is violated or the bound suffices."""
    if best.bound_s >= target_s or not _solvable(problem, effort):
        return best
    relaxed = _relaxation(_seeded_model(problem), target_s, effort, remaining_s)
    return replace(best, bound_s=max(best.bound_s, min(relaxed.bound, best.step_s)))


def branch(
    problem: PlacementProblem,
    best: PlacementOutcome,
    *,
    target_s: float,
    effort: int,
    backend: Backend,
    remaining_s: Callable[[], float],
) -> PlacementOutcome:
    """``best`` improved, or its bound raised to ``target_s``, by the integer program.

    Every solution is simulated; where the program thought it faster than it is, the critical path is added and
    the program solved again.
    """
    if not _solvable(problem, effort):
        return best
    model = _seeded_model(problem)
    cutoff_s = min(target_s, best.step_s)
    relaxed = _relaxation(model, cutoff_s, effort, remaining_s)
    bound_s = max(best.bound_s, min(relaxed.bound, cutoff_s))
    ruled_out = _ruled_out(model, relaxed, cutoff_s)
    model.add_cutoff(cutoff_s)
    for _ in range(CUT_ROUNDS):
        outcome = solve_integer(
            _without(model.program(), ruled_out),
            backend=backend,
            time_limit_s=min(PROGRAM_TIME_S, remaining_s()),
            node_limit=BRANCH_NODES_PER_EFFORT * effort,
            expected=best.step_s,
        )
        if outcome.status is IlpStatus.INFEASIBLE:
            bound_s = max(bound_s, cutoff_s)
            break
        bound_s = max(bound_s, min(outcome.bound, cutoff_s))
        if outcome.values is None:
            break
        found = model.assignment(outcome.values)
        found_s = float(step_seconds(found, problem.arrays)[0])
        if found_s < best.step_s and violations(found, problem.arrays.rules) == 0:
            best = replace(best, assignment=found, step_s=found_s)
        violated = model.add_paths_at(outcome.values)
        if outcome.status is not IlpStatus.OPTIMAL or not violated or remaining_s() <= 0:
            break
    return replace(best, bound_s=min(bound_s, best.step_s))


def _solvable(problem: PlacementProblem, effort: int) -> bool:
    """Whether the program is small enough to be worth solving."""
    arrays = problem.arrays
    pairs = np.concatenate([p.reshape(-1, 2) for p in (arrays.hop_pairs, arrays.cross_pairs, arrays.ring_pairs)])
    crossing = np.sort(pairs[between_slots(pairs)], axis=1)
    columns = len(np.unique(crossing, axis=0)) * problem.nodes * (problem.nodes - 1)
    return columns <= FLOW_COLUMNS_PER_EFFORT * effort


def _seeded_model(problem: PlacementProblem) -> PlacementModel:
    """The program with the paths that are critical when everything is at its best."""
    model = build_model(problem)
    for duration_s, delay_s in zip(*least_inputs(problem), strict=True):
        model.add_paths(duration_s, delay_s)
    return model


def _relaxation(
    model: PlacementModel, target_s: float, effort: int, remaining_s: Callable[[], float]
) -> IlpOutcome:
    """The relaxation with the best bound, of those solved while paths are added to ``model``."""
    best = IlpOutcome(IlpStatus.NO_SOLUTION, None, np.inf, -np.inf, 0.0)
    for _ in range(CUT_ROUNDS):
        relaxed = solve_relaxation(
            model.program(),
            time_limit_s=min(PROGRAM_TIME_S, remaining_s()),
            iteration_limit=SIMPLEX_ITERATIONS_PER_EFFORT * effort,
        )
        if relaxed.bound > best.bound:
            best = relaxed
        if relaxed.values is None or best.bound >= target_s or not model.add_paths_at(relaxed.values):
            break
    return best


def _ruled_out(model: PlacementModel, relaxed: IlpOutcome, cutoff_s: float) -> IntArray:
    """Columns of y and w that nothing faster than the cutoff uses."""
    choices = model.choices()
    if relaxed.reduced is None:
        return choices[:0]
    return choices[relaxed.bound + relaxed.reduced[choices] > cutoff_s * (1 + FIXING_TOLERANCE)]


def _without(program: LinearModel, ruled_out: IntArray) -> LinearModel:
    """The program with those columns held at 0."""
    upper = program.upper.copy()
    upper[ruled_out] = 0.0
    return replace(program, upper=upper)
