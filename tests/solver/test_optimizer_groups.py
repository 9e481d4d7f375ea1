"""Optimizer states shared out in groups of data ranks, a copy in each: as a size that is searched or pinned."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.training.framework_choices import FreeSetting, Optimizer
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.answer.coverage import limits
from solver.check import check_plan
from solver.degrees.enumeration import enumerate_candidates
from tests.remarks import codes
from tests.solver.cost_cases import LLAMA_70B, MIXTRAL, behaviour, candidates, costs, memory
from tests.solver.problems import DENSE, EXACT, fabrics_of, nodes, pair_samples, planned, problem, rates_of

MEGATRON = framework("megatron-core-0.15")
FREE = (FreeSetting.SHARDING_RANKS,)


@pytest.mark.parametrize("model", [LLAMA_70B, MIXTRAL])
def test_a_group_costs_what_the_setting_of_the_framework_does(model: Any) -> None:
    """Every cost and every byte, with experts as well."""
    (grouped, whole), rank = (
        [candidates({"data": 64, "expert": 1, "sharding_ranks": size}) for size in (8, 0)],
        behaviour(sharding_ranks=8),
    )
    for priced in (costs, memory):
        mine, theirs = priced(grouped, model), priced(whole, model, calibration=rank)
        for name in mine.__slots__:
            if isinstance(value := getattr(mine, name), np.ndarray):
                assert value == pytest.approx(getattr(theirs, name)), name


def tried(workload: TrainingWorkload, model: Any = LLAMA_70B) -> set[tuple[int, int]]:
    """Data ranks and groups of the candidates on 64 GPUs."""
    found = enumerate_candidates(model, workload, gpus_per_node=8, nodes=8)
    rows = found.take(found.tensor * found.data * found.pipeline * found.context == 64)
    return set(zip(rows.data.tolist(), rows.sharding_ranks.tolist(), strict=True))


def test_sizes_are_searched_where_they_are_left_free_and_pinned_as_they_are() -> None:
    """All 32 data ranks, or the 4 on a node of 8 GPUs with 2 tensor ranks; Muon's whole matrices never."""
    asked = TrainingWorkload(
        sequence_length=8192,
        global_batch=256,
        framework=MEGATRON,
        sharding=(Sharding.NONE, Sharding.OPTIMIZER),
        pinned={"tensor": 2, "micro_batch": 1, "context": 1, "pipeline": 1},
    )
    free = replace(asked, free_settings=FREE)
    assert tried(asked) == {(32, 0)}
    assert tried(free) == {(32, 0), (32, 4)}
    assert tried(replace(asked, pinned={**asked.pinned, "sharding_ranks": 16})) == {(32, 16)}
    alone = replace(free, sharding=(Sharding.OPTIMIZER,), forbidden={"sharding_ranks": (0,)})
    assert tried(alone) == {(32, 4)}
    muon = replace(free, framework=framework("megatron-bridge-26.06"), optimizer=Optimizer.MUON)
    assert tried(muon) == {(32, 0)}


def test_states_of_experts_lie_in_as_many_groups() -> None:
    """Eight groups of ranks with the same weights are not eight of the four ranks with the same experts."""
    asked = TrainingWorkload(
        sequence_length=4096,
        global_batch=256,
        framework=MEGATRON,
        free_settings=FREE,
        sharding=(Sharding.OPTIMIZER,),
        pinned={"tensor": 1, "micro_batch": 1, "context": 1, "pipeline": 1, "expert_tensor": 1},
    )
    assert tried(replace(asked, pinned={**asked.pinned, "expert": 8}), MIXTRAL) == {(64, 0), (64, 8)}
    wide = replace(MIXTRAL, experts=replace(MIXTRAL.experts, count=16))
    assert tried(replace(asked, pinned={**asked.pinned, "expert": 16}), wide) == {(64, 0)}


def test_plans_take_groups_where_gathers_over_the_network_show() -> None:
    """16-bit gradients cross twice either way; weights then stay in the node."""
    asked = problem(
        nodes(2, gpus=2),
        pair_samples(rates_of(2, [20.0]), flows=2),
        model=DENSE,
        framework=replace(MEGATRON, gradient_bytes=2.0, overlap_parameters=False),
        free_settings=FREE,
        global_batch=64,
        pinned={"tensor": 1, "data": 4},
    )
    found = planned(asked, EXACT)
    assert found.configuration.sharding_ranks == 2
    assert found.configuration.sharding_words == "optimizer in groups of 2"
    assert check_plan(found, asked) == ()
    assert "limit_optimizer_groups" in codes(limits(asked, fabrics_of(asked)))
    fixed = replace(asked, workload=replace(asked.workload, free_settings=()))
    assert planned(fixed, EXACT).time.step_s > found.time.step_s
    assert any("neither left free nor pinned" in each for each in check_plan(found, fixed))
    old = replace(
        asked, workload=replace(asked.workload, framework=replace(MEGATRON, megatron_core=9), free_settings=())
    )
    assert any("does not shard optimizer in groups" in each for each in check_plan(found, old))


def test_a_framework_without_instances_leaves_no_choice() -> None:
    """Refused at the field, with what it has."""
    with pytest.raises(InvalidWorkload, match="leaves no choice there"):
        TrainingWorkload(
            sequence_length=8, global_batch=8, framework=framework("torchtitan-2025"), free_settings=FREE
        )
