"""Plans under placement rules and shared uplinks: what brute force over all placements finds, checked apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations
from operator import itemgetter
from random import Random

import numpy as np
import pytest

from cluster_models.cluster.switches import Switch
from cluster_models.cluster.topology import Node, NodeState
from cluster_models.errors import InvalidWorkload
from cluster_models.remarks import remark
from cluster_models.training.placement_rules import KeepTogether, PlacementRules, RankGroup, Spares, Spread
from cluster_models.training.plan import NoPlan, Plan, StopReason
from solver import refine as refining
from solver.answer.assemble import configuration_of, place_ranks
from solver.answer.spares import spare_nodes
from solver.check import check_plan
from solver.check.rules import rule_violations
from solver.compiled import Rules, step_seconds, violations
from solver.placement.first_assignment import FirstAssignment, first_assignment
from solver.placement.rule_counting import ground_of, unkept
from solver.placement.rules import terrain_of
from solver.predict import predict
from solver.problem import PlanningProblem, SearchOptions
from solver.refine import Candidate, refine
from solver.search import plan
from tests.remarks import codes
from tests.solver.hand_made import hand_made_plan
from tests.solver.problems import (
    DENSE,
    EXACT,
    SPARSE,
    candidate,
    every_candidate,
    nodes,
    pair_samples,
    planned,
    problem,
    rates_of,
)

LIMITED = SearchOptions(time_limit_s=10.0)
"""Where shared switches keep a gap open."""
DATA, PIPELINE, STAGE, JOB = RankGroup.DATA, RankGroup.PIPELINE, RankGroup.STAGE, RankGroup.JOB
RULES = {
    "copies under two leaves": PlacementRules(spread=(Spread(DATA, "leaf", 2),)),
    "no two copies under one leaf": PlacementRules(spread=(Spread(DATA, "leaf"),)),
    "replicas in a leaf each": PlacementRules(
        spread=(Spread(DATA, "leaf", 2),), keep_together=(KeepTogether(PIPELINE, "leaf"),)
    ),
    "stages in a rack each": PlacementRules(keep_together=(KeepTogether(STAGE, "rack"),)),
    "all in two racks": PlacementRules(keep_together=(KeepTogether(JOB, "rack", 2),)),
    "a spare per leaf": PlacementRules(spares=(Spares(1, "leaf"),)),
    "two spares, one host required": PlacementRules(spares=(Spares(2),), require_nodes=("n3",)),
    "copies on two nodes": PlacementRules(spread=(Spread(DATA, "node", 2),)),
}
SHAPES = {
    "pipeline and data": {"pipeline": 2, "data": 2, "tensor": 2},
    "cells share nodes": {"pipeline": 2, "data": 4},
    "pipeline inside nodes": {"pipeline": 2, "data": 3, "rank_order": 1},
    "context over nodes": {"context": 4, "data": 2},
    "experts over nodes": {"data": 8, "expert": 4},
    "one pipeline": {"pipeline": 4, "tensor": 2},
}


def cluster_nodes(count: int = 5) -> tuple[Node, ...]:
    """Two leaves in turn, racks of two; the last node is degraded."""
    plain = [
        replace(node, labels={"leaf": "ab"[index % 2], "rack": f"r{index // 2}"})
        for index, node in enumerate(nodes(count))
    ]
    return (*plain[:-1], replace(plain[-1], state=NodeState.DEGRADED, compute_slowdown=1.1))


def asked_for(
    rules: PlacementRules, *, sparse: bool = False, seed: int = 0, uplink: float = 0.0
) -> PlanningProblem:
    """Five nodes on random links under ``rules``; leaves pass ``uplink`` bytes per second where it is not 0."""
    random = Random(seed)  # noqa: S311 - reproducible, not secret
    rates = rates_of(5, [random.choice([6.0, 12.0, 40.0]) for _ in range(10)])
    found = problem(
        cluster_nodes(), pair_samples(rates, flows=2), model=SPARSE if sparse else DENSE, placement=rules
    )
    if not uplink:
        return found
    cluster = replace(found.snapshot.cluster, switches=(Switch("leaf", None, uplink),))
    return replace(found, snapshot=replace(found.snapshot, cluster=cluster))


def answer_of(asked: PlanningProblem, made: Candidate, order: tuple[int, ...]) -> Plan:
    """A plan that puts the ranks of a candidate on the hosts of an assignment, and says nothing else."""
    hosts, configuration = made.fabric.hosts(np.array(order)), configuration_of(made)
    return replace(
        hand_made_plan(),
        configuration=configuration,
        placement=place_ranks(configuration, hosts, made.fabric.gpus_per_node),
        spare_nodes=spare_nodes(asked, made, hosts),
        timeline=(),
    )


def keeping(asked: PlanningProblem, made: Candidate) -> Iterator[tuple[int, ...]]:
    """Assignments that keep all rules according to the checker, which shares nothing with the planner."""
    for order in permutations(range(made.placement.nodes), made.placement.slots):
        if not list(rule_violations(answer_of(asked, made, order), asked)):
            yield order


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rules", RULES)
def test_slots_break_rules_where_ranks_do(rules: str, shape: str) -> None:
    """The compiled count is 0 exactly where the checker finds nothing in ranks and labels."""
    asked = asked_for(RULES[rules], sparse="expert" in SHAPES[shape])
    made = candidate(asked, **SHAPES[shape])
    right = set(keeping(asked, made))
    configuration = configuration_of(made)
    ground = ground_of(terrain_of(asked.snapshot.cluster, asked.workload, made.fabric))
    if unkept(ground, configuration.degrees, configuration.rank_order) is not None:
        assert not right
        return
    counted = {
        order
        for order in permutations(range(made.placement.nodes), made.placement.slots)
        if violations(np.array(order), made.placement.arrays.rules) == 0
    }
    assert counted == right
    first = first_assignment(made.placement.arrays.rules)
    assert first.impossible == (not right)
    assert first.assignment is None or tuple(first.assignment) in right


def best_kept_s(asked: PlanningProblem) -> float:
    """Seconds of the fastest placement of all candidates that fit in which the checker finds all rules kept."""
    placed = sorted(
        (
            (step_seconds(np.array(order), made.placement.arrays)[0], made, order)
            for made in every_candidate(asked).values()
            if (made.memory.total_bytes <= made.memory.limit_bytes).all()
            for order in permutations(range(made.placement.nodes), made.placement.slots)
        ),
        key=itemgetter(0),
    )
    # From the fastest on, so that the checker, which is slow, is asked only until it finds nothing.
    kept = (
        step_s for step_s, made, order in placed if not list(rule_violations(answer_of(asked, made, order), asked))
    )
    return next(kept)


@pytest.mark.parametrize("uplink", [0.0, 20e9])
@pytest.mark.parametrize("rules", RULES)
def test_a_plan_under_rules_is_the_best_of_all_that_keep_them(rules: str, uplink: float) -> None:
    """No candidate has a faster placement among those in which the checker finds all rules kept."""
    asked = asked_for(RULES[rules], seed=len(rules), uplink=uplink)
    asked = replace(asked, workload=replace(asked.workload, pinned={"tensor": 2, "micro_batch": 1}))
    best = best_kept_s(asked)
    found = plan(asked, EXACT if not uplink else LIMITED)
    assert isinstance(found, Plan)
    assert check_plan(found, asked) == ()
    assert found.time.step_s == pytest.approx(best, rel=1e-9)
    assert found.certificate.bound <= best * (1 + 1e-9)
    assert uplink or found.certificate.stopped_by is StopReason.PROVEN


def test_shared_uplinks_move_rings_into_a_leaf() -> None:
    """Where all links are alike but leaves pass little, the replicas of a stage share a leaf."""
    even = rates_of(4, [40.0] * 6)
    asked = problem(
        cluster_nodes(5)[:4],
        pair_samples(even, flows=2),
        pinned={"tensor": 2, "pipeline": 2, "data": 2},
    )
    cluster = replace(asked.snapshot.cluster, switches=(Switch("leaf", None, 2e9),))
    asked = replace(asked, snapshot=replace(asked.snapshot, cluster=cluster))
    found = planned(asked, LIMITED)
    leaf = {node.name: node.labels["leaf"] for node in cluster.nodes}
    stages = {
        stage: {leaf[place.node] for place in found.placement.ranks if place.pipeline == stage} for stage in (0, 1)
    }
    assert all(len(leaves) == 1 for leaves in stages.values()), stages
    assert remark("nominal_uplinks", switches=("leaf a", "leaf b")) in found.warnings


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        (PlacementRules(spread=(Spread(DATA, "row"),)), "workload.placement.spread[0].over"),
        (PlacementRules(keep_together=(KeepTogether(JOB, "hall"),)), "workload.placement.keep_together[0].within"),
        (PlacementRules(spares=(Spares(1, "row"),)), "workload.placement.spares[0].per"),
        (PlacementRules(spread=(Spread(DATA, "leaf", 3),)), "workload.placement.spread[0].at_least"),
        (PlacementRules(spares=(Spares(5),)), "workload.placement.spares"),
        (PlacementRules(require_nodes=("n0", "nope")), "workload.placement.require_nodes[1]"),
    ],
)
def test_rules_that_contradict_the_cluster_are_told_by_field(rules: PlacementRules, field: str) -> None:
    """Labels nobody has, more places than there are, no node left, hosts that do not exist."""
    with pytest.raises(InvalidWorkload) as raised:
        plan(asked_for(rules), EXACT)
    assert raised.value.field == field


def test_rules_that_contradict_one_another_are_told_by_field() -> None:
    """At least two places and at most one, of the same ranks."""
    rules = PlacementRules(spread=(Spread(DATA, "leaf", 2),), keep_together=(KeepTogether(DATA, "leaf"),))
    with pytest.raises(InvalidWorkload, match=r"contradicts keep_together\[0\]") as raised:
        plan(asked_for(rules), EXACT)
    assert raised.value.field == "workload.placement.spread[0].at_least"


def test_pinned_ranks_that_outnumber_the_places_are_told() -> None:
    """Three replicas cannot lie under two leaves with no two under one."""
    asked = asked_for(PlacementRules(spread=(Spread(DATA, "leaf"),)))
    asked = replace(asked, workload=replace(asked.workload, pinned={"data": 4}))
    with pytest.raises(InvalidWorkload, match="pins data to 4"):
        plan(asked, EXACT)


def test_no_plan_names_the_rule_in_the_way_and_a_weaker_one_that_works() -> None:
    """A context group over four nodes does not fit into one rack of two."""
    asked = asked_for(PlacementRules(keep_together=(KeepTogether(RankGroup.CONTEXT, "rack"),)))
    asked = replace(asked, workload=replace(asked.workload, pinned={"context": 8, "tensor": 1}))
    found = plan(asked, EXACT)
    assert isinstance(found, NoPlan)
    assert found.reasons[0].figures["rules"] == ("keep context together within rack",)
    assert remark("weaken_rule", rule="keep context together within rack (at most 2)") in found.remedies


def test_rules_that_exclude_one_another_are_proven_to() -> None:
    """Counting passes each of the two, an integer program proves that both together cannot be kept."""
    rules = PlacementRules(spread=(Spread(DATA, "rack", 3),), keep_together=(KeepTogether(JOB, "rack", 2),))
    found = plan(asked_for(rules), EXACT)
    assert isinstance(found, NoPlan)
    assert codes(found.reasons) == ["rules_proven_impossible"]


def test_spares_are_named_and_healthy() -> None:
    """The degraded node is not a spare; those named are not called unused as well."""
    found = planned(asked_for(PlacementRules(spares=(Spares(1), Spares(1, "leaf")))))
    assert found.spare_nodes
    assert "n4" not in found.spare_nodes
    assert not set(found.spare_nodes) & {*found.unused_nodes, *found.placement.hosts}


def test_a_given_configuration_that_breaks_a_rule_is_predicted_with_a_warning() -> None:
    """A configuration given in full is priced as it is."""
    asked = asked_for(PlacementRules(spread=(Spread(DATA, "leaf"),), spares=(Spares(3),)))
    made = candidate(asked, tensor=2, data=2)
    found = predict(asked, configuration_of(made), hosts=("n0", "n2"))
    assert remark("rule_not_kept", rule="spread data over leaf") in found.warnings
    assert remark("rule_not_kept", rule="leave 3 spares") in found.warnings


def test_copies_that_share_a_node_are_warned_of() -> None:
    """Both replicas of a node lie under its leaf, though no two of their nodes do."""
    asked = asked_for(PlacementRules(spread=(Spread(DATA, "leaf"),)))
    found = predict(asked, configuration_of(candidate(asked, data=4)), hosts=("n0", "n1"))
    assert any(sentence.startswith("The data group") for sentence in check_plan(found, asked))
    assert found.warnings.count(remark("rule_not_kept", rule="spread data over leaf")) == 1


def test_what_was_not_found_is_not_searched_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program that looks for a first assignment has what is left of the time, and runs once a candidate."""
    left: list[float] = []

    def not_found(_: Rules, *, remaining_s: float) -> FirstAssignment:
        left.append(remaining_s)
        return FirstAssignment(None, impossible=False)

    monkeypatch.setattr(refining, "first_assignment", not_found)
    exclusive = PlacementRules(spread=(Spread(DATA, "rack", 3),), keep_together=(KeepTogether(JOB, "rack", 2),))
    made, known = candidate(asked_for(exclusive), tensor=2, data=3), None
    for level in (1, 2, 3):
        known = refine(made, known, level=level, target_s=np.inf, options=EXACT, remaining_s=lambda: 2.5)
    assert left == [2.5]
    assert known is not None
    assert known.assignment is None
    assert 0 < known.bound_s < np.inf
