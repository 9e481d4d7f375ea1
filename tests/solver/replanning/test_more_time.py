"""A decision with more time is worth no less, whatever the search was at when the shorter one ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count, pairwise

import pytest

from cluster_models.jobs.recovery import BatchDecision
from cluster_models.jobs.running import RunningJob
from cluster_models.training.workload import Choice, Recompute, Sharding
from solver.replanning.decide import decide
from solver.replanning.problem import ReplanOptions, ReplanProblem
from solver.replanning.values import WORTH_MOVING
from tests.solver.replanning.samples import after, cluster, job, names, replan

TICK_S = 1e-3
"""By which a clock moves whenever somebody looks: time in units of work, the same on every machine."""
LIMITS_S = (0.004, 0.01, 0.02, 0.04, 0.08, 0.16, 0.5, 5.0)


def free_in_shape(running: RunningJob) -> RunningJob:
    """The job whose owner takes the simplest of plans as good, and any recomputation and sharding."""
    assert running.plan.workload is not None
    workload = replace(
        running.plan.workload,
        choice=Choice.SIMPLEST,
        recompute=tuple(Recompute),
        sharding=(Sharding.NONE, Sharding.OPTIMIZER),
    )
    return replace(running, plan=replace(running.plan, workload=workload))


def one_job() -> ReplanProblem:
    """No spare: the simplest of the shapes as good is 1.7 % slower than the fastest."""
    whole = cluster(4)
    running = free_in_shape(job("a", whole, names(whole), tensor=2, batch=8))
    return replan(after(whole, failed=["n01"]), [running])


def two_jobs() -> ReplanProblem:
    """One spare for two jobs that both lost a node."""
    whole = cluster(9)
    jobs = [
        free_in_shape(job("a", whole, names(whole, 0, 4), tensor=2, batch=8)),
        free_in_shape(job("b", whole, names(whole, 4, 4), tensor=1, batch=16, weight=2.0)),
    ]
    return replan(after(whole, failed=["n01", "n05"]), jobs)


def ranks_moved(decision: BatchDecision) -> int:
    return sum(len(made.migration.moved) for made in decision.jobs)


def decisions(problem: ReplanProblem, monkeypatch: pytest.MonkeyPatch) -> Sequence[BatchDecision]:
    """The decision within each of ``LIMITS_S`` of a clock that counts."""
    found = []
    for limit_s in LIMITS_S:
        ticks = count()
        monkeypatch.setattr(time, "monotonic", lambda ticks=ticks: next(ticks) * TICK_S)
        found.append(decide(problem, ReplanOptions(time_limit_s=limit_s)))
    return found


@pytest.mark.parametrize("problem", [one_job, two_jobs])
def test_more_time_is_worth_no_less(problem: Callable[[], ReplanProblem], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is the bound higher; less worth is only what moving fewer ranks is worth anywhere."""
    found = decisions(problem(), monkeypatch)
    for short, long in pairwise(found):
        fewer = ranks_moved(long) < ranks_moved(short)
        assert long.objective >= short.objective - fewer * WORTH_MOVING * abs(short.objective)
        assert long.bound <= short.bound * (1 + 1e-9)
    assert found[-1].objective > found[0].objective
