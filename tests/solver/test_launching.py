"""Layers that the host launches slower than the GPU runs them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.frameworks import CudaGraphs
from solver.costs.compute import processor
from solver.costs.launching import host_bound, lagging, launching_s
from solver.costs.local_sizes import local_sizes
from solver.costs.seconds import Seconds
from tests.solver.cost_cases import H100, LLAMA_70B, WORKLOAD, behaviour, candidates

SECONDS = st.floats(0.0, 5e-3)
ALONE = np.ones(1)
CROSSING = np.ones(1, dtype=np.bool_)


def _seconds(forward: float, backward: float) -> Seconds:
    return Seconds(np.array([forward]), np.array([backward]))


@given(SECONDS, SECONDS, SECONDS)
def test_a_pass_lasts_as_long_as_the_slower_of_both(host: float, compute: float, collectives: float) -> None:
    """Compute and collectives together take the longer of what they take and what the host takes."""
    calibration = replace(behaviour(cuda_graphs=CudaGraphs.NONE), layer_host_s=host)
    bound = host_bound(
        _seconds(compute, 2 * compute),
        _seconds(collectives, collectives),
        calibration,
        tensor=ALONE,
        crossing=~CROSSING,
    )
    assert bound.forward.item() + collectives == pytest.approx(max(host, compute + collectives))
    assert bound.backward.item() + collectives == pytest.approx(max(host, 2 * compute + collectives))


def test_graphs_of_the_iteration_free_the_host() -> None:
    """Nothing is launched one by one; graphs of parts leave half."""
    idle = _seconds(0.0, 0.0)
    for graphs, left in ((CudaGraphs.FULL, 0.0), (CudaGraphs.PARTIAL, 5e-4), (CudaGraphs.NONE, 1e-3)):
        calibration = replace(behaviour(cuda_graphs=graphs), layer_host_s=1e-3)
        bound = host_bound(idle, idle, calibration, tensor=ALONE, crossing=~CROSSING)
        assert bound.forward.item() == pytest.approx(left)


@given(st.integers(2, 16), SECONDS, SECONDS)
def test_every_rank_of_a_group_waits_for_the_stalls_of_all(ranks: int, collective: float, stall: float) -> None:
    """Launching collectives costs once; transfers between nodes stall each rank, and nobody who sends none."""
    calibration = replace(behaviour(), layer_host_s=1e-3, tensor_host_s=collective, transfer_stall_s=stall)
    tensor = np.full(1, float(ranks))
    apart = launching_s(calibration, tensor=tensor, crossing=CROSSING).item()
    together = launching_s(calibration, tensor=tensor, crossing=~CROSSING).item()
    assert together == pytest.approx(1e-3 + collective)
    assert apart - together == pytest.approx(ranks * stall)
    assert launching_s(calibration, tensor=ALONE, crossing=~CROSSING).item() == pytest.approx(1e-3)


def _waiting(host_s: float, *, pipeline: int, domain: int = 8) -> float:
    calibration = replace(behaviour(), layer_host_s=host_s, tensor_host_s=0.0, transfer_stall_s=0.0)
    sizes = local_sizes(candidates({"tensor": 8}), WORKLOAD, calibration)
    chip = processor(H100, WORKLOAD.precision, calibration)
    return lagging(chip, LLAMA_70B, sizes, pipeline=np.array([pipeline]), domain=domain).item()


@given(st.floats(1e-5, 1e-1))
def test_a_slow_host_finds_blocks_of_memory_free(host_s: float) -> None:
    """In a pipeline the slower the host the less waits for the GPU; alone all does, between nodes nothing."""
    assert 0.0 < _waiting(2.0 * host_s, pipeline=2) <= _waiting(host_s, pipeline=2) <= 1.0
    assert _waiting(host_s, pipeline=1) == 1.0
    assert _waiting(host_s, pipeline=2, domain=4) == 0.0
