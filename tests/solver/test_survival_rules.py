"""Losses that a plan must survive: kept, told where they cannot be, and counted again from the ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.errors import InvalidWorkload
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.training.placement_rules import KeepTogether, PlacementRules, RankGroup
from cluster_models.training.workload import Sharding
from solver.answer.survival import survives
from solver.check import check_plan
from solver.check.survival import survival_violations
from solver.problem import PlanningProblem
from tests.cluster_models.clusters import host
from tests.remarks import codes
from tests.solver.problems import DENSE, SPARSE, names, not_planned, planned, problem
from tests.solver.replanning.moves import plan_on
from tests.solver.replanning.test_migration import EXPERTS, SMALL, shapes

BOTH = (Sharding.NONE, Sharding.OPTIMIZER)


def asked(nodes: int = 4, *, gpus: int = 2, **changes: Any) -> PlanningProblem:
    """A small problem on leaves of two nodes each."""
    hosts = tuple(host(f"n{k}", leaf=f"leaf-{k // 2}", gpus=gpus, cards=gpus) for k in range(nodes))
    return problem(hosts, **{"sharding": BOTH, **changes})


@pytest.mark.parametrize("survive", [{"node": 1}, {"leaf": 1}, {"node": 1, "leaf": 1}, {"node": 3}])
def test_plans_survive_what_is_asked(survive: dict[str, int]) -> None:
    """Copies lie in enough places, the checker agrees, and the plan says what it was asked."""
    question = asked(survive=survive)
    found = planned(question)
    losses = {each.label: each.count for each in found.survives}
    assert all(losses[label] >= count for label, count in survive.items())
    assert found.configuration.sharding is Sharding.NONE
    assert found.workload == question.workload
    assert check_plan(found, question) == ()


def test_survival_costs_and_without_it_a_loss_takes_state() -> None:
    """The plan that is asked nothing is at least as fast, and one node would take its optimizer shards."""
    free, safe = planned(asked(sharding=(Sharding.OPTIMIZER,))), planned(asked(survive={"leaf": 1}))
    assert {each.label: each.count for each in free.survives}["node"] == 0
    assert planned(asked()).time.step_s <= safe.time.step_s


def test_memory_of_the_next_host_lets_one_node_go_with_sharded_state() -> None:
    """With checkpoints in memory the loss of a node needs no second replica, only a second node."""
    question = asked(2, sharding=(Sharding.OPTIMIZER,), survive={"node": 1}, memory_checkpoint=True)
    found = planned(question)
    assert found.configuration.sharding is Sharding.OPTIMIZER
    assert next(each.count for each in found.survives if each.label == "node") == 1
    assert check_plan(found, question) == ()


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"survive": {"power": 1}}, "workload.survive.power", "have no such label"),
        ({"survive": {"leaf": 2}}, "workload.survive.leaf", "only 2 different values of leaf"),
        ({"survive": {"leaf": 1}, "sharding": (Sharding.OPTIMIZER,)}, "workload.survive.leaf", "memory_checkpoint"),
        ({"survive": {"node": 2}, "pinned": {"data": 2}}, "workload.pinned.data", "pin at least 3"),
        (
            {
                "survive": {"leaf": 1},
                "placement": PlacementRules(keep_together=(KeepTogether(RankGroup.STAGE, "leaf"),)),
            },
            "workload.survive.leaf",
            "keep_together",
        ),
    ],
)
def test_what_cannot_be_survived_is_told_by_field(changes: dict[str, Any], field: str, words: str) -> None:
    """Before any search, with a remedy."""
    with pytest.raises(InvalidWorkload, match=words) as error:
        planned(asked(**changes))
    assert error.value.field == field


def test_counts_below_one_are_refused() -> None:
    """Surviving nothing is asked by leaving the label out."""
    with pytest.raises(InvalidWorkload, match=r"survive\.leaf"):
        asked(survive={"leaf": 0})


def test_no_plan_says_that_survival_is_why() -> None:
    """Unsharded state that does not fit: the remedy is to survive less, not to shard."""
    large = replace(DENSE, hidden=8192, heads=64, layers=24, mlp_hidden=28672)
    found = not_planned(asked(survive={"node": 1}, model=large, pinned={"tensor": 1, "pipeline": 4}))
    needs = found.reasons[-1]
    assert (needs.code, needs.figures["labels"], needs.figures["losses"]) == ("survival_needs", ("node",), (1,))
    assert "shard_optimizer" not in codes(found.remedies)


@given(data=st.data(), model=st.sampled_from([SMALL, EXPERTS]))
@settings(max_examples=30)
def test_the_checker_counts_as_the_planner_does(data: st.DataObject, model: object) -> None:
    """Two ways to count: cells of every axis, and who shares coordinates with whom."""
    architecture = EXPERTS if model is EXPERTS else SMALL
    configuration = data.draw(shapes(architecture))
    hosts = data.draw(st.permutations(names(6)))[: -(-configuration.degrees.gpus // 2)]
    in_memory = data.draw(st.booleans())
    plan = plan_on(hosts, configuration, gpus=2, model=architecture)
    question = asked(6, model=architecture, memory_checkpoint=in_memory)
    policy = RecoveryPolicy(memory_checkpoint=in_memory)
    plan = replace(plan, survives=survives(plan, policy, question.snapshot.cluster))
    assert not list(survival_violations(plan, question))
    wrong = tuple(replace(each, count=each.count + 1) for each in plan.survives)
    assert len(list(survival_violations(replace(plan, survives=wrong), question))) == len(wrong)


def test_experts_need_copies_of_their_own() -> None:
    """Surviving a leaf keeps experts from being shared out over all data ranks."""
    found = planned(asked(survive={"leaf": 1}, model=SPARSE))
    losses = {each.label: each.count for each in found.survives}
    assert losses["leaf"] == 1
