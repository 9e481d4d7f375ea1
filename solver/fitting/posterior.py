"""The most probable parameters of own runs, given what is known of others.

    minimise  sum_i (n+1) log(1 + (r_i / s)^2 / n) + 2 R log s  +  sum_j ((u_j - m_j) / t_j)^2

r_i is log(predicted / measured) of run i of R, u_j parameter j on the scale of its belief with middle m_j and
spread t_j.  The errors follow Student's t with n = ``FREEDOM`` degrees of freedom, so that a run which nothing
explains hardly counts, and their scale s is found with the parameters, by expectation and maximisation (Lange,
Little and Taylor 1989, Robust statistical modeling using the t distribution).  Gauss-Newton: the runs are priced
with their derivatives, the problem is solved for the linear form, and so on from there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from solver.candidates import BoolArray, FloatArray
from solver.fitting.robust import STEP

FREEDOM: Final = 3.0
LEAST_SCALE: Final = 0.03
"""Predictions are granted this error however well runs are met."""
MOST_SCALE: Final = 0.15
"""However badly runs are met, those that are off by far more count as outliers."""
FARTHEST_STEP: Final = 1.5
"""No parameter moves farther at once than this, since the linear form holds nearby."""
MOST_ROUNDS: Final = 8
MOST_REWEIGHTINGS: Final = 60
CLOSE: Final = 0.01
"""The search ends when no parameter moves farther, or the linear form promises less than ``GAIN``."""
GAIN: Final = 0.2
SHORTER: Final = 3.0
"""A step that makes things worse is shortened by this factor."""
SETTLED: Final = 1e-4

Rows = NDArray[np.intp]


class Believed(Protocol):
    """A normal prior of one unknown."""

    @property
    def middle(self) -> float:
        """Its mean."""
        ...

    @property
    def spread(self) -> float:
        """Its standard deviation."""
        ...

    @property
    def least(self) -> float:
        """Below this nothing lies."""
        ...

    @property
    def is_common(self) -> bool:
        """Whether all runs share it, and no mechanism stands behind it."""
        ...

    @property
    def switched(self) -> bool:
        """Whether it is an overhead that may be zero."""
        ...


class Priced(Protocol):
    """Measured figures and what the formulas make of them."""

    def residuals(self, free: FloatArray, rows: Rows | None = None) -> FloatArray:
        """(r,) log(predicted / measured) of ``rows`` (default: all) at ``free`` (j,)."""
        ...

    def linearised(self, free: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The residuals (r,) at ``free`` and their derivatives (r, j)."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """Middles, spreads and lower bounds (j,) of beliefs."""

    middle: FloatArray
    spread: FloatArray
    least: FloatArray

    @classmethod
    def of(cls, beliefs: Sequence[Believed]) -> Prior:
        """Prior of ``beliefs``, in their order."""
        return cls(
            np.array([each.middle for each in beliefs]),
            np.array([each.spread for each in beliefs]),
            np.array([each.least for each in beliefs]),
        )

    def only(self, chosen: BoolArray | Rows) -> Prior:
        """The prior of some of the parameters."""
        return Prior(self.middle[chosen], self.spread[chosen], self.least[chosen])


@dataclass(frozen=True, slots=True, eq=False)
class Posterior:
    """The most probable point ``free`` (j,), standard deviations there, and the ``scale`` of errors.

    ``residuals`` (r,) and ``columns`` (r, j), their derivatives, are taken at ``free``.
    """

    free: FloatArray
    spreads: FloatArray
    scale: float
    residuals: FloatArray
    columns: FloatArray

    def improbability(self, prior: Prior) -> float:
        """Objective at this point."""
        return _improbability(self.residuals, self.free, prior, self.scale)

    def without(self, removed: Rows, prior: Prior) -> FloatArray:
        """The point (j,) without the runs ``removed``, by the linear form at this one."""
        kept = np.delete(np.arange(len(self.residuals)), removed)
        linear = _Linear(self.free, self.residuals[kept], self.columns[kept])
        return _most_probable(linear, prior, self.scale)[0]


@dataclass(frozen=True, slots=True, eq=False)
class _Linear:
    """Residuals ``here`` at ``point`` with their derivatives."""

    point: FloatArray
    here: FloatArray
    columns: FloatArray

    def at(self, free: FloatArray) -> FloatArray:
        """The residuals of the linear form at ``free``."""
        return np.asarray(self.here + self.columns @ (free - self.point))


def most_probable(priced: Priced, prior: Prior, starts: Sequence[FloatArray]) -> Posterior:
    """The most probable parameters of what was measured that the search finds from one of ``starts``."""
    found = [_from(priced, prior, start) for start in starts]
    return min(found, key=lambda each: each.improbability(prior))


def _from(priced: Priced, prior: Prior, free: FloatArray) -> Posterior:
    here, columns = priced.linearised(free)
    scale = _first_scale(here)
    for _ in range(MOST_ROUNDS):
        linear = _Linear(free, here, columns)
        last = _improbability(here, free, prior, scale)
        aim, scale = _most_probable(linear, prior, scale)
        promised = last - _improbability(linear.at(aim), aim, prior, scale)
        moved = None if promised < GAIN else _moved(priced, prior, scale, linear, aim)
        if moved is None:
            break
        free = moved
        here, columns = priced.linearised(free)
    return Posterior(free, _spreads(here, columns, prior, scale), scale, here, columns)


def _moved(priced: Priced, prior: Prior, scale: float, linear: _Linear, aim: FloatArray) -> FloatArray | None:
    """A point towards ``aim`` that is better by the formulas themselves; ``None`` where none is found."""
    before = _loss(linear.here, linear.point, prior, scale)
    move = aim - linear.point
    move *= min(1.0, FARTHEST_STEP / max(np.abs(move).max(initial=0.0), CLOSE))
    while np.abs(move).max(initial=0.0) >= CLOSE:
        free = linear.point + move
        if _loss(priced.residuals(free), free, prior, scale) <= before:
            return np.asarray(free)
        move /= SHORTER
    return None


def _first_scale(residuals: FloatArray) -> float:
    """A robust standard deviation: 1.48 times the median absolute residual."""
    return min(max(1.4826 * float(np.median(np.abs(residuals))), LEAST_SCALE), MOST_SCALE)


def scale_of(residuals: FloatArray) -> float:
    """The most probable scale of errors that follow Student's t around zero, as far as scales go."""
    scale = _first_scale(residuals)
    for _ in range(MOST_REWEIGHTINGS):
        last, scale = scale, _next_scale(residuals, weights_of(residuals, scale))
        if abs(scale / last - 1.0) < SETTLED:
            break
    return scale


def _next_scale(residuals: FloatArray, weights: FloatArray) -> float:
    spread = math.sqrt(float((weights * residuals**2).sum()) / max(len(residuals), 1))
    return min(max(LEAST_SCALE, spread), MOST_SCALE)


def weights_of(residuals: FloatArray, scale: float) -> FloatArray:
    """How much each residual counts, 4/3 for one of 0, less far out."""
    return np.asarray((FREEDOM + 1.0) / (FREEDOM + (residuals / scale) ** 2))


def _loss(residuals: FloatArray, free: FloatArray, prior: Prior, scale: float) -> float:
    errors = (FREEDOM + 1.0) * np.log1p((residuals / scale) ** 2 / FREEDOM).sum()
    return float(errors + (((free - prior.middle) / prior.spread) ** 2).sum())


def _improbability(residuals: FloatArray, free: FloatArray, prior: Prior, scale: float) -> float:
    return _loss(residuals, free, prior, scale) + 2.0 * len(residuals) * math.log(scale)


def _most_probable(linear: _Linear, prior: Prior, scale: float) -> tuple[FloatArray, float]:
    """The optimum of the linear form and its scale of errors, by reweighting."""
    free = linear.point
    for _ in range(MOST_REWEIGHTINGS):
        residuals = linear.at(free)
        weights = weights_of(residuals, scale)
        aim = _bounded(linear, prior, weights / scale**2)
        moved, free = np.abs(aim - free).max(initial=0.0), aim
        residuals = linear.at(free)
        last, scale = scale, _next_scale(residuals, weights)
        if moved < SETTLED and abs(scale / last - 1.0) < SETTLED:
            break
    return free, scale


def _bounded(linear: _Linear, prior: Prior, weights: FloatArray) -> FloatArray:
    """The weighted least squares above the lower bounds: what would lie below one is held there, one by one."""
    normal = (linear.columns.T * weights) @ linear.columns + np.diag(prior.spread**-2.0)
    offset = linear.here - linear.columns @ linear.point
    pull = prior.middle / prior.spread**2 - linear.columns.T @ (weights * offset)
    free = np.ones(len(pull), dtype=bool)
    while True:
        found = np.where(free, prior.middle, prior.least)
        held = np.where(free, 0.0, found)
        found[free] = np.linalg.solve(normal[np.ix_(free, free)], (pull - normal @ held)[free])
        below = prior.least - found
        if not (below > 0.0).any():
            return found
        free[int(np.argmax(below))] = False


def _spreads(residuals: FloatArray, columns: FloatArray, prior: Prior, scale: float) -> FloatArray:
    """Standard deviations (j,) from the inverse Hessian."""
    weights = weights_of(residuals, scale) / scale**2
    normal = (columns.T * weights) @ columns + np.diag(prior.spread**-2.0)
    return np.asarray(np.sqrt(np.diag(np.linalg.inv(normal))))


def steps_of(count: int) -> FloatArray:
    """(j + 1, j) the point itself and a step along each of ``count`` axes, for differences."""
    return np.asarray(np.vstack([np.zeros(count), STEP * np.eye(count)]))
