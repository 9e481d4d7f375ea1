"""Options of deployments after failures, and their worth."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from cluster_models.cluster.topology import NodeState
from cluster_models.jobs.running import InvalidRunningJob
from cluster_models.jobs.serving import ServingAction, ServingJob, ServingPolicy
from cluster_models.serving.goal import ServingMode
from solver.check.serving import check_serving_plan
from solver.serving.problem import ServingProblem
from solver.serving.recovery.options import ServingOptions, serving_options
from solver.serving.recovery.problem import RecoveryProblem
from solver.serving.recovery.settling import with_free
from tests.solver.serving.planning.problems import CHAT, OPTIONS, nodes, problem, served, sound_plan

HOUR_S: Final = 3600.0
SIMPLE: Final = {"modes": (ServingMode.AGGREGATED,), "pinned": {"tensor": 2}}
"""Few shapes: what is chosen is tested elsewhere."""


def _problem(
    *failed: str, objective: str = "gpus", spares: tuple[str, ...] = (), count: int = 3, **load: Any
) -> RecoveryProblem:
    """A deployment on nodes of four GPUs, some of which failed since it was planned."""
    spare = [node for node in nodes(count, gpus=4) if node.name not in spares]
    given = problem(spare, served("qwen3-32b", **CHAT, **load), objective=objective, **SIMPLE)
    plan = sound_plan(given)
    hosts = tuple(
        replace(node, state=NodeState.FAILED) if node.name in failed else node for node in nodes(count, gpus=4)
    )
    snapshot = replace(given.snapshot, cluster=replace(given.snapshot.cluster, nodes=hosts))
    return RecoveryProblem(snapshot, ServingJob("chat", "chat", plan), spares, 6 * HOUR_S, 0.01)


def _options(given: RecoveryProblem) -> ServingOptions:
    """Options whose plans pass the independent check, on living GPUs that the deployment may use."""
    found = serving_options(given, OPTIONS)
    for made in found.options:
        assert made.value_flop <= found.bound_flop * (1 + 1e-9)
        assert made.held.isdisjoint(given.lost)
        assert made.held <= given.job.gpus | given.spare_gpus
        if made.plan is not None:
            offered = {(idle.node, gpu) for idle in made.plan.idle for gpu in idle.gpus} | made.held
            asked = ServingProblem(with_free(given.snapshot, offered), given.job.plan.models, made.plan.goal)
            assert check_serving_plan(made.plan, asked) == ()
    return found


def test_without_spares_what_lives_carries_on() -> None:
    """Replicas of the other nodes keep their GPUs, and answer less than was asked for."""
    given = _problem("n0", objective="goodput", concurrency=64.0)
    best = _options(given).options[0]
    assert best.action is ServingAction.CARRY_ON
    assert best.started == ()
    (load,) = best.loads
    assert 0 < load.after_per_s < load.before_per_s
    assert load.during_per_s == load.after_per_s


def test_a_spare_node_brings_back_what_was_asked_for() -> None:
    """Live replicas go on; only as many start as the load needs."""
    given = _problem("n0", spares=("n2",), concurrency=500.0)
    assert {node for node, _ in given.job.gpus} == {"n0", "n1"}
    best = _options(given).options[0]
    assert best.action is ServingAction.START_REPLICAS
    assert best.kept
    assert best.loads[0].after_per_s == pytest.approx(best.loads[0].before_per_s, rel=0.02)
    assert best.start.middle_s > 105.0


def test_a_replica_that_starts_too_late_is_worth_nothing() -> None:
    """With a horizon shorter than the start, carrying on is the best."""
    given = _problem("n0", spares=("n2",), concurrency=500.0)
    short = replace(given, horizon_s=60.0)
    assert _options(short).options[0].action is ServingAction.CARRY_ON


def test_replicas_that_live_are_not_stopped_where_that_is_forbidden() -> None:
    """Nor is any option one that stops them."""
    given = _problem("n0", objective="throughput", concurrency=16.0)
    kept = replace(given, job=replace(given.job, policy=ServingPolicy(may_replan=False)))
    assert all(not made.stopped for made in _options(kept).options)


def test_a_lost_gpu_is_replaced_beside_it() -> None:
    """The node has GPUs that nobody holds: its replica starts again there, no spare node is taken."""
    given = problem(nodes(1, gpus=4), served("qwen3-32b", **CHAT, concurrency=8.0), objective="gpus", **SIMPLE)
    plan = sound_plan(given)
    (node,) = given.snapshot.cluster.nodes
    gone = plan.replicas[0].places[0].gpus[0]
    hurt = replace(node, gpus_in_use=(gone,))
    snapshot = replace(given.snapshot, cluster=replace(given.snapshot.cluster, nodes=(hurt,)))
    best = _options(RecoveryProblem(snapshot, ServingJob("chat", "chat", plan), (), 6 * HOUR_S)).options[0]
    assert best.action is ServingAction.START_REPLICAS
    assert (node.name, gone) not in best.held
    assert len(best.held) == plan.gpus


def test_nothing_left_is_a_stop() -> None:
    """The only node failed and there is no spare."""
    given = _problem("n0", count=1, concurrency=8.0)
    (best,) = _options(given).options
    assert best.action is ServingAction.STOP
    assert best.value_flop == 0.0


def test_a_plan_of_another_cluster_is_refused() -> None:
    """With the GPU that the cluster lacks named."""
    given = _problem(concurrency=8.0)
    fewer = replace(given.snapshot.cluster, nodes=given.snapshot.cluster.nodes[1:])
    with pytest.raises(InvalidRunningJob, match="n0:0"):
        replace(given, snapshot=replace(given.snapshot, cluster=fewer))
