"""Collectives around a block split over tensor ranks, with and without sequence parallelism."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.training.frameworks import framework
from solver.costs.calibration import Calibration, calibration_of
from solver.costs.collectives import domain_collective_s
from solver.costs.local_sizes import local_sizes
from solver.costs.seconds import Seconds
from solver.costs.traffic import tensor_traffic
from tests.solver.cost_cases import H100, LLAMA_70B, WORKLOAD, behaviour, candidates

T4 = gpu_kind("T4")


def _traffic(calibration: Calibration, gpu: GpuKind = H100, tensor: int = 4) -> Seconds:
    sizes = local_sizes(candidates({"tensor": tensor}), WORKLOAD, calibration)
    return tensor_traffic(gpu, calibration, LLAMA_70B, sizes)


def test_without_sequence_parallelism_an_all_reduce_each_way() -> None:
    """Forward and, where nothing overlaps, backward: one all-reduce of 2 bytes times tokens and hidden width."""
    calibration = replace(behaviour(sequence_parallel=False), tensor_overlap=0.0, collective_skew_s=0.0)
    found = _traffic(calibration)
    message = np.array([2.0 * LLAMA_70B.hidden * WORKLOAD.sequence_length])
    expected = domain_collective_s(H100, Collective.ALL_REDUCE, np.array([4.0]), message)
    assert found.forward == pytest.approx(expected)
    assert found.backward == pytest.approx(expected)


def test_overlap_hides_the_backward_all_reduce_alone() -> None:
    """Beside the product for the weight's gradient."""
    calibration = replace(behaviour(sequence_parallel=False), tensor_overlap=1.0)
    found = _traffic(calibration)
    assert found.forward.item() > 0.0
    assert found.backward.item() == 0.0


def test_collectives_that_are_waited_for_hide_nothing_unless_they_run_in_chunks() -> None:
    """DTensor's take their whole time backward; asynchronous ones as little as user buffers."""
    known = {"overlap_tensor_backward": False}
    waiting = _traffic(replace(behaviour(**known), tensor_overlap=0.7))
    nothing = _traffic(replace(behaviour(**known), tensor_overlap=0.0))
    assert waiting.backward == pytest.approx(nothing.backward)
    chunked, buffers = (
        _traffic(replace(behaviour(overlap_tensor=True, overlap_tensor_backward=each), tensor_overlap=0.7))
        for each in (False, True)
    )
    assert chunked.backward == pytest.approx(buffers.backward)
    assert chunked.forward == pytest.approx(0.3 * waiting.forward)


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_half_the_speed_takes_twice_the_time(*, sequence_parallel: bool) -> None:
    """``domain_share`` divides the speed of every collective of the block."""
    calibration = replace(behaviour(sequence_parallel=sequence_parallel), collective_skew_s=0.0)
    whole, half = (_traffic(replace(calibration, domain_share=share)) for share in (1.0, 0.5))
    assert half.forward == pytest.approx(2.0 * whole.forward)
    assert half.backward == pytest.approx(2.0 * whole.backward)


def test_ranks_that_start_apart_add_as_much_for_each_doubling() -> None:
    """A block has four collectives and one more backward; with nothing hidden each waits once."""
    on_time = replace(behaviour(), tensor_overlap=0.0, collective_skew_s=0.0)
    late = replace(on_time, collective_skew_s=1e-4)
    for tensor, doublings in ((1, 0), (2, 1), (8, 3)):
        added = _traffic(late, tensor=tensor) + _traffic(on_time, tensor=tensor) * -1.0
        assert added.forward.item() == pytest.approx(2 * doublings * 1e-4)
        assert added.backward.item() == pytest.approx(3 * doublings * 1e-4)


def test_cards_without_peer_access_send_at_a_few_gigabytes() -> None:
    """Four T4 of a cloud node: an all-reduce's bus bandwidth of 2 to 4 GB/s."""
    calibration = calibration_of(T4, framework("deepspeed-0.3"))
    message = 2.0 * LLAMA_70B.hidden * WORKLOAD.sequence_length
    bus_bytes_per_s = 1.5 * message / _traffic(calibration, T4).forward.item()
    assert 2e9 < bus_bytes_per_s < 4e9
