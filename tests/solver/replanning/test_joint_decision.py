"""Training jobs and serving deployments that share the spares of one cluster."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.jobs.recovery import BatchDecision, RecoveryAction
from cluster_models.jobs.serving import ServingAction, ServingJob
from cluster_models.serving.goal import ServingMode
from solver.replanning.check_shared import check_shared
from solver.replanning.decide import decide
from solver.replanning.joint_decision import decide_together
from solver.replanning.problem import ReplanOptions
from solver.replanning.safe_shared import safe_shared
from solver.replanning.shared import SharedProblem
from tests.solver.replanning.samples import SAME_SHAPE, after, cluster, job, names, replan
from tests.solver.serving.planning.problems import CHAT, problem, served, sound_plan

OPTIONS = ReplanOptions(time_limit_s=60.0)
HORIZON_S = 6 * 3600.0


@cache
def _cluster() -> ClusterSnapshot:
    """Six nodes of two GPUs: two of training, three that may serve, a spare."""
    return cluster(6, leaf_nodes=6)


@cache
def _deployment(weight: float = 1.0) -> ServingJob:
    """Three replicas of two GPUs on n02, n03 and n04, one each."""
    hosts = [node for node in _cluster().cluster.nodes if node.name in ("n02", "n03", "n04")]
    load = served("qwen3-32b", **CHAT, concurrency=450.0)
    modes = (ServingMode.AGGREGATED,)
    plan = sound_plan(problem(hosts, load, objective="gpus", modes=modes, pinned={"tensor": 2}))
    assert {place.node for replica in plan.replicas for place in replica.places} == {"n02", "n03", "n04"}
    return ServingJob("chat", "chat", plan, weight)


def _decided(snapshot: ClusterSnapshot, *, train_weight: float = 1.0, serve_weight: float = 1.0) -> BatchDecision:
    """The decision about both, after every check."""
    training = job("one", _cluster(), names(_cluster(), 0, 2), tensor=2, weight=train_weight, recovery=SAME_SHAPE)
    asked = replan(snapshot, [training], spares=["n05"], horizon_s=HORIZON_S)
    shared = SharedProblem(asked, (_deployment(serve_weight),))
    decision = decide_together(shared, OPTIONS)
    assert check_shared(shared, decision) == ()
    return decision


def test_a_lost_replica_starts_on_the_spare_and_the_others_go_on() -> None:
    """Nothing of the training job is touched; two of three replicas answer meanwhile."""
    decision = _decided(after(_cluster(), failed=["n03"]))
    (made,) = decision.serving
    assert made.action is ServingAction.START_REPLICAS
    assert len(made.kept) == 2
    assert len(made.started) == len(made.lost) == 1
    assert {node for node, _ in made.held} == {"n02", "n04", "n05"}
    (load,) = made.loads
    assert (
        0.5 * load.before_per_s < load.during_per_s < load.after_per_s == pytest.approx(load.before_per_s, rel=0.01)
    )
    assert decision.jobs == ()
    assert decision.spares_left == ()
    assert decision.gap < 0.02


@pytest.mark.parametrize(("train", "serve"), [(1.0, 1e-3), (1e-3, 1.0)])
def test_the_spare_goes_where_it_is_worth_more(train: float, serve: float) -> None:
    """Both lost a node: the job of more weight gets the spare, the other does with less."""
    decision = _decided(after(_cluster(), failed=["n01", "n03"]), train_weight=train, serve_weight=serve)
    (made,), (trained,) = decision.serving, decision.jobs
    if train > serve:
        assert trained.action is RecoveryAction.SWAP
        assert made.action is ServingAction.CARRY_ON
    else:
        assert made.action is ServingAction.START_REPLICAS
        assert trained.action is not RecoveryAction.SWAP


def test_without_deployments_it_is_the_decision_about_training() -> None:
    """The same actions, objective and bound as ``decide``."""
    asked = replan(
        after(_cluster(), failed=["n01"]),
        [job("one", _cluster(), names(_cluster(), 0, 2), tensor=2, recovery=SAME_SHAPE)],
        spares=["n05"],
    )
    shared, alone = decide_together(SharedProblem(asked, ()), OPTIONS), decide(asked, OPTIONS)
    assert shared.objective == alone.objective
    assert [made.action for made in shared.jobs] == [made.action for made in alone.jobs]


def test_a_deployment_that_lost_nothing_is_left_alone() -> None:
    """And its GPUs serve no training job."""
    decision = _decided(after(_cluster(), failed=["n01"]))
    assert decision.untouched == ("chat",)
    assert decision.jobs[0].action is RecoveryAction.SWAP


def test_rules_find_a_gpu_given_twice() -> None:
    """A decision in which the training job sits where the new replica starts."""
    training = job("one", _cluster(), names(_cluster(), 0, 2), tensor=2, recovery=SAME_SHAPE)
    snapshot = after(_cluster(), failed=["n01", "n03"])
    shared = SharedProblem(replan(snapshot, [training], spares=["n05"], horizon_s=HORIZON_S), (_deployment(),))
    first = _decided(snapshot, train_weight=1.0, serve_weight=1e-3)
    second = _decided(snapshot, train_weight=1e-3, serve_weight=1.0)
    broken = check_shared(shared, replace(first, serving=second.serving))
    assert any("n05" in each for each in broken)


def test_the_safe_answer_gives_the_spare_to_the_training_job_first() -> None:
    """It keeps all rules without a search, and is worth no more than the decision."""
    training = job("one", _cluster(), names(_cluster(), 0, 2), tensor=2, recovery=SAME_SHAPE)
    for failed, spare in ((["n03"], "chat"), (["n01", "n03"], "one")):
        asked = replan(after(_cluster(), failed=failed), [training], spares=["n05"], horizon_s=HORIZON_S)
        shared = SharedProblem(asked, (_deployment(),))
        safe = safe_shared(shared)
        assert check_shared(shared, safe) == ()
        assert safe.fallback
        assert safe.spares_used == ("n05",)
        (made,) = safe.serving
        assert ("n05" in {node for node, _ in made.held}) == (spare == "chat")
        assert safe.objective <= decide_together(shared, OPTIONS).objective * (1 + 1e-9)
