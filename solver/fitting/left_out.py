"""Errors of runs that were not fitted, without fitting again for each group.

Around the optimum of all runs residuals are taken as linear in the unknowns, r + J step, and what is minimised is
minimised again without a group, by steps -(J'cJ)^-1 J'cr with the c_i of w_i rho'(r_i) / 2 = c_i r_i (iteratively
reweighted least squares, Holland and Welsch 1977; the matrix stays that of the optimum).  A Newton step, with the
curvature of the loss instead, overshoots where most runs are far off.  The group is then predicted with those
values by the model itself, not by its linear form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from solver.candidates import FloatArray
from solver.costs.calibration import PARAMETERS, Owner, default_values
from solver.fitting.least_squares import Problem, Solution, curvature, influence, residuals_of, values_at
from solver.fitting.unknowns import Unknown

TINY: Final = 1e-30
MOST_STEPS: Final = 30
SETTLED: Final = 3e-3
"""Change on the logit scale below which a search has settled."""
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

    ``columns`` J (r, u), ``residuals`` (r,), ``weights`` c (r,), ``normal`` J'cJ and the priors' part (u, u),
    ``from_prior`` (u,) the unknowns less their priors on the logit scale (not taken from the runs' pull, since the
    search stops near the optimum), ``known`` (r, u) second derivatives.
    """

    problem: Problem
    columns: FloatArray
    residuals: FloatArray
    weights: FloatArray
    normal: FloatArray
    from_prior: FloatArray
    known: FloatArray

    @classmethod
    def of(cls, problem: Problem, solution: Solution) -> _State:
        columns, residuals = solution.columns, solution.residuals
        weights = influence(problem, residuals)
        prior = np.eye(columns.shape[1]) / problem.options.prior_spread**2
        from_prior = np.array([free - each.to_free(problem.priors[each]) for each, free in solution.free.items()])
        known = columns**2 * curvature(problem, residuals)[:, None]
        return cls(problem, columns, residuals, weights, (columns.T * weights) @ columns + prior, from_prior, known)

    def step(self, removed: Rows) -> FloatArray:
        """(u,) from the optimum to that without the runs ``removed``."""
        own = self.columns[removed]
        normal = scipy.linalg.cho_factor(self.normal - (own.T * self.weights[removed]) @ own)
        step, last = np.zeros(len(self.from_prior)), np.inf
        for _ in range(MOST_STEPS):
            moved = self.residuals + self.columns @ step
            pulls = influence(self.problem, moved) * moved
            pulls[removed] = 0.0
            priors = (self.from_prior + step) / self.problem.options.prior_spread**2
            further = scipy.linalg.cho_solve(normal, self.columns.T @ pulls + priors)
            size = float(np.abs(further).max())
            if not size < last:
                break
            step, last = step - further, size
            if size < SETTLED:
                break
        return step

    def share(self, rows: Rows) -> FloatArray:
        """(u,) of what is known of each unknown, what ``rows`` tell."""
        told: FloatArray = self.known[rows].sum(axis=0) / np.maximum(self.known.sum(axis=0), TINY)
        return told
