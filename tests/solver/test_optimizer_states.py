"""Formats of optimizer states that a workload asks for: legal where the framework has them, planned and checked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.training.framework_choices import Optimizer
from cluster_models.training.frameworks import framework
from cluster_models.training.optimizer_states import FULL_STATES, MasterFormat, MomentFormat, OptimizerStates
from cluster_models.training.workload import Sharding
from solver.check import check_plan
from solver.degrees.enumeration import enumerate_candidates
from tests.solver.problems import nodes, planned, problem

PAIR = OptimizerStates(MomentFormat.BF16, MomentFormat.BF16, MasterFormat.REMAINDER)
EIGHT = OptimizerStates(MomentFormat.INT8, MomentFormat.INT8)
MEGATRON = framework("megatron-core-0.15")


@pytest.mark.parametrize(
    ("states", "precision", "shardings"),
    [
        (FULL_STATES, Precision.BF16, set(Sharding) - {Sharding.GRADIENTS}),
        (PAIR, Precision.BF16, {Sharding.OPTIMIZER}),
        (replace(PAIR, master_weight=MasterFormat.FP16), Precision.FP8, {Sharding.OPTIMIZER}),
        (replace(PAIR, master_weight=MasterFormat.FP32), Precision.BF16, {Sharding.PARAMETERS}),
        (replace(PAIR, master_weight=MasterFormat.FP32), Precision.FP8, {Sharding.OPTIMIZER, Sharding.PARAMETERS}),
    ],
)
def test_megatron_keeps_narrow_states_where_it_shards_them(
    states: OptimizerStates, precision: Precision, shardings: set[Sharding]
) -> None:
    """The distributed optimizer has remainders beside BF16 weights, FSDP an FP32 copy."""
    asked = problem(nodes(1, gpus=4), framework=MEGATRON, precision=precision, sharding=tuple(Sharding))
    workload = replace(asked.workload, optimizer_states=states)
    assert set(workload.shardings) == shardings
    found = enumerate_candidates(asked.architecture, workload, gpus_per_node=4, nodes=1)
    assert {tuple(Sharding)[code] for code in found.sharding.tolist()} == shardings


def test_a_plan_with_narrow_states_holds_less_and_passes_the_checker() -> None:
    """Its optimizer takes half of what FP32 states take; with the states of another plan the checker objects."""
    asked = problem(nodes(2, gpus=2), framework=MEGATRON, sharding=(Sharding.OPTIMIZER,), pinned={"data": 4})
    narrow = replace(asked, workload=replace(asked.workload, optimizer_states=PAIR))
    full, less = planned(asked), planned(narrow)
    assert check_plan(less, narrow) == ()
    assert less.memory[0].optimizer_bytes == pytest.approx(full.memory[0].optimizer_bytes / 2)
    assert any("optimizer states" in violation for violation in check_plan(less, asked))
    spoilt = replace(less, configuration=replace(less.configuration, sharding=Sharding.NONE))
    assert any("only where it shards them" in violation for violation in check_plan(spoilt, narrow))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"framework": framework("megatron-core-0.12")}, "workload.optimizer_states.first_moment"),
        ({"framework": framework("torchtitan-2025")}, "workload.optimizer_states.first_moment"),
        ({"optimizer": Optimizer.SGD}, "workload.optimizer_states"),
        ({"precision": Precision.FP8}, "workload.optimizer_states.master_weight"),
        ({"sharding": (Sharding.NONE,)}, "workload.sharding"),
        ({"optimizer_states": EIGHT}, "workload.optimizer_states.first_moment"),
        (
            {
                "framework": framework("transformers-2025"),
                "optimizer_states": replace(EIGHT, second_moment=MomentFormat.FP32),
            },
            "workload.optimizer_states.second_moment",
        ),
    ],
)
def test_what_a_framework_does_not_keep_is_refused_at_its_field(changes: dict[str, object], field: str) -> None:
    """BF16 moments came with 0.13, remainders complete BF16 weights, INT8 is not Megatron's."""
    with pytest.raises(InvalidWorkload) as refused:
        planned(problem(nodes(1), **{"framework": MEGATRON, "optimizer_states": PAIR, **changes}))
    assert refused.value.field == field
