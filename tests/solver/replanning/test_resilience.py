"""Effective training time against a simulation, the best interval against others, and prices of surviving more."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.problem import PlanningProblem
from solver.replanning.resilience import (
    DAY_S,
    HardeningKind,
    best_interval_s,
    effective_training,
    hardenings,
)
from solver.search import plan as planned
from tests.cluster_models.clusters import cluster_of, snapshot
from tests.solver.problems import DENSE, EXACT, names
from tests.solver.replanning.moves import hosts_of, plan_on, shape


def roomy(plan: Plan, stages: int, free_bytes: float) -> Plan:
    """The plan with so much memory left on every GPU."""
    memory = plan.memory[0]
    limit = memory.total_bytes + free_bytes
    return replace(plan, memory=tuple(replace(memory, stage=s, limit_bytes=limit) for s in range(stages)))


def test_ratio_is_that_of_a_simulated_run() -> None:
    """Failures at random over 20,000 intervals: progress that lasts over time that passed."""
    plan = plan_on(names(4), shape(tensor=8, data=4))
    policy = RecoveryPolicy(checkpoint_interval_steps=1000, restart_low_s=100, restart_high_s=100)
    found = effective_training(plan, policy, cluster_of(hosts_of(4)), failures_per_node_day=0.5, write_s=20.0)
    random = np.random.default_rng(7)
    rate, passed, lasting = found.failures_per_day / DAY_S, 0.0, 0.0
    until = random.exponential(1 / rate)
    while lasting < 20_000 * 1000:
        whole = 1000 + 20.0
        if until >= whole:
            passed, lasting, until = passed + whole, lasting + 1000, until - whole
        else:
            passed, until = passed + until + found.restart_s, random.exponential(1 / rate)
    assert found.ratio == pytest.approx(lasting / passed, rel=5e-3)


@given(
    rate=st.floats(1e-8, 1e-3),
    restart_s=st.floats(0, 600),
    write_s=st.floats(0.1, 600),
    factor=st.floats(0.05, 20),
)
def test_no_interval_is_better_than_the_best(rate: float, restart_s: float, write_s: float, factor: float) -> None:
    """The formula at any other interval is not above it."""
    best = best_interval_s(rate, restart_s, write_s)
    if best is None:
        return

    def ratio(interval_s: float) -> float:
        return (1 - rate * (restart_s + interval_s / 2)) / (1 + write_s / interval_s)

    assert ratio(best * factor) <= ratio(best) + 1e-12


def test_short_writes_give_the_interval_of_young() -> None:
    """sqrt(2 w / r) where failures are rare and writing is quick."""
    assert best_interval_s(1e-7, 0.0, 1e-3) == pytest.approx((2 * 1e-3 / 1e-7) ** 0.5, rel=1e-3)
    assert best_interval_s(1e-2, 200.0, 1.0) is None


def test_live_copies_save_the_way_back() -> None:
    """Where any node may be lost, no failure takes half an interval, and rarer checkpoints are better."""
    nodes = cluster_of(hosts_of(4))
    sharded, whole = (
        plan_on(names(4), shape(tensor=8, data=4, sharding=each)) for each in (Sharding.OPTIMIZER, Sharding.NONE)
    )
    policy = RecoveryPolicy(hands_over_state=True)
    lost, kept = (effective_training(plan, policy, nodes, failures_per_node_day=5.0) for plan in (sharded, whole))
    assert kept.ratio > lost.ratio
    assert kept.best_interval_s is None
    assert lost.best_interval_s is not None
    assert lost.best_ratio >= lost.ratio
    twice = effective_training(sharded, replace(policy, optimizer_instances=2), nodes, failures_per_node_day=5.0)
    assert twice.best_interval_s is None


def test_ways_to_survive_a_node_and_their_prices() -> None:
    """A second instance costs 12 bytes of a quarter of the parameters; no sharding three quarters."""
    plan = roomy(plan_on(names(4), shape(tensor=8, data=4)), 1, 1e12)
    found = {each.kind: each for each in hardenings(plan, RecoveryPolicy(), snapshot(hosts_of(4)))}
    norms = (2 * DENSE.layers + 1) * DENSE.hidden
    rank = (DENSE.parameters() - norms) / 8 + norms
    assert found[HardeningKind.OPTIMIZER_INSTANCES].gpu_bytes == pytest.approx(12 * rank / 4)
    assert found[HardeningKind.UNSHARDED].gpu_bytes == pytest.approx(12 * rank * 3 / 4)
    assert found[HardeningKind.MEMORY_CHECKPOINT].host_bytes == pytest.approx(2 * 8 * (2 + 12 / 4) * rank)
    assert {kind: each.count for kind, each in found.items()} == {
        HardeningKind.OPTIMIZER_INSTANCES: 1,
        HardeningKind.UNSHARDED: 3,
        HardeningKind.MEMORY_CHECKPOINT: 1,
    }
    assert found[HardeningKind.OPTIMIZER_INSTANCES].step_s > 0


def test_what_does_not_fit_comes_last() -> None:
    """Cheap in time but too large for the GPUs."""
    plan = roomy(plan_on(names(4), shape(tensor=8, data=4)), 1, 1.0)
    found = hardenings(plan, RecoveryPolicy(), snapshot(hosts_of(4)))
    assert found[0].kind is HardeningKind.MEMORY_CHECKPOINT
    assert [each.is_possible for each in found] == [True, False, False]


def test_surviving_a_leaf_is_planned_again() -> None:
    """Copies under one leaf: another placement saves them, at what the planner says it costs."""
    nodes = hosts_of(4, per_leaf=2)
    workload = TrainingWorkload(
        sequence_length=2048, global_batch=8, sharding=(Sharding.NONE,), pinned={"data": 2, "tensor": 8}
    )
    question = PlanningProblem(snapshot(nodes), DENSE, workload)
    plan = plan_on(("n0", "n1"), shape(tensor=8, data=2, sharding=Sharding.NONE))
    plan = roomy(replace(plan, workload=workload), 1, 1e12)

    def replan(asked: TrainingWorkload) -> Plan | NoPlan:
        return planned(replace(question, workload=asked), EXACT)

    (found,) = hardenings(plan, RecoveryPolicy(memory_checkpoint=False), question.snapshot, "leaf", replan=replan)
    assert found.kind is HardeningKind.SPREAD
    assert found.count == 1
