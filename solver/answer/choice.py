"""Choice among the plans that predictions cannot tell from the best found (docs/choice.md)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.training.selection import Simplicity
from cluster_models.training.workload import Choice
from solver.answer.alternatives import is_placed, next_best
from solver.answer.assemble import configuration_of
from solver.answer.robustness import drift_of
from solver.answer.simplicity import complications, simpler_in, simplest_first
from solver.candidates import FloatArray, IntArray
from solver.costs.confidence import Subject, doublings_outside, family_of, shipped_widening, widened
from solver.costs.differences import HALF_WIDTH, difference_error, doublings, drawn_errors
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import Candidate, place
from solver.search_state import SearchState

WRONG: Final = 0.4
"""A lead that is wrong so often in truth is given up for a simpler plan."""
MOST_GIVEN_UP: Final = 0.02
"""Share of the predicted objective, however little predictions can tell."""
MOST_PLACED: Final = 8
"""Candidates placed in looking for a simpler plan."""
ERRORS_PER_DRAW: Final = 10
"""Errors of predictions drawn for each draw of the links."""
TAIL: Final = 0.9
"""Share of draws in which a robust choice loses no more than what it is chosen by."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The candidate taken, what it is simpler in than the best found, and what both lose to whatever is best."""

    choice: Choice
    index: int
    simpler: tuple[Simplicity, ...] = ()
    regret: float | None = None
    best_regret: float | None = None


def choose(
    problem: PlanningProblem,
    options: SearchOptions,
    state: SearchState,
    choice: Choice,
    remaining_s: Callable[[], float],
) -> Chosen:
    """The candidate that ``choice`` takes, after a search that found a plan; places more while time remains."""
    assert state.best is not None
    if choice is Choice.SIMPLEST:
        return _simplest(problem, options, state, remaining_s)
    if choice is Choice.ROBUST:
        return _robust(problem, options, state, remaining_s)
    return Chosen(choice, state.best)


def _simplest(
    problem: PlanningProblem, options: SearchOptions, state: SearchState, remaining_s: Callable[[], float]
) -> Chosen:
    """The simplest of the candidates that come so close to the best found that the lead says little."""
    tried: set[int] = set()
    while True:
        best = state.best
        assert best is not None
        rows, limits = _close(state, best)
        subject = _subject(problem, state.prepared(problem, best))
        keys = complications(state.candidates, state.fabrics, rows, family_of(subject, problem.fitted))
        own = keys[int(np.flatnonzero(rows == best)[0])]
        for at in simplest_first(keys, (state.candidates.bound_s * state.candidates.weight)[rows]).tolist():
            row = int(rows[at])
            if (keys[at] == own).all():
                return Chosen(Choice.SIMPLEST, best)
            if not is_placed(state, row) and len(tried) < MOST_PLACED and remaining_s() > 0:
                tried.add(row)
                state.placed(row, place(state.prepared(problem, row), options, remaining_s=remaining_s))
                if state.best != best:
                    break
            if is_placed(state, row) and state.objective(row) <= limits[at]:
                return Chosen(Choice.SIMPLEST, row, simpler_in(keys[at], own))


def _close(state: SearchState, best: int) -> tuple[IntArray, FloatArray]:
    """Candidates whose bound comes close to the ``best``, itself included, and the objective that each may have."""
    objective, candidates = state.best_objective, state.candidates
    near = candidates.bound_s * candidates.weight <= objective * (1 + MOST_GIVEN_UP)
    near &= candidates.excess_bytes <= 0
    near[best] = True
    rows = np.flatnonzero(near)
    apart = doublings(candidates.batch.take(rows), int(np.flatnonzero(rows == best)[0]))
    slower = np.minimum(difference_error().slower_at(WRONG, apart), np.log1p(MOST_GIVEN_UP))
    return rows, objective * np.exp(slower)


def _robust(
    problem: PlanningProblem, options: SearchOptions, state: SearchState, remaining_s: Callable[[], float]
) -> Chosen:
    """The contender that loses least to the best of them in all but one draw of ten.

    Links drift, errors of predictions are the more alike the more configurations are, and wander outside of what
    was measured.  Contenders are looked at while time remains, the best at least.
    """
    best = state.best
    assert best is not None
    indices = np.array([best, *next_best(state, best, options.alternatives, placed_only=True)])
    batch = state.candidates.batch.take(indices)
    drift = drift_of(problem, options.seed, batch)
    objective, wander = np.empty((drift.draws, len(indices))), np.empty(len(indices))
    for column, index in enumerate(indices.tolist()):
        if column and remaining_s() <= 0:
            indices, objective, wander = indices[:column], objective[:, :column], wander[:column]
            break
        candidate, assignment = state.prepared(problem, index), state.known[index].assignment
        assert assignment is not None
        objective[:, column] = drift.step_s(candidate, assignment) * state.candidates.weight[index]
        subject = _subject(problem, candidate)
        outside = doublings_outside(subject, family_of(subject, problem.fitted))
        wander[column] = widened(0.0, outside, shipped_widening()) / HALF_WIDTH
    draws = ERRORS_PER_DRAW * drift.draws
    errors = drawn_errors(batch.take(np.arange(len(indices))), draws=draws, seed=options.seed)
    errors += wander * np.random.default_rng([options.seed, 1]).standard_normal((draws, len(indices)))
    drawn = np.tile(objective, (ERRORS_PER_DRAW, 1)) * np.exp(errors)
    regret = np.quantile(drawn / drawn.min(axis=1, keepdims=True) - 1, TAIL, axis=0)
    taken = int(regret.argmin())
    return Chosen(Choice.ROBUST, int(indices[taken]), (), float(regret[taken]), float(regret[0]))


def _subject(problem: PlanningProblem, candidate: Candidate) -> Subject:
    """Subject of an interval for ``candidate``, on the first of its GPU kinds."""
    gpu = candidate.gpu_kinds[0]
    return Subject(gpu, problem.architecture, problem.workload, configuration_of(candidate))
