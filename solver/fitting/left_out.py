"""Errors of runs that were not fitted, without fitting again for each group.

From the optimum of all runs one Newton step leads close to the optimum without a group g.  Run i adds
d_i J_i J_i' to the second derivative H of what is minimised and c_i r_i J_i to the first, so the step is
(H - sum_g d_i J_i J_i')^-1 sum_g c_i r_i J_i.  The group is then predicted with those values by the model itself,
not by its linear form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from solver.candidates import FloatArray
from solver.fitting.least_squares import Problem, Solution, curvature, influence, residuals_of, values_at
from solver.fitting.unknowns import Unknown

TINY: Final = 1e-30
DECIDES: Final = 0.5
"""Where one group has more than this share of what is known of a parameter, the jackknife says nothing of it."""


@dataclass(frozen=True, slots=True)
class _Group:
    """``rows`` of a group, the ``step`` (unknowns,) to the optimum without it, its ``share`` of what is known."""

    rows: NDArray[np.intp]
    step: FloatArray
    share: FloatArray


def left_out_errors(problem: Problem, solution: Solution, labels: Sequence[str]) -> FloatArray:
    """(r,) log(predicted / measured) of each run, predicted without the runs of the same label."""
    unknowns = list(solution.free)
    free = np.array([solution.free[unknown] for unknown in unknowns])
    residuals = np.empty(len(labels))
    for group in _groups(problem, solution, labels):
        without = values_at(problem, unknowns, free + group.step)
        residuals[group.rows] = residuals_of(problem, without, group.rows)
    return residuals


def wider_spreads(problem: Problem, solution: Solution, labels: Sequence[str]) -> Mapping[Unknown, float]:
    """Spreads on the logit scale, widened to the jackknife over groups: runs of one group err together.

    Jackknife variance: (G - 1)/G times the sum of squared steps (Efron 1982, chapter 3); the prior stays a limit.
    """
    groups = _groups(problem, solution, labels)
    steps, shares = (np.array([getattr(group, name) for group in groups]) for name in ("step", "share"))
    jackknife = np.sqrt((len(groups) - 1) / len(groups) * (steps**2).sum(axis=0))
    jackknife[shares.max(axis=0) > DECIDES] = 0.0
    return {
        unknown: max(spread, min(float(reach), problem.options.prior_spread))
        for (unknown, spread), reach in zip(solution.spreads.items(), jackknife, strict=True)
    }


def _groups(problem: Problem, solution: Solution, labels: Sequence[str]) -> list[_Group]:
    columns, counts = solution.columns, influence(problem, solution.residuals)
    bends = curvature(problem, solution.residuals)
    normal = (columns.T * bends) @ columns + np.eye(columns.shape[1]) / problem.options.prior_spread**2
    known = np.maximum((columns.T**2 * bends).sum(axis=1), TINY)
    found = []
    for label in sorted(set(labels)):
        rows = np.flatnonzero(np.array([each == label for each in labels]))
        own = columns[rows]
        gradient = own.T @ (counts[rows] * solution.residuals[rows])
        step = np.asarray(np.linalg.solve(normal - (own.T * bends[rows]) @ own, gradient), dtype=np.float64)
        found.append(_Group(rows, step, (own.T**2 * bends[rows]).sum(axis=1) / known))
    return found
