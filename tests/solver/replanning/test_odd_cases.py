"""Circumstances that random problems brought up: what is not given away, what is left alone, what is set aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from app.presentation.decision_reasons import reason_of
from benchmarks.first_come import first_come
from cluster_models.cluster.snapshot import ClusterSnapshot, LinkShare
from cluster_models.cluster.topology import NodeState
from cluster_models.jobs.recovery import BatchDecision, JobDecision, RecoveryAction
from cluster_models.jobs.running import RunningJob
from cluster_models.training.plan import Plan
from solver.problem import SearchOptions
from solver.replanning.affected_jobs import asked_columns
from solver.replanning.check import check_decision
from solver.replanning.columns import JobColumns
from solver.replanning.decide import decide, safe_answer
from solver.replanning.options import reroute
from solver.replanning.prepared import prepare
from solver.replanning.problem import ReplanOptions, ReplanProblem
from solver.replanning.program import Promise
from solver.replanning.promises import Ask
from solver.replanning.shapes import books_of
from solver.replanning.touched import touched
from solver.replanning.working_out import work_out
from tests.solver.replanning.option_cases import plan_of, refusal, site, taken
from tests.solver.replanning.samples import SAME_SHAPE, after, cluster, four_jobs, job, names, replan


def answers(problem: ReplanProblem) -> tuple[BatchDecision, BatchDecision, BatchDecision]:
    """The best, the safe and the plain decision, after every check."""
    found = decide(problem), safe_answer(problem), first_come(problem)
    for decision in found:
        assert check_decision(problem, decision) == ()
    return found


def of_job(decision: BatchDecision, name: str) -> JobDecision:
    """The decision about the job called ``name``."""
    (made,) = (made for made in decision.jobs if made.job_name == name)
    return made


def places(plan: Plan | None) -> set[tuple[str, int]]:
    """The GPUs of a plan."""
    assert plan is not None
    return {(place.node, place.gpu) for place in plan.placement.ranks}


def paused(running: RunningJob) -> RunningJob:
    """The job when it ended at its checkpoint."""
    return replace(running, is_paused=True)


def test_job_that_is_hardly_slowed_gives_up_no_gpu() -> None:
    """A job of much more worth cannot have the GPUs of one that nobody asks, only because its node is degraded."""
    whole = cluster(2)
    jobs = [
        job("hit", whole, names(whole, 0, 1), weight=100.0, recovery=SAME_SHAPE),
        job("slow", whole, names(whole, 1, 1), recovery=SAME_SHAPE),
    ]
    best, _, _ = answers(replan(after(whole, failed=["n00"], slow={"n01": 1.001}), jobs))
    assert best.untouched == ("job-slow",)
    assert of_job(best, "hit").action in {RecoveryAction.WAIT, RecoveryAction.PAUSE}


def test_paused_job_gets_nothing_of_its_old_nodes_that_is_no_spare() -> None:
    """Its old node is not a spare any more, whatever is free there beside what it held."""
    whole = cluster(2, gpus=4)
    running = paused(job("one", whole, names(whole, 0, 1), gpus_per_node=2, recovery=SAME_SHAPE))
    best, _, _ = answers(replan(whole, [running], spares=["n01"]))
    assert {node for node, _ in places(of_job(best, "one").plan)} == {"n01"}


def test_jobs_that_paused_on_the_same_nodes_both_start_again() -> None:
    """One has the place back, the other starts on the spares beside it."""
    whole = cluster(4)
    jobs = [paused(job(name, whole, names(whole, 0, 2), recovery=SAME_SHAPE)) for name in ("a", "b")]
    best, _, _ = answers(replan(whole, jobs))
    assert len(places(of_job(best, "a").plan) | places(of_job(best, "b").plan)) == 8
    assert any("it starts on n02, n03" in reason_of(made).replace("It", "it") for made in best.jobs)


def test_lost_gpu_is_not_replaced_inside_a_suspected_node() -> None:
    """A suspected node keeps the ranks it has and gets no other, although a GPU is free there."""
    whole = cluster(2, gpus=4)
    hurt = after(whole, lost_gpus={"n00": (0,)})
    doubted = tuple(replace(node, state=NodeState.UNKNOWN) for node in hurt.cluster.nodes[:1])
    hurt = replace(hurt, cluster=replace(hurt.cluster, nodes=(*doubted, *hurt.cluster.nodes[1:])))
    running = job("one", whole, names(whole, 0, 1), gpus_per_node=2, recovery=SAME_SHAPE)
    best, _, _ = answers(replan(hurt, [running]))
    assert {node for node, _ in places(of_job(best, "one").plan)} == {"n01"}
    assert reason_of(of_job(best, "one")).startswith("Without n00:0")


def test_spare_that_a_job_partly_holds_is_no_mistake() -> None:
    """Free GPUs beside a job that nobody touched are spares: they count as used only where they are taken."""
    whole = cluster(3, gpus=4)
    jobs = [
        job("hit", whole, names(whole, 0, 1), recovery=SAME_SHAPE),
        job("calm", whole, names(whole, 1, 1), gpus_per_node=2, recovery=SAME_SHAPE),
    ]
    best, _, _ = answers(replan(after(whole, failed=["n00"]), jobs, spares=["n01", "n02"]))
    assert best.spares_used == ("n02",)
    assert best.spares_left == ("n01",)


def test_budget_below_what_runs_leaves_untouched_jobs_alone() -> None:
    """Jobs that lost nothing keep what they hold; those that did get nothing more."""
    whole = cluster(4)
    jobs = [job(f"j{index}", whole, names(whole, index, 1), recovery=SAME_SHAPE) for index in range(2)]
    best, _, _ = answers(replan(after(whole, failed=["n00"]), jobs, gpu_budget=1))
    assert best.untouched == ("job-j1",)
    assert of_job(best, "j0").action is RecoveryAction.PAUSE


def test_rerouting_leaves_a_job_what_it_needs() -> None:
    """Fewer GPUs than ``least_gpus`` do not carry the work of the lost ones."""
    whole = cluster(2)
    needy = replace(SAME_SHAPE, may_reroute=True, least_gpus=4)
    problem = replan(after(whole, failed=["n01"]), [job("one", whole, names(whole), recovery=needy)])
    assert "fewer than 4 GPUs" in refusal(reroute(site(problem)))


def test_job_that_runs_around_losses_may_go_on_on_a_slower_link() -> None:
    """Running on is among its choices, at the pace of the link as it is now, and needs no restart."""
    whole = cluster(4)
    loose = replace(SAME_SHAPE, may_reroute=True)
    running = job("one", whole, names(whole), tensor=2, pipeline=2, recovery=loose)
    problem = replan(after(whole, failed=["n01"]), [running])
    around = taken(reroute(site(problem)))
    slower = replace(problem.snapshot, link_shares=(LinkShare("n00", "n02", 0.01),))
    again = replan(slower, [replace(running, plan=plan_of(around))], back_after_s=1e9)
    best, _, _ = answers(again)
    made = of_job(best, "one")
    assert made.action is RecoveryAction.NONE
    assert 0 < made.tokens_per_s_after < around.tokens_per_s
    assert best.bound >= best.objective


def test_batch_that_a_job_was_meant_to_have_is_legal() -> None:
    """A job that had to shrink its batch has it again in any other shape."""
    whole = cluster(4)
    small = replace(job("one", whole, names(whole, 0, 1), batch=24), wanted_batch=48, wanted_gpus=8)
    best, _, _ = answers(replan(whole, [small]))
    plan = of_job(best, "one").plan
    assert plan is not None
    assert plan.workload is not None
    assert plan.workload.global_batch == 48


def shorn(snapshot: ClusterSnapshot, name: str, gpus: int) -> ClusterSnapshot:
    """The cluster with fewer GPUs on a node than it had."""
    nodes = tuple(
        replace(node, gpu_count=gpus, gpus_in_use=()) if node.name == name else node
        for node in snapshot.cluster.nodes
    )
    return replace(snapshot, cluster=replace(snapshot.cluster, nodes=nodes))


def test_job_whose_plan_does_not_fit_the_cluster_costs_the_others_nothing() -> None:
    """It stands still and says which field is wrong and what to do; the others are decided as without it."""
    problem = four_jobs(recovery=SAME_SHAPE)
    odd = replace(problem, snapshot=shorn(problem.snapshot, "n01", 1))
    for decision in answers(odd)[:2]:
        made = of_job(decision, "j0")
        assert made.action is RecoveryAction.WAIT
        assert "jobs.j0.plan.placement.ranks: is not a GPU of a node that has 1 (got 'n01:1')" in reason_of(made)
        assert "correct the cluster's gpu_count" in reason_of(made)
        assert of_job(decision, "j3").action is RecoveryAction.SWAP
    assert prepare(odd, odd.jobs[0]).losses == ()


def test_paused_job_whose_node_is_gone_from_the_cluster_stays_paused() -> None:
    """Nothing can be worked out for it until its plan names nodes of the cluster."""
    whole = cluster(3)
    running = paused(job("one", whole, names(whole, 0, 1)))
    left = replace(whole, cluster=replace(whole.cluster, nodes=whole.cluster.nodes[1:]))
    best, _, _ = answers(replan(left, [running]))
    made = of_job(best, "one")
    assert made.action is RecoveryAction.PAUSE
    assert "jobs.one.plan.placement.hosts: is not a node of the cluster" in reason_of(made)


def columns_of_two_models() -> Sequence[JobColumns]:
    """Jobs that cannot share a search of shapes."""
    whole = cluster(6)
    jobs = [job(f"j{batch}", whole, names(whole, index, 1), batch=batch) for index, batch in enumerate((24, 48))]
    problem = replan(after(whole, failed=["n00", "n01"]), jobs)
    return asked_columns(problem, touched(problem))


@pytest.mark.parametrize("groups", [0, 1, 2])
def test_pricing_shapes_stops_when_the_time_is_up(groups: int) -> None:
    """Groups of jobs that are left are not priced; their shapes are bounded by peak rates."""
    left = iter([False] * groups + [True] * 2)
    assert len(books_of(columns_of_two_models(), is_time_up=lambda: next(left))) == groups


def test_bound_without_any_time_holds_for_what_time_finds() -> None:
    """With no shape priced the bound is loose, and true."""
    problem = four_jobs()
    hurried = decide(problem, ReplanOptions(time_limit_s=0.0))
    assert hurried.bound >= decide(problem).objective


def test_nothing_is_promised_of_replicas_where_no_node_serves() -> None:
    """All nodes are lost and there is no other: asked for fewer replicas all the same, the job says why not."""
    whole = cluster(2)
    problem = replan(after(whole, failed=names(whole)), [job("one", whole, names(whole), recovery=SAME_SHAPE)])
    (columns,) = asked_columns(problem, touched(problem))
    ask = Ask(Promise("job-one", 1.0, gpus=2), RecoveryAction.SHRINK_DATA_PARALLEL, 0, 2)
    (answer,) = work_out(columns, ask, (), None, SearchOptions)
    assert "holds no whole replica" in refusal(answer)


def _on_upper_gpus(running: RunningJob, first: int) -> RunningJob:
    """The job with its ranks on the GPUs from ``first`` on of its nodes."""
    placement = running.plan.placement
    ranks = tuple(replace(place, gpu=place.gpu + first) for place in placement.ranks)
    return replace(running, plan=replace(running.plan, placement=replace(placement, ranks=ranks)))


def test_job_leaves_the_node_that_it_shares_for_a_free_one() -> None:
    """Its neighbour could give up GPUs, but needs them itself, and a whole spare is free."""
    whole = cluster(2, gpus=4)
    low = job("low", whole, names(whole, 0, 1), gpus_per_node=2, recovery=replace(SAME_SHAPE, may_move=True))
    high = job("high", whole, names(whole, 0, 1), gpus_per_node=2, recovery=SAME_SHAPE)
    hurt = after(whole, lost_gpus={"n00": (3,)})
    best, _, _ = answers(replan(hurt, [low, _on_upper_gpus(high, 2)]))
    assert of_job(best, "high").action is RecoveryAction.SWAP
    assert {node for node, _ in places(of_job(best, "high").plan)} == {"n01"}
    assert "job-low" in best.untouched or of_job(best, "low").action is not RecoveryAction.PAUSE


def test_jobs_that_shared_a_node_share_the_spare() -> None:
    """Each takes its half, though both would like the same one."""
    whole = cluster(2, gpus=4)
    low = job("low", whole, names(whole, 0, 1), gpus_per_node=2, recovery=SAME_SHAPE)
    high = _on_upper_gpus(job("high", whole, names(whole, 0, 1), gpus_per_node=2, recovery=SAME_SHAPE), 2)
    best, _, _ = answers(replan(after(whole, failed=["n00"]), [low, high]))
    taken_gpus = [places(of_job(best, name).plan) for name in ("low", "high")]
    assert taken_gpus[0] | taken_gpus[1] == {("n01", gpu) for gpu in range(4)}
