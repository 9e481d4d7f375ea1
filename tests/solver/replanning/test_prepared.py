"""Options prepared for the loss of any one node: stored, read back, and right for every node of the class."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.serialization import jsonable, load
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.jobs.running import RunningJob
from solver.replanning.check import check_decision
from solver.replanning.decide import decide, safe_answer
from solver.replanning.prepared import PreparedJob, prepare
from tests.solver.replanning.samples import SAME_SHAPE, after, cluster, job, names, replan


@pytest.fixture(scope="module")
def whole() -> ClusterSnapshot:
    """Two leaves of four nodes."""
    return cluster(8)


@pytest.fixture(scope="module")
def running(whole: ClusterSnapshot) -> RunningJob:
    """A pipeline of two over six nodes of both leaves."""
    return job("one", whole, names(whole, 0, 6), tensor=2, pipeline=2)


@pytest.fixture(scope="module")
def known(whole: ClusterSnapshot, running: RunningJob) -> PreparedJob:
    """The work prepared for it."""
    return prepare(replan(whole, [running], spares=[]), running)


def test_every_node_has_its_options(running: RunningJob, known: PreparedJob) -> None:
    """Each node is named once, and something can be done without any of them."""
    assert sorted(node for loss in known.losses for node in loss.nodes) == sorted(running.nodes)
    assert all(loss.options for loss in known.losses)
    assert len(known.losses) < len(running.nodes)


def test_stored_options_come_back_equal(known: PreparedJob) -> None:
    """As JSON and back."""
    assert load(PreparedJob, jsonable(known)) == known


@pytest.mark.parametrize("lost", ["n00", "n01", "n03", "n04", "n05"])
def test_safe_answer_takes_the_prepared_shape_for_any_node(
    whole: ClusterSnapshot, running: RunningJob, known: PreparedJob, lost: str
) -> None:
    """Without spares the prepared answer is feasible, near the searched one, and above what is found without it."""
    problem = replan(after(whole, failed=[lost]), [running], spares=[])
    with_it, without = safe_answer(problem, [known]), safe_answer(problem)
    assert check_decision(problem, with_it) == ()
    assert with_it.objective >= without.objective
    assert with_it.jobs[0].plan is not None
    assert lost not in with_it.jobs[0].plan.placement.hosts
    best = decide(problem)
    assert with_it.objective >= 0.95 * best.objective


def test_spares_come_before_prepared_shapes(
    whole: ClusterSnapshot, running: RunningJob, known: PreparedJob
) -> None:
    """With a spare at hand the job keeps its shape."""
    problem = replan(after(whole, failed=["n02"]), [running])
    decision = safe_answer(problem, [known])
    assert decision.jobs[0].action is RecoveryAction.SWAP
    assert decision.fallback


def test_outdated_preparations_are_left_aside(
    whole: ClusterSnapshot, running: RunningJob, known: PreparedJob
) -> None:
    """Prepared for other hosts, or with two nodes lost: the answer is that without preparation."""
    problem = replan(after(whole, failed=["n02", "n03"]), [running], spares=[])
    assert safe_answer(problem, [known]) == safe_answer(problem)
    moved = replace(known, hosts=tuple(reversed(known.hosts)))
    one = replan(after(whole, failed=["n02"]), [running], spares=[])
    assert safe_answer(one, [moved]) == safe_answer(one)


def test_job_that_keeps_its_shape_has_no_other_prepared(whole: ClusterSnapshot) -> None:
    """Where degrees may not change, only fewer replicas are prepared."""
    fixed = job("fixed", whole, names(whole, 0, 4), tensor=2, recovery=SAME_SHAPE)
    found = prepare(replan(whole, [fixed]), fixed)
    assert {option.action for loss in found.losses for option in loss.options} == {
        RecoveryAction.SHRINK_DATA_PARALLEL
    }
