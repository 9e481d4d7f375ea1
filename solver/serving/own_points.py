"""Rates of a serving engine on a kind of GPU, fitted to own measured points.

Shipped rates are the prior: each quantity of the pair may differ by a shift, on its log or logit scale, whose prior
is normal about 0.  As with own training runs (``solver.fitting.explanations``) three explanations are tried: that
nothing differs, that decode steps and prefills are slower by a factor each, that any quantity differs; a richer one
is taken where it surely predicts points better that it did not see, and no figure worse.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from cluster_models.calibration.fitted import FittedValue
from cluster_models.serving.own_rates import FIGURES, FittedServing
from solver.candidates import IntArray
from solver.fitting.explanations import Trial, explain, is_better
from solver.fitting.posterior import Rows
from solver.fitting.report import QUANTILE_90, Explanation
from solver.serving.cases import ServingCase, arrays_of
from solver.serving.fitting import GRANTED, predicted_figures
from solver.serving.loads import FloatArray
from solver.serving.rates import QUANTITIES, Effects, Fitted, rates_of

COMMON: Final = ("decode_factor", "prefill_factor")
"""Quantities without a mechanism of their own, which all points of a pair share."""
COMMON_SPREAD: Final = 0.5
"""Standard deviation of their logarithm between sites and generations."""
SPREAD: Final = 1.5
"""Spreads of the other quantities, over those that levels of the shipped fit are granted."""
STEP: Final = 1e-3
WORSE: Final = 1.1
TRIFLE: Final = 0.005
"""A figure is predicted worse where its mean error grows by more than this factor and this much."""
INTERVAL: Final = 0.8
FEWEST_FOR_SPREAD: Final = 5
"""Points below which errors held out make no interval."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Belief in the shift of one quantity."""

    quantity: str
    middle: float = 0.0
    least: float = -math.inf
    switched: bool = False

    @property
    def is_common(self) -> bool:
        """Whether no mechanism stands behind it."""
        return self.quantity in COMMON

    @property
    def spread(self) -> float:
        """Standard deviation."""
        return COMMON_SPREAD if self.is_common else SPREAD * QUANTITIES[self.quantity].level_spread


@dataclass(frozen=True, slots=True, eq=False)
class PointFit:
    """The fit to the points of one engine on one kind of GPU; ``factors`` are those of ``fitted`` with intervals.

    Errors by figure are log(predicted / measured) of the points, held out by a fit without the point's sweep.
    """

    fitted: FittedServing
    factors: Mapping[str, FittedValue]
    explanation: Explanation
    before: Mapping[str, FloatArray]
    after: Mapping[str, FloatArray]
    held_out: Mapping[str, FloatArray]
    outliers: tuple[int, ...] = field(default=())


def fit_points(
    cases: Sequence[ServingCase],
    figures: FloatArray,
    sweeps: Sequence[str],
    effects: Effects | Fitted | None = None,
) -> dict[str, PointFit]:
    """Fits by pair of engine and GPU kind, named as ``ServingCase.pair`` does.

    ``figures`` (n, 3) in the order of ``FIGURES``, NaN where not measured.  Points of one of ``sweeps`` are left
    out together.  ``effects``: the rates to start from, default those shipped.
    """
    members: dict[str, list[int]] = defaultdict(list)
    for place, case in enumerate(cases):
        members[case.pair].append(place)
    return {
        pair: _fit([cases[row] for row in rows], figures[rows], [sweeps[row] for row in rows], effects)
        for pair, rows in members.items()
    }


class _Points:
    """Residuals of n points with ``shifts`` as unknowns, an entry for each figure that was measured."""

    def __init__(
        self,
        cases: Sequence[ServingCase],
        figures: FloatArray,
        shifts: Sequence[Shift],
        effects: Effects | Fitted | None,
    ) -> None:
        self._properties = [case.properties for case in cases]
        self._arrays = arrays_of(cases)
        self._shifts, self._effects = shifts, effects
        self.known = np.isfinite(figures)
        self._logs = np.log(np.where(self.known, figures, 1.0))

    def residuals(self, free: FloatArray, rows: Rows | None = None) -> FloatArray:
        """(r,) log(predicted / measured), each in units of the error of a time per token."""
        own = {shift.quantity: float(value) for shift, value in zip(self._shifts, free, strict=True)}
        rates = rates_of(self._properties, self._effects, [own] * len(self._properties))
        every = (np.log(predicted_figures(self._arrays, rates)) - self._logs) * SCALE
        chosen = every[self.known]
        return chosen if rows is None else chosen[rows]

    def linearised(self, free: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The residuals (r,) and their derivatives (r, j)."""
        here = self.residuals(free)
        moved = [self.residuals(free + step) for step in STEP * np.eye(len(free))]
        return here, (np.array(moved).reshape(len(free), len(here)) - here).T / STEP


SCALE: Final = GRANTED[0] / np.array(GRANTED)


def _fit(
    cases: Sequence[ServingCase], figures: FloatArray, sweeps: Sequence[str], effects: Effects | Fitted | None
) -> PointFit:
    known = np.isfinite(figures)
    labels = [sweeps[row] for row in np.nonzero(known)[0].tolist()]
    if len(set(labels)) < FEWEST_FOR_SPREAD:
        labels = [str(row) for row in np.nonzero(known)[0]]
    shifts = [Shift(name) for name in QUANTITIES]
    trials = explain(lambda some: _Points(cases, figures, some, effects), shifts, labels)
    before = next(each for each in trials if each.explanation is Explanation.NOTHING)
    column = np.nonzero(known)[1]
    taken = next((each for each in reversed(trials) if _is_better(each, before, column)), before)

    def by_figure(errors: FloatArray) -> dict[str, FloatArray]:
        return {name: errors[column == place] / SCALE[place] for place, name in enumerate(FIGURES)}

    held_out, factors = by_figure(taken.held_out), _factors(taken, len(cases))
    return PointFit(
        fitted=FittedServing({name: each.value for name, each in factors.items()}, _spreads(held_out), len(cases)),
        factors=factors,
        explanation=taken.explanation,
        before=by_figure(before.errors),
        after=by_figure(taken.errors),
        held_out=held_out,
        outliers=tuple(sorted({int(np.nonzero(known)[0][place]) for place in taken.outliers})),
    )


def _is_better(trial: Trial[Shift], before: Trial[Shift], column: IntArray) -> bool:
    """Whether unseen points are surely predicted better, and those of no figure worse in their mean."""

    def mean(errors: FloatArray, figure: int) -> float:
        return float(np.abs(np.expm1(errors[column == figure])).mean())

    figures = set(column.tolist())
    limits = {figure: WORSE * mean(before.held_out, figure) + TRIFLE for figure in figures}
    return all(mean(trial.held_out, figure) <= limits[figure] for figure in figures) and is_better(trial, before)


def _factors(taken: Trial[Shift], points: int) -> dict[str, FittedValue]:
    """Factors of the quantities (of shares: of their odds), with 90 % intervals."""
    posterior = taken.posterior
    return {
        shift.quantity: FittedValue(
            math.exp(free),
            math.exp(free - QUANTILE_90 * spread),
            math.exp(free + QUANTILE_90 * spread),
            points,
        )
        for shift, free, spread in zip(taken.beliefs, posterior.free, posterior.spreads, strict=True)
    }


def _spreads(held_out: Mapping[str, FloatArray]) -> dict[str, float]:
    """|log(predicted / measured)| within which four points in five lie, counting the next one."""
    return {
        name: float(np.quantile(np.abs(errors), min(1.0, math.ceil((len(errors) + 1) * INTERVAL) / len(errors))))
        for name, errors in held_out.items()
        if len(errors) >= FEWEST_FOR_SPREAD
    }
