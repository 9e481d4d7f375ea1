"""A job's weight or policy that changes while a decision about it is open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.db.engine import SessionFactory, transaction
from app.db.status import ReplanStatus
from app.serialization import jsonable
from app.services.decisions import replan_solves, replans
from app.services.decisions.replans import Answer
from app.services.decisions.safe_answers import answer_safely
from app.services.errors import WrongStatus
from app.services.running import running_jobs
from cluster_models.jobs.recovery import RecoveryAction
from tests.app.running_rows import (
    CLUSTER,
    START,
    decided,
    failed_job,
    plan_on,
    swapped_job,
)

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def test_another_weight_has_an_open_decision_made_anew(sessions: SessionFactory) -> None:
    """A proposed one, not an approved one; the age of a checkpoint changes nothing."""
    with transaction(sessions) as session:
        replan_id, a, _b = swapped_job(session)
        aged = replace(a.recovery, steps_since_checkpoint=7)
        running_jobs.change_job(session, reference=CLUSTER, job="a", weight=1.0, recovery=aged)
        assert replans.get_replan(session, replan_id=replan_id).status is ReplanStatus.PROPOSED
        running_jobs.change_job(session, reference=CLUSTER, job="b", weight=5.0)
        with pytest.raises(WrongStatus, match="superseded"):
            replans.approve_replan(session, replan_id=replan_id)
        fresh = replans.open_replan_of(session, reference=CLUSTER)
        assert fresh is not None
        request = replan_solves.begin_attempt(session, replan_id=fresh.id, now=fresh.window_ends_at)
        assert request is not None
        assert {job["name"]: job["weight"] for job in request.jobs} == {"a": 1.0, "b": 5.0}
        assert {job["id"] for job in request.jobs} >= {a.id}
        assert replan_solves.finish(
            session,
            replan_id=fresh.id,
            decision=jsonable(decided({a: (RecoveryAction.SWAP, plan_on("n7", "n1"))})),
        )
        replans.approve_replan(session, replan_id=fresh.id)
        running_jobs.change_job(session, reference=CLUSTER, job="b", weight=1.0)
        assert replans.get_replan(session, replan_id=fresh.id).status is ReplanStatus.APPROVED


@on_sqlite
def test_a_weight_changed_within_the_window_is_in_the_next_safe_answer(sessions: SessionFactory) -> None:
    """The one that was there cannot be approved any more until it knows."""
    with transaction(sessions) as session:
        replan_id, _a, _b = failed_job(session)
    assert answer_safely(sessions, replan_id=replan_id, now=START)
    with transaction(sessions) as session:
        running_jobs.change_job(session, reference=CLUSTER, job="b", weight=5.0)
        with pytest.raises(WrongStatus, match="later report or change"):
            replans.approve_replan(session, replan_id=replan_id, answer=Answer.SAFE)
    assert answer_safely(sessions, replan_id=replan_id, now=START)
    with transaction(sessions) as session:
        replans.approve_replan(session, replan_id=replan_id, answer=Answer.SAFE)
