"""The order of hosts that moves least: against every order of small jobs, and never a slower one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.jobs.recovery import Migration
from cluster_models.jobs.running import RunningJob
from cluster_models.model.experts import Experts
from cluster_models.training.placement_rules import PlacementRules, RankGroup, Spread
from cluster_models.training.plan import Configuration, RankOrder
from cluster_models.training.workload import Sharding
from solver.replanning.alike import alike_hosts
from solver.replanning.migration import migration
from solver.replanning.problem import ReplanProblem
from solver.replanning.rank_matching import INSIDE_SHARE, relabel, replica_slots
from tests.cluster_models.clusters import snapshot
from tests.solver.problems import DENSE, SPARSE, names, pair_samples
from tests.solver.replanning.moves import hosts_of, job_on, plan_on, replanning, shape

SMALL = replace(DENSE, layers=4)
EXPERTS = replace(SPARSE, layers=4, experts=Experts(count=4, active=2, hidden=256))
SHAPES = (
    {"tensor": 2, "data": 4},
    {"tensor": 2, "pipeline": 2, "data": 2},
    {"pipeline": 4, "data": 2},
    {"tensor": 4, "pipeline": 2},
    {"data": 8},
    {"tensor": 2, "pipeline": 4, "data": 1},
)


def counted(
    job: RunningJob, hosts: Sequence[str], configuration: Configuration, problem: ReplanProblem, *, gpus: int = 2
) -> Migration:
    """The migration to that order of hosts with nothing lost."""
    model = job.plan.architecture
    assert model is not None
    new = plan_on(hosts, configuration, gpus=gpus, model=model)
    return migration(job, new, problem=problem, lost=frozenset())


@given(data=st.data(), model=st.sampled_from([SMALL, EXPERTS]))
@settings(max_examples=12)
def test_no_order_of_equal_hosts_moves_less(data: st.DataObject, model: object) -> None:
    """Brute force over all orders of four hosts that nothing tells apart."""
    architecture = EXPERTS if model is EXPERTS else SMALL
    sharding, order = data.draw(st.sampled_from(list(Sharding))), data.draw(st.sampled_from(list(RankOrder)))
    old, new = (
        shape(architecture, sharding=sharding, order=order, **data.draw(st.sampled_from(SHAPES))) for _ in range(2)
    )
    job = job_on(names(4), old, gpus=2, model=architecture)
    problem = replanning(job, hosts_of(6, gpus=2))
    hosts = data.draw(st.permutations(names(6)))[:4]
    found = counted(job, relabel(job, hosts, new, problem), new, problem)
    every = [counted(job, hosts, new, problem) for hosts in permutations(hosts)]
    assert weighed(found) == pytest.approx(min(weighed(each) for each in every))


def weighed(found: Migration) -> float:
    """Bytes between nodes, and a share of those inside."""
    return found.bytes.leaf + INSIDE_SHARE * found.bytes.nvlink


def test_a_mere_renumbering_moves_nothing() -> None:
    """The hosts of the running plan in any order come back in theirs."""
    configuration = shape(tensor=8, pipeline=4, data=4)
    job = job_on(names(16), configuration)
    problem = replanning(job, hosts_of(16))
    hosts = sorted(names(16), key=lambda name: (int(name[1:]) * 7) % 16)
    assert relabel(job, hosts, configuration, problem) == names(16)


def test_spares_take_the_place_of_the_lost() -> None:
    """With one of the hosts replaced, all others keep their slots whatever the order asked."""
    configuration = shape(tensor=8, pipeline=4, data=2)
    job = job_on(names(8), configuration)
    hosts = ("n9", "n7", "n6", "n5", "n4", "n2", "n1", "n0")
    expected = ("n0", "n1", "n2", "n9", "n4", "n5", "n6", "n7")
    assert relabel(job, hosts, configuration, replanning(job, hosts_of(10))) == expected


def test_leaves_change_places_as_a_whole() -> None:
    """Two leaves of four are exchanged although no host of one is like one of the other."""
    configuration = shape(tensor=8, pipeline=4, data=2, order=RankOrder.PIPELINE_BEFORE_DATA)
    job = job_on(names(8), configuration)
    problem = replanning(job, hosts_of(8, per_leaf=4))
    assert relabel(job, names(8)[::-1], configuration, problem) == names(8)
    groups = alike_hosts(names(8), job, problem, problem.links())
    assert [[sorted(members.tolist()) for members in group] for group in groups] == [[[0, 1, 2, 3], [4, 5, 6, 7]]]


def test_measured_links_leave_only_rotations_of_replicas() -> None:
    """Where every pair differs, replicas may turn, and other orders need a step time that allows them."""
    configuration = shape(tensor=8, pipeline=2, data=3)
    job = job_on(names(6), configuration)
    rates = {pair: 20.0 + index for index, pair in enumerate(combinations(names(6), 2))}
    problem = ReplanProblem(snapshot(hosts_of(6), pair_samples(rates, flows=8)), (job,), ())
    turned = ("n1", "n2", "n0", "n4", "n5", "n3")
    swapped = ("n1", "n0", "n2", "n4", "n3", "n5")
    assert relabel(job, turned, configuration, problem) == names(6)
    assert relabel(job, swapped, configuration, problem) != names(6)
    assert relabel(job, swapped, configuration, problem, step_s=lambda _: 1.0) == names(6)
    slower = relabel(job, swapped, configuration, problem, step_s=lambda hosts: 1.0 + (tuple(hosts) == names(6)))
    assert slower != names(6)


def test_any_order_is_tried_only_without_rules() -> None:
    """Rules are not judged by the step time, so orders that mix replicas stay out of question under them."""
    configuration = shape(tensor=8, pipeline=2, data=2)
    job = job_on(names(4), configuration)
    workload = job.plan.workload
    assert workload is not None
    ruled = replace(workload, placement=PlacementRules(spread=(Spread(RankGroup.STAGE, "leaf"),)))
    rates = {pair: 20.0 + index for index, pair in enumerate(combinations(names(4), 2))}
    plain = snapshot(hosts_of(4, per_leaf=2), pair_samples(rates, flows=8))
    mixed = ("n0", "n2", "n1", "n3")
    under_rules = replace(job, plan=replace(job.plan, workload=ruled))
    for each, expected in ((job, names(4)), (under_rules, mixed)):
        problem = ReplanProblem(plain, (each,), ())
        assert relabel(each, mixed, configuration, problem, step_s=lambda _: 1.0) == expected


@pytest.mark.parametrize("order", list(RankOrder))
def test_replicas_that_share_nodes_or_experts_stay_together(order: RankOrder) -> None:
    """Cells of half a node, and expert groups over two replicas, move by twos."""
    whole = replica_slots(shape(tensor=8, pipeline=2, data=4, order=order), 8)
    assert whole is not None
    assert whole.shape == (4, 2)
    experts = replica_slots(shape(tensor=8, pipeline=2, data=4, expert=16, order=order), 8)
    assert experts is not None
    assert experts.shape == (2, 4)
    assert replica_slots(shape(tensor=8, pipeline=2, data=1, order=order), 2) is None
    halves = replica_slots(shape(tensor=4, pipeline=2, data=4, order=order), 4)
    assert halves is not None
    assert halves.shape == ((2, 2) if order is RankOrder.DATA_BEFORE_PIPELINE else (4, 1))


@given(hosts=st.permutations(names(5)))
@settings(max_examples=15)
def test_replicas_that_differ_are_only_turned(hosts: list[str]) -> None:
    """Without a step time to ask, the ring of data ranks keeps its order: only where it begins may change."""
    configuration = shape(tensor=8, data=5)
    job = job_on(names(5), configuration)
    rates = {pair: 20.0 + index for index, pair in enumerate(combinations(names(5), 2))}
    problem = ReplanProblem(snapshot(hosts_of(5), pair_samples(rates, flows=8)), (job,), ())
    found = relabel(job, hosts, configuration, problem)
    turns = [tuple(hosts[turn:] + hosts[:turn]) for turn in range(5)]
    assert found in turns
    costs = {turn: counted(job, turn, configuration, problem, gpus=8).bytes.leaf for turn in turns}
    assert costs[found] == pytest.approx(min(costs.values()))
