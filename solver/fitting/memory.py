"""Fits the parameters of memory to measured peaks, as ``solver.fitting.fit`` does to step times.

    minimise  sum_i rho((log(predicted_i / measured_i) / s)^2) + sum_j ((u_j - p_j) / t)^2,    rho soft L1

over runs i and unknowns j on the logit scale of their physical range, with the shipped values p_j as priors.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from scipy.optimize import least_squares

from cluster_models.fitted import FittedValue
from cluster_models.training_run import TrainingRun
from solver.candidates import FloatArray
from solver.fitting.fit import QUANTILE_90, TOLD
from solver.fitting.report import FitOptions, FitReport, FittedUnknown
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
    free: dict[Unknown, float] = {}
    spreads: dict[Unknown, float] = {}
    told = list(unknowns)
    while told:
        free, spreads = _solve(measured, {each: priors[each] for each in told}, options)
        narrowed = [each for each in told if spreads[each] <= TOLD * options.prior_spread]
        if len(narrowed) == len(told):
            break
        told = narrowed
    found = tuple(
        _found(each, priors[each], free.get(each), spreads.get(each), measured, options, told=each in told)
        for each in unknowns
    )
    values = {each: each.to_value(free[each]) for each in told}
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


def _solve(
    runs: Sequence[TrainingRun], priors: Mapping[Unknown, float], options: FitOptions
) -> tuple[dict[Unknown, float], dict[Unknown, float]]:
    """Values and spreads on the logit scale."""
    unknowns = list(priors)
    prior = np.array([each.to_free(priors[each]) for each in unknowns])

    def residuals(point: FloatArray) -> FloatArray:
        values = {each: each.to_value(float(u)) for each, u in zip(unknowns, point, strict=True)}
        return _residuals(runs, values, options) / options.row_error

    def stacked(point: FloatArray) -> FloatArray:
        here = residuals(point)
        robust = np.sign(here) * np.sqrt(2.0 * (np.sqrt(1.0 + here**2) - 1.0))
        return np.concatenate([robust, (point - prior) / options.prior_spread])

    solved = least_squares(stacked, prior, max_nfev=options.max_iterations)
    here = residuals(solved.x)
    columns = np.stack([(residuals(solved.x + 0.02 * row) - here) / 0.02 for row in np.eye(len(prior))], axis=1)
    robust = 1.0 / np.sqrt(1.0 + here**2)
    variance = max(1.0, float((robust * here**2).sum() / robust.sum()))
    hessian = (columns.T * robust) @ columns / variance + np.eye(len(prior)) / options.prior_spread**2
    spreads = np.sqrt(np.diag(np.linalg.inv(hessian)))
    return (
        dict(zip(unknowns, map(float, solved.x), strict=True)),
        dict(zip(unknowns, map(float, spreads), strict=True)),
    )


def _found(
    unknown: Unknown,
    prior: float,
    free: float | None,
    spread: float | None,
    runs: Sequence[TrainingRun],
    options: FitOptions,
    *,
    told: bool,
) -> FittedUnknown:
    middle = free if told and free is not None else unknown.to_free(prior)
    reach = QUANTILE_90 * (spread if told and spread is not None else options.prior_spread)
    value = FittedValue(
        value=unknown.to_value(middle) if told else prior,
        low=unknown.to_value(middle - reach),
        high=unknown.to_value(middle + reach),
        steps=sum(unknown.concerns(run, options.kind_name) for run in runs) if told else 0,
    )
    return FittedUnknown(unknown, value, prior, told)
