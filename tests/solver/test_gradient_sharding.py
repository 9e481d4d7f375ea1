"""Gradients sharded with the optimizer's states beside whole weights (ZeRO-2)."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.training.frameworks import framework
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import SHARDING_CODES
from solver.check import check_plan
from solver.degrees.enumeration import enumerate_candidates
from tests.solver.cost_cases import LLAMA_70B, MIXTRAL, candidates, costs, memory
from tests.solver.problems import DENSE, EXACT, nodes, planned, problem

DEEPSPEED = framework("transformers-2025")
WORKLOAD = TrainingWorkload(sequence_length=8192, global_batch=128, framework=DEEPSPEED)
EVERY = tuple(Sharding)


@pytest.mark.parametrize("model", [LLAMA_70B, MIXTRAL])
def test_it_is_a_framework_whose_sharded_optimizer_owns_gradients(model: Any) -> None:
    """The same time and memory: reduced in every micro-batch, and held by owners alone."""
    row = {"tensor": 4, "data": 16, "expert": 8 if model is MIXTRAL else 1}
    asked = candidates(row | {"sharding": SHARDING_CODES.index(Sharding.GRADIENTS)})
    owners = replace(WORKLOAD, framework=replace(DEEPSPEED, shards_gradients=True))
    own, known = costs(asked, model, WORKLOAD), costs(candidates(row), model, owners)
    for part in fields(own):
        if "traffic" not in part.name:
            assert getattr(own, part.name) == pytest.approx(getattr(known, part.name)), part.name
    held, said = memory(asked, model, WORKLOAD), memory(candidates(row), model, owners)
    assert held.total_bytes == pytest.approx(said.total_bytes)
    plain = memory(candidates(row), model, WORKLOAD)
    assert held.gradients_bytes < 0.2 * plain.gradients_bytes
    assert held.optimizer_bytes == plain.optimizer_bytes


def test_it_is_tried_without_a_pipeline_where_the_framework_has_it() -> None:
    """DeepSpeed's stage 2; not Megatron's shardings, and never beside pipeline ranks."""

    def tried(name: str) -> set[tuple[int, Sharding]]:
        asked = replace(WORKLOAD, framework=framework(name), sharding=EVERY, pinned={"micro_batch": 1})
        found = enumerate_candidates(LLAMA_70B, asked, gpus_per_node=8, nodes=1)
        return {
            (min(p, 2), SHARDING_CODES[s])
            for p, s in zip(found.pipeline.tolist(), found.sharding.tolist(), strict=True)
        }

    assert {each for each in tried("transformers-2025") if each[1] is Sharding.GRADIENTS} == {
        (1, Sharding.GRADIENTS)
    }
    assert not {each for each in tried("megatron-core-0.12") if each[1] is Sharding.GRADIENTS}


def test_plans_shard_gradients_where_that_is_all_they_may() -> None:
    """The checker agrees, and refuses the plan under a framework without; ZeRO-1 is never slower."""
    asked = problem(
        nodes(1, gpus=2),
        model=DENSE,
        framework=DEEPSPEED,
        sharding=(Sharding.GRADIENTS,),
        recompute=(Recompute.NONE,),
        pinned={"data": 2},
    )
    found = planned(asked, EXACT)
    assert found.configuration.sharding is Sharding.GRADIENTS
    assert check_plan(found, asked) == ()
    plain = replace(asked, workload=replace(asked.workload, framework=replace(DEEPSPEED, gradient_sharding=False)))
    assert any("does not shard gradients" in each for each in check_plan(found, plain))
    first = replace(asked, workload=replace(asked.workload, sharding=(Sharding.OPTIMIZER,)))
    assert planned(first, EXACT).time.step_s <= found.time.step_s


def test_a_framework_without_is_refused() -> None:
    """Where nothing else is allowed."""
    asked = problem(nodes(1, gpus=2), framework=framework("megatron-core-0.12"), sharding=(Sharding.GRADIENTS,))
    with pytest.raises(InvalidWorkload, match="does not shard gradients"):
        planned(asked, EXACT)
