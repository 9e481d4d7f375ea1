"""A job's site prices hosts as the planner does, and knows what is left of the job."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import NodeState
from cluster_models.jobs.running import RunningJob
from cluster_models.training.placement_rules import KeepTogether, PlacementRules, RankGroup, Spares, Spread
from solver.predict import predict
from solver.problem import PlanningProblem
from solver.replanning.site import JobSite, site_of
from solver.replanning.touched import lost_gpus
from tests.solver.problems import DENSE, SPARSE, pair_samples
from tests.solver.replanning.samples import after, cluster, job, names, one_lost, replan


def measured(snapshot: ClusterSnapshot, rates: list[float], flows: int) -> ClusterSnapshot:
    """``snapshot`` with the rates of all pairs, in GB/s, in the order of pairs of names."""
    every = names(snapshot)
    pairs = [(a, b) for index, a in enumerate(every) for b in every[index + 1 :]]
    return replace(snapshot, samples=pair_samples(dict(zip(pairs, rates, strict=True)), flows=flows))


def predicted_s(site: JobSite, hosts: tuple[str, ...]) -> float:
    """The step that the planner predicts for the job's configuration on ``hosts``."""
    asked = PlanningProblem(site.problem.snapshot, site.asked.architecture, site.asked.workload)
    plan = site.job.plan
    found = predict(asked, plan.configuration, hosts=hosts, gpus_per_node=plan.placement.gpus_per_node)
    return found.time.step_s


@settings(max_examples=8)
@given(
    rates=st.lists(st.floats(5, 40), min_size=10, max_size=10),
    slow=st.floats(1, 2),
    shape=st.sampled_from([(2, 1), (2, 3), (1, 3)]),
)
def test_step_of_hosts_is_what_the_planner_predicts(
    rates: list[float], slow: float, shape: tuple[int, int]
) -> None:
    """Any order of nodes that serve takes as long as ``predict`` says on the same cluster."""
    whole = measured(cluster(5, leaf_nodes=2), rates, 2)
    running = job("a", whole, ("n00", "n01", "n02"), tensor=shape[0], pipeline=shape[1])
    problem = replan(after(whole, failed=["n01"], slow={"n03": slow}), [running])
    site = site_of(problem, running, problem.spares, lost_gpus(problem, running))
    for hosts in list(permutations(("n00", "n02", "n03", "n04"), 3))[::5]:
        assert site.step_s(hosts) == pytest.approx(predicted_s(site, hosts), rel=1e-12)


def test_experts_over_several_nodes_are_priced_as_planned() -> None:
    """Crossing expert traffic counts alike."""
    whole = cluster(6)
    running = job("moe", whole, names(whole, 0, 4), model=SPARSE, expert=4)
    problem = replan(whole, [running])
    site = site_of(problem, running, problem.spares, frozenset())
    assert site.step_of(site.home) == pytest.approx(running.plan.time.step_s, rel=1e-12)
    hosts = ("n04", "n01", "n05", "n03")
    assert site.step_s(hosts) == pytest.approx(predicted_s(site, hosts), rel=1e-12)


def test_a_lost_gpu_breaks_the_slot_of_a_full_node_only() -> None:
    """A node that needs all its GPUs is out with one of them, one that has others left is not."""
    whole = cluster(4, gpus=4)
    full = job("full", whole, names(whole, 0, 2), tensor=2)
    partly = job("partly", whole, names(whole, 0, 2), tensor=2, gpus_per_node=2)
    for running, broken in ((full, [0]), (partly, [])):
        problem = replan(after(whole, lost_gpus={"n00": (1,)}), [running])
        site = site_of(problem, running, problem.spares, lost_gpus(problem, running))
        assert site.broken.tolist() == broken
        assert site.is_touched
        assert 1 not in site.resources.gpus_for("n00", 2 if running is partly else 3)


def test_gpus_of_other_jobs_are_out_of_reach_unless_given_up() -> None:
    """A node half full of another job offers the other half."""
    whole = cluster(3, gpus=4)
    first = job("first", whole, ("n00", "n01"), tensor=2, gpus_per_node=2)
    second = replace(job("second", whole, ("n00", "n01"), tensor=2, gpus_per_node=2), id="job-second")
    ranks = tuple(replace(place, gpu=place.gpu + 2) for place in second.plan.placement.ranks)
    second = replace(second, plan=replace(second.plan, placement=replace(second.plan.placement, ranks=ranks)))
    problem = replan(whole, [first, second])
    site = site_of(problem, first, problem.spares, frozenset())
    assert site.resources.gpus("n00") == (0, 1)
    assert site.resources.senders("n00") == 2
    freed = frozenset({("n00", 2)})
    given = site_of(problem, first, problem.spares, frozenset(), given_up=freed)
    assert given.resources.gpus("n00") == (0, 1, 2)
    assert {node.name for node in given.asked.snapshot.cluster.nodes if node.usable} == {"n00", "n01", "n02"}


def test_suspected_hosts_stay_and_suspected_spares_do_not_serve() -> None:
    """Nothing moves for a suspicion, and nothing new goes there; what drains is to be left."""
    whole = cluster(6)
    running = job("a", whole, names(whole, 0, 3), tensor=2)
    states = {"n00": NodeState.UNKNOWN, "n01": NodeState.DRAINING, "n03": NodeState.UNKNOWN}
    nodes = tuple(replace(node, state=states.get(node.name, node.state)) for node in whole.cluster.nodes)
    problem = replan(replace(whole, cluster=replace(whole.cluster, nodes=nodes)), [running])
    site = site_of(problem, running, names(whole, 3), lost_gpus(problem, running))
    assert site.broken.tolist() == [1]
    assert [unit for unit, serves in zip(site.units.members, site.serves, strict=True) if serves] == [
        ("n00",),
        ("n02",),
        ("n04",),
        ("n05",),
    ]
    assert site.state_lost == frozenset()  # what drains can still be read


def racks(trays: int, count: int) -> ClusterSnapshot:
    """``count`` NVLink domains of ``trays`` nodes."""
    whole = cluster(trays * count, leaf_nodes=trays)
    nodes = tuple(
        replace(node, nvlink_domain=f"rack-{index // trays}") for index, node in enumerate(whole.cluster.nodes)
    )
    return replace(whole, cluster=replace(whole.cluster, nodes=nodes))


def rack_job(whole: ClusterSnapshot, hosts: tuple[str, ...], tensor: int) -> RunningJob:
    """A job whose tensor groups span nodes of a domain."""
    return job("rack", whole, hosts, tensor=tensor)


def test_a_unit_of_a_domain_is_made_whole_from_its_own_spare() -> None:
    """One tray of four is lost: the fifth of the rack joins the other three, in the lost one's place."""
    whole = racks(5, 2)
    running = rack_job(whole, (*names(whole, 0, 4), *names(whole, 5, 4)), tensor=8)
    problem = replan(after(whole, failed=["n01"]), [running])
    site = site_of(problem, running, problem.spares, lost_gpus(problem, running))
    assert site.units.width == 4
    assert site.units.members[site.home[0]] == ("n00", "n04", "n02", "n03")
    assert site.units.members[site.home[1]] == ("n05", "n06", "n07", "n08")


def test_narrower_units_serve_where_no_wide_one_is_left() -> None:
    """Pairs of trays hold the tensor groups: a pair of another rack serves where the own one has no spare."""
    whole = racks(4, 2)
    running = rack_job(whole, names(whole, 0, 4), tensor=4)
    problem = replan(after(whole, failed=["n03"]), [running], spares=("n04", "n05"))
    site = site_of(problem, running, problem.spares, lost_gpus(problem, running))
    assert site.units.width == 2
    assert site.broken.tolist() == [1]
    assert ("n04", "n05") in site.units.members


def test_spares_asked_for_may_be_used_and_rules_on_neighbours_hold() -> None:
    """After a failure a spare is there to be taken; what sits apart still has to."""
    problem = one_lost()
    running = problem.jobs[0]
    rules = PlacementRules(
        spread=(Spread(RankGroup.DATA, "node"),),
        keep_together=(KeepTogether(RankGroup.JOB, "leaf"),),
        spares=(Spares(2),),
        require_nodes=("n01",),
    )
    assert running.plan.workload is not None
    asked = replace(running.plan.workload, placement=rules, pinned={"data": 9}, avoid_nodes=("gone",))
    running = replace(running, plan=replace(running.plan, workload=asked))
    site = site_of(problem, running, problem.spares, lost_gpus(problem, running))
    assert site.asked.workload.placement == PlacementRules(rules.spread, rules.keep_together)
    assert site.asked.workload.pinned == {}
    assert site.asked.workload.avoid_nodes == ()


def test_links_are_worked_out_once_for_all_jobs() -> None:
    """All sites of one problem stand on one link model."""
    whole = cluster(6)
    jobs = [job(f"j{index}", whole, names(whole, 2 * index, 2), tensor=2, model=DENSE) for index in range(2)]
    problem = replan(after(whole, failed=["n00"]), jobs)
    sites = [site_of(problem, each, problem.spares, lost_gpus(problem, each)) for each in jobs]
    assert sites[0].links is sites[1].links
