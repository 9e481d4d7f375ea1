"""Errors of runs that were not fitted, without fitting again for each group.

Around the optimum of all runs residuals are taken as linear in the unknowns, r + J step, and what is minimised is
minimised again without a group, by least squares that are weighted anew until they settle: run i counts with
c_i of w_i rho'(r_i) / 2 = c_i r_i (Holland and Welsch 1977, iteratively reweighted least squares).  A Newton step,
which takes the curvature of the loss instead, overshoots where most runs are far off.  The group is then predicted
with those values by the model itself, not by its linear form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from solver.candidates import FloatArray
from solver.costs.calibration import PARAMETERS, Owner, default_values
from solver.fitting.least_squares import Problem, Solution, curvature, influence, residuals_of, values_at
from solver.fitting.unknowns import Unknown

TINY: Final = 1e-30
MOST_STEPS: Final = 50
SETTLED: Final = 1e-3
"""On the logit scale."""
DECIDES: Final = 0.5
"""Where one group has more than this share of what is known of a parameter, the jackknife says nothing of it."""

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Omission:
    """The runs ``rows``, predicted without the runs ``removed``.

    ``unseen``: GPU kinds and frameworks of which nothing is known then but defaults, not even the estimates, which
    were made by people who knew the runs.
    """

    rows: Rows
    removed: Rows
    unseen: frozenset[tuple[Owner, str]] = frozenset()


def left_out_errors(problem: Problem, solution: Solution, labels: Sequence[str]) -> FloatArray:
    """(r,) log(predicted / measured) of each run, predicted without the runs of the same label."""
    groups = (np.flatnonzero(np.array(labels) == label) for label in sorted(set(labels)))
    return errors_without(problem, solution, [Omission(rows, rows) for rows in groups])


def errors_without(problem: Problem, solution: Solution, omissions: Sequence[Omission]) -> FloatArray:
    """(r,) log(predicted / measured) of each run as its omission says, NaN for those of none."""
    unknowns = list(solution.free)
    free = np.array([solution.free[unknown] for unknown in unknowns])
    state = _State.of(problem, solution)
    residuals = np.full(len(problem.runs), np.nan)
    for omission in omissions:
        values = values_at(problem, unknowns, free + state.step(omission.removed))
        values |= _defaults(problem, omission)
        residuals[omission.rows] = residuals_of(problem, values, omission.rows)
    return residuals


def free_without(problem: Problem, solution: Solution, removed: Rows) -> Mapping[Unknown, float]:
    """The optimum on the logit scale without the runs ``removed``."""
    steps = _State.of(problem, solution).step(removed).tolist()
    return {unknown: free + step for (unknown, free), step in zip(solution.free.items(), steps, strict=True)}


def _defaults(problem: Problem, omission: Omission) -> dict[Unknown, float]:
    """The parameters of what is unseen, as taken where nothing is known."""
    defaults = default_values(problem.runs[int(omission.rows[0])].gpu)
    return {
        Unknown(owner, name, parameter): value
        for owner, name in sorted(omission.unseen)
        for parameter, value in defaults.items()
        if PARAMETERS[parameter].owner is owner
    }


def wider_spreads(problem: Problem, solution: Solution, labels: Sequence[str]) -> Mapping[Unknown, float]:
    """Spreads on the logit scale, widened to the jackknife over groups: runs of one group err together.

    Jackknife variance: (G - 1)/G times the sum of squared steps (Efron 1982, chapter 3); the prior stays a limit.
    """
    state = _State.of(problem, solution)
    groups = [np.flatnonzero(np.array(labels) == label) for label in sorted(set(labels))]
    steps = np.array([state.step(rows) for rows in groups])
    shares = np.array([state.share(rows) for rows in groups])
    jackknife = np.sqrt((len(groups) - 1) / len(groups) * (steps**2).sum(axis=0))
    jackknife[shares.max(axis=0) > DECIDES] = 0.0
    return {
        unknown: max(spread, min(float(reach), problem.options.prior_spread))
        for (unknown, spread), reach in zip(solution.spreads.items(), jackknife, strict=True)
    }


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """The optimum of a problem whose residuals are taken as linear around it.

    ``columns`` J (r, u), ``residuals`` (r,), ``from_prior`` (u,) the unknowns less their priors on the logit scale
    (not taken from the runs' pull, since the search stops near the optimum), ``known`` (r, u) second derivatives.
    """

    problem: Problem
    columns: FloatArray
    residuals: FloatArray
    from_prior: FloatArray
    known: FloatArray

    @classmethod
    def of(cls, problem: Problem, solution: Solution) -> _State:
        columns, residuals = solution.columns, solution.residuals
        from_prior = np.array([free - each.to_free(problem.priors[each]) for each, free in solution.free.items()])
        known = columns**2 * curvature(problem, residuals)[:, None]
        return cls(problem, columns, residuals, from_prior, known)

    def step(self, removed: Rows) -> FloatArray:
        """(u,) from the optimum to that without the runs ``removed``."""
        kept = np.ones(len(self.residuals), dtype=np.bool_)
        kept[removed] = False
        columns, residuals = self.columns[kept], self.residuals[kept]
        prior = np.eye(columns.shape[1]) / self.problem.options.prior_spread**2
        step = np.zeros(columns.shape[1])
        for _ in range(MOST_STEPS):
            moved = residuals + columns @ step
            pulls = influence(self.problem, moved, kept)[:, None] * columns
            down = pulls.T @ moved + prior @ (self.from_prior + step)
            further = np.linalg.solve(pulls.T @ columns + prior, -down)
            step = step + further
            if np.abs(further).max() < SETTLED:
                break
        return np.asarray(step, dtype=np.float64)

    def share(self, rows: Rows) -> FloatArray:
        """(u,) of what is known of each unknown, what ``rows`` tell."""
        told: FloatArray = self.known[rows].sum(axis=0) / np.maximum(self.known.sum(axis=0), TINY)
        return told
