"""Sharded parameters (ZeRO-3): what a layer's collectives add, by whom they are shared and what leaves a domain."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective
from cluster_models.training.workload import Recompute, Sharding
from solver.candidates import RECOMPUTE_CODES, SHARDING_CODES
from solver.costs.calibration import Calibration
from solver.costs.collectives import domain_collective_s
from solver.costs.step_costs import StepCosts, step_costs
from tests.solver.cost_cases import H100, LLAMA_70B, MIXTRAL, WORKLOAD, behaviour, candidates, costs, even_layers

ZERO_3 = {"sharding": SHARDING_CODES.index(Sharding.PARAMETERS)}
LAYER = 8192 * 128 * 2 * (64 + 8) + 3 * 8192 * 28672 + 2 * 8192
"""Parameters of a layer of LLAMA_70B: attention, gated MLP and two norms."""


def calibration(contention: float, **facts: Any) -> Calibration:
    """The default framework with this contention and some facts changed; all ranks keep pace."""
    return replace(behaviour(**facts), gather_contention=contention, straggling_share=0.0)


def alone_s(gradient_bytes: float, ranks: int = 8) -> tuple[float, float]:
    """Seconds of a layer's gather, and of gather and scatter, with nothing beside them."""
    gather, scatter = (
        float(domain_collective_s(H100, kind, np.array([float(ranks)]), np.array([width * LAYER]))[0])
        for kind, width in ((Collective.ALL_GATHER, 2.0), (Collective.REDUCE_SCATTER, gradient_bytes))
    )
    return gather, gather + scatter


def on_domains(domain: int, **row: int) -> StepCosts:
    """Costs on nodes of 4 GPUs that NVLink joins to domains of ``domain``."""
    batch = candidates({**ZERO_3, **row})
    return step_costs(
        batch,
        even_layers(LLAMA_70B, 1),
        architecture=LLAMA_70B,
        workload=WORKLOAD,
        gpu=H100,
        gpus_per_domain=domain,
        gpus_per_node=4,
    )


@pytest.mark.parametrize(("data", "domains"), [(8, 1), (64, 8)])
def test_slices_that_the_host_cuts_one_by_one_are_waited_for(data: int, domains: int) -> None:
    """Four products take 10 us for each rank and pass, twice that backward, in a node and between nodes."""
    batch, slicing = candidates({**ZERO_3, "data": data}), 4 * data * 1e-5
    known = (
        calibration(0.0, overlap_parameters=False, overlap_gradients=False, slices_shards=s) for s in (False, True)
    )
    whole, sliced = (costs(batch, calibration=each) for each in known)
    if domains == 1:
        assert sliced.forward_s - whole.forward_s == pytest.approx(80 * slicing)
        assert sliced.backward_s - whole.backward_s == pytest.approx(80 * 2 * slicing)
    else:
        shown, hidden = sliced.parameter_traffic, whole.parameter_traffic
        assert shown.forward_hidden_s == pytest.approx(hidden.forward_hidden_s - slicing)
        counted = shown.backward_count[0] / shown.forward_count[0]
        assert counted * (hidden.backward_hidden_s - shown.backward_hidden_s) == pytest.approx(2 * slicing)


@settings(max_examples=12)
@given(contention=st.floats(0.0, 1.0), gradient_bytes=st.sampled_from([2.0, 4.0]))
def test_hidden_collectives_cost_their_contention(contention: float, gradient_bytes: float) -> None:
    """A layer of 16,384 tokens outlasts its gathers in a node: what remains is what they slow."""
    row = {"data": 8, "micro_batch": 2}
    known = calibration(contention, gradient_bytes=gradient_bytes)
    plain, sharded = costs(candidates(row, {**row, **ZERO_3}), calibration=known).forward_s[:, 0]
    backward_plain, backward = costs(candidates(row, {**row, **ZERO_3}), calibration=known).backward_s[:, 0]
    gather, both = alone_s(gradient_bytes)
    assert sharded - plain == pytest.approx(80 * contention * gather, abs=1e-9)
    assert backward - backward_plain == pytest.approx(80 * contention * both, abs=1e-9)


def test_what_is_not_overlapped_is_paid_in_full() -> None:
    """Without overlap a layer takes its own time and that of its collectives."""
    known = calibration(0.3, overlap_gradients=False, overlap_parameters=False)
    plain, sharded = costs(candidates({"data": 8}, {"data": 8, **ZERO_3}), calibration=known).forward_s[:, 0]
    assert sharded - plain == pytest.approx(80 * alone_s(4.0)[0])


@settings(max_examples=12)
@given(contention=st.floats(0.0, 1.0), tokens=st.sampled_from([64, 256, 1024, 8192]))
def test_a_layer_lasts_as_long_as_its_collectives_at_least(contention: float, tokens: int) -> None:
    """However short the layer: neither compute nor collectives get faster by running together."""
    workload = replace(WORKLOAD, sequence_length=tokens)
    known = calibration(contention)
    both = costs(candidates({"data": 8}, {"data": 8, **ZERO_3}), workload=workload, calibration=known)
    plain, sharded = both.backward_s[:, 0]
    assert sharded >= max(plain, 80 * alone_s(4.0)[1]) * (1 - 1e-12)


def test_recomputed_forward_hides_collectives_too() -> None:
    """Short layers: what recomputation adds to backward is time beside which gathers run."""
    workload = replace(WORKLOAD, sequence_length=512)
    full = {"recompute": RECOMPUTE_CODES.index(Recompute.FULL)}
    rows = ({"data": 8}, {"data": 8, **full}, {"data": 8, **ZERO_3}, {"data": 8, **full, **ZERO_3})
    plain, recomputed, sharded, both = costs(
        candidates(*rows), workload=workload, calibration=calibration(0.0)
    ).backward_s[:, 0]
    assert both - sharded < recomputed - plain


def test_narrow_gradients_scatter_half_as_much() -> None:
    """Backward gathers once and scatters in the gradients' width: 2 messages of 16 bits, or 3 with FP32."""
    for width, count in ((2.0, 2.0), (4.0, 3.0)):
        result = costs(candidates({"data": 16, **ZERO_3}), calibration=calibration(0.3, gradient_bytes=width))
        assert result.parameter_traffic.backward_count[0, 0] == 80 * count
        assert result.parameter_traffic.forward_count[0, 0] == 80


def test_members_of_a_domain_share_what_leaves_it() -> None:
    """64 ranks of tensor 2 on domains of 72: two domains of 32 members, each sending 63/64 of its share."""
    message = on_domains(72, data=64, tensor=2).parameter_traffic.message_bytes[0]
    layer = 2.0 * ((LAYER - 2 * 8192) / 2 + 2 * 8192)
    assert message == pytest.approx(layer * 63 / 64 / 32)


def test_a_group_inside_its_domain_sends_nothing_out() -> None:
    """72 ranks fill a domain; on nodes of 4 without NVLink between them, 4 members share a node's traffic."""
    assert on_domains(72, data=72).parameter_traffic.message_bytes[0] == 0
    assert on_domains(4, data=72).parameter_traffic.message_bytes[0] == pytest.approx(2.0 * LAYER * 71 / 72 / 4)


def test_contention_is_felt_wherever_the_gathers_lead() -> None:
    """A group that spans nodes slows compute as well, and this time hides its messages."""
    free = costs(candidates({"data": 64, **ZERO_3}), calibration=calibration(0.0))
    slowed = costs(candidates({"data": 64, **ZERO_3}), calibration=calibration(0.5))
    added = (slowed.forward_s - free.forward_s)[0, 0] / 80
    assert added == pytest.approx(0.5 * alone_s(4.0)[0], rel=1e-6)
    hidden = slowed.parameter_traffic.forward_hidden_s - free.parameter_traffic.forward_hidden_s
    assert hidden[0] == pytest.approx(added)


def test_experts_that_nobody_shares_are_not_gathered() -> None:
    """With as many expert as data ranks each rank keeps its own experts; with fewer, others hold them too."""
    rows = [{"data": 16, "expert": expert, **ZERO_3} for expert in (16, 8)]
    assert MIXTRAL.experts is not None
    model = replace(MIXTRAL, experts=replace(MIXTRAL.experts, count=16))
    alone, shared = costs(candidates(*rows), model).parameter_traffic.message_bytes
    attention = 4096 * 128 * 2 * (32 + 8) + 4096 * 16 + 2 * 4096
    assert alone == pytest.approx(2.0 * attention * 15 / 16 / 8)
    experts = 2 * 3 * 4096 * 14336
    assert shared - alone == pytest.approx(2.0 * experts / 2)


def test_weights_that_stay_through_a_pipeline_travel_once_a_step() -> None:
    """PyTorch's FSDP under a pipeline: no traffic within micro-batches, the buffers of ZeRO-1 at their ends."""
    row = {"pipeline": 4, "data": 16}
    known = calibration(0.3, sharded_master=True)
    rows = candidates(row, {**row, **ZERO_3})
    result = costs(rows, calibration=known)
    assert result.parameter_traffic.message_bytes[1] == 0
    for value in (result.forward_s, result.backward_s, result.reduce_bytes, result.gather_bytes):
        assert value[0] == pytest.approx(value[1])
    assert costs(rows, calibration=calibration(0.3)).reduce_bytes[1].sum() == 0


def test_gradients_that_are_reduced_once_leave_the_micro_batches() -> None:
    """Weights are gathered twice in each, gradients scattered once a step like those of ZeRO-1."""
    rows = candidates({"data": 64, **ZERO_3}, {"data": 64})
    each, once = (costs(rows, calibration=calibration(0.0, reduces_once=value)) for value in (False, True))
    assert each.reduce_bytes[0].sum() == 0
    assert once.reduce_bytes[0] == pytest.approx(once.reduce_bytes[1])
    assert once.gather_bytes[0].sum() == 0
    counts = [found.parameter_traffic.backward_count[0, 0] / 80 for found in (each, once)]
    assert counts == pytest.approx([1.0 + 4.0 / 2.0, 1.0])


def test_weights_that_are_gathered_each_micro_batch_travel_layer_by_layer_in_a_pipeline_too() -> None:
    """FSDP that reshards after forward: what one stage of a pipeline gathers is what a whole model does a layer."""
    row = {"data": 16, **ZERO_3}
    known = calibration(0.3, sharded_master=True, gathers_each_micro_batch=True)
    whole, stages = (costs(candidates({**row, "pipeline": size}), calibration=known) for size in (1, 4))
    assert stages.parameter_traffic.message_bytes == pytest.approx(whole.parameter_traffic.message_bytes)
    assert stages.parameter_traffic.message_bytes[0] > 0
    assert stages.gather_bytes.sum() == 0


@pytest.mark.parametrize("count", [1, 2, 8])
def test_sharded_gradients_travel_in_each_micro_batch(count: int) -> None:
    """ZeRO-2 reduces as often as there are micro-batches, each beside its own backward pass; ZeRO-1 once."""
    workload = replace(WORKLOAD, global_batch=64 * count)
    rows = candidates({"data": 64}, {"data": 64, "sharding": SHARDING_CODES.index(Sharding.NONE)})
    once, each = (
        costs(rows, workload=workload, calibration=calibration(0.0, shards_gradients=value))
        for value in (False, True)
    )
    assert each.reduce_passes[0] == pytest.approx(count * once.reduce_passes[0])
    assert each.reduce_hidden_s[0] == pytest.approx(count * once.reduce_hidden_s[0])
    assert each.reduce_passes[1] == once.reduce_passes[1]
