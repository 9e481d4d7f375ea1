"""A GPU's own parameters from the kernels of a profile: those it was made with come back."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from cluster_models.calibration.hardware_profile import (
    AttentionTiming,
    CollectiveTiming,
    HardwareProfile,
    KernelTime,
    MatmulTiming,
    StreamOperation,
    StreamTiming,
)
from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.measurements import Collective
from cluster_models.errors import InvalidInput
from cluster_models.links.collective_curves import domain_time_s
from cluster_models.training.framework_choices import AttentionKernels
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from solver.costs.calibration import Calibration, calibration_of
from solver.costs.compute import AttentionShape, attention_s, matmul_s, processor, streaming_s
from solver.fitting.profile import fit_profile
from solver.fitting.report import FitReport
from tests.solver.cost_cases import H100

LAUNCH_S = 5e-6
SIZES = (128, 512, 2048, 8192)
TRUTH: dict[str, Any] = {
    "sustained_share": 0.7,
    "k_half": 300.0,
    "memory_share": 0.92,
    "attention_forward_share": 0.66,
    "attention_backward_share": 0.4,
    "head_half": 40.0,
}


def profile(*, burst: float = 1.0, noise: float = 0.0, seed: int = 0) -> HardwareProfile:
    """The profile of an H100 with the parameters ``TRUTH``; short calls are ``burst`` times as fast."""
    random = np.random.default_rng(seed)
    own = _behaviour()
    chip = processor(H100, Precision.BF16, own)

    def timing(seconds: float) -> KernelTime:
        seconds *= float(np.exp(noise * random.standard_normal()))
        return KernelTime(seconds, 0.99 * seconds, 1.01 * seconds, 9)

    shapes = [(m, n, k) for m in SIZES for n in SIZES for k in SIZES]
    matmuls = [
        MatmulTiming(Precision.BF16, *shape, 1, sustained, timing(float(matmul_s(chip, *shape)) / speed))
        for sustained, speed, some in ((True, 1.0, shapes[-1:]), (False, burst, shapes))
        for shape in some
    ]
    streams = [
        StreamTiming(StreamOperation.COPY, 2**size, timing(float(streaming_s(chip, np.array(2.0**size)))))
        for size in (22, 25, 28, 31)
    ]
    attentions = [
        AttentionTiming(
            AttentionKernels.VENDOR,
            way == "backward",
            Precision.BF16,
            2,
            32,
            head,
            sequence,
            timing(float(getattr(attention_s(chip, _attention(head, sequence)), way)[0])),
        )
        for way in ("forward", "backward")
        for head in (64, 128, 256)
        for sequence in (1024, 4096, 16384)
    ]
    return HardwareProfile(
        device="NVIDIA H100 80GB HBM3",
        is_gpu=True,
        taken_at=datetime(2026, 11, 20, tzinfo=UTC),
        matmuls=tuple(matmuls),
        streams=tuple(streams),
        attentions=tuple(attentions),
        launches=(timing(LAUNCH_S),),
        collectives=(),
    )


def _behaviour() -> Calibration:
    framework = replace(DEFAULT_FRAMEWORK, attention_kernels=AttentionKernels.VENDOR, fused_kernels=True)
    own = calibration_of(H100, framework)
    return replace(own, **{"kernel_share": 1.0, "kernel_s": LAUNCH_S} | TRUTH)


def _attention(head: int, sequence: int) -> AttentionShape:
    pairs = np.array([2 * sequence**2 / 2.0])
    return AttentionShape(np.array([32.0]), float(head), float(head), pairs, 2 * pairs, float(sequence))


def told(report: FitReport) -> dict[str, tuple[float, float, float]]:
    """Value and interval of each parameter that the profile tells."""
    return {
        each.unknown.parameter: (each.fitted.low, each.fitted.value, each.fitted.high)
        for each in report.unknowns
        if each.told
    }


@pytest.mark.parametrize("burst", [1.0, 1.15])
def test_the_parameters_of_a_profile_come_back(burst: float) -> None:
    """Within 5 % each, also where short calls run faster than the power limit lets long ones."""
    found = told(fit_profile(profile(burst=burst), H100))
    assert set(TRUTH) <= set(found)
    for name, value in TRUTH.items():
        assert found[name][1] == pytest.approx(value, rel=0.05), name


def test_intervals_hold_the_truth_under_noise() -> None:
    """With 3 % noise most 90 % intervals of several profiles hold the value that made them."""
    inside = [
        found[name][0] <= value <= found[name][2]
        for seed in range(5)
        for found in [told(fit_profile(profile(noise=0.03, seed=seed), H100))]
        for name, value in TRUTH.items()
    ]
    assert np.mean(inside) >= 0.8


def test_what_a_profile_does_not_show_stays() -> None:
    """No FP8 product was timed, so its share keeps its value; nothing of memory capacity is told."""
    report = fit_profile(profile(), H100)
    found = told(report)
    assert not {"fp8_share", "grouped_share", "runtime_bytes", "misaligned_share"} & set(found)
    assert all(not name.startswith("kernel_") for name in found)
    assert set(report.parameters.gpus) == {H100.name}
    assert not report.parameters.frameworks


def test_slow_links_inside_the_node_are_told() -> None:
    """Collectives at 60 % of the speed that NVLink4 has elsewhere set the share; without any it stays at 1."""
    slow = tuple(
        CollectiveTiming(kind, ranks, 1, size, KernelTime(seconds, 0.99 * seconds, 1.01 * seconds, 9))
        for kind in (Collective.ALL_REDUCE, Collective.ALL_GATHER)
        for ranks in (2, 4, 8)
        for size in (2**10, 2**22, 2**26, 2**30)
        for seconds in [float(domain_time_s(H100, kind, ranks, size)) / 0.6]
    )
    assert told(fit_profile(replace(profile(), collectives=slow), H100))["domain_share"][1] == pytest.approx(
        0.6, rel=0.05
    )
    assert "domain_share" not in told(fit_profile(profile(), H100))


def test_the_fit_explains_the_kernels() -> None:
    """Errors after are a tenth of those before."""
    report = fit_profile(profile(), H100)
    assert np.abs(report.errors_after).mean() < 0.1 * np.abs(report.errors_before).mean()
    assert len(report.runs) == len(report.errors_after)


def test_a_profile_of_nothing_known_is_refused() -> None:
    """Without a kernel of a precision of the GPU there is nothing to fit."""
    empty = replace(profile(), matmuls=(), streams=(), attentions=())
    with pytest.raises(InvalidInput, match="fewer than 3 kernels"):
        fit_profile(empty, H100)
