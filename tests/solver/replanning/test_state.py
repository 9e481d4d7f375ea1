"""State by rank: it adds up to what the memory model counts, and every part has as many copies as it should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.gpus import Precision
from cluster_models.jobs.recovery import StateKind
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.training.expert_slots import ExpertSlots
from cluster_models.training.plan import Configuration
from cluster_models.training.workload import Sharding
from solver.candidates import batch_of
from solver.costs.parameters import local_parameters, sharing_ranks
from solver.costs.training_state import bytes_per_parameter, states_of, units_of
from solver.degrees.layout import chunk_layers
from tests.solver.problems import DENSE, SPARSE
from tests.solver.replanning.moves import plan_on, shape

MIXED = replace(
    DENSE,
    name="tiny-mixed",
    layers=6,
    learned_positions=64,
    norm_vectors=2,
    experts=Experts(count=8, active=2, hidden=512, shared_hidden=256, dense_layers=1, layer_period=2),
)
MODELS = (
    DENSE,
    SPARSE,
    MIXED,
    replace(DENSE, tied_embeddings=True),
    replace(MIXED, prediction_layers=1),
    replace(DENSE, tied_embeddings=True, prediction_layers=1),
)


@st.composite
def configurations(draw: st.DrawFn, model: Architecture) -> Configuration:
    """Small legal shapes of ``model``."""
    tensor, pipeline = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 3]))
    context, data = draw(st.sampled_from([1, 2])), draw(st.sampled_from([1, 2, 3, 4]))
    expert = expert_tensor = 1
    if model.experts is not None:
        members = tensor * context * data
        expert = draw(st.sampled_from([e for e in (1, 2, 4) if members % e == 0]))
        expert_tensor = draw(st.sampled_from([t for t in (1, 2) if members % (expert * t) == 0]))
    return shape(
        model,
        sharding=draw(st.sampled_from(list(Sharding))),
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        data=data,
        expert=expert,
        expert_tensor=expert_tensor,
    )


def gpus_of(configuration: Configuration) -> tuple[str, ...]:
    """One node for each GPU."""
    return tuple(f"n{rank}" for rank in range(configuration.degrees.gpus))


@given(data=st.data(), model=st.sampled_from(MODELS))
@settings(max_examples=30)
def test_state_of_a_rank_is_what_the_memory_model_counts(data: st.DataObject, model: Architecture) -> None:
    """Weights and optimizer states of each stage, from the parameters that memory is predicted by."""
    configuration = data.draw(configurations(model))
    plan = plan_on(gpus_of(configuration), configuration, gpus=1, model=model)
    (state,) = states_of((plan,), RecoveryPolicy())
    batch = batch_of(configuration)
    parameters = local_parameters(
        batch, chunk_layers(model, configuration.stage_layers, configuration.schedule), model
    )
    assert plan.workload is not None
    weight, optimizer = bytes_per_parameter(plan.workload, configuration.sharding)
    common, routed = sharing_ranks(batch, plan.workload.framework)
    owned = (parameters.common / common[:, None] + parameters.routed / routed[:, None])[0]
    whole = (parameters.common + parameters.routed)[0]
    held = owned if configuration.sharding is Sharding.PARAMETERS else whole
    expected = weight * held + optimizer * owned
    assert state.rank_bytes == pytest.approx(expected[state.stage])


@pytest.mark.parametrize("model", MODELS)
def test_units_add_up_to_the_model(model: Architecture) -> None:
    """All parameters are in exactly one unit; multi-token prediction comes on top."""
    units = units_of(replace(model, prediction_layers=0))
    assert float((units.cut + units.repeated + units.routed).sum()) == model.parameters()


@given(data=st.data(), model=st.sampled_from(MODELS), instances=st.sampled_from([1, 2, 3, 4]))
@settings(max_examples=30)
def test_every_part_is_held_evenly_often(data: st.DataObject, model: Architecture, instances: int) -> None:
    """No gap and no piece with more copies than others: members over members for one copy."""
    configuration = data.draw(configurations(model))
    plan = plan_on(gpus_of(configuration), configuration, gpus=1, model=model)
    (state,) = states_of((plan,), RecoveryPolicy(optimizer_instances=instances))
    for part in state.parts:
        copies = np.zeros(part.shares.grid, dtype=np.int64)
        for low, high in zip(part.shares.low.tolist(), part.shares.high.tolist(), strict=True):
            copies[low:high] += 1
        assert copies.min() == copies.max() >= 1


def test_instances_copy_optimizer_shards() -> None:
    """Four data ranks: four shards once each, or two shards twice each."""
    configuration = shape(data=4)
    plan = plan_on(("n0",), configuration)
    for instances, shards in ((1, 4), (2, 2), (4, 1), (3, 4)):
        (state,) = states_of((plan,), RecoveryPolicy(optimizer_instances=instances))
        part = next(part for part in state.parts if part.kind is StateKind.OPTIMIZER)
        assert part.shares.grid == shards


def test_experts_in_another_order_are_told_apart_by_number() -> None:
    """Two expert ranks that swap their experts in one layer hold each other's share of it, and of no other."""
    configuration = shape(SPARSE, data=2, expert=2)
    plain = plan_on(("n0",), configuration, model=SPARSE)
    swapped = ExpertSlots((0, 1, 2, 3), ((2, 3, 0, 1), *[(0, 1, 2, 3)] * 3), 4, 2)
    before, after = states_of((plain, replace(plain, expert_slots=swapped)), RecoveryPolicy())
    pairs = [
        (sorted(old.shares.low[old.shares.member == 0]), sorted(new.shares.low[new.shares.member == 0]))
        for old, new in zip(before.parts, after.parts, strict=True)
        if old.kind is StateKind.EXPERT_WEIGHTS
    ]
    assert [old == new for old, new in pairs] == [False, True, True, True]


def test_sharded_master_weights_are_counted_once() -> None:
    """PyTorch FSDP keeps FP32 shards that are the weights; FP32 training has no 16-bit copy either."""
    plan = plan_on(("n0",), shape(data=2))
    assert plan.workload is not None
    fsdp = replace(plan.workload, framework=replace(plan.workload.framework, sharded_master=True))
    assert bytes_per_parameter(plan.workload, Sharding.PARAMETERS) == (2.0, 12.0)
    assert bytes_per_parameter(fsdp, Sharding.PARAMETERS) == (4.0, 8.0)
    assert bytes_per_parameter(replace(fsdp, precision=Precision.FP32), Sharding.OPTIMIZER) == (4.0, 8.0)
