"""Weights between the parts, and GPUs that both use, on figures to check by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.links.model import effective_links
from cluster_models.model.catalogue import catalogue_model
from cluster_models.training.plan import Degrees, Plan
from solver import search
from solver.reinforcement.parts import training_problem
from solver.reinforcement.problem import ReinforcementProblem
from solver.reinforcement.weights import (
    least_broadcast_s,
    offload_s,
    resharding,
    shared_memory,
    tensors_s,
    weight_bytes,
)
from tests.solver.problems import DENSE, SPARSE
from tests.solver.reinforcement.cases import QUICK, problem, trained_with


def trained(asked: ReinforcementProblem) -> Plan:
    """The trainer's plan on all nodes."""
    found = search.plan(training_problem(asked, len(asked.nodes)), QUICK)
    assert isinstance(found, Plan)
    return found


def test_a_copy_inside_a_node_crosses_no_network() -> None:
    """Two tensor ranks gather half of the weights each from the other."""
    asked = trained_with(problem(2, prompts=16), tensor=2, pipeline=1)
    found = trained(asked)
    assert found.configuration.degrees == Degrees(tensor=2, data=2)
    move = resharding(asked, found)
    assert (move.weight_bytes, move.network_bytes) == (2.0 * DENSE.parameters(), 0.0)
    assert move.domain_bytes == pytest.approx(DENSE.parameters())


def test_a_copy_over_nodes_brings_what_each_lacks() -> None:
    """Four stages on two nodes: what the other node's two hold comes once, by both GPUs at once."""
    asked = trained_with(problem(2), tensor=1, pipeline=4)
    found = trained(asked)
    move = resharding(asked, found)
    whole = weight_bytes(asked)
    assert move.network_bytes == pytest.approx(whole / 2)
    links = effective_links(asked.snapshot)
    assert move.seconds >= float(links.transfer_s(whole / 4, 2)[0, 1])
    assert least_broadcast_s(asked) == pytest.approx(float(links.transfer_s(whole, 1)[0, 1]) + tensors_s(asked))


def test_every_tensor_takes_its_time() -> None:
    """Nine a layer, and three of each expert: 45,395 of DeepSeek-V3 were counted, 45,093 are here."""
    model = replace(SPARSE, layers=2)
    count = 2 * 9 + model.sparse_layers * (model.experts.count if model.experts else 0) * (2 + model.gated_mlp)
    assert tensors_s(replace(problem(2), architecture=model)) == pytest.approx(0.2e-3 * count)
    assert tensors_s(replace(problem(2), architecture=catalogue_model("deepseek-v3"))) == pytest.approx(
        9.0, rel=0.02
    )


def test_offloaded_states_make_room_for_the_engine_and_take_their_time() -> None:
    """Offloaded memory is the engine's; twice its bytes pass the link to the host, which may be too small."""
    asked = problem(2)
    found = trained(asked)
    stays, leaves = (shared_memory(asked, found, offloads=offloads) for offloads in (False, True))
    assert stays is not None
    assert leaves is not None
    states = max(stage.weights_bytes + stage.optimizer_bytes for stage in found.memory)
    assert leaves.offloaded_bytes == states
    assert stays.resident_bytes - leaves.resident_bytes >= states
    assert leaves.engine_fraction >= stays.engine_fraction
    gpu = asked.snapshot.cluster.gpu_kinds["H100-SXM5-80GB"]
    assert offload_s(asked, found, leaves) == pytest.approx(2 * states / (0.78 * gpu.host_share.link_bytes_per_s))
    assert offload_s(asked, found, stays) == 0.0
    stuffed = replace(found, memory=tuple(replace(stage, host_bytes=1e15) for stage in found.memory))
    assert shared_memory(asked, stuffed, offloads=True) is None
    full = replace(found, memory=tuple(replace(stage, weights_bytes=1e12) for stage in found.memory))
    assert shared_memory(asked, full, offloads=False) is None
