"""Dispatch and combination of tokens: how many copies travel where, and what hides beside compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.model.experts import Experts
from cluster_models.training.framework_choices import CudaGraphs, ExpertBalance, ExpertDispatch
from cluster_models.training.workload import Recompute
from solver.candidates import RECOMPUTE_CODES
from solver.costs.expert_traffic import reached
from solver.costs.launching import sparse_host_bound
from solver.costs.nominal_links import NominalLinks, crossing_s
from solver.costs.seconds import Seconds
from solver.costs.step_costs import StepCosts, step_costs
from solver.costs.traffic import NO_WINDOW, Window
from tests.solver.cost_cases import H100, MIXTRAL, WORKLOAD, behaviour, candidates, costs, even_layers
from tests.solver.problems import fabrics_of, nodes, problem

WIDE = replace(MIXTRAL, experts=Experts(count=16, active=2, hidden=14336))
"""16 experts, so that a group may be two nodes wide."""
TWO_NODES = {"data": 16, "expert": 16}
TOKEN_BYTES = 2 * 4096 * 8192
"""One copy of each of a rank's 8192 tokens in 16 bits."""


def dispatched(dispatch: ExpertDispatch, row: dict[str, int], *, expert_overlap: bool = False) -> StepCosts:
    """Costs of ``WIDE`` with tokens sent this way, loads even."""
    calibration = replace(behaviour(expert_dispatch=dispatch, expert_overlap=expert_overlap), expert_imbalance=1.0)
    return costs(candidates(row), WIDE, calibration=calibration)


def test_expert_bytes_that_stay_in_the_node_do_not_cross() -> None:
    """An expert group of 8 fits into the node; of one of 16 half the bytes leave it."""
    inside, across = (dispatched(ExpertDispatch.ALL_TO_ALL, {"data": 16, "expert": e}) for e in (8, 16))
    assert inside.expert_traffic.message_bytes[0] == 0
    assert inside.expert_s[0, 0] > 0
    assert across.expert_s[0, 0] == 0
    assert across.expert_traffic.message_bytes[0] == 0.5 * 2 * TOKEN_BYTES
    assert across.expert_traffic.forward_count[0, 0] == 2 * 32


def test_nodes_of_one_domain_count_as_one() -> None:
    """Four nodes of 4 in each of two NVLink domains: half the copies leave the domain, not seven in eight."""
    model = replace(WIDE, experts=Experts(count=32, active=2, hidden=14336))
    result = step_costs(
        candidates({"data": 32, "expert": 32}),
        even_layers(model, 1),
        architecture=model,
        workload=WORKLOAD,
        gpu=H100,
        gpus_per_domain=16,
        gpus_per_node=4,
        calibration=replace(behaviour(), expert_imbalance=1.0),
    )
    assert result.expert_traffic.message_bytes[0] == 0.5 * 2 * TOKEN_BYTES


def test_sending_a_token_once_per_node_saves_bytes_and_adds_a_hop() -> None:
    """Two experts a token, two nodes: it needs the other node with chance 3/4; NVLink spreads it from there."""
    across = dispatched(ExpertDispatch.DEEPEP, TWO_NODES)
    assert across.expert_traffic.message_bytes[0] == pytest.approx(0.75 * TOKEN_BYTES / 1.1)
    assert across.expert_s[0, 0] > 0


def test_sending_a_token_once_per_rank_saves_bytes_inside_a_node() -> None:
    """Both experts are on one of 8 ranks with chance 1/8, which then gets one copy."""
    once, each = (
        dispatched(dispatch, {"data": 8, "expert": 8}).expert_s[0, 0]
        for dispatch in (ExpertDispatch.HYBRIDEP, ExpertDispatch.ALL_TO_ALL)
    )
    assert once < each


@pytest.mark.parametrize(("groups", "active"), [(1, 1), (2, 1), (4, 2), (8, 8), (64, 8)])
def test_groups_reached_agree_with_drawing_experts(groups: int, active: int) -> None:
    """The mean number of distinct groups over many random draws."""
    drawn = np.random.default_rng(7).integers(groups, size=(20_000, active))
    distinct = (np.diff(np.sort(drawn, axis=1), axis=1) > 0).sum(axis=1) + 1
    found = reached(Experts(count=256, active=active, hidden=64), np.array([float(groups)]))
    assert found[0] == pytest.approx(distinct.mean(), rel=0.02)
    assert found[0] <= min(groups, active) + 1e-12


@pytest.mark.parametrize("groups", [2, 4, 8, 16, 64])
def test_limited_routing_reaches_the_groups_that_drawing_reaches(groups: int) -> None:
    """Four of the router's eight groups for each token, then eight of their experts."""
    experts = Experts(count=64, active=8, hidden=64, router_groups=8, active_groups=4)
    generator = np.random.default_rng(7)
    allowed = generator.permuted(np.tile(np.arange(8), (20_000, 1)), axis=1)[:, :4]
    picked = np.take_along_axis(allowed, generator.integers(4, size=(20_000, 8)), axis=1)
    expert = 8 * picked + generator.integers(8, size=(20_000, 8))
    reached_groups = np.sort(expert * groups // 64, axis=1)
    distinct = (np.diff(reached_groups, axis=1) > 0).sum(axis=1) + 1
    assert reached(experts, np.array([float(groups)]))[0] == pytest.approx(distinct.mean(), rel=0.04)


def test_full_recomputation_repeats_expert_traffic() -> None:
    """Dispatch and combination happen again: 4 instead of 2 collectives a layer in backward."""
    full = RECOMPUTE_CODES.index(Recompute.FULL)
    traffic = costs(candidates(TWO_NODES, TWO_NODES | {"recompute": full}), WIDE).expert_traffic
    assert traffic.backward_count[0, 0] == 2 * 32
    assert traffic.backward_count[1, 0] == 4 * 32


@pytest.mark.parametrize("dispatch", list(ExpertDispatch))
def test_overlap_hides_traffic_beside_compute(dispatch: ExpertDispatch) -> None:
    """Inside a node only what the dispatch takes from the compute is left; across nodes a part is hidden."""
    for row in ({"data": 8, "expert": 8}, TWO_NODES):
        exposed, hidden = (dispatched(dispatch, row, expert_overlap=overlap) for overlap in (False, True))
        assert hidden.expert_s[0, 0] == pytest.approx(0.2 * exposed.expert_s[0, 0])
        assert (hidden.expert_traffic.forward_hidden_s[0] > 0) == (row["expert"] == 16)
        assert exposed.expert_traffic.forward_hidden_s[0] <= exposed.expert_s[0, 0]


@pytest.mark.parametrize(
    "row", [{"recompute": RECOMPUTE_CODES.index(Recompute.FULL)}, {"pipeline": 2, "virtual_pipeline": 1}]
)
def test_overlap_needs_two_micro_batches_under_way_and_no_full_recomputation(row: dict[str, int]) -> None:
    """Megatron refuses the flag otherwise."""
    base = {"data": 8, "expert": 8} | row
    exposed, asked = (
        dispatched(ExpertDispatch.ALL_TO_ALL, base, expert_overlap=overlap).expert_s for overlap in (False, True)
    )
    np.testing.assert_array_equal(exposed, asked)


def test_the_slower_of_both_networks_sets_the_pace_of_forwarding() -> None:
    """DeepEP passes tokens on over NVLink while more arrive, so that either hides the other; NCCL hides nothing."""
    pipelined = dispatched(ExpertDispatch.DEEPEP, TWO_NODES)
    inside = pipelined.expert_s[0, 0] / 2.0 / (2.0 * 32)
    assert inside > 0
    assert pipelined.expert_traffic.forward_hidden_s[0] == pytest.approx(inside, rel=0.01)
    assert dispatched(ExpertDispatch.ALL_TO_ALL, TWO_NODES).expert_traffic.forward_hidden_s[0] == 0


def test_staged_transfers_send_no_more_than_a_window_in_each_latency() -> None:
    """8 chunks of 128 KiB in 35 us are 30 GB/s on EFA of any speed; in 10 us on InfiniBand the link limits."""
    traffic = dispatched(ExpertDispatch.ALL_TO_ALL, TWO_NODES)
    message = traffic.expert_traffic.message_bytes[0]

    def seconds(latency_s: float, dispatch: StepCosts) -> float:
        links = NominalLinks(H100, 8, 8, 80e9, 80e9, latency_s)
        forward, _ = crossing_s(links, dispatch)
        return float(forward[0, 0]) / (2 * 32)

    assert seconds(35e-6, traffic) == pytest.approx(message * 35e-6 / 2**20 + 35e-6)
    assert seconds(10e-6, traffic) == pytest.approx(message / 80e9 + 10e-6)


def test_a_plan_pays_for_the_window_as_the_scored_formula_does() -> None:
    """A latency for each window and one more between all pairs of nodes, never less than the links take."""
    fabric = fabrics_of(problem(nodes(2)))[0]
    message, latency = 2.0**28, fabric.links.latency_s
    np.testing.assert_array_equal(fabric.windowed_s(message, NO_WINDOW, 1.0), fabric.hop_s(message))
    narrow = fabric.windowed_s(message, Window(2.0**10), 1.0)
    np.testing.assert_allclose(narrow[0, 1], latency[0, 1] * (1.0 + message / 2.0**10))
    assert (narrow >= fabric.hop_s(message)).all()
    unhidden = fabric.windowed_s(message, Window(2.0**10, hides=False), 1.0)
    np.testing.assert_allclose(unhidden[0, 1], narrow[0, 1] + 1.0)
    fast = Window(2.0**10, latency_s=2.0 * float(latency.max()))
    np.testing.assert_array_equal(fabric.windowed_s(message, fast, 1.0), fabric.hop_s(message))


def test_threads_of_the_host_send_deepep_over_slow_links_unhidden() -> None:
    """A time for each copy, whatever its width and however long the GPU idles; InfiniBand hides its bytes."""
    narrow, wide = (
        costs(
            candidates(TWO_NODES),
            replace(WIDE, hidden=hidden),
            calibration=replace(
                behaviour(expert_dispatch=ExpertDispatch.DEEPEP), expert_imbalance=1.0, sparse_host_s=1.0
            ),
        )
        for hidden in (4096, 8192)
    )

    def seconds(latency_s: float, dispatch: StepCosts) -> float:
        forward, _ = crossing_s(NominalLinks(H100, 8, 8, 80e9, 80e9, latency_s), dispatch)
        return float(forward[0, 0])

    assert seconds(35e-6, narrow) == pytest.approx(seconds(35e-6, wide))
    assert seconds(35e-6, narrow) / (2 * 32) == pytest.approx(0.75 * 8192 * 0.42e-6, rel=0.02)
    assert seconds(10e-6, narrow) == seconds(10e-6, wide) == 0.0


def test_overlap_without_graphs_lasts_as_long_as_the_host_launches() -> None:
    """A layer of a millisecond waits for the host, its dispatch is free meanwhile; captured it does not wait."""
    layer, still = Seconds(np.array([1e-3]), np.array([2e-3])), Seconds(np.zeros(1), np.zeros(1))
    overlapped, experts = np.array([True]), np.array([4.0])
    found = {}
    for graphs in (CudaGraphs.NONE, CudaGraphs.FULL):
        calibration = replace(
            behaviour(cuda_graphs=graphs),
            overlap_host_s=5e-3,
            sparse_host_s=0.0,
            expert_host_s=1e-4,
            dispatch_overlap=0.5,
        )
        found[graphs] = sparse_host_bound(layer, still, calibration, overlapped=overlapped, experts=experts)
        untouched, shelter = sparse_host_bound(layer, still, calibration, overlapped=~overlapped, experts=experts)
        assert (untouched.forward, untouched.backward) == (layer.forward, layer.backward)
        assert (shelter.beside_s, shelter.idle_s) == (0.0, 0.0)
    waiting, shelter = found[CudaGraphs.NONE]
    assert (waiting.forward[0], waiting.backward[0]) == pytest.approx((5.4e-3, 5.4e-3))
    assert (shelter.beside_s[0], shelter.idle_s[0]) == pytest.approx((0.5 * 1.5e-3, 3.9e-3))
    captured, shelter = found[CudaGraphs.FULL]
    assert (captured.forward[0], captured.backward[0]) == (1e-3, 2e-3)
    assert (shelter.beside_s[0], shelter.idle_s[0]) == pytest.approx((0.5 * 1.5e-3, 0.0))


@pytest.mark.parametrize(("tokens", "bound"), [(512, True), (65536, False)])
def test_a_host_that_waits_for_counts_bounds_layers_of_few_tokens(tokens: int, *, bound: bool) -> None:
    """With few tokens dispatch is free and a layer takes what its host takes; a capacity frees the host."""
    row, workload = {"data": 8, "expert": 8}, replace(WORKLOAD, sequence_length=tokens)

    def layer_s(balance: ExpertBalance, host_s: float) -> tuple[float, float]:
        calibration = replace(
            behaviour(expert_balance=balance), sparse_host_s=host_s, expert_host_s=0.0, expert_imbalance=1.0
        )
        found = step_costs(
            candidates(row),
            even_layers(MIXTRAL, 1),
            architecture=replace(MIXTRAL, vocabulary=128),
            workload=workload,
            gpu=H100,
            gpus_per_domain=8,
            gpus_per_node=8,
            calibration=calibration,
        )
        return float(found.forward_s[0, 0]) / 32, float(found.expert_s[0, 0])

    free, traffic = layer_s(ExpertBalance.NATURAL, 0.0)
    waiting, sheltered = layer_s(ExpertBalance.NATURAL, 5e-3)
    assert layer_s(ExpertBalance.CAPACITY, 5e-3) == layer_s(ExpertBalance.CAPACITY, 0.0)
    assert traffic > 0
    if bound:
        assert waiting == pytest.approx(5e-3, rel=0.02)
        assert sheltered == 0
    else:
        assert waiting == pytest.approx(free)
        assert sheltered == traffic
