"""The checker tells every kind of rule that a plan breaks, on the hand-made plan with labels."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cluster_models.cluster.switches import Switch
from cluster_models.training.placement_rules import KeepTogether, PlacementRules, RankGroup, Spares, Spread
from solver.check import check_plan
from solver.check.rules import rule_violations
from solver.problem import PlanningProblem
from tests.solver.hand_made import hand_made_plan, hand_made_problem

LEAVES = {"a": "x", "b": "y", "spare": "x", "broken": "y", "avoided": "z"}


def asked_for(rules: PlacementRules, switches: tuple[Switch, ...] = ()) -> PlanningProblem:
    """The hand-made problem under ``rules``, its two hosts under a leaf each."""
    problem = hand_made_problem()
    cluster = problem.snapshot.cluster
    nodes = tuple(replace(node, labels={"leaf": LEAVES[node.name]}) for node in cluster.nodes)
    snapshot = replace(problem.snapshot, cluster=replace(cluster, nodes=nodes, switches=switches))
    return replace(problem, snapshot=snapshot, workload=replace(problem.workload, placement=rules))


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        # each node is a stage with both replicas
        (PlacementRules(spread=(Spread(RankGroup.DATA, "leaf"),)), "1 places instead of 2"),
        (PlacementRules(spread=(Spread(RankGroup.DATA, "node", 2),)), "breaks the rule to spread data over node"),
        (
            PlacementRules(keep_together=(KeepTogether(RankGroup.PIPELINE, "leaf"),)),
            "2 places instead of at most 1",
        ),
        (PlacementRules(spread=(Spread(RankGroup.STAGE, "rack", 1),)), "a node has no such label"),
        (PlacementRules(spares=(Spares(1),)), "names 0 spares of the 1 asked for"),
        (PlacementRules(spares=(Spares(1, "leaf"),)), "0 spares in leaf y of the 1 asked for"),
        (PlacementRules(require_nodes=("spare",)), "Node spare must be a host and is not"),
    ],
)
def test_broken_rules_are_told(rules: PlacementRules, words: str) -> None:
    """Group or place, what it has and what it needs."""
    assert any(words in sentence for sentence in rule_violations(hand_made_plan(), asked_for(rules)))


@pytest.mark.parametrize(
    "rules",
    [
        PlacementRules(spread=(Spread(RankGroup.PIPELINE, "leaf", 2), Spread(RankGroup.JOB, "leaf", 2))),
        PlacementRules(
            keep_together=(KeepTogether(RankGroup.STAGE, "node"), KeepTogether(RankGroup.JOB, "leaf", 2))
        ),
        PlacementRules(keep_together=(KeepTogether(RankGroup.TENSOR, "nvlink_domain"),), require_nodes=("a", "b")),
    ],
)
def test_kept_rules_are_not_told(rules: PlacementRules) -> None:
    """Nothing to say of a plan that keeps them."""
    assert not list(rule_violations(hand_made_plan(), asked_for(rules)))


def test_a_spare_that_is_named_and_free_satisfies() -> None:
    """It is neither host nor unused."""
    plan = replace(hand_made_plan(), spare_nodes=("spare",), unused_nodes=())
    problem = asked_for(PlacementRules(spares=(Spares(1, None),)))
    assert check_plan(plan, problem) == check_plan(hand_made_plan(), hand_made_problem()) == ()


def test_sends_faster_than_the_uplink_are_told() -> None:
    """The hand-made plan sends in no time at all what a leaf needs half a second for."""
    sent = 2 * 64 * 2 * 32
    problem = asked_for(PlacementRules(), (Switch("leaf", None, 2.0 * sent),))
    (sentence,) = rule_violations(hand_made_plan(), problem)
    assert "from stage 0 to 1" in sentence
    assert "faster than the uplink of their leaf" in sentence
