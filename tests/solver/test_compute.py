"""Kernel times: the roofline's two sides and attention's FLOPs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.training.framework_choices import AttentionKernels, Float8Scaling
from solver.costs.compute import (
    AttentionShape,
    attention_s,
    casts_scores,
    elementwise_s,
    linear_s,
    matmul_s,
    processor,
    quantise_s,
    streaming_s,
)
from solver.costs.local_sizes import local_sizes
from solver.fitting.variants import PerRow
from tests.solver.cost_cases import H100, WORKLOAD, behaviour, candidates

CHIP = processor(H100, Precision.BF16, behaviour())
EXTENT = st.sampled_from([64, 256, 1024, 8192])


def test_a_huge_product_runs_at_the_sustained_rate() -> None:
    """16384 cubed loses 2 % or less to tile edges beside what its depth costs."""
    seconds = float(matmul_s(CHIP, 16384.0, 16384.0, 16384.0))
    ideal = 2 * 16384**3 / CHIP.matmul_flops
    deep = 1.0 + CHIP.calibration.k_half / 16384
    assert deep < seconds / ideal < 1.02 * deep


def test_a_thin_product_runs_at_the_rate_of_memory() -> None:
    """One row against a wide matrix reads its weights: 2 bytes an element."""
    seconds = float(matmul_s(CHIP, 1.0, 16384.0, 16384.0)) - CHIP.calibration.kernel_s
    weights = 2 * 16384**2 / CHIP.memory_bytes_per_s
    assert seconds >= weights


def test_kernels_that_idle_cost_a_card_of_little_power_less_of_its_rate() -> None:
    """A V100 at its full clock loses what the kernels idle; a T4 of 70 W clocks higher meanwhile."""
    kept = {}
    for name in ("V100-SXM2-16GB", "T4"):
        kind = gpu_kind(name)
        shares = (replace(behaviour(kind), kernel_share=share) for share in (1.0, 0.4))
        full, idling = (processor(kind, Precision.FP16, share).matmul_flops for share in shares)
        kept[name] = idling / full
    assert kept["T4"] == pytest.approx(0.4)
    assert kept["V100-SXM2-16GB"] < 0.85 * kept["T4"]


def test_a_card_of_little_power_has_the_rate_that_it_was_measured_to_sustain() -> None:
    """24 of 65 TFLOP/s, whatever others of its vendor reach."""
    assert gpu_kind("T4").achievable_fraction == pytest.approx(24 / 65)
    assert gpu_kind("V100-SXM2-16GB").achievable_fraction > 0.7


def test_fp32_training_moves_twice_the_bytes() -> None:
    """TF32 products read FP32 operands: what memory bounds takes twice as long, also between the products."""
    a100 = gpu_kind("A100-SXM4-80GB")
    half_width, wide = (processor(a100, each, behaviour(a100)) for each in (Precision.BF16, Precision.FP32))
    thin, wider = (
        float(matmul_s(replace(chip, matmul_flops=1e18), 1.0, 16384.0, 16384.0)) - chip.calibration.kernel_s
        for chip in (half_width, wide)
    )
    assert wider == pytest.approx(2.0 * thin)
    half, whole = (float(elementwise_s(chip, np.array(1e9), kernels=0)) for chip in (half_width, wide))
    assert whole == pytest.approx(2.0 * half)
    huge = float(matmul_s(wide, 16384.0, 16384.0, 16384.0))
    assert huge == pytest.approx(2 * 16384**3 / wide.matmul_flops, rel=0.05)


@given(EXTENT, EXTENT, EXTENT)
def test_twice_the_rows_never_take_twice_the_time(m: int, n: int, k: int) -> None:
    """Larger products are more efficient, never less, and never faster in seconds."""
    one, two = float(matmul_s(CHIP, m, n, k)), float(matmul_s(CHIP, 2 * m, n, k))
    assert one <= two <= 2 * one


def test_backward_is_two_products() -> None:
    """For a large layer backward takes twice forward, to within a tenth."""
    layer = linear_s(CHIP, 8192.0, 8192.0, 8192.0)
    assert float(layer.backward / layer.forward) == pytest.approx(2.0, rel=0.1)


def _shape(sequence: float) -> AttentionShape:
    return AttentionShape(
        heads=np.array([8.0]),
        key_width=128.0,
        value_width=128.0,
        pairs=np.array([sequence**2 / 2]),
        full_pairs=np.array([sequence**2]),
        sequence=sequence,
    )


def test_fused_attention_counts_half_of_the_square() -> None:
    """A long causal sequence: 2 s^2 d FLOP a head, at the calibrated share of the peak."""
    core = attention_s(CHIP, _shape(65536.0))
    flops = 2 * 65536.0**2 * 128 * 8
    c = CHIP.calibration
    rate = CHIP.peak_flops * c.attention_forward_share * 128 / (128 + c.head_half)
    assert float(core.forward[0]) == pytest.approx(flops / rate, rel=0.01)
    ratio = 2.5 * c.attention_forward_share / c.attention_backward_share
    assert float(core.backward[0] / core.forward[0]) == pytest.approx(ratio, rel=1e-3)


def test_unfused_attention_takes_longer() -> None:
    """The scores travel through memory and the masked half is computed."""
    old = replace(CHIP, calibration=behaviour(fused_attention=False))
    assert attention_s(old, _shape(4096.0)).forward > 2 * attention_s(CHIP, _shape(4096.0)).forward


def test_softmax_of_an_odd_number_of_score_matrices_is_not_fused() -> None:
    """Megatron takes them by fours: others move 42 and 46 bytes a score, not 9 and 11, in four launches more."""
    old = replace(CHIP, calibration=behaviour(fused_attention=False))
    assert list(np.ravel(casts_scores(old, np.array([2.0, 4.0, 6.0, 8.0])))) == [True, False, True, False]
    for never in (CHIP, replace(old, score_bytes=(34.0, 38.0))):
        assert casts_scores(never, np.array([2.0])) is False
    usual, cast = (attention_s(old, replace(_shape(1024.0), casts_scores=casts)) for casts in (False, True))
    scores, launches = 8 * 1024.0**2 / old.memory_bytes_per_s, 4 * old.calibration.kernel_s
    assert (cast.forward - usual.forward).item() == pytest.approx(33 * scores + launches)
    assert (cast.backward - usual.backward).item() == pytest.approx(35 * scores + launches)


def test_kernels_of_ampere_run_slower_on_hopper_alone() -> None:
    """FlashAttention-2 is 1.5 to 2 times slower than FlashAttention-3 on H100 and at home on A100."""
    shape = _shape(16384.0)
    for gpu, low, high in ((H100, 1.4, 2.1), (gpu_kind("A100-SXM4-80GB"), 1.0, 1.0)):
        chips = (
            processor(gpu, Precision.BF16, behaviour(gpu, attention_kernels=kernels))
            for kernels in (AttentionKernels.VENDOR, AttentionKernels.FLASH_2)
        )
        vendor, flash = (attention_s(chip, shape).forward.item() for chip in chips)
        assert low <= flash / vendor <= high


@given(st.sampled_from([64.0, 128.0]))
def test_triton_attention_takes_its_work_over_one_rate(width: float) -> None:
    """Half the head size takes half the time: the first FlashAttention's tiles do not gain from wider heads."""
    chip = processor(H100, Precision.BF16, behaviour(attention_kernels=AttentionKernels.FLASH_TRITON))
    whole = replace(_shape(16384.0), key_width=width, value_width=width)
    half = replace(whole, key_width=width / 2, value_width=width / 2)
    kernel = chip.calibration.kernel_s
    forward, halved = (attention_s(chip, each).forward.item() - kernel for each in (whole, half))
    assert forward / halved == pytest.approx(2.0)


@given(st.floats(1.0, 4.0))
def test_unfused_kernels_move_their_bytes_several_times(passes: float) -> None:
    """Passes multiply the time of memory-bound work where kernels are not fused, and only there."""
    nbytes = np.array([1e9])
    chips = [
        processor(H100, Precision.BF16, replace(behaviour(fused_kernels=fused), unfused_passes=passes))
        for fused in (True, False)
    ]
    fused_s, unfused_s = (streaming_s(chip, nbytes).item() - chip.calibration.kernel_s for chip in chips)
    assert fused_s == pytest.approx(1e9 / chips[0].memory_bytes_per_s)
    assert unfused_s == pytest.approx(passes * fused_s)


def test_recipes_of_fp8_differ_in_casts_and_rates() -> None:
    """A tensor's own maximum reads it once more; rows are cast apart from columns and multiplied more slowly."""
    chips = {
        scaling: processor(H100, Precision.FP8, behaviour(float8_scaling=scaling)) for scaling in Float8Scaling
    }
    delayed, elements = chips[Float8Scaling.DELAYED], np.array(1e9)
    for scaling, nbytes in ((Float8Scaling.CURRENT, 2.0), (Float8Scaling.ROW, 4.0)):
        more = quantise_s(chips[scaling], elements) - quantise_s(delayed, elements)
        assert float(more) == pytest.approx(nbytes * 1e9 / delayed.memory_bytes_per_s)
    assert chips[Float8Scaling.ROW].matmul_flops < delayed.matmul_flops == chips[Float8Scaling.BLOCK].matmul_flops
    sixteen = [processor(H100, Precision.BF16, behaviour(float8_scaling=each)) for each in Float8Scaling]
    assert all(each.quantise_bytes == 0.0 and each.matmul_flops == sixteen[0].matmul_flops for each in sixteen)


def test_rows_are_scaled_after_they_were_gathered() -> None:
    """Tensor ranks then gather 16 bits, twice what they gather of a tensor with one scale."""
    workload = replace(WORKLOAD, precision=Precision.FP8)
    gathered = {
        scaling: local_sizes(candidates({"tensor": 8}), workload, behaviour(float8_scaling=scaling)).gathered_bytes
        for scaling in Float8Scaling
    }
    assert gathered.pop(Float8Scaling.ROW) == 2.0
    assert set(gathered.values()) == {1.0}


def test_a_recipe_is_priced_under_many_values_at_once() -> None:
    """Each row of fitted shares keeps its own rate."""
    calibration = behaviour(float8_scaling=Float8Scaling.ROW)
    shares = np.array([0.5, 0.8]).view(PerRow)
    together = processor(H100, Precision.FP8, replace(calibration, fp8_share=shares)).matmul_flops
    alone = [
        processor(H100, Precision.FP8, replace(calibration, fp8_share=each)).matmul_flops for each in (0.5, 0.8)
    ]
    np.testing.assert_allclose(np.asarray(together), alone)
