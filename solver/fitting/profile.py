"""Fits the parameters of a GPU kind to the kernels of a hardware profile.

The loss stands in ``solver.fitting.robust``: r_i = log(predicted / measured) - b_q of kernel i by the very formulas
that price a step (``solver.costs.compute``), s_i the error of formula and measurement together, u_j the parameters
on the logit scale of their physical range and, with prior 0, b_q.  b_q is how much faster precision q runs in short
bursts than under the power limit: only its long run has none, so the sustained rate follows from the long run and
the shape parameters from all the others.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from cluster_models.calibration.hardware_profile import (
    AttentionTiming,
    CollectiveTiming,
    HardwareProfile,
    KernelTime,
    MatmulTiming,
)
from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.cluster.measurements import Collective
from cluster_models.errors import InvalidInput
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from solver.candidates import FloatArray
from solver.costs.calibration import PARAMETERS, Calibration, Owner, calibration_of
from solver.costs.collectives import domain_collective_s
from solver.costs.compute import AttentionShape, attention_s, matmul_s, processor, streaming_s
from solver.costs.tiles import is_misaligned
from solver.fitting.least_squares import NOTICEABLE
from solver.fitting.report import PRIOR_SPREAD, ROW_ERROR, FitReport, FittedUnknown
from solver.fitting.robust import Data, Optimum, minimise, told_by
from solver.fitting.unknowns import Unknown, with_values

FAMILY_SIZE: Final = 25
"""Kernels of one family (products of one precision, copies, attention) err together: they count as so many."""
SUSTAINED_WEIGHT: Final = 5.0
"""The long run stands alone against many short ones."""
BURST_SPREAD: Final = 0.15
MOST_EVALUATIONS: Final = 60
SURE: Final = 3.0
"""On the logit scale no prior lies further out: one at the very end of its range could never be moved."""
SMALLEST_MESSAGE: Final = 8 * 2**20
FEWEST: Final = 3
"""Usable kernels below which a profile says nothing, and collectives below which it says nothing of links."""


@dataclass(frozen=True, slots=True)
class _Kernels:
    """The kernels of a profile that the cost model has formulas for; arrays have an entry for each of ``names``."""

    gpu: GpuKind
    matmuls: tuple[tuple[Precision, tuple[MatmulTiming, ...]], ...]
    stream_bytes: FloatArray
    attentions: tuple[AttentionTiming, ...]
    collectives: tuple[CollectiveTiming, ...]
    names: tuple[str, ...]
    measured_s: FloatArray
    error: FloatArray
    weight: FloatArray
    burst: FloatArray
    """Shape (kernels, precisions with a long run): 1 where the kernel ran in a burst."""

    def predicted_s(self, calibration: Calibration) -> FloatArray:
        """Seconds of every kernel."""
        half = processor(self.gpu, _half(self.gpu), calibration)
        parts = [_matmul_s(self.gpu, precision, rows, calibration) for precision, rows in self.matmuls]
        parts.append(streaming_s(half, self.stream_bytes))
        for row in self.attentions:
            pairs = row.batch * row.sequence**2 / 2.0
            size, heads = float(row.head_size), np.array([float(row.heads)])
            shape = AttentionShape(heads, size, size, np.array([pairs]), np.array([2.0 * pairs]), row.sequence)
            framework = replace(calibration.framework, attention_kernels=row.kernels)
            own = replace(half, calibration=replace(calibration, framework=framework))
            core = attention_s(own, shape)
            parts.append(core.backward if row.backward else core.forward)
        for kind in dict.fromkeys(row.collective for row in self.collectives):
            some = [row for row in self.collectives if row.collective is kind]
            ranks, sizes = (
                np.array([float(getattr(row, name)) for row in some]) for name in ("ranks", "message_bytes")
            )
            parts.append(domain_collective_s(self.gpu, kind, ranks, sizes) / calibration.domain_share)
        return np.concatenate(parts)


def fit_profile(profile: HardwareProfile, gpu: GpuKind, *, source: str = "hardware profile") -> FitReport:
    """The parameters of ``gpu`` that explain ``profile`` best; what it does not tell keeps its prior.

    The report's runs are kernels, and no error is held out.  Raises ``InvalidInput`` where too few kernels are
    of a precision of ``gpu``.
    """
    kernels = _kernels(profile, gpu)
    if len(kernels.names) < FEWEST:
        raise InvalidInput(
            "profile", len(kernels.names), f"has fewer than {FEWEST} kernels that {gpu.name} is known for",
            "run the profiler again without --quick",
        )  # fmt: skip
    launch_s = float(np.median([each.median_s for each in profile.launches])) if profile.launches else 0.0
    base = _bare(gpu, launch_s)
    unknowns = [Unknown(Owner.GPU, gpu.name, name) for name, each in PARAMETERS.items() if each.owner is Owner.GPU]
    priors = {each: float(getattr(base, each.parameter)) for each in unknowns}
    before = _residuals(kernels, base, {})
    optimum = told_by(
        lambda some: _solve(kernels, base, {each: priors[each] for each in some}),
        _touched(kernels, base, priors),
        PRIOR_SPREAD,
    )
    values = {each: each.to_value(free) for each, free in optimum.free.items()}
    noticed = (np.abs(optimum.columns) * PRIOR_SPREAD > NOTICEABLE).sum(axis=0)
    told = {
        each: FittedUnknown.of(each, priors[each], free, optimum.spreads[each], int(count))
        for (each, free), count in zip(optimum.free.items(), noticed, strict=True)
    }
    found = tuple(told.get(each) or FittedUnknown.untold(each, priors[each], PRIOR_SPREAD) for each in unknowns)
    return FitReport(
        parameters=with_values(None, {each.unknown: each.fitted for each in found if each.told}, source),
        unknowns=found,
        runs=kernels.names,
        errors_before=tuple(map(float, before)),
        errors_after=tuple(map(float, _residuals(kernels, base, values))),
        errors_held_out=(),
        errors_without=(),
        warnings=_warnings(profile, gpu, launch_s),
    )


def _half(gpu: GpuKind) -> Precision:
    return next(
        (each for each in (Precision.BF16, Precision.FP16) if each in gpu.peak_flops), next(iter(gpu.peak_flops))
    )


def _bare(gpu: GpuKind, launch_s: float) -> Calibration:
    """The prior without a framework: its own kernels, its own launches, fused attention."""
    prior = calibration_of(gpu, DEFAULT_FRAMEWORK)
    framework = replace(prior.framework, fused_kernels=True)
    return replace(prior, framework=framework, kernel_share=1.0, kernel_s=launch_s)


def _matmul_s(
    gpu: GpuKind, precision: Precision, rows: tuple[MatmulTiming, ...], calibration: Calibration
) -> FloatArray:
    m, n, k, batch = (np.array([float(getattr(row, name)) for row in rows]) for name in ("m", "n", "k", "batch"))
    stalled = np.where(is_misaligned(n, k), 1.0 / calibration.misaligned_share, 1.0)
    single = matmul_s(processor(gpu, precision, calibration), m, n, k, groups=batch, slowdown=stalled)
    grouped = (single - calibration.kernel_s) / calibration.grouped_share + calibration.kernel_s
    return np.where(batch > 1, grouped, single)


def _kernels(profile: HardwareProfile, gpu: GpuKind) -> _Kernels:
    known = [precision for precision in Precision if precision in gpu.peak_flops]
    matmuls = tuple(
        (precision, rows)
        for precision in known
        if (rows := tuple(row for row in profile.matmuls if row.precision is precision))
    )
    attentions = profile.attentions if _bare(gpu, 0.0).framework.fused_attention else ()
    entries: list[tuple[str, str, KernelTime, float]] = [
        (
            f"{precision} {row.batch} x {row.m} x {row.n} x {row.k}",
            str(precision),
            row.time,
            SUSTAINED_WEIGHT if row.sustained else 1.0,
        )
        for precision, rows in matmuls
        for row in rows
    ]
    entries += [(f"{row.operation} {row.nbytes} bytes", "memory", row.time, 1.0) for row in profile.streams]
    for each in attentions:
        kind = f"{each.kernels} attention {'backward' if each.backward else 'forward'}"
        entries.append((f"{kind} {each.sequence} x {each.head_size}", kind, each.time, 1.0))
    collectives = _ring_collectives(profile)
    entries += [
        (f"{row.collective} of {row.ranks}, {row.message_bytes} bytes", "collectives", row.time, 1.0)
        for row in collectives
    ]
    sizes = Counter(family for _, family, _, _ in entries)
    spread = [math.log(time.high_s / time.low_s) / (2 * 1.2816) for _, _, time, _ in entries]
    hot = [precision for precision, rows in matmuls if any(row.sustained for row in rows)]
    burst = np.zeros((len(entries), len(hot)))
    flat = [row for _, rows in matmuls for row in rows]
    for index, row in enumerate(flat):
        if row.precision in hot and not row.sustained:
            burst[index, hot.index(row.precision)] = 1.0
    return _Kernels(
        gpu=gpu,
        matmuls=matmuls,
        stream_bytes=np.array([float(row.nbytes) for row in profile.streams]),
        attentions=attentions,
        collectives=collectives,
        names=tuple(name for name, _, _, _ in entries),
        measured_s=np.array([time.median_s for _, _, time, _ in entries]),
        error=np.hypot(ROW_ERROR, spread) if entries else np.zeros(0),
        weight=np.array([each * min(1.0, FAMILY_SIZE / sizes[family]) for _, family, _, each in entries]),
        burst=burst,
    )


def _ring_collectives(profile: HardwareProfile) -> tuple[CollectiveTiming, ...]:
    """Timings that tell of ``domain_share``: inside a node, tensor parallel, too large for latency to matter."""
    found = tuple(
        row
        for kind in (Collective.ALL_REDUCE, Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
        for row in profile.collectives
        if row.collective is kind and row.nodes == 1 and row.ranks > 1 and row.message_bytes >= SMALLEST_MESSAGE
    )
    return found if len(found) >= FEWEST else ()


def _residuals(kernels: _Kernels, base: Calibration, values: dict[Unknown, float]) -> FloatArray:
    changed: dict[str, Any] = {each.parameter: value for each, value in values.items()}
    calibration = replace(base, **changed)
    return np.log(kernels.predicted_s(calibration) / kernels.measured_s)


def _touched(kernels: _Kernels, base: Calibration, priors: dict[Unknown, float]) -> list[Unknown]:
    """The parameters that any kernel's formula depends on."""
    here = _residuals(kernels, base, priors)
    found = []
    for each, prior in priors.items():
        middle = each.to_free(prior)
        moved = [_residuals(kernels, base, priors | {each: each.to_value(middle + step)}) for step in (-1.0, 1.0)]
        if any(np.abs(there - here).max() > 1e-9 for there in moved):
            found.append(each)
    return found


def _solve(kernels: _Kernels, base: Calibration, priors: dict[Unknown, float]) -> Optimum:
    unknowns = list(priors)
    count, bursts = len(unknowns), kernels.burst.shape[1]

    def residuals(point: FloatArray) -> FloatArray:
        values = {each: each.to_value(float(u)) for each, u in zip(unknowns, point[:count], strict=True)}
        return _residuals(kernels, base, values) - kernels.burst @ point[count:]

    prior = np.clip([each.to_free(priors[each]) for each in unknowns], -SURE, SURE)
    found = minimise(
        Data(residuals, kernels.error, kernels.weight),
        np.concatenate([prior, np.zeros(bursts)]),
        np.array([PRIOR_SPREAD] * count + [BURST_SPREAD] * bursts),
        most_evaluations=MOST_EVALUATIONS,
    )
    return Optimum.of(unknowns, *found)


def _warnings(profile: HardwareProfile, gpu: GpuKind, launch_s: float) -> tuple[str, ...]:
    found = []
    if launch_s:
        found.append(
            f"A kernel took {launch_s * 1e6:.1f} us to launch; kernel_s is the framework's, and only runs tell it."
        )
    foreign = sorted({str(row.precision) for row in profile.matmuls if row.precision not in gpu.peak_flops})
    if foreign:
        found.append(f"Matrix products in {', '.join(foreign)} are left out: {gpu.name} has no peak for them.")
    if profile.skipped:
        found.append(f"Not measured, for reasons that the profile gives: {len(profile.skipped)} of its kernels.")
    return tuple(found)
