"""What is said of a job that runs on in another way: a new shape only where it has one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from cluster_models.plan import Configuration, Plan
from cluster_models.recovery import RecoveryAction
from cluster_models.workload import Recompute
from solver.predict import predict
from solver.problem import PlanningProblem
from solver.replanning import options as actions
from solver.replanning.explain import explanation
from solver.replanning.migration import migration
from solver.replanning.problem import RecoveryOption, ReplanProblem
from solver.replanning.reshaping import what_changes
from solver.replanning.safe import safe_answer
from tests.solver.replanning.option_cases import site
from tests.solver.replanning.samples import after, cluster, four_jobs, job, names, one_lost, replan


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
    """What running by ``found`` is called."""
    return actions.reshaped(site(problem), found, migration)


def test_the_same_configuration_on_another_node_is_a_swap() -> None:
    """The search for shapes found the job's own: nothing of its shape is said."""
    problem = staged()
    option = called(problem, runs(problem, ("n00", "n04", "n02", "n03")))
    assert option.action is RecoveryAction.SWAP
    assert option.reason == "n04 for n01"
    assert "instead of" not in option.reason


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
    assert (option.action, option.reason) == (RecoveryAction.RESHAPE, words)


def test_other_degrees_are_named_with_the_old_ones() -> None:
    """And nothing else, because all else goes with them."""
    problem = staged()
    old = problem.jobs[0].plan
    degrees = replace(old.configuration.degrees, data=1)
    new = replace(old, configuration=replace(old.configuration, degrees=degrees, micro_batch=2))
    assert what_changes(old, new) == "tp2 pp2 dp1 instead of tp2 pp2 dp2"
    assert what_changes(old, old) == ""


def test_a_batch_that_is_made_up_again_is_named() -> None:
    """A job that ran on a smaller one gets back what it was meant to have."""
    problem = staged()
    old = problem.jobs[0].plan
    assert old.workload is not None
    new = replace(old, workload=replace(old.workload, global_batch=2 * old.workload.global_batch))
    assert what_changes(old, new) == "its degrees stay, with global batch 96 instead of 48"


def test_several_jobs_have_a_verb_of_their_own() -> None:
    """One swaps, two swap."""
    assert explanation(safe_answer(one_lost())).startswith("one swaps in spares.")
    assert explanation(safe_answer(four_jobs(spares=4))).startswith("j0, j1, j2, j3 swap in spares.")
