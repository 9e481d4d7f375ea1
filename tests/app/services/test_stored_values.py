"""Stored clusters and plans are loaded once for each content, and never taken for other content."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from sqlalchemy import select

from app.db.engine import SessionFactory, transaction
from app.db.running_tables import RunningPlanRow
from app.services.clusters import clusters
from app.services.clusters.clusters import NodeChange
from app.services.decisions import replan_problems, replans, safe_answers
from cluster_models.cluster.topology import NodeState
from cluster_models.jobs.recovery import RecoveryAction
from tests.app.running_rows import CLUSTER, add_cluster, add_job, decided, failed_job, plan_on, solved

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def _state(sessions: SessionFactory, state: NodeState) -> tuple[int, NodeState]:
    """The version and state that a node has after a change, which is then rolled back."""
    with sessions() as session:
        stored, _node = clusters.change_node(session, reference=CLUSTER, node="n0", change=NodeChange(state=state))
        return stored.version, stored.cluster.nodes[0].state


def test_a_version_that_was_rolled_back_is_not_kept(sessions: SessionFactory) -> None:
    """Two changes that were both to be version 2 give each its own cluster."""
    with transaction(sessions) as session:
        add_cluster(session)
    assert _state(sessions, NodeState.FAILED) == (2, NodeState.FAILED)
    assert _state(sessions, NodeState.DRAINING) == (2, NodeState.DRAINING)
    with sessions() as session:
        assert clusters.get_cluster(session, reference=CLUSTER).cluster.nodes[0].state is NodeState.READY


def test_running_plans_are_kept_without_their_timelines(sessions: SessionFactory) -> None:
    """Neither those that owners apply nor those of approved decisions: most bytes, which no decision reads."""
    with transaction(sessions) as session:
        replan_id, a, b = failed_job(session)  # options of decisions have none (test_options)
        solved(session, replan_id, decided({a: (RecoveryAction.SWAP, plan_on("n7", "n1"))}, untouched=[b]))
        replans.approve_replan(session, replan_id=replan_id)
        assert plan_on("n7", "n1").timeline
        kept = session.scalars(select(RunningPlanRow)).all()
        assert len(kept) == 3
        assert all(row.plan["timeline"] == [] for row in kept)


def test_plans_of_jobs_are_loaded_once_for_all_failures(sessions: SessionFactory) -> None:
    """Two questions have the same plan, not an equal one; the child's is a document."""
    with transaction(sessions) as session:
        cluster_id = add_cluster(session)
        add_job(session, "a", "n0", "n1")
        found = replan_problems.situation(session, cluster_id=cluster_id, replan_id="", now=datetime.now(UTC))
        first, second = (safe_answers.problem_of(session, found).training.jobs[0].plan for _ in range(2))
        assert first is second
        request = replan_problems.request_of(session, snapshot={}, document=found.document)
        assert request.jobs[0]["plan"]["placement"]["hosts"] == ["n0", "n1"]
