"""Seconds of a sparse layer's MLP."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.cluster.gpus import Precision
from cluster_models.model.experts import Experts
from cluster_models.training.framework_choices import CudaGraphs, ExpertBalance, ExpertDispatch
from solver.costs.calibration import Calibration
from solver.costs.compute import linear_s, processor, undrawn_slowdown
from solver.costs.layer_costs import mlp
from solver.costs.local_sizes import local_sizes, rank_load, routed_tokens
from solver.costs.seconds import Seconds
from solver.costs.sparse_layers import sparse_mlp
from tests.solver.cost_cases import H100, MIXTRAL, WORKLOAD, behaviour, candidates


def even(calibration: Calibration, load: float = 1.0) -> Calibration:
    """Kernels and host that cost nothing, grouped products as fast as single ones."""
    return replace(
        calibration,
        kernel_s=0.0,
        sparse_layer_s=0.0,
        expert_host_s=0.0,
        expert_imbalance=load,
        grouped_share=1.0,
    )


def sparse(experts: Experts, calibration: Calibration, **row: int) -> Seconds:
    """One layer of Mixtral's widths with these experts, on H100 in 16 bits."""
    model = replace(MIXTRAL, experts=experts)
    sizes = local_sizes(candidates(row), WORKLOAD, calibration)
    return sparse_mlp(processor(H100, Precision.BF16, calibration), model, experts, sizes)


def test_one_expert_for_all_tokens_is_a_dense_mlp() -> None:
    """Router, norm and permutation aside: their bytes and one narrow product are taken off by hand."""
    calibration = even(behaviour())
    found = sparse(Experts(count=1, active=1, hidden=14336), calibration)
    gpu = processor(H100, Precision.BF16, calibration)
    tokens, h = np.array([8192.0]), 4096
    dense = mlp(gpu, MIXTRAL, tokens=tokens, width=14336.0)
    router = linear_s(gpu, tokens, 1.0, h)
    copied = (8 + 10) * h * tokens / gpu.memory_bytes_per_s
    np.testing.assert_allclose(found.forward, dense.forward + router.forward + copied)
    copied = (8 + 20) * h * tokens / gpu.memory_bytes_per_s
    np.testing.assert_allclose(found.backward, dense.backward + router.backward + copied)


def test_a_single_local_expert_runs_at_the_rate_of_single_products() -> None:
    """Nothing is grouped then: the share of grouped products changes two experts on a GPU, not one."""
    slow = replace(even(behaviour()), grouped_share=0.5)
    for count, slower in ((8, False), (16, True)):
        experts = Experts(count=count, active=2, hidden=14336)
        fast, grouped = (sparse(experts, each, data=8, expert=8).forward[0] for each in (even(behaviour()), slow))
        assert (grouped > 1.5 * fast) == slower
        assert slower or grouped == fast


def test_the_busiest_rank_sets_the_pace_of_a_group() -> None:
    """Twice the tokens on one of several ranks; a rank that holds all experts has no busier one."""
    experts = Experts(count=64, active=2, hidden=14336)
    balanced, skewed = (even(behaviour(), load) for load in (1.0, 2.0))
    assert (
        sparse(experts, skewed, data=8, expert=8).forward
        > 1.5 * sparse(experts, balanced, data=8, expert=8).forward
    )
    assert sparse(experts, skewed).forward == sparse(experts, balanced).forward


def test_a_dispatcher_that_sums_on_the_way_saves_copies() -> None:
    """12 bytes an element of every routed token with the all-to-all dispatcher, 8 with the others."""
    experts = Experts(count=8, active=2, hidden=1024)
    each, once, switched = (
        sparse(experts, even(behaviour(expert_dispatch=dispatch)), data=4, expert=4).forward[0]
        for dispatch in (ExpertDispatch.ALL_TO_ALL, ExpertDispatch.DEEPEP, ExpertDispatch.HYBRIDEP)
    )
    copied = 4 * 4096 * 2 * 8192 / processor(H100, Precision.BF16, behaviour()).memory_bytes_per_s
    assert each - once == pytest.approx(copied)
    assert once == switched


def test_tokens_of_a_single_expert_are_sorted_already() -> None:
    """The all-to-all dispatcher then saves the 8 bytes of sorting on arrival and back, others do not."""
    eight, sixteen = (Experts(count=count, active=2, hidden=1024) for count in (8, 16))
    bytes_per_s = processor(H100, Precision.BF16, behaviour()).memory_bytes_per_s
    more = []
    for experts in (eight, sixteen):
        each, once = (
            sparse(experts, even(behaviour(expert_dispatch=dispatch)), data=8, expert=8).forward[0]
            for dispatch in (ExpertDispatch.ALL_TO_ALL, ExpertDispatch.DEEPEP)
        )
        more.append((each - once) * bytes_per_s / (4096 * 2 * 8192))
    assert more == pytest.approx([4.0 - 8.0, 4.0])


def test_host_time_ends_with_a_graph_of_the_whole_iteration() -> None:
    """A part per layer and a part per expert on the GPU, in both passes, on top of everything else."""
    experts = Experts(count=8, active=2, hidden=1024)
    slow, fast = (
        sparse(
            experts,
            replace(behaviour(cuda_graphs=graphs), sparse_layer_s=1e-3, expert_host_s=1e-4),
            data=2,
            expert=2,
        )
        for graphs in (CudaGraphs.NONE, CudaGraphs.FULL)
    )
    assert slow.forward[0] - fast.forward[0] == pytest.approx(1e-3 + 4 * 1e-4)
    assert slow.backward[0] - fast.backward[0] == pytest.approx(1e-3 + 4 * 1e-4)


def test_padded_experts_work_as_long_as_the_busiest() -> None:
    """Where all tokens meet the same two of eight, each of the eight works on as many rows as there are tokens."""
    padded = even(behaviour(pads_experts=True, untrained_router=True))
    few, all_of_them = (
        sparse(Experts(count=8, active=active, hidden=14336), calibration)
        for active, calibration in ((2, padded), (8, even(behaviour())))
    )
    np.testing.assert_allclose(few.forward, all_of_them.forward)
    np.testing.assert_allclose(few.backward, all_of_them.backward)


@pytest.mark.parametrize("untrained", [False, True])
@pytest.mark.parametrize("balance", ExpertBalance)
def test_padding_costs_what_experts_differ(balance: ExpertBalance, untrained: bool) -> None:
    """Nothing where tokens are dealt out evenly; more than no padding in any other case."""
    experts, batch = Experts(count=8, active=2, hidden=1024), candidates({"data": 2, "expert": 2})
    frameworks = [
        behaviour(pads_experts=pads, expert_balance=balance, untrained_router=untrained) for pads in (True, False)
    ]
    rows = [routed_tokens(experts, local_sizes(batch, WORKLOAD, even(each)))[0] for each in frameworks]
    assert (rows[0] == rows[1]) == (balance in {ExpertBalance.FORCED, ExpertBalance.CAPACITY})
    assert rows[0] >= rows[1]


def test_rows_that_only_fill_a_capacity_draw_no_power() -> None:
    """Before training backward products of experts gain what the clock gains; later, and forward, nothing does."""
    found = {}
    for active in (2, 8):
        for untrained in (False, True):
            framework = behaviour(expert_balance=ExpertBalance.CAPACITY, untrained_router=untrained)
            experts = Experts(count=8, active=active, hidden=14336)
            found[active, untrained] = sparse(experts, even(framework))
    assert found[8, True] == found[8, False]
    trained, first = found[2, False], found[2, True]
    assert first.forward == trained.forward
    gpu = processor(H100, Precision.BF16, even(behaviour()))
    slowest = gpu.matmul_flops / gpu.unthrottled_flops
    assert slowest * trained.backward < first.backward < trained.backward
    assert undrawn_slowdown(gpu, 0.9) == pytest.approx(0.9**0.4)
    assert undrawn_slowdown(gpu, 0.01) == slowest < 1.0


def test_before_training_few_ranks_receive_tokens() -> None:
    """Two of eight where tokens have two experts, each four times the mean; of two ranks both."""
    experts, calibration = (
        Experts(count=8, active=2, hidden=1024),
        even(behaviour(untrained_router=True)),
    )
    loads = [
        rank_load(experts, local_sizes(candidates({"data": 8, "expert": ranks}), WORKLOAD, calibration))[0]
        for ranks in (1, 2, 8)
    ]
    assert loads == [1.0, 1.0, 4.0]


def test_biases_of_experts_cost_passes_over_routed_tokens() -> None:
    """As many bytes as the framework needs for each element of both widths."""
    experts = Experts(count=8, active=2, hidden=1024)
    calibration = replace(even(behaviour()), expert_bias_bytes=10.0)
    sizes = local_sizes(candidates({}), WORKLOAD, calibration)
    gpu = processor(H100, Precision.BF16, calibration)
    without, biased = (
        sparse_mlp(gpu, replace(MIXTRAL, experts=experts, mlp_bias=bias), experts, sizes) for bias in (False, True)
    )
    added = 10 * (4096 + 1024) * 2 * 8192 / gpu.memory_bytes_per_s
    assert biased.forward[0] - without.forward[0] == pytest.approx(added)
    assert biased.backward[0] - without.backward[0] == pytest.approx(added)


def test_narrower_formats_cast_every_routed_token() -> None:
    """In MXFP8 the products are faster, the casts are not: with tiny experts it loses what it wins."""
    experts = Experts(count=8, active=8, hidden=8)
    model = replace(MIXTRAL, experts=experts)
    calibration = behaviour()
    sizes = local_sizes(candidates({}), WORKLOAD, calibration)
    narrow, wide = (
        sparse_mlp(processor(H100, precision, calibration), model, experts, sizes).forward[0]
        for precision in (Precision.FP8, Precision.BF16)
    )
    assert narrow > wide
