"""Options and report of a fit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cluster_models.calibration.fitted import FittedParameters, FittedValue
from cluster_models.calibration.training_run import TrainingRun
from solver.costs.calibration import Calibration, calibration_of, estimated_calibration
from solver.fitting.unknowns import KindName, Unknown, kind_itself

ROW_ERROR: Final = 0.05
"""Relative error that a single prediction is granted; larger ones count less than their square."""
PRIOR_SPREAD: Final = 0.8
"""Standard deviation of the prior on the logit scale: a factor of two for small values, +-0.1 for shares of 0.8."""
MOST_EXPERIMENTS: Final = 50
"""Runs that are chosen at once, to be measured."""
QUANTILE_90: Final = 1.645
"""Standard deviations from the middle to either end of a 90 % interval."""


def shipped_prior(run: TrainingRun) -> Calibration:
    """Parameters that plans take for the run: the prior of a user's own fit."""
    return calibration_of(run.gpu, run.workload.framework)


def estimated_prior(run: TrainingRun) -> Calibration:
    """The estimates before anything was fitted: the prior of the shipped parameters."""
    return estimated_calibration(run.gpu, run.workload.framework)


class Explanation(StrEnum):
    """How own runs differ from what is taken without them, from the simplest."""

    NOTHING = "nothing"
    FACTOR = "factor"
    PARAMETERS = "parameters"


@dataclass(frozen=True, slots=True)
class FitOptions:
    """How to fit.

    ``prior_of``: where the prior of a run's parameters is read.  ``start``: fitted values that hold for what is
    not fitted now.  ``kind_name``: the name that values of a GPU kind are kept under.  ``source``: what the fitted
    parameters will say they come from.
    """

    prior_of: Callable[[TrainingRun], Calibration] = shipped_prior
    start: FittedParameters | None = None
    kind_name: KindName = kind_itself
    prior_spread: float = PRIOR_SPREAD
    row_error: float = ROW_ERROR
    max_iterations: int = 25
    source: str = "own runs"


@dataclass(frozen=True, slots=True)
class FittedUnknown:
    """One parameter after the fit: its value and 90 % interval, and the value that it had before.

    ``told`` is whether the runs narrow the interval noticeably below that of the prior; what they do not tell
    keeps its prior value.  ``fitted.steps`` counts the runs whose prediction depends on it.
    """

    unknown: Unknown
    fitted: FittedValue
    prior: float
    told: bool

    @classmethod
    def of(cls, unknown: Unknown, prior: float, free: float, spread: float, steps: int) -> FittedUnknown:
        """Unknown told by ``steps`` runs: ``free`` and ``spread`` on the logit scale."""
        reach = QUANTILE_90 * spread
        low, value, high = (unknown.to_value(free + step) for step in (-reach, 0.0, reach))
        return cls(unknown, FittedValue(value, low, high, steps), prior, told=True)

    @classmethod
    def untold(cls, unknown: Unknown, prior: float, prior_spread: float) -> FittedUnknown:
        """Unknown that keeps its ``prior``, whose spread on the logit scale is all that is known."""
        middle, reach = unknown.to_free(prior), QUANTILE_90 * prior_spread
        low, high = unknown.to_value(middle - reach), unknown.to_value(middle + reach)
        return cls(unknown, FittedValue(prior, low, high, 0), prior, told=False)


@dataclass(frozen=True, slots=True)
class Pattern:
    """Runs on one side of a cut take ``ratio`` times as long as the fit says, the others ``other_ratio`` times.

    ``runs`` of them lie on that side: those with ``threshold`` or more of the ``setting``, or those of that
    ``choice``.  ``mechanism``: what to look at.  ``alike``: other settings that part these runs in the same two, so
    that they cannot be told apart.
    """

    setting: str
    threshold: float
    runs: int
    ratio: float
    other_ratio: float
    mechanism: str
    choice: bool
    alike: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FitReport:
    """A fit.  The errors are log(predicted / measured), aligned with ``runs``.

    ``errors_held_out`` are those that each run would have had if its group had not been fitted, and
    ``errors_without`` those with other runs left out, as asked for; NaN where no omission holds a run.
    ``parameters`` holds the fitted ones (over those that the fit started from), ``unknowns`` every one looked at.
    ``runs`` names the runs that were used: those with a measured step.  A fit to own runs says by which
    ``explanation`` it met them, which ``outliers`` (places in ``runs``) it did not meet, and by what ``patterns``
    its errors differ.
    """

    parameters: FittedParameters
    unknowns: tuple[FittedUnknown, ...]
    runs: tuple[str, ...]
    errors_before: tuple[float, ...]
    errors_after: tuple[float, ...]
    errors_held_out: tuple[float, ...]
    errors_without: tuple[tuple[float, ...], ...]
    warnings: tuple[str, ...]
    explanation: Explanation | None = None
    outliers: tuple[int, ...] = ()
    patterns: tuple[Pattern, ...] = ()
