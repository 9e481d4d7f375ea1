"""Weighted robust least squares with priors, on log(predicted / measured) step times.

    minimise  sum_i w_i rho((r_i / s)^2) + sum_j ((u_j - p_j) / t)^2,    rho(z) = 2 (sqrt(1 + z) - 1)  (soft L1)

r_i is the residual of run i, s the error that a prediction is granted, w_i the weight of the run, u_j parameter j
on the logit scale of its physical range, p_j its prior and t the prior's spread.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import scipy
from numpy.typing import NDArray

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.fitting.report import FitOptions
from solver.fitting.robust import STEP, spreads_of
from solver.fitting.unknowns import Unknown, with_values
from solver.fitting.variants import predict_variants
from solver.runs import predict_runs

PROBE: Final = 1.0
"""Step with which a run is asked whether it depends on a parameter at all."""
DEPENDS: Final = 1e-9
NEAR: Final = 0.2
"""Derivatives are kept as long as no unknown is farther away from where they were taken."""
NOTICEABLE: Final = 0.01
"""A run tells of a parameter if moving that by the prior's spread changes the prediction by this share."""
TOLERANCE: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Problem:
    """Runs with their weights; ``priors`` holds the prior value of every unknown, fitted or not."""

    runs: Sequence[TrainingRun]
    weights: FloatArray
    priors: Mapping[Unknown, float]
    options: FitOptions


@dataclass(frozen=True, slots=True)
class Solution:
    """The best values on the logit scale, their spreads there, and the number of runs that tell of each.

    ``residuals`` (r,) are log(predicted / measured), ``columns`` (r, unknowns) their derivatives.
    """

    free: Mapping[Unknown, float]
    spreads: Mapping[Unknown, float]
    steps: Mapping[Unknown, int]
    residuals: FloatArray
    columns: FloatArray


def residuals_of(
    problem: Problem, values: Mapping[Unknown, float], rows: NDArray[np.intp] | None = None
) -> FloatArray:
    """log(predicted / measured) of the runs ``rows`` (default: all) with ``values`` upon the start."""
    fitted = _parameters(problem, values)
    chosen = problem.runs if rows is None else [problem.runs[i] for i in rows]
    predictions = predict_runs(chosen, fitted)
    ratios = [found.step_s / (run.step_s or 1.0) for run, found in zip(chosen, predictions, strict=True)]
    errors: FloatArray = np.log(np.array(ratios))
    return errors


def _parameters(problem: Problem, values: Mapping[Unknown, float]) -> FittedParameters:
    """``values`` upon the start."""
    found = {unknown: FittedValue(value, value, value, 0) for unknown, value in values.items()}
    return with_values(problem.options.start, found, "")


def affected_runs(problem: Problem, unknowns: Sequence[Unknown]) -> dict[Unknown, NDArray[np.intp]]:
    """Indices of the runs whose prediction depends on each unknown."""
    concerned: dict[Unknown, list[int]] = {unknown: [] for unknown in unknowns}
    for row, run in enumerate(problem.runs):
        own = [each for each in unknowns if each.concerns(run, problem.options.kind_name)]
        here = np.array([each.to_free(problem.priors[each]) for each in own])
        for each, shift in zip(own, _shifts(problem, row, own, here, PROBE), strict=True):
            if abs(shift) > DEPENDS:
                concerned[each].append(row)
    return {unknown: np.array(rows, dtype=np.intp) for unknown, rows in concerned.items()}


def _shifts(problem: Problem, row: int, unknowns: Sequence[Unknown], here: FloatArray, step: float) -> FloatArray:
    """Changes that a ``step`` of each unknown alone, from ``here``, makes to a residual; all priced together.

    The other unknowns stay at their priors: those that the run does not depend on.
    """
    points = np.repeat(here[None], len(unknowns) + 1, axis=0)
    points[1:] += step * np.eye(len(unknowns))
    variants = {
        each: np.array([each.to_value(float(u)) for u in column])
        for each, column in zip(unknowns, points.T, strict=True)
    }
    others = {each: value for each, value in problem.priors.items() if each not in variants}
    priced = np.log(predict_variants(problem.runs[row], _parameters(problem, others), variants))
    return np.asarray(priced[1:] - priced[0])


class _Derivatives:
    """Derivatives of the residuals, taken anew only where the unknowns have moved far."""

    def __init__(self, problem: Problem, affected: Mapping[Unknown, NDArray[np.intp]]) -> None:
        self._problem, self._affected = problem, affected
        self._taken_at: FloatArray | None = None
        self._columns: FloatArray = np.zeros((len(problem.runs), len(affected)))

    def at(self, free: FloatArray) -> FloatArray:
        """(r, unknowns) derivatives at or near ``free``."""
        if self._taken_at is None or np.abs(free - self._taken_at).max() > NEAR:
            self._taken_at, self._columns = free.copy(), self._differences(free)
        return self._columns

    def _differences(self, free: FloatArray) -> FloatArray:
        columns = np.zeros((len(self._problem.runs), len(self._affected)))
        moved: dict[int, list[int]] = defaultdict(list)
        for j, rows in enumerate(self._affected.values()):
            for row in rows:
                moved[int(row)].append(j)
        unknowns = list(self._affected)
        for row, places in moved.items():
            own = [unknowns[j] for j in places]
            columns[row, places] = _shifts(self._problem, row, own, free[places], STEP) / STEP
        return columns


def solve(
    problem: Problem,
    affected: Mapping[Unknown, NDArray[np.intp]],
    start: Mapping[Unknown, float] | None = None,
) -> Solution:
    """The best values of the unknowns in ``affected``, from ``start`` (logit scale), the others at their priors."""
    unknowns = list(affected)
    prior = np.array([unknown.to_free(problem.priors[unknown]) for unknown in unknowns])
    first = prior if start is None else np.array([start[unknown] for unknown in unknowns])
    scale, spread = problem.options.row_error, problem.options.prior_spread
    derivatives = _Derivatives(problem, affected)

    def stacked(free: FloatArray) -> FloatArray:
        residuals = residuals_of(problem, values_at(problem, unknowns, free))
        return np.concatenate([residuals / scale, (free - prior) / spread])

    def jacobian(free: FloatArray) -> FloatArray:
        return np.vstack([derivatives.at(free) / scale, np.eye(len(unknowns)) / spread])

    found = scipy.optimize.least_squares(
        stacked,
        first,
        jac=jacobian,
        loss=partial(_loss, weights=problem.weights),
        max_nfev=problem.options.max_iterations,
        ftol=TOLERANCE,
        xtol=TOLERANCE,
        gtol=TOLERANCE,
    )
    residuals = residuals_of(problem, values_at(problem, unknowns, found.x))
    columns = derivatives.at(found.x)
    spreads = spreads_of(columns, residuals / scale, problem.weights, scale, np.full(len(unknowns), spread))
    told = (np.abs(columns) * spread > NOTICEABLE).sum(axis=0)
    return Solution(
        free=dict(zip(unknowns, (float(u) for u in found.x), strict=True)),
        spreads=dict(zip(unknowns, (float(each) for each in spreads), strict=True)),
        steps=dict(zip(unknowns, (int(each) for each in told), strict=True)),
        residuals=residuals,
        columns=columns,
    )


def values_at(problem: Problem, unknowns: Sequence[Unknown], free: FloatArray) -> dict[Unknown, float]:
    """All values with ``unknowns`` at ``free`` on the logit scale, the others at their priors."""
    return dict(problem.priors) | {
        unknown: unknown.to_value(float(u)) for unknown, u in zip(unknowns, free, strict=True)
    }


def influence(problem: Problem, residuals: FloatArray) -> FloatArray:
    """c_i of ``w_i rho'(r_i) / 2 = c_i r_i``: the weight of each run, less for a robust loss far out, over s^2."""
    squares = (residuals / problem.options.row_error) ** 2
    weights: FloatArray = problem.weights / np.sqrt(1.0 + squares) / problem.options.row_error**2
    return weights


def curvature(problem: Problem, residuals: FloatArray) -> FloatArray:
    """Half the second derivative of each run's loss by its residual."""
    squares = (residuals / problem.options.row_error) ** 2
    bends: FloatArray = problem.weights / (1.0 + squares) ** 1.5 / problem.options.row_error**2
    return bends


def _loss(squares: FloatArray, weights: FloatArray) -> FloatArray:
    """rho, its first and second derivative: weighted soft L1 for the runs, plain squares for the priors."""
    runs = len(weights)
    root = np.sqrt(1.0 + squares[:runs])
    rho = np.stack([squares, np.ones_like(squares), np.zeros_like(squares)])
    rho[:, :runs] = weights * np.stack([2.0 * (root - 1.0), 1.0 / root, -0.5 / root**3])
    return rho
