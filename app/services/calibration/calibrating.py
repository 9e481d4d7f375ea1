"""Fits a calibration to own measurements: a hardware profile, measured runs, or both."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

import numpy as np

from app.documents.calibration import (
    MOST_RUNS_KEPT,
    CalibrationDocument,
    ErrorsDocument,
    FitDocument,
    OutlierDocument,
    ParameterDocument,
    PatternDocument,
    RunErrorDocument,
    ToldBy,
)
from app.documents.framework import descriptions_of
from app.documents.hardware_profile import HardwareProfileDocument
from app.documents.serving_points import ServingPoints
from app.documents.training_runs import MeasuredRuns
from app.presentation.figures import plural
from app.services.calibration.serving_points import fitted_serving
from app.services.field_paths import errors_under
from cluster_models.calibration.hardware_profile import HardwareProfile
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import GpuKind
from cluster_models.errors import InvalidInput
from cluster_models.units import TFLOP
from cluster_models.wording import named
from solver.costs.calibration import PARAMETERS, Owner
from solver.fitting.own_runs import fit_own_memory, fit_own_steps
from solver.fitting.profile import fit_profile
from solver.fitting.report import FitReport, Pattern
from solver.fitting.unknowns import MEMORY_PARAMETERS
from solver.run_memory import predict_peak_memory
from solver.runs import predict_run

ABOVE_PEAK: Final = 1.2
"""More than so many times the peak on its data sheet no GPU computes, whatever its clock."""
OTHER_UNIT: Final = {"iter_time_s": ("seconds", 100.0), "mem_gib_per_gpu": ("GiB (2^30 bytes) of one GPU", 20.0)}
"""Unit of a column, and the factor by which no prediction of most runs is off: stalled networks made a step 30
times as long, and left a tenth of a peak."""
FAR_OFF: Final = 2.0
"""Factor from which a measurement is doubted that the fit does not explain."""
TOO_LARGE: Final = 1.5
"""Share of a GPU's memory from which the prediction's own error cannot explain that a run went through."""
NAMED: Final = 4


@dataclass(frozen=True, slots=True)
class Measured:
    """A profile with the GPU kind it is of (``None``: as the driver names it), runs, and points of serving."""

    profile: HardwareProfileDocument | None = None
    gpu: str | None = None
    runs: MeasuredRuns | None = None
    serving: ServingPoints | None = None


def calibrate(measured: Measured, *, name: str, now: datetime) -> CalibrationDocument:
    """The calibration that explains what was measured best.

    The profile tells what is the GPU's; the runs tell the rest, with that in place.  Raises ``InvalidInput`` where
    nothing was measured, the profile is of no known GPU, or nothing can be told.
    """
    if measured.profile is None and measured.runs is None and measured.serving is None:
        raise InvalidInput("runs", None, "neither runs nor a profile nor points of serving are given", "give one")
    fits = _fits(measured)
    _check_unit("iter_time_s", fits.steps)
    _check_unit("mem_gib_per_gpu", fits.memory)
    tables = _tables(fits.all)
    runs = () if measured.runs is None else measured.runs.runs
    serving = {} if measured.serving is None else fitted_serving(measured.serving)
    if not any(tables.values()) and not serving:
        what = "profile" if measured.runs is None else "runs"
        raise InvalidInput(what, len(runs) or None, "tells no parameter", "measure more, or something different")
    return CalibrationDocument(
        name=name,
        created_at=now.replace(microsecond=0),
        source=_source(measured),
        gpus=tables[Owner.GPU],
        frameworks=tables[Owner.FRAMEWORK],
        descriptions=[] if measured.runs is None else descriptions_of(measured.runs.described),
        serving=serving,
        errors=_errors(fits.steps),
        fit=_summary(runs, fits) if fits.all else None,
        collectives=[] if measured.profile is None else measured.profile.collectives,
    )


def profiled_kind(profile: HardwareProfileDocument, name: str | None) -> GpuKind:
    """The GPU kind that a profile is of; raises ``InvalidInput`` where it cannot be one of ours."""
    if profile.device.type == "cpu":
        raise InvalidInput(
            "profile.device.type", "cpu", "was taken on a CPU, to try the script", "run it on the node with the GPU"
        )
    if name is not None:
        return gpu_kind(name, field="gpu")
    try:
        return gpu_kind(profile.device.name, field="profile.device.name")
    except InvalidInput as error:
        raise InvalidInput(
            error.field, error.value, error.problem, f"{error.remedy}; say which with gpu"
        ) from error


@dataclass(frozen=True, slots=True)
class _Fits:
    """Fits to the kernels of a profile, to step times and to peak memory; ``None`` where none were measured."""

    kernels: FitReport | None
    steps: FitReport | None
    memory: FitReport | None

    @property
    def all(self) -> list[tuple[ToldBy, FitReport]]:
        """Reports that there are, with what they were fitted to."""
        kinds = ((ToldBy.PROFILE, self.kernels), (ToldBy.RUNS, self.steps), (ToldBy.RUNS, self.memory))
        return [(told_by, report) for told_by, report in kinds if report is not None]


def _fits(measured: Measured) -> _Fits:
    kernels = None
    if measured.profile is not None:
        kind = profiled_kind(measured.profile, measured.gpu)
        with errors_under("profile"):
            profile = measured.profile.to_profile()
            _check_rates(profile, kind)
            kernels = fit_profile(profile, kind)
    if measured.runs is None:
        return _Fits(kernels, None, None)
    return _Fits(kernels, _fit_steps(measured.runs, kernels), _fit_memory(measured.runs))


def _check_rates(profile: HardwareProfile, kind: GpuKind) -> None:
    """Raise ``InvalidInput`` for the first matrix product faster than the data sheet of ``kind`` allows."""
    for index, row in enumerate(profile.matmuls):
        peak = kind.peak_flops.get(row.precision, math.inf)
        rate = 2.0 * row.batch * row.m * row.n * row.k / row.time.median_s
        if rate > ABOVE_PEAK * peak:
            what = (
                f"would be {rate / TFLOP:,.0f} TFLOP/s, but {kind.name} has {peak / TFLOP:,.0f} in {row.precision}"
            )
            raise InvalidInput(
                f"matmuls[{index}].median_s", row.time.median_s, what, "give seconds, and check the GPU kind"
            )


def _check_unit(column: str, report: FitReport | None) -> None:
    """Raise ``InvalidInput`` where most runs are off by what only another unit explains."""
    unit, factor = OTHER_UNIT[column]
    if report is None or not report.runs:
        return
    off = math.exp(-float(np.median(report.errors_before)))
    if not 1.0 / factor < off < factor:
        what = f"is {off:{',.0f' if off > 1 else '.2g'}} times what is predicted, in the median run"
        remedy = f"give {unit}; check the configuration"
        raise InvalidInput(f"runs, column {column}", f"{len(report.runs)} runs", what, remedy)


def _fit_steps(measured: MeasuredRuns, kernels: FitReport | None) -> FitReport:
    """Fit to the runs the parameters that the profile does not tell of their GPU."""
    start = None if kernels is None else kernels.parameters
    profiled = {} if start is None else start.gpus
    known = {name for run in measured.runs for name in profiled.get(run.gpu.name, ())}
    wanted = [name for name in PARAMETERS if name not in known and name not in MEMORY_PARAMETERS]
    return fit_own_steps(measured.runs, wanted, groups=measured.groups, start=start)


def _fit_memory(measured: MeasuredRuns) -> FitReport | None:
    """``None`` where no peak was measured."""
    report = fit_own_memory(measured.runs)
    return report if report.runs else None


def _tables(reports: Sequence[tuple[ToldBy, FitReport]]) -> dict[Owner, dict[str, dict[str, ParameterDocument]]]:
    tables: dict[Owner, dict[str, dict[str, ParameterDocument]]] = {owner: {} for owner in Owner}
    for told_by, report in reports:
        for each in report.unknowns:
            if each.told:
                fitted = each.fitted
                tables[each.unknown.owner].setdefault(each.unknown.name, {})[each.unknown.parameter] = (
                    ParameterDocument(
                        value=fitted.value,
                        low=min(fitted.low, fitted.value),
                        high=max(fitted.high, fitted.value),
                        steps=fitted.steps,
                        before=each.prior,
                        told_by=told_by,
                    )
                )
    return {
        owner: {name: dict(sorted(entry.items())) for name, entry in sorted(table.items())}
        for owner, table in tables.items()
    }


def _errors(report: FitReport | None) -> ErrorsDocument | None:
    spread = None if report is None else report.parameters.errors
    if spread is None:
        return None
    return ErrorsDocument(p10=spread.p10, p50=spread.p50, p90=spread.p90, runs=spread.runs)


def _summary(runs: Sequence[TrainingRun], fits: _Fits) -> FitDocument:
    kernels, steps, memory = fits.kernels, fits.steps, fits.memory
    every = [report for _, report in fits.all]
    told = {each.unknown for report in every for each in report.unknowns if each.told}
    looked_at = {each.unknown for report in every for each in report.unknowns}
    before = [np.log(predict_run(run).step_s / run.step_s) for run in runs if run.step_s]
    return FitDocument(
        runs=len(runs),
        kernels=0 if kernels is None else len(kernels.runs),
        error_before_fraction=_mean(before),
        error_after_fraction=None if steps is None else _mean(steps.errors_after),
        error_held_out_fraction=None if steps is None else _mean(steps.errors_held_out),
        memory_error_before_fraction=None if memory is None else _mean(memory.errors_before),
        memory_error_after_fraction=None if memory is None else _mean(memory.errors_after),
        kernel_error_before_fraction=None if kernels is None else _mean(kernels.errors_before),
        kernel_error_after_fraction=None if kernels is None else _mean(kernels.errors_after),
        memory_error_held_out_fraction=None if memory is None else _mean(memory.errors_held_out),
        explanation=None if steps is None else steps.explanation,
        outliers=[] if steps is None else _outliers(steps),
        patterns=[] if steps is None else [_pattern(each) for each in steps.patterns],
        steps=[] if steps is None else _each_run(steps, before),
        not_told=[str(each) for each in sorted(looked_at - told)],
        warnings=[
            *(warning for report in every for warning in report.warnings),
            *(() if kernels is None else _far_off(kernels, "kernel", "whether the GPU was idle, and the GPU kind")),
            *(() if memory is None else _far_off(memory, "peak", "the unit, memory_counter and the configuration")),
            *_too_large(runs),
            *_named_alike(runs),
        ],
    )


def _outliers(steps: FitReport) -> list[OutlierDocument]:
    """The worst first."""
    places = sorted(steps.outliers, key=lambda place: -abs(steps.errors_after[place]))
    return [
        OutlierDocument(run=steps.runs[place], measured_over_predicted=math.exp(-steps.errors_after[place]))
        for place in places
    ]


def _each_run(steps: FitReport, before: Sequence[float]) -> list[RunErrorDocument]:
    rows = zip(steps.runs, before, steps.errors_after, steps.errors_held_out, strict=True)
    return [
        RunErrorDocument(
            run=name,
            before=math.exp(-earlier),
            after=math.exp(-after),
            held_out=None if math.isnan(held_out) else math.exp(-held_out),
        )
        for name, earlier, after, held_out in islice(rows, MOST_RUNS_KEPT)
    ]


def _pattern(each: Pattern) -> PatternDocument:
    return PatternDocument(
        setting=each.setting,
        threshold=None if each.choice else each.threshold,
        runs=each.runs,
        measured_over_predicted=each.ratio,
        others_measured_over_predicted=each.other_ratio,
        mechanism=each.mechanism,
        alike=list(each.alike),
    )


def _far_off(report: FitReport, noun: str, check: str) -> list[str]:
    """Runs that even the fit predicts badly: probably they were not measured as stated."""
    found = [
        f"{name} ({math.exp(-error):.2g} times as predicted)"
        for name, error in zip(report.runs, report.errors_after, strict=True)
        if abs(error) > math.log(FAR_OFF)
    ]
    if not found:
        return []
    return [f"The fit does not explain {plural(len(found), noun)}: {named(found, NAMED)}; check {check}."]


def _too_large(runs: Sequence[TrainingRun]) -> list[str]:
    """Runs that are predicted to need far more memory than there is, so that they can hardly have run."""
    found = [run.name for run in runs if predict_peak_memory(run) > TOO_LARGE * run.gpu.memory_bytes]
    if not found:
        return []
    sentence = (
        f"By the memory model these cannot have fitted their GPU: {named(found, NAMED)}; check degrees, "
        "zero and recompute."
    )
    return [sentence]


def _named_alike(runs: Sequence[TrainingRun]) -> list[str]:
    """Runs of one id, probably lines pasted twice."""
    found = [f"{name} ({count} lines)" for name, count in Counter(run.name for run in runs).items() if count > 1]
    return [f"An id stands in several lines: {named(found, NAMED)}; a copied line counts twice."] if found else []


def _mean(errors: Sequence[float]) -> float | None:
    """Mean absolute relative error of log(predicted / measured); ``None`` of none, or where one is not known."""
    return float(np.abs(np.expm1(errors)).mean()) if len(errors) and not np.isnan(errors).any() else None


def _source(measured: Measured) -> str:
    parts = []
    if measured.runs is not None:
        groups = len(set(measured.runs.groups))
        parts.append(f"{plural(len(measured.runs.runs), 'measured run')} in {plural(groups, 'group')}")
    if (profile := measured.profile) is not None:
        parts.append(f"a profile of {profile.device.name} on {profile.host}, {profile.taken_at:%Y-%m-%d}")
    if measured.serving is not None:
        parts.append(plural(len(measured.serving.cases), "measured point") + " of serving")
    return " and ".join(parts)
