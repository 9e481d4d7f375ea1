"""Robust least squares with priors over a few unknowns, and which of them the data tell.

    minimise  sum_i w_i rho((r_i / s_i)^2) + sum_j ((u_j - p_j) / t_j)^2,    rho(z) = 2 (sqrt(1 + z) - 1)  (soft L1)

r_i are residuals, s_i the error that each is granted, w_i its weight, u_j the unknowns on an unbounded scale with
priors p_j of spread t_j.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy

from solver.candidates import FloatArray
from solver.fitting.unknowns import Unknown

TOLD: Final = 0.9
"""A parameter is told by the data when they narrow its spread below this share of the prior's."""
STEP: Final = 0.02
"""Step of the finite differences on the logit scale."""


@dataclass(frozen=True, slots=True)
class Data:
    """Data to explain: ``residuals`` (r,) of the unknowns (j,), their granted ``error`` and ``weight`` (r,)."""

    residuals: Callable[[FloatArray], FloatArray]
    error: FloatArray
    weight: FloatArray


@dataclass(frozen=True, slots=True)
class Optimum:
    """Best values and their spreads on the logit scale; ``columns`` (r, unknowns): derivatives of the residuals."""

    free: Mapping[Unknown, float]
    spreads: Mapping[Unknown, float]
    columns: FloatArray

    @classmethod
    def of(
        cls, unknowns: Sequence[Unknown], point: FloatArray, spreads: FloatArray, columns: FloatArray
    ) -> Optimum:
        """Optimum that ``minimise`` found, without what stands behind the ``unknowns`` in the point."""
        count = len(unknowns)
        return cls(
            dict(zip(unknowns, map(float, point[:count]), strict=True)),
            dict(zip(unknowns, map(float, spreads[:count]), strict=True)),
            columns[:, :count],
        )


NOTHING: Final = Optimum({}, {}, np.zeros((0, 0)))
"""The optimum over no unknowns."""


def minimise(
    data: Data, prior: FloatArray, prior_spread: FloatArray, *, most_evaluations: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """The best point (j,), its spreads (j,) and the derivatives (r, j) of the residuals there."""

    def stacked(point: FloatArray) -> FloatArray:
        scaled = data.residuals(point) / data.error
        robust = np.sign(scaled) * np.sqrt(2.0 * data.weight * (np.sqrt(1.0 + scaled**2) - 1.0))
        return np.concatenate([robust, (point - prior) / prior_spread])

    point = np.asarray(scipy.optimize.least_squares(stacked, prior, max_nfev=most_evaluations).x, dtype=np.float64)
    here = data.residuals(point)
    steps = STEP * np.eye(len(prior))
    columns = np.stack([(data.residuals(point + step) - here) / STEP for step in steps], axis=1)
    return point, spreads_of(columns, here / data.error, data.weight, data.error, prior_spread), columns


def spreads_of(
    columns: FloatArray, scaled: FloatArray, weight: FloatArray, error: FloatArray | float, prior_spread: FloatArray
) -> FloatArray:
    """Standard deviations (j,) from the inverse Hessian, the data's part by their own variance if above 1.

    ``scaled`` (r,) are residuals over their granted ``error``, ``columns`` (r, j) the derivatives of residuals.
    """
    counts = weight / np.sqrt(1.0 + scaled**2)
    variance = max(1.0, float((counts * scaled**2).sum() / counts.sum()))
    hessian = (columns.T * (counts / error**2)) @ columns / variance + np.diag(prior_spread**-2.0)
    return np.asarray(np.sqrt(np.diag(np.linalg.inv(hessian))))


def told_by(
    solve: Callable[[Sequence[Unknown]], Optimum], unknowns: Sequence[Unknown], prior_spread: float
) -> Optimum:
    """The optimum over those ``unknowns`` that the data narrow: the others are left out, and solved again."""
    while unknowns:
        found = solve(unknowns)
        narrowed = [each for each in unknowns if found.spreads[each] <= TOLD * prior_spread]
        if len(narrowed) == len(unknowns):
            return found
        unknowns = narrowed
    return NOTHING
