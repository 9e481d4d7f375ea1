"""Costs of dense layers under narrow formats, user buffers, deferred gradients, context ranks and many nodes."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from solver.costs.calibration import calibration_of
from solver.costs.compute import processor, quantise_s
from solver.costs.local_sizes import LocalSizes, local_sizes
from solver.costs.model_ends import head_and_loss
from solver.costs.straggling import straggling
from solver.costs.traffic import tensor_traffic
from tests.solver.cost_cases import H100, LLAMA_70B, WORKLOAD, candidates, costs

GB200 = gpu_kind("GB200")
NARROW = (Precision.FP8, Precision.MXFP8, Precision.NVFP4)


def _total(precision: Precision = Precision.BF16, *, row: dict[str, int], **facts: Any) -> float:
    workload = replace(WORKLOAD, precision=precision, framework=replace(DEFAULT_FRAMEWORK, **facts))
    found = costs(candidates(row), workload=workload)
    return float(found.forward_s.sum() + found.backward_s.sum())


def _sizes(precision: Precision, *, tensor: int, overlap_tensor: bool) -> LocalSizes:
    framework = replace(DEFAULT_FRAMEWORK, overlap_tensor=overlap_tensor)
    workload = replace(WORKLOAD, precision=precision, framework=framework)
    return local_sizes(candidates({"tensor": tensor}), workload, calibration_of(GB200, framework))


@pytest.mark.parametrize("precision", NARROW)
def test_narrow_formats_are_cast_and_wide_ones_are_not(precision: Precision) -> None:
    """A cast moves at least what it reads and writes; 16 bits need none."""
    calibration = calibration_of(GB200, DEFAULT_FRAMEWORK)
    elements = np.array([1e9])
    narrow, wide = (processor(GB200, each, calibration) for each in (precision, Precision.BF16))
    least = (2.0 + 2.0 * precision.operand_bytes) * 1e9 / GB200.memory_bytes_per_s
    assert quantise_s(narrow, elements)[0] > least
    assert quantise_s(wide, elements)[0] == 0.0


def test_the_head_costs_the_same_in_8_bits_as_in_16() -> None:
    """Only layers speed up under FP8: the rest of the last chunk takes what it took."""
    row = {"pipeline": 2, "tensor": 4}
    chip = processor(H100, Precision.BF16, calibration_of(H100, DEFAULT_FRAMEWORK))
    sizes = local_sizes(candidates(row), WORKLOAD, chip.calibration)
    head = head_and_loss(chip, LLAMA_70B, sizes)
    for precision in (Precision.BF16, Precision.FP8):
        found = costs(candidates(row), workload=replace(WORKLOAD, precision=precision))
        first, last = found.compute_s[0]
        assert last - first == pytest.approx(head.forward[0] + head.backward[0], rel=0.05)


def test_gathers_carry_the_format_of_the_products() -> None:
    """With quantised gathers a block's collectives take less, and never less than half."""
    calibration = calibration_of(GB200, DEFAULT_FRAMEWORK)
    wide, narrow = (
        tensor_traffic(GB200, calibration, LLAMA_70B, _sizes(precision, tensor=4, overlap_tensor=False))
        for precision in (Precision.BF16, Precision.FP8)
    )
    assert wide.forward[0] / 2 < narrow.forward[0] < wide.forward[0]
    assert wide.backward[0] / 2 < narrow.backward[0] < wide.backward[0]


def test_user_buffers_hide_forward_collectives_but_not_under_nvfp4() -> None:
    """Chunked collectives leave ``1 - tensor_overlap`` of a block's forward traffic; NVFP4 has no such kernels."""
    calibration = calibration_of(GB200, DEFAULT_FRAMEWORK)
    for precision, exposed in ((Precision.MXFP8, 1.0 - calibration.tensor_overlap), (Precision.NVFP4, 1.0)):
        plain, chunked = (
            tensor_traffic(GB200, calibration, LLAMA_70B, _sizes(precision, tensor=4, overlap_tensor=each))
            for each in (False, True)
        )
        assert chunked.forward[0] == pytest.approx(exposed * plain.forward[0])


def test_a_fused_loss_takes_less() -> None:
    """Fewer passes over the logits."""
    assert _total(row={"tensor": 8}, fused_loss=True) < _total(row={"tensor": 8}, fused_loss=False)


def test_context_ranks_pay_for_joining_their_blocks() -> None:
    """Halving a sequence over two ranks takes more than half of the time."""
    single = costs(candidates({"tensor": 4}))
    halved = costs(candidates({"tensor": 4, "context": 2}))
    assert halved.compute_s.sum() > single.compute_s.sum() / 2


@given(st.floats(1.0, 1e5), st.floats(1.01, 10.0))
def test_more_nodes_never_run_faster(nodes: float, factor: float) -> None:
    """Straggling starts from one node and grows by the same with each doubling."""
    calibration = calibration_of(H100, DEFAULT_FRAMEWORK)
    counts = np.array([1.0, nodes, factor * nodes])
    slow = straggling(counts, calibration)
    assert slow[0] == 1.0
    assert all(later >= earlier for earlier, later in pairwise(slow))
    doubled = straggling(2.0 * counts, calibration)
    np.testing.assert_allclose(doubled - slow, calibration.straggling_share)


def test_the_same_micro_batch_takes_longer_on_more_nodes() -> None:
    """Data parallel replicas do not change a micro-batch except by straggling."""
    few, many = (costs(candidates({"tensor": 8, "data": data})).compute_s.sum() for data in (1, 64))
    calibration = calibration_of(H100, WORKLOAD.framework)
    assert many / few == pytest.approx(1.0 + 6.0 * calibration.straggling_share)
