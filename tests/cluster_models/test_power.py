"""Rates under power caps."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import CLOCK_POWER, Precision
from cluster_models.cluster.power import GRID, capped, interpolated, measured_curves, power_curve

MEASURED = {name: each for name, each in measured_curves().items() if each.compute}


@pytest.mark.parametrize("name", MEASURED)
def test_each_measured_gpu_is_about_as_fast_as_the_others_say(name: str) -> None:
    """Held out, the mean of the other GPUs is within 8 % from 0.7 of the power on and within 22 % at 0.6."""
    own = MEASURED[name]
    others = [each for other, each in MEASURED.items() if other != name]
    for cap, tolerance in ((0.6, 0.22), (0.7, 0.08), (0.8, 0.05), (0.9, 0.03)):
        mean = sum(interpolated(cap, each.caps, each.compute) for each in others) / len(others)
        assert mean == pytest.approx(interpolated(cap, own.caps, own.compute), rel=tolerance)


@pytest.mark.parametrize("kind", ["H100-SXM5-80GB", "A40", "RTX 3090", "A100-PCIe-40GB"])
def test_rates_fall_with_the_cap_and_slower_than_it_near_the_top(kind: str) -> None:
    """Work of the memory loses less, and from 0.7 of the power on every rate keeps more than that share."""
    curve = power_curve(kind)
    for low, high in pairwise(GRID):
        assert curve.compute_share(low) < curve.compute_share(high) <= 1.0
        assert curve.memory_share(low) < curve.memory_share(high) <= 1.0
    for cap in (0.7, 0.8, 0.9):
        assert cap < curve.compute_share(cap) <= curve.memory_share(cap)
    assert curve.compute_share(1.0) == curve.memory_share(1.0) == 1.0


@pytest.mark.parametrize("cap", [0.7, 0.8, 0.9])
def test_what_was_measured_is_what_the_law_of_clock_and_power_says(cap: float) -> None:
    """Power falls with the 2.5th power of the clock, until voltage is at its least."""
    assert power_curve("B200-SXM-180GB").compute_share(cap) == pytest.approx(cap ** (1 / CLOCK_POWER), rel=0.02)


def test_a_capped_kind_has_its_cap_as_power_and_lower_rates() -> None:
    """Half way between two points of the curve; its capacity and links stay."""
    kind = gpu_kind("H100-SXM5-80GB")
    curve = power_curve(kind.name)
    slow = capped(kind, 455.0)
    assert slow.power_watts == 455.0
    compute = (curve.compute_share(0.6) + curve.compute_share(0.7)) / 2
    assert slow.peak_flops[Precision.BF16] == pytest.approx(compute * kind.peak_flops[Precision.BF16])
    memory = (curve.memory_share(0.6) + curve.memory_share(0.7)) / 2
    assert slow.memory_bytes_per_s == pytest.approx(memory * kind.memory_bytes_per_s)
    assert slow.memory_bytes == kind.memory_bytes
    assert capped(kind, None) is capped(kind, 700.0) is capped(kind, 900.0) is kind


def test_what_nobody_measured_is_called_an_estimate() -> None:
    """So says the source of a curve."""
    assert power_curve("RTX 3090").source.startswith("measured")
    for kind in ("H100-SXM5-80GB", "A40", "A100-PCIe-40GB"):
        assert power_curve(kind).source.startswith("estimated")
