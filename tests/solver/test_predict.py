"""Configurations given in full: the same figures as the plan's, and precise refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from cluster_models.errors import InvalidConfiguration
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.frameworks import DEFAULT_FRAMEWORK
from cluster_models.training.plan import Degrees, StopReason
from cluster_models.training.rank_costs import TIME_PARTS
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import MOST_SEQUENCES, Offload, Recompute, Sharding
from solver.check import check_plan
from solver.predict import predict
from solver.problem import PlanningProblem
from tests.remarks import codes
from tests.solver.problems import DENSE, SPARSE, nodes, pair_samples, problem, rates_of
from tests.solver.problems import planned as plan_anew

DENSE_PROBLEM = problem(
    nodes(3, gpus=2, slowdown={"n1": 1.1}), pair_samples(rates_of(3, [5, 20, 40]), flows=2), global_batch=12
)
SPARSE_PROBLEM = problem(
    nodes(4, gpus=1), pair_samples(rates_of(4, [5, 20, 40, 8, 10, 20]), flows=1), model=SPARSE, global_batch=4
)
SHARDED_PROBLEM = replace(DENSE_PROBLEM, workload=replace(DENSE_PROBLEM.workload, sharding=(Sharding.PARAMETERS,)))
planned = cache(plan_anew)
ALL = pytest.mark.parametrize(
    "asked", [DENSE_PROBLEM, SPARSE_PROBLEM, SHARDED_PROBLEM], ids=["dense", "sparse", "sharded"]
)


@ALL
def test_prediction_repeats_the_plan(asked: PlanningProblem) -> None:
    """The plan's own configuration on its own hosts costs what the plan says, part by part."""
    found = planned(asked)
    again = predict(asked, found.configuration, hosts=found.placement.hosts)
    assert again.time == found.time
    assert again.memory == found.memory
    assert again.stages == found.stages
    assert again.timeline == found.timeline
    assert again.placement.hosts == found.placement.hosts
    assert check_plan(again, asked) == ()


@ALL
def test_the_parts_of_every_stage_add_up_to_the_step(asked: PlanningProblem) -> None:
    """No part is negative, and those of the plan are those of the stage that works longest."""
    plan = planned(asked)
    accounts = [stage.time for stage in plan.stages if stage.time is not None]
    assert len(accounts) == len(plan.stages)
    for account in accounts:
        parts = [getattr(account, part) for part in TIME_PARTS]
        assert sum(parts) == pytest.approx(plan.time.step_s)
        assert min(parts) >= 0
    assert plan.time == max(accounts, key=lambda account: -account.pipeline_bubble_s)


@pytest.mark.parametrize("virtual", [1, 2])
def test_waiting_for_sends_takes_time_as_transfers(virtual: int) -> None:
    """Compute is as before, transfers take more, and the timeline is one that could run."""
    waiting = replace(DEFAULT_FRAMEWORK, blocking_transfers=True)
    asked = replace(SPARSE_PROBLEM, architecture=replace(DENSE, layers=4))
    layout = ((4 // (2 * virtual),) * 2,) * virtual
    configuration = replace(
        planned(DENSE_PROBLEM).configuration,
        degrees=Degrees(pipeline=2, virtual_pipeline=virtual),
        micro_batch=1,
        stage_layers=layout,
    )
    delayed = predict(asked, configuration, hosts=("n0", "n1"))
    asked = replace(asked, workload=replace(asked.workload, framework=waiting))
    waited = predict(asked, configuration, hosts=("n0", "n1"))
    assert waited.time.compute_s == pytest.approx(delayed.time.compute_s, rel=1e-12)
    assert waited.time.pipeline_transfer_s > delayed.time.pipeline_transfer_s > 0
    assert check_plan(waited, asked) == ()


def test_a_schedule_too_long_to_wait_for_is_refused() -> None:
    """A prediction is answered at once, so its work has a limit that the refusal names."""
    found = planned(DENSE_PROBLEM).configuration
    long = replace(found, degrees=Degrees(pipeline=2), micro_batch=1, stage_layers=((1, DENSE.layers - 1),))
    endless = replace(DENSE_PROBLEM, workload=replace(DENSE_PROBLEM.workload, global_batch=MOST_SEQUENCES))
    with pytest.raises(InvalidConfiguration, match=f"a schedule of {4 * MOST_SEQUENCES} forwards and backwards"):
        predict(endless, long)


@ALL
def test_without_hosts_the_best_ones_are_chosen(asked: PlanningProblem) -> None:
    """Local search places small cases as the plan does, and the certificate promises no search."""
    found = planned(asked)
    again = predict(asked, found.configuration)
    assert again.time.step_s == pytest.approx(found.time.step_s, rel=1e-12)
    assert again.certificate.stopped_by is StopReason.NO_SEARCH
    assert again.certificate.bound <= found.time.step_s * (1 + 1e-9)


def test_the_bound_knows_that_context_ranks_meet_on_a_slow_node() -> None:
    """All four nodes are in one ring; the bound of the best placement counts the links of the slow one."""
    asked = problem(
        nodes(4, gpus=1), pair_samples(rates_of(4, [40, 40, 2, 40, 2, 2]), flows=1), sequence_length=4096
    )
    pinned = {"tensor": 1, "context": 4, "pipeline": 1, "data": 1, "micro_batch": 1}
    asked = replace(asked, workload=replace(asked.workload, pinned=pinned))
    again = predict(asked, planned(asked).configuration)
    assert again.time.context_s > 0.1 * again.time.step_s
    assert again.certificate.gap < 1e-3


@ALL
def test_other_hosts_are_no_faster(asked: PlanningProblem) -> None:
    """The plan's order of hosts is the best of its configuration."""
    found = planned(asked)
    reversed_hosts = tuple(reversed(found.placement.hosts))
    other = predict(asked, found.configuration, hosts=reversed_hosts)
    assert other.time.step_s >= found.time.step_s * (1 - 1e-12)


def test_time_parts_and_timeline_tell_the_same_step() -> None:
    """The last event of the timeline ends with the step, and the formula's parts add up to it."""
    found = planned(DENSE_PROBLEM)
    ends = [event.start_s + event.duration_s for event in found.timeline]
    assert max(ends) == pytest.approx(found.time.step_s, rel=1e-9)
    parts = found.time
    total = parts.compute_s + parts.tensor_s + parts.context_s + parts.expert_s + parts.pipeline_bubble_s
    total += parts.pipeline_transfer_s + parts.data_exposed_s + parts.optimizer_s
    assert total == pytest.approx(found.time.step_s, rel=1e-9)


def test_what_the_workload_allows_is_not_asked() -> None:
    """A prediction may leave the search's limits."""
    found = planned(DENSE_PROBLEM)
    others: dict[str, Any] = {
        "pinned": {"tensor": 2, "offloaded_layers": 1},
        "forbidden": {"sharding_ranks": (0,), "head_ranks": (0,)},
        "recompute": (Recompute.FULL,),
        "sharding": (Sharding.PARAMETERS,),
        "offload": (Offload.OPTIMIZER,),
        "context_exchange": (ContextExchange.GATHER,),
        "schedule": (PipelineSchedule.GPIPE,),
        "max_gpus": 2,
    }
    narrow = replace(DENSE_PROBLEM, workload=replace(DENSE_PROBLEM.workload, **others))
    again = predict(narrow, found.configuration, hosts=found.placement.hosts)
    assert again.configuration == found.configuration
    assert again.time == found.time


def test_a_configuration_that_does_not_fit_is_predicted_with_a_warning() -> None:
    """Memory is not a rule here, but the reader is told."""
    tight = replace(DENSE_PROBLEM, workload=replace(DENSE_PROBLEM.workload, memory_headroom=0.97))
    again = predict(tight, planned(DENSE_PROBLEM).configuration)
    assert "too_large" in codes(again.warnings)


HOST_MISTAKES = {
    "none at all": ((), "names no host"),
    "one twice": (("n0", "n0", "n1"), "twice"),
    "one unknown": (("n0", "n1", "n9"), "n9"),
    "too few": (("n0",), "needs 6 GPUs on each host"),
    "no whole share": (("n0", "n1", "n2", "n3"), "do not divide"),
}


@pytest.mark.parametrize("mistake", HOST_MISTAKES)
def test_wrong_hosts_are_refused_by_name(mistake: str) -> None:
    """An error that says what is wrong with the list."""
    hosts, words = HOST_MISTAKES[mistake]
    configuration = replace(
        planned(DENSE_PROBLEM).configuration,
        degrees=Degrees(pipeline=2, data=3),
        micro_batch=1,
        stage_layers=((4, 4),),
    )
    with pytest.raises(InvalidConfiguration, match=words) as caught:
        predict(DENSE_PROBLEM, configuration, hosts=hosts)
    assert caught.value.field == "hosts"


@pytest.mark.parametrize("gpus_per_node", [0, -1, 3])
def test_wrong_gpus_per_node_are_refused(gpus_per_node: int) -> None:
    """Fewer than one, or more than a node has."""
    with pytest.raises(InvalidConfiguration):
        predict(DENSE_PROBLEM, planned(DENSE_PROBLEM).configuration, gpus_per_node=gpus_per_node)


@pytest.mark.parametrize(
    ("degrees", "layers"),
    [
        (Degrees(tensor=3), ((8,),)),
        (Degrees(tensor=4), ((8,),)),
        (Degrees(data=5), ((8,),)),
        (Degrees(pipeline=2), ((4, 3),)),
        (Degrees(pipeline=2, virtual_pipeline=2), ((4, 4),)),
        (Degrees(expert=2, data=2), ((8,),)),
        (Degrees(pipeline=8), ((1,) * 8,)),
    ],
    ids=["heads", "node", "batch", "layers", "rows", "no experts", "cluster"],
)
def test_broken_rules_are_refused(degrees: Degrees, layers: tuple[tuple[int, ...], ...]) -> None:
    """Rules of the framework, the model and the cluster."""
    configuration = replace(planned(DENSE_PROBLEM).configuration, degrees=degrees, stage_layers=layers)
    with pytest.raises(InvalidConfiguration):
        predict(DENSE_PROBLEM, configuration)
