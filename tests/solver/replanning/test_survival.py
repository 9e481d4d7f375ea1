"""Survivable losses: against every set of places, cell by cell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.topology import Node
from cluster_models.errors import InvalidCluster
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.training.plan import Plan
from cluster_models.training.workload import Sharding
from solver.answer.survival import survives
from tests.cluster_models.clusters import cluster_of
from tests.solver.problems import SPARSE, names
from tests.solver.replanning.moves import hosts_of, plan_on, shape
from tests.solver.replanning.naive_state import Cell, naive_rank_cells
from tests.solver.replanning.test_migration import EXPERTS, SMALL, shapes


def cells_alive(plan: Plan, recovery: RecoveryPolicy, lost: Iterable[str]) -> set[Cell]:
    """Replicas without the nodes of ``lost``; memory of the next host keeps what a node had."""
    hosts, gone = plan.placement.hosts, set(lost)
    found: set[Cell] = set()
    for place, cells in zip(plan.placement.ranks, naive_rank_cells(plan, recovery), strict=True):
        neighbour = hosts[(hosts.index(place.node) + 1) % len(hosts)]
        if place.node not in gone or (recovery.memory_checkpoint and neighbour not in gone):
            found |= cells
    return found


@given(data=st.data(), model=st.sampled_from([SMALL, EXPERTS]))
@settings(max_examples=20)
def test_counts_are_those_of_every_set_of_places(data: st.DataObject, model: object) -> None:
    """Losing any ``count`` places of a label keeps all state; ``weakest`` are one more whose loss does not."""
    architecture = EXPERTS if model is EXPERTS else SMALL
    configuration = data.draw(shapes(architecture))
    hosts = data.draw(st.permutations(names(6)))[: -(-configuration.degrees.gpus // 2)]
    plan = plan_on(hosts, configuration, gpus=2, model=architecture)
    recovery = RecoveryPolicy(
        optimizer_instances=data.draw(st.sampled_from([1, 2])), memory_checkpoint=data.draw(st.booleans())
    )
    nodes = hosts_of(6, gpus=2, per_leaf=2)
    place_of: dict[str, dict[str, str | None]] = {
        label: {node.name: node.place(label) for node in nodes} for label in ("node", "leaf")
    }
    whole = cells_alive(plan, recovery, ())
    for found in survives(plan, recovery, cluster_of(nodes)):
        places = {host: place_of[found.label][host] for host in plan.placement.hosts}
        assert found.domains == len(set(places.values()))
        for gone in combinations(set(places.values()), found.count):
            lost = [host for host, place in places.items() if place in gone]
            assert cells_alive(plan, recovery, lost) == whole
        assert len(found.weakest) == found.count + 1
        assert cells_alive(plan, recovery, [host for host in places if places[host] in found.weakest]) != whole


def counts(plan: Plan, nodes: Iterable[Node], **policy: object) -> dict[str, int]:
    """Survivable losses by label."""
    recovery = RecoveryPolicy(**policy)  # type: ignore[arg-type]
    return {each.label: each.count for each in survives(plan, recovery, cluster_of(tuple(nodes)))}


def test_replicas_under_one_leaf_are_lost_with_it() -> None:
    """Three whole copies survive two nodes; under two leaves one leaf, under one none."""
    plan = plan_on(names(3), shape(tensor=8, data=3, sharding=Sharding.NONE))
    assert counts(plan, hosts_of(3, per_leaf=2)) == {"node": 2, "leaf": 1}
    assert counts(plan, hosts_of(3, per_leaf=3)) == {"node": 2, "leaf": 0}
    assert counts(plan, hosts_of(3, per_leaf=1)) == {"node": 2}


def test_sharded_optimizers_need_instances_or_memory() -> None:
    """A shard exists once: two instances or a neighbour's memory let any one node go."""
    plan = plan_on(names(4), shape(tensor=8, data=4))
    nodes = hosts_of(4)
    assert counts(plan, nodes)["node"] == 0
    assert counts(plan, nodes, optimizer_instances=2)["node"] == 1
    assert counts(plan, nodes, optimizer_instances=4)["node"] == 3
    assert counts(plan, nodes, memory_checkpoint=True)["node"] == 1


def test_experts_with_one_copy_decide() -> None:
    """All else is held four times, each expert once."""
    plan = plan_on(names(4), shape(SPARSE, tensor=8, data=4, expert=32, sharding=Sharding.NONE), model=SPARSE)
    assert counts(plan, hosts_of(4))["node"] == 0
    fewer = plan_on(names(4), shape(SPARSE, tensor=8, data=4, expert=16, sharding=Sharding.NONE), model=SPARSE)
    assert counts(fewer, hosts_of(4))["node"] == 1


def test_hosts_must_be_nodes_and_plans_need_a_model() -> None:
    """A host that the cluster does not have is told; a plan by hand says nothing."""
    plan = plan_on(names(2), shape(tensor=8, data=2))
    with pytest.raises(InvalidCluster, match="n1"):
        survives(plan, RecoveryPolicy(), cluster_of(hosts_of(1)))
    assert survives(replace(plan, architecture=None), RecoveryPolicy(), cluster_of(hosts_of(1))) == ()
