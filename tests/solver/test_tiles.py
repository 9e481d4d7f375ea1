"""Tiles, waves and alignment of matrix products."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.catalogue import gpu_kind, gpu_kinds
from cluster_models.cluster.gpus import Precision
from solver.costs.compute import AttentionShape, Processor, attention_s, linear_s, matmul_s, processor
from solver.costs.tiles import TILES, is_misaligned, quantisation
from tests.solver.cost_cases import H100, behaviour

A100 = gpu_kind("A100-SXM4-80GB")
EXTENT = st.integers(1, 20_000)
COUNT = st.integers(1, 64)


def _quantisation(m: float, n: float, k: float, groups: float = 1.0, multiprocessors: int = 108) -> float:
    extents = (np.array([extent], np.float64) for extent in (m, n, k))
    return quantisation(*extents, groups=groups, multiprocessors=multiprocessors).item()


def _unfused(gpu: Processor) -> Processor:
    return replace(gpu, calibration=behaviour(A100, fused_attention=False))


def test_whole_waves_of_the_largest_tile_waste_nothing() -> None:
    """108 tiles of 256 x 128 on 108 multiprocessors."""
    assert _quantisation(12 * 256, 9 * 128, 512) == pytest.approx(1.0)


def test_one_tile_more_than_a_wave_starts_another() -> None:
    """109 tiles: at best smaller tiles fill the second wave, never less work than a tenth more."""
    assert 1.1 < _quantisation(109 * 256, 128, 512) <= 216 / 109


@given(EXTENT, EXTENT, EXTENT, COUNT)
def test_no_shape_does_less_than_its_own_work(m: int, n: int, k: int, groups: int) -> None:
    """At least the work asked for; at most a wave of the smallest tile and what rounds up in every tile."""
    found = _quantisation(m, n, k, groups)
    rows, columns, share = TILES[-1]
    tiles = math.ceil(m / rows) * math.ceil(n / columns) * groups
    worst = math.ceil(tiles / 108) * 108 * rows * columns / share / (m * n * groups)
    assert found * (1.0 + 1e-12) >= 1.0
    assert found <= worst * (1.0 + 1e-12)


@given(EXTENT, EXTENT, EXTENT, st.integers(0, 2), st.integers(1, 500))
def test_a_larger_product_never_ends_sooner(m: int, n: int, k: int, grown: int, more: int) -> None:
    """In rows, columns and contraction."""
    chip = processor(A100, Precision.BF16, behaviour(A100))
    extents = [float(m), float(n), float(k)]
    before = matmul_s(chip, *extents).item()
    extents[grown] += more
    assert matmul_s(chip, *extents).item() >= before * (1.0 - 1e-12)


@given(EXTENT, EXTENT, st.integers(1, 1024), COUNT)
def test_products_launched_together_are_no_slower_than_one_by_one(m: int, n: int, k: int, groups: int) -> None:
    """They fill each other's last wave."""
    chip = processor(A100, Precision.BF16, replace(behaviour(A100), kernel_s=0.0))
    together, single = (matmul_s(chip, m, n, k, groups=count).item() for count in (groups, 1))
    assert together <= groups * single * (1.0 + 1e-12)


def test_a_long_contraction_is_split_over_idle_multiprocessors() -> None:
    """One tile alone takes no longer for 64 times the contraction than that of a 64th of the splits."""
    short, long = _quantisation(128, 128, 1024), _quantisation(128, 128, 64 * 1024)
    assert long < short / 10


@given(st.integers(1, 10_000))
def test_rows_off_sixteen_bytes_are_misaligned(extent: int) -> None:
    """Eight 16-bit elements are a vector load."""
    assert is_misaligned(float(extent)).item() is (extent % 8 != 0)
    assert is_misaligned(64.0, float(extent)).item() is (extent % 8 != 0)


def test_misaligned_layers_lose_their_tensor_cores() -> None:
    """A width four elements beyond a boundary takes many times as long, eight elements hardly any longer."""
    chip = processor(A100, Precision.FP16, behaviour(A100))
    layers = (linear_s(chip, 4096.0, width, 4096.0) for width in (4096.0, 4104.0, 4100.0))
    aligned, near, off = (layer.forward.item() for layer in layers)
    assert near < 1.1 * aligned
    assert off > 5 * aligned


def test_unfused_attention_with_misaligned_heads_is_slow() -> None:
    """Heads of 108 elements take several times as long as heads of 112 (both unfused)."""
    chip = _unfused(processor(A100, Precision.FP16, behaviour(A100)))

    def seconds(width: float) -> float:
        shape = AttentionShape(
            heads=np.array([16.0]),
            key_width=width,
            value_width=width,
            pairs=np.array([2048.0**2 / 2]),
            full_pairs=np.array([2048.0**2]),
            sequence=2048.0,
        )
        core = attention_s(chip, shape)
        return core.forward.item() + core.backward.item()

    assert seconds(108.0) > 2 * seconds(112.0)


def test_a_kind_without_multiprocessors_rounds_nothing_up() -> None:
    """A GPU that a user describes without them runs partial tiles at the rate of whole ones."""
    chip = processor(replace(H100, multiprocessors=None), Precision.BF16, behaviour())
    one, more = (matmul_s(chip, m, 8192.0, 8192.0).item() for m in (8192.0, 8193.0))
    assert more / one == pytest.approx(8193 / 8192, rel=1e-3)


def test_every_nvidia_kind_knows_its_multiprocessors() -> None:
    """Without them efficiency would not depend on the shape."""
    assert all(kind.multiprocessors for kind in gpu_kinds().values() if kind.vendor in ("NVIDIA", "AMD"))
