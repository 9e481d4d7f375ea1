"""Parameters sharded inside groups of data ranks, with copies in all groups (HSDP)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cluster_models.errors import InvalidConfiguration, InvalidWorkload
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import SHARDING_CODES
from solver.check import check_plan
from solver.costs.training_state import states_of
from solver.degrees.enumeration import enumerate_candidates
from tests.solver.cost_cases import LLAMA_70B, candidates, costs, memory
from tests.solver.problems import DENSE, EXACT, nodes, pair_samples, planned, problem, rates_of
from tests.solver.replanning.test_state import gpus_of, plan_on

TITAN = framework("torchtitan-2025")
PARAMETERS = SHARDING_CODES.index(Sharding.PARAMETERS)
WORKLOAD = TrainingWorkload(
    sequence_length=8192, global_batch=256, framework=TITAN, sharding=(Sharding.NONE, Sharding.PARAMETERS)
)
ROWS = candidates(*({"data": 64, "sharding": PARAMETERS, "sharding_ranks": size} for size in (0, 8, 16)))


def test_gathers_stay_in_a_node_and_gradients_reach_all_ranks() -> None:
    """Groups of a node gather over NVLink; gradients pass the ring of all ranks twice, in every micro-batch."""
    found = costs(ROWS, workload=WORKLOAD)
    crossing = found.parameter_traffic
    assert (crossing.forward_count > 0)[:, 0].tolist() == [True, False, True]
    assert crossing.backward_count[2] == pytest.approx(crossing.forward_count[2])  # the gather alone
    parameters = LLAMA_70B.parameters()
    assert found.reduce_bytes[:, 0] == pytest.approx([0.0, 4.0 * parameters, 4.0 * parameters], rel=1e-3)
    assert found.reduce_passes[1] == pytest.approx(found.reduce_passes[2])
    plain = costs(candidates({"data": 64, "sharding": SHARDING_CODES.index(Sharding.NONE)}), workload=WORKLOAD)
    assert found.reduce_passes[1] == pytest.approx(256 / 64 * plain.reduce_passes[0])


def test_groups_of_all_ranks_are_no_groups() -> None:
    """The same bytes are held and owned; smaller groups hold as many times more as they are smaller."""
    whole, node, two = (memory(ROWS.take(np.array([row])), workload=WORKLOAD) for row in range(3))
    assert node.optimizer_bytes == pytest.approx(8.0 * whole.optimizer_bytes)
    assert two.optimizer_bytes == pytest.approx(4.0 * whole.optimizer_bytes)
    shard = 4.0 * LLAMA_70B.parameters() / 64
    assert node.weights_bytes - whole.weights_bytes == pytest.approx(np.array([[7.0 * shard]]))


def test_the_search_tries_all_ranks_and_those_of_a_node() -> None:
    """All 32 data ranks, or the 4 on a node of 8 GPUs with 2 tensor ranks; where a node holds all, no groups."""
    asked = replace(WORKLOAD, pinned={"tensor": 2, "micro_batch": 1, "context": 1}, sharding=(Sharding.PARAMETERS,))

    def tried(workload: TrainingWorkload, world: int) -> set[tuple[int, int]]:
        found = enumerate_candidates(LLAMA_70B, workload, gpus_per_node=8, nodes=8)
        rows = found.take(found.tensor * found.data * found.pipeline * found.context == world)
        return set(zip(rows.data.tolist(), rows.sharding_ranks.tolist(), strict=True))

    assert tried(asked, 64) == {(32, 0), (32, 4)}
    assert tried(asked, 8) == {(4, 0)}
    assert tried(replace(asked, pinned={**asked.pinned, "sharding_ranks": 16}), 64) == {(32, 16)}
    assert tried(replace(asked, forbidden={"sharding_ranks": (0,)}), 64) == {(32, 4)}
    assert tried(replace(asked, framework=framework("megatron-core-0.12")), 64) == {(32, 0)}


def test_plans_use_groups_where_networks_are_slow() -> None:
    """16-bit gradients twice over the network are fewer bytes than those once and weights twice.

    The checker agrees, and finds groups that a framework has not.
    """
    titan = replace(TITAN, gradient_bytes=2.0)
    asked = problem(
        nodes(2, gpus=2),
        pair_samples(rates_of(2, [4.0]), flows=2),
        model=DENSE,
        framework=titan,
        sharding=(Sharding.PARAMETERS,),
        recompute=(Recompute.NONE,),
        pinned={"tensor": 1, "data": 4},
    )
    found = planned(asked, EXACT)
    assert found.configuration.sharding_ranks == 2
    assert check_plan(found, asked) == ()
    all_ranks = replace(
        asked, workload=replace(asked.workload, pinned={**asked.workload.pinned, "sharding_ranks": 0})
    )
    assert planned(all_ranks, EXACT).time.step_s > found.time.step_s
    assert any("pins it to 0" in each for each in check_plan(found, all_ranks))
    plain = replace(titan, hybrid_sharding=False)
    other = replace(asked, workload=replace(asked.workload, framework=plain))
    assert any("in groups of 2" in each for each in check_plan(found, other))


def test_every_group_holds_all_state() -> None:
    """Four data ranks in groups of two: two shards, twice each."""
    configuration = Configuration(
        Degrees(data=4),
        1,
        Recompute.NONE,
        Sharding.PARAMETERS,
        RankOrder.DATA_BEFORE_PIPELINE,
        ((DENSE.layers,),),
        sharding_ranks=2,
    )
    (state,) = states_of((plan_on(gpus_of(configuration), configuration, gpus=1, model=DENSE),), RecoveryPolicy())
    for part in state.parts:
        copies = np.zeros(part.shares.grid, dtype=np.int64)
        for low, high in zip(part.shares.low.tolist(), part.shares.high.tolist(), strict=True):
            copies[low:high] += 1
        assert part.shares.grid == 2
        assert copies.tolist() == [2, 2]


@pytest.mark.parametrize(("data", "group"), [(12, 4), (8, 4), (6, 0), (4, 0), (2, 0)])
def test_groups_that_other_replicas_cannot_fill_are_given_up(data: int, group: int) -> None:
    """A job that shrinks keeps its groups where they divide what is left, and shards over all of it otherwise."""
    order = RankOrder.DATA_BEFORE_PIPELINE
    eight = Configuration(
        Degrees(data=16), 1, Recompute.NONE, Sharding.PARAMETERS, order, ((6,),), sharding_ranks=4
    )
    found = eight.with_data(data)
    assert (found.degrees.data, found.sharding_ranks) == (data, group)


@pytest.mark.parametrize(
    ("degrees", "sharding", "size"),
    [
        (Degrees(data=8), Sharding.PARAMETERS, 3),
        (Degrees(data=8, context=4), Sharding.PARAMETERS, 2),
        (Degrees(data=8), Sharding.GRADIENTS, 4),
        (Degrees(data=8), Sharding.PARAMETERS, -8),
    ],
)
def test_groups_divide_the_ranks(degrees: Degrees, sharding: Sharding, size: int) -> None:
    """Whole context groups, of sharded parameters or states alone."""
    with pytest.raises(InvalidConfiguration) as refused:
        Configuration(
            degrees, 1, Recompute.NONE, sharding, RankOrder.DATA_BEFORE_PIPELINE, ((6,),), sharding_ranks=size
        )
    assert refused.value.field == "sharding_ranks"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"framework": framework("nanotron-0.5")}, "does not shard in groups"),
        ({"framework": framework("megatron-core-0.12")}, "share optimizer out"),
        ({"sharding": (Sharding.OPTIMIZER,)}, "share parameters out"),
    ],
)
def test_pinned_groups_that_cannot_be_are_refused(changes: dict[str, Any], reason: str) -> None:
    """Framework and sharding."""
    asked = {"framework": TITAN, "sharding": (Sharding.PARAMETERS,), "pinned": {"sharding_ranks": 2}} | changes
    with pytest.raises(InvalidWorkload, match=reason):
        planned(problem(nodes(2, gpus=2), model=DENSE, **asked), EXACT)
