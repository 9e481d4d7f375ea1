"""Dispatch and combination of tokens: how many copies travel where, and what hides beside compute."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.architecture import Experts
from cluster_models.frameworks import CudaGraphs, ExpertDispatch
from cluster_models.workload import Recompute
from solver.candidates import RECOMPUTE_CODES
from solver.costs.expert_traffic import reached
from solver.costs.launching import beside_dispatch
from solver.costs.seconds import Seconds
from solver.costs.step_costs import StepCosts, step_costs
from tests.solver.cost_cases import H100, MIXTRAL, WORKLOAD, behaviour, candidates, costs, even_layers

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
    assert across.expert_traffic.message_bytes[0] == pytest.approx(0.75 * TOKEN_BYTES)
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
        assert exposed.expert_traffic.forward_hidden_s[0] == 0


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


def test_overlap_without_graphs_lasts_as_long_as_the_host_launches() -> None:
    """A layer of a millisecond waits for the host, its dispatch is free meanwhile; captured it does not wait."""
    layer, still = Seconds(np.array([1e-3]), np.array([2e-3])), Seconds(np.zeros(1), np.zeros(1))
    overlapped, experts = np.array([True]), np.array([4.0])
    found = {}
    for graphs in (CudaGraphs.NONE, CudaGraphs.FULL):
        calibration = replace(
            behaviour(cuda_graphs=graphs), overlap_host_s=5e-3, expert_host_s=1e-4, dispatch_overlap=0.5
        )
        found[graphs] = beside_dispatch(layer, still, calibration, overlapped=overlapped, experts=experts)
        untouched, hidden = beside_dispatch(layer, still, calibration, overlapped=~overlapped, experts=experts)
        assert (untouched.forward, untouched.backward, hidden) == (layer.forward, layer.backward, np.zeros(1))
    waiting, hidden = found[CudaGraphs.NONE]
    assert (waiting.forward[0], waiting.backward[0]) == pytest.approx((5.4e-3, 5.4e-3))
    assert hidden[0] == pytest.approx(0.5 * 1.5e-3 + 3.9e-3)
    captured, hidden = found[CudaGraphs.FULL]
    assert (captured.forward[0], captured.backward[0]) == (1e-3, 2e-3)
    assert hidden[0] == pytest.approx(0.5 * 1.5e-3)
