"""Knowledge of parameters before own runs are fitted: where each lies and how far from there it may be.

A framework generation that nobody measured is one more of those that were: its parameters lie where a plan without
own runs would take them, and stray from there as those of measured generations do.  A parameter that was fitted
already is known as well as its interval says, and differs a little from site to site.

Everything here is on a scale without bounds, on which priors are normal distributions: the logit of the parameter's
range.  An overhead that is zero, since most frameworks do not have it, has no logit: its scale is
``asinh(value / unit)``, which is linear near zero and logarithmic far from it, and nothing lies below 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from solver.costs.calibration import PARAMETERS, Calibration, Owner, longest_prefix
from solver.fitting.report import QUANTILE_90
from solver.fitting.unknowns import COMMON_FACTOR, EDGE, KindName, Unknown, prior_value

SITES: Final = 0.3
"""Standard deviation on the logit scale between sites of what was fitted elsewhere."""
COMMON_SPREAD: Final = 0.5
"""The same of the factor common to all runs of a framework: 1.4 times as slow, or 0.7."""
USUAL_SPREAD: Final = 1.0
USUAL_COUNT: Final = 3.0
"""The prior spread of a parameter counts as so many measured owners that stray by ``USUAL_SPREAD``."""
SWITCHED_SPREAD: Final = 2.5
"""Spread of an overhead that is zero for most frameworks: six units are one standard deviation."""
SWITCHED_UNIT: Final = 0.02
"""The unit of such an overhead, as a share of its range: 0.1 ms of host time for a layer."""


@dataclass(frozen=True, slots=True)
class Belief:
    """A normal prior of ``unknown`` with ``middle`` and standard deviation ``spread``; ``value`` is at the middle.

    ``switched``: the scale is that of an overhead that may be zero.
    """

    unknown: Unknown
    value: float
    middle: float
    spread: float
    switched: bool = False

    @property
    def is_common(self) -> bool:
        """Whether all runs of a framework share it."""
        return self.unknown.parameter == COMMON_FACTOR

    @property
    def least(self) -> float:
        """Below this nothing lies."""
        return 0.0 if self.switched else -math.inf

    def to_value(self, free: float) -> float:
        """The value of ``free``, inside the physical range; the very ``value`` at the middle."""
        if free == self.middle:
            return self.value
        if not self.switched:
            return self.unknown.to_value(free)
        limits = PARAMETERS[self.unknown.parameter]
        return min(limits.low + _unit(self.unknown) * math.sinh(min(max(free, 0.0), 30.0)), limits.high)

    def to_fitted(self, free: float, spread: float, steps: int) -> FittedValue:
        """The value at ``free`` with its 90 % interval, where ``spread`` is the standard deviation there."""
        reach = QUANTILE_90 * spread
        low, value, high = (self.to_value(free + step) for step in (-reach, 0.0, reach))
        return FittedValue(value, min(low, value), max(high, value), steps)


def _unit(unknown: Unknown) -> float:
    limits = PARAMETERS[unknown.parameter]
    return SWITCHED_UNIT * (limits.high - limits.low)


def beliefs_of(
    unknowns: Sequence[Unknown],
    runs: Sequence[TrainingRun],
    known: FittedParameters,
    *,
    prior_of: Callable[[TrainingRun], Calibration],
    kind_name: KindName,
) -> dict[Unknown, Belief]:
    """The belief of each unknown of ``runs``; ``known`` holds what was fitted on others' runs.

    ``prior_of`` gives the values that are taken without own runs.
    """
    aliases = {run.workload.framework.name: run.workload.framework.fitted_under for run in runs}
    return {
        each: _belief(each, prior_value(each, runs, prior_of, kind_name), known, aliases.get(each.name, ()))
        for each in unknowns
    }


def _belief(unknown: Unknown, value: float, known: FittedParameters, aliases: Sequence[str]) -> Belief:
    limits = PARAMETERS[unknown.parameter]
    share = (value - limits.low) / (limits.high - limits.low)
    if unknown.parameter == COMMON_FACTOR:
        return Belief(unknown, value, unknown.to_free(value), COMMON_SPREAD)
    if share < EDGE:
        return Belief(unknown, value, math.asinh((value - limits.low) / _unit(unknown)), SWITCHED_SPREAD, True)
    middle = unknown.to_free(value)
    tables = known.gpus if unknown.owner is Owner.GPU else known.frameworks
    if (own := _fitted(unknown, tables, aliases)) is not None:
        reach = (unknown.to_free(own.high) - unknown.to_free(own.low)) / 2.0 / QUANTILE_90
        return Belief(unknown, value, middle, math.hypot(reach, SITES))
    others = [
        unknown.to_free(entry[unknown.parameter].value) for entry in tables.values() if unknown.parameter in entry
    ]
    squares = sum((other - middle) ** 2 for other in others)
    spread = math.sqrt((USUAL_COUNT * USUAL_SPREAD**2 + squares) / (USUAL_COUNT + len(others)))
    return Belief(unknown, value, middle, spread)


def _fitted(
    unknown: Unknown, tables: Mapping[str, Mapping[str, FittedValue]], aliases: Sequence[str]
) -> FittedValue | None:
    """Fitted values of ``unknown`` for its owner, the nearest entry first."""
    if unknown.owner is Owner.GPU:
        kind = longest_prefix(tables, unknown.name)
        return None if kind is None else tables[kind].get(unknown.parameter)
    found = [tables[name][unknown.parameter] for name in aliases if unknown.parameter in tables.get(name, {})]
    return found[-1] if found else None
