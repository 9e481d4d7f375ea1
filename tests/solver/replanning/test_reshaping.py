"""Words for a job that runs on in another way: a new shape only where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.presentation.decision_reasons import objection
from app.presentation.sentences import sentence
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.remarks import remark
from cluster_models.training.plan import Configuration, Plan
from cluster_models.training.workload import Choice, Recompute, Sharding
from solver.predict import predict
from solver.problem import PlanningProblem, SearchOptions
from solver.replanning import options as actions
from solver.replanning.decide import decide
from solver.replanning.migration import migration
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.reshaping import what_changes
from solver.replanning.safe import safe_answer
from solver.replanning.shrinking import data_sizes
from solver.search import plan
from tests.solver.problems import SPARSE
from tests.solver.replanning.option_cases import site
from tests.solver.replanning.samples import SAME_SHAPE, after, cluster, job, names, replan


def staged() -> ReplanProblem:
    """A job of two stages on four of six nodes, the second of which failed."""
    whole = cluster(6, leaf_nodes=6)
    running = job("a", whole, names(whole, 0, 4), tensor=2, pipeline=2)
    return replan(after(whole, failed=["n01"]), [running])


def runs(problem: ReplanProblem, hosts: Sequence[str], **changes: Any) -> Plan:
    """The job's plan on ``hosts`` with ``changes`` of its configuration."""
    plan = problem.jobs[0].plan
    assert plan.architecture is not None
    assert plan.workload is not None
    given: Configuration = replace(plan.configuration, **changes)
    asked = PlanningProblem(problem.snapshot, plan.architecture, plan.workload)
    return predict(asked, given, hosts=hosts, gpus_per_node=2)


def called(problem: ReplanProblem, found: Plan) -> RecoveryOption:
    """The words for running by ``found``."""
    return actions.reshaped(site(problem), found, migration)


def test_the_same_configuration_on_another_node_is_a_swap() -> None:
    """The search for shapes found the job's own: nothing of its shape is said."""
    problem = staged()
    option = called(problem, runs(problem, ("n00", "n04", "n02", "n03")))
    assert option.action is RecoveryAction.SWAP
    assert option.reason == remark("moved", taken=("n04",), left=("n01",))


def test_the_same_ranks_on_the_same_gpus_start_again() -> None:
    """Nothing failed and nothing is better."""
    whole = cluster(4)
    problem = replan(whole, [job("a", whole, names(whole), tensor=2)])
    option = called(problem, problem.jobs[0].plan)
    assert option.action is RecoveryAction.RESTART_IN_PLACE
    assert option.migration.moved == ()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stage_layers": None}, "its degrees stay, with other numbers of layers on its stages"),
        ({"micro_batch": 2}, "its degrees stay, with micro-batch 2 instead of 1"),
        (
            {"micro_batch": 2, "recompute": Recompute.FULL},
            "its degrees stay, with micro-batch 2 instead of 1 and recomputation full instead of none",
        ),
    ],
)
def test_another_shape_says_what_differs(changes: dict[str, Any], words: str) -> None:
    """Where the degrees stay, it is not they that are named."""
    problem = staged()
    ((first, second),) = problem.jobs[0].plan.configuration.stage_layers
    if "stage_layers" in changes:
        changes = {"stage_layers": ((first - 1, second + 1),)}
    option = called(problem, runs(problem, ("n00", "n04", "n02", "n03"), **changes))
    assert (option.action, sentence(option.reason)) == (RecoveryAction.RESHAPE, words)


def test_other_degrees_are_named_with_the_old_ones() -> None:
    """And nothing else, because all else goes with them."""
    problem = staged()
    old = problem.jobs[0].plan
    degrees = replace(old.configuration.degrees, data=1)
    new = replace(old, configuration=replace(old.configuration, degrees=degrees, micro_batch=2))
    assert what_changes(old, new) == remark("other_degrees", degrees="tp2 pp2 dp1", before="tp2 pp2 dp2")
    assert what_changes(old, old) is None


def test_a_batch_that_is_made_up_again_is_named() -> None:
    """A job that ran on a smaller one gets back what it was meant to have."""
    problem = staged()
    old = problem.jobs[0].plan
    assert old.workload is not None
    new = replace(old, workload=replace(old.workload, global_batch=2 * old.workload.global_batch))
    changes = what_changes(old, new)
    assert changes is not None
    assert sentence(changes) == "its degrees stay, with global batch 96 instead of 48"


def asks(running: RunningJob, **changes: Any) -> RunningJob:
    """The job with another workload of its owner."""
    assert running.plan.workload is not None
    return replace(running, plan=replace(running.plan, workload=replace(running.plan.workload, **changes)))


@pytest.mark.parametrize(
    ("choice", "least", "degrees"),
    [
        (Choice.SIMPLEST, 0.02, "tp1 pp1 dp4"),
        (Choice.SIMPLEST, 0.0, "tp2 pp1 dp2"),
        (Choice.FASTEST, 0.02, "tp2 pp1 dp2"),
    ],
)
def test_no_other_shape_is_taken_for_a_lead_that_predictions_cannot_tell(
    choice: Choice, least: float, degrees: str
) -> None:
    """The planner took plain replicas for a small batch; two tensor ranks are 1.7 % faster, and move all ranks."""
    whole = cluster(3, leaf_nodes=3)
    asked = asks(job("a", whole, names(whole, 0, 2), batch=8), sharding=(Sharding.NONE, Sharding.OPTIMIZER))
    old = asked.plan
    assert old.architecture is not None
    assert old.workload is not None
    alone = replace(old.workload, avoid_nodes=("n02",))
    planned = plan(PlanningProblem(whole, old.architecture, alone), SearchOptions())
    assert isinstance(planned, Plan)
    policy = RecoveryPolicy(least_gain_share=least)
    running = asks(replace(asked, plan=planned, recovery=policy), avoid_nodes=(), choice=choice)
    made = decide(replan(after(whole, failed=["n01"]), [running])).jobs[0]
    assert made.plan is not None
    assert str(made.plan.configuration.degrees) == degrees
    other = {each.action: each for each in made.considered}.get(RecoveryAction.RESHAPE)
    assert other is None or "would gain 1.7 % of its work, and must gain 2 %" in objection(other)


def test_what_the_owner_pinned_holds_in_another_shape() -> None:
    """All but the number of replicas: the search would leave out experts' parallelism on what is left."""
    whole = cluster(6, leaf_nodes=6, gpus=4)
    running = asks(job("a", whole, names(whole), model=SPARSE, expert=2), choice=Choice.FASTEST)
    lost = after(whole, failed=["n01"])
    free, pinned = (
        decide(replan(lost, [each])).jobs[0].plan
        for each in (running, asks(running, pinned={"expert": 2, "data": 24}))
    )
    assert free is not None
    assert pinned is not None
    assert free.configuration.degrees.expert != 2
    assert pinned.configuration.degrees.expert == 2
    assert pinned.workload is not None
    assert pinned.workload.pinned == {"expert": 2}


def test_a_pinned_micro_batch_holds_when_replicas_go() -> None:
    """Five replicas of the batch of 60 would need another one."""
    whole = cluster(6, leaf_nodes=6)
    running = job("a", whole, names(whole), tensor=2, batch=60)
    big = replace(running.plan.configuration, micro_batch=5)
    running = replace(running, plan=replace(running.plan, configuration=big))
    problem = replan(after(whole, failed=["n01"]), [asks(running, pinned={"micro_batch": 5})])
    sizes = {size.configuration.micro_batch for size in data_sizes(site(problem), 5)}
    assert sizes == {5}


def test_nodes_that_the_owner_avoids_serve_as_no_spares() -> None:
    """Not for a swap, nor in the safe answer, which has the other spare; the pool has neither."""
    whole = cluster(6, leaf_nodes=6)
    running = asks(job("a", whole, names(whole, 0, 4), tensor=2, recovery=SAME_SHAPE), avoid_nodes=("n04",))
    problem = replan(after(whole, failed=["n01"]), [running])
    for decision in (safe_answer(problem), decide(problem)):
        (made,) = decision.jobs
        assert made.plan is not None
        assert made.action is RecoveryAction.SWAP
        assert set(made.plan.placement.hosts) == {"n00", "n02", "n03", "n05"}
    alone = replace(problem, spares=("n04",))
    for decision in (safe_answer(alone), decide(alone)):
        (made,) = decision.jobs
        assert made.plan is not None
        assert "n04" not in made.plan.placement.hosts


def test_pins_that_leave_no_shape_are_named() -> None:
    """Where a job can only pause for them, its owner learns why."""
    whole = cluster(4)
    running = asks(job("a", whole, names(whole), tensor=2, pipeline=4), pinned={"tensor": 2, "pipeline": 4})
    (made,) = decide(replan(after(whole, failed=["n01"]), [running])).jobs
    assert made.plan is None
    (reshape,) = (each for each in made.considered if each.action is RecoveryAction.RESHAPE)
    assert reshape.reasons == (remark("no_shape_as_pinned", pinned=("tensor 2", "pipeline 4")),)
