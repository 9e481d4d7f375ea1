"""Layers that the host launches slower than the GPU runs them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.model.experts import Experts
from cluster_models.model.mixers import LatentAttention
from cluster_models.training.framework_choices import CudaGraphs
from solver.costs.compute import processor
from solver.costs.launching import host_bound, lagging, launching_s, sparse_host_bound, sparse_launches
from solver.costs.local_sizes import local_sizes
from solver.costs.seconds import Seconds
from tests.solver.cost_cases import H100, LLAMA_70B, MIXTRAL, WORKLOAD, behaviour, candidates, costs

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


def _waiting(
    host_s: float,
    *,
    in_flight: list[int],
    micro_batches: int = 8,
    layers: int = 4,
    tensor: int = 8,
    domain: int = 8,
) -> list[float]:
    """The share of each rank, which holds so many micro-batches of its layers."""
    calibration = replace(behaviour(), layer_host_s=host_s, tensor_host_s=0.0, transfer_stall_s=0.0)
    sizes = local_sizes(candidates({"tensor": tensor}), WORKLOAD, calibration)
    chip = processor(H100, WORKLOAD.precision, calibration)
    held = np.array([in_flight], dtype=np.float64)
    shares = lagging(
        chip,
        LLAMA_70B,
        sizes,
        in_flight=held,
        passes=layers * held,
        micro_batches=np.array([micro_batches]),
        domain=domain,
    )
    return list(shares[0].tolist())


@given(st.floats(1e-5, 1e-1))
def test_a_slow_host_finds_blocks_of_memory_free(host_s: float) -> None:
    """In a pipeline the slower the host the less waits for the GPU, between nodes nothing."""
    slower, faster = (_waiting(each, in_flight=[2, 1])[0] for each in (2.0 * host_s, host_s))
    assert 0.0 < slower <= faster <= 1.0
    assert _waiting(host_s, in_flight=[2, 1], domain=4) == [0.0, 0.0]


def test_a_filling_pipeline_lets_all_but_two_micro_batches_wait() -> None:
    """Rank r of eight holds 8 - r of them; where tensor ranks span four nodes transfers stop the host."""
    held = [8, 7, 6, 5, 4, 3, 2, 1]
    shares = _waiting(1e3, in_flight=held, layers=1, domain=4)
    assert shares == pytest.approx([max(0, count - 2) / count for count in held])
    assert _waiting(1e3, in_flight=held, layers=1, domain=2) == [0.0] * 8


@pytest.mark.parametrize(("layers", "waiting"), [(8, 16), (16, 25.6), (80, 25.6)])
def test_the_launch_queue_bounds_how_far_a_host_runs_ahead(layers: int, waiting: float) -> None:
    """1,024 launches are 25.6 layers, into the backward pass of a shallow model and of no more than both passes.

    A single micro-batch has its peak before that.
    """
    alone = _waiting(1e-6, in_flight=[1], layers=layers)[0]
    assert alone * layers == pytest.approx(waiting)
    assert _waiting(1e-6, in_flight=[1], layers=layers, micro_batches=1)[0] == min(alone, 1.0)
    assert max(_waiting(1e-6, in_flight=[4, 3, 2, 1], layers=layers)) * layers <= 25.6


def test_more_kernels_keep_the_host_busy_for_longer() -> None:
    """Latent attention, a shared expert and groups each lengthen a pass that waits for its host."""
    shared = Experts(count=8, active=2, hidden=14336, shared_hidden=1024)
    grouped = replace(MIXTRAL, experts=replace(shared, router_groups=4, active_groups=2))
    latent = replace(grouped, latent_attention=LatentAttention(256, 128, 32, 64, 64))
    models = (MIXTRAL, replace(MIXTRAL, experts=shared), grouped, latent)
    launches = [sparse_launches(each) for each in models]
    assert launches[0] == 1.0
    assert launches == sorted(set(launches))
    calibration = replace(behaviour(), sparse_host_s=1e-3, expert_host_s=1e-4)
    for each in launches:
        bound, _ = sparse_host_bound(
            _seconds(0.0, 0.0),
            _seconds(0.0, 0.0),
            calibration,
            overlapped=~CROSSING,
            experts=ALONE,
            launches=each,
        )
        assert bound.forward.item() == pytest.approx(each * 1e-3 + 1e-4)


def test_softmax_in_pieces_keeps_the_host_busy_for_longer() -> None:
    """Two score matrices are not a multiple of 4: four launches more on 18 forward, and on 31 at half the price."""
    calibration = replace(behaviour(fused_attention=False), layer_host_s=1.0)
    batch = candidates({"tensor": 8, "micro_batch": 1}, {"tensor": 8, "micro_batch": 2})
    forward = costs(batch, replace(LLAMA_70B, heads=16, kv_heads=8), calibration=calibration).forward_s[:, 0]
    assert forward[0] / forward[1] == pytest.approx(1.0 + 6.0 / 33.5, rel=0.01)
