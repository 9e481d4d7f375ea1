"""Fits the parameters of memory to measured peaks, as ``solver.fitting.fit`` does to step times.

What is minimised stands in ``solver.fitting.robust``: residuals are log(predicted / measured) of each run, unknowns
are on the logit scale of their physical range, with the shipped values as priors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from cluster_models.fitted import FittedValue
from cluster_models.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.fitting.report import FitOptions, FitReport, FittedUnknown
from solver.fitting.robust import Data, Optimum, minimise, told_by
from solver.fitting.unknowns import Unknown, prior_value, unknowns_of, with_values
from solver.run_memory import predict_counted_memory

MEMORY_PARAMETERS: Final = ("runtime_bytes", "group_bytes", "fragmentation_share")


def fit_memory(runs: Sequence[TrainingRun], options: FitOptions | None = None) -> FitReport:
    """The parameters of memory that explain the measured peaks best; no error is held out.

    Runs without a measured peak are left out.  What the peaks do not tell keeps its prior.
    """
    options = options or FitOptions()
    measured = [run for run in runs if run.peak_memory_bytes is not None]
    unknowns = unknowns_of(measured, MEMORY_PARAMETERS, options.kind_name)
    priors = {each: prior_value(each, measured, options.prior_of, options.kind_name) for each in unknowns}
    optimum = told_by(
        lambda some: _solve(measured, {each: priors[each] for each in some}, options),
        unknowns,
        options.prior_spread,
    )
    found = tuple(
        FittedUnknown.of(
            each, priors[each], optimum.free[each], optimum.spreads[each], _runs(each, measured, options)
        )
        if each in optimum.free
        else FittedUnknown.untold(each, priors[each], options.prior_spread)
        for each in unknowns
    )
    values = {each: each.to_value(free) for each, free in optimum.free.items()}
    return FitReport(
        parameters=with_values(None, {each.unknown: each.fitted for each in found if each.told}, options.source),
        unknowns=found,
        runs=tuple(run.name for run in measured),
        errors_before=tuple(map(float, _residuals(measured, {}, options))),
        errors_after=tuple(map(float, _residuals(measured, values, options))),
        errors_held_out=(),
        errors_without=(),
        warnings=(),
    )


def _residuals(runs: Sequence[TrainingRun], values: Mapping[Unknown, float], options: FitOptions) -> FloatArray:
    """log(predicted / measured) of every run."""
    fitted = with_values(options.start, {each: FittedValue(v, v, v, 0) for each, v in values.items()}, "")
    return np.array(
        [math.log(predict_counted_memory(run, fitted) / (run.peak_memory_bytes or 1.0)) for run in runs]
    )


def _solve(runs: Sequence[TrainingRun], priors: Mapping[Unknown, float], options: FitOptions) -> Optimum:
    unknowns = list(priors)

    def residuals(point: FloatArray) -> FloatArray:
        return _residuals(
            runs, {each: each.to_value(float(u)) for each, u in zip(unknowns, point, strict=True)}, options
        )

    data = Data(residuals, error=np.full(len(runs), options.row_error), weight=np.ones(len(runs)))
    prior = np.array([each.to_free(priors[each]) for each in unknowns])
    spread = np.full(len(prior), options.prior_spread)
    return Optimum.of(unknowns, *minimise(data, prior, spread, most_evaluations=options.max_iterations))


def _runs(unknown: Unknown, runs: Sequence[TrainingRun], options: FitOptions) -> int:
    """How many of ``runs`` used the unknown's GPU kind or framework."""
    return sum(unknown.concerns(run, options.kind_name) for run in runs)
