"""Errors of runs that were not fitted, without fitting again for each group.

From the optimum of all runs one Newton step leads close to the optimum without a group g.  Run i adds
d_i J_i J_i' to the second derivative H of what is minimised and c_i r_i J_i to the first, so the step is
(H - sum_g d_i J_i J_i')^-1 sum_g c_i r_i J_i.  The group is then predicted with those values by the model itself,
not by its linear form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from solver.candidates import FloatArray
from solver.fitting.least_squares import Problem, Solution, curvature, influence, residuals_of, values_at
from solver.fitting.unknowns import Unknown


@dataclass(frozen=True, slots=True)
class LeftOut:
    """``residuals`` (r,) of each run without its group; ``steps`` (groups, unknowns) to the optimum without it."""

    residuals: FloatArray
    steps: FloatArray


def leave_out(problem: Problem, solution: Solution, labels: Sequence[str]) -> LeftOut:
    """Each group of ``labels`` predicted from the others alone."""
    unknowns = list(solution.free)
    free = np.array([solution.free[unknown] for unknown in unknowns])
    columns, counts = solution.columns, influence(problem, solution.residuals)
    bends = curvature(problem, solution.residuals)
    normal = (columns.T * bends) @ columns + np.eye(len(unknowns)) / problem.options.prior_spread**2
    residuals = np.empty(len(labels))
    steps = []
    for label in sorted(set(labels)):
        rows = np.flatnonzero(np.array([each == label for each in labels]))
        without = normal - (columns[rows].T * bends[rows]) @ columns[rows]
        step = np.linalg.solve(without, columns[rows].T @ (counts[rows] * solution.residuals[rows]))
        residuals[rows] = residuals_of(problem, values_at(problem, unknowns, free + step), rows)
        steps.append(step)
    return LeftOut(residuals, np.array(steps))


def wider_spreads(problem: Problem, solution: Solution, left_out: LeftOut) -> Mapping[Unknown, float]:
    """Spreads on the logit scale, widened to the jackknife over groups: runs of one group err together.

    Jackknife variance: (G - 1)/G times the sum of squared steps (Efron 1982, chapter 3); the prior stays a limit.
    """
    count = len(left_out.steps)
    jackknife = np.sqrt((count - 1) / count * (left_out.steps**2).sum(axis=0))
    return {
        unknown: max(spread, min(float(reach), problem.options.prior_spread))
        for (unknown, spread), reach in zip(solution.spreads.items(), jackknife, strict=True)
    }
