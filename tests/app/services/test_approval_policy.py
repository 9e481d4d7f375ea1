"""Approval by a cluster's settings, and by a person where they stop."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.db.status import ReplanStatus
from app.db.webhook_tables import WebhookDeliveryRow
from app.serialization import jsonable
from app.services.decisions import replan_settings, replan_solves, replans
from app.services.decisions.replan_settings import ReplanSettings
from app.services.decisions.replans import ReplanRecord
from app.services.running import occupancy
from app.services.webhooks import webhooks
from cluster_models.errors import InvalidInput
from cluster_models.health.events import HealthState
from cluster_models.jobs.recovery import BatchDecision, RecoveryAction
from tests.app.running_rows import CLUSTER, START, add_cluster, add_job, decided, plan_on, report, solved, told

on_sqlite = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
pytestmark = on_sqlite


def _proposed(session: Session, *failed: str, gap: float = 0.02, **settings: Any) -> ReplanRecord:
    """``a`` lost n0 and moves to the spare n7, ``b`` on n2 and n3 pauses; other nodes may have failed too."""
    add_cluster(session)
    a, b = add_job(session, "a", "n0", "n1"), add_job(session, "b", "n2", "n3")
    occupancy.replace_spares(session, reference=CLUSTER, nodes=["n7"])
    stored = ReplanSettings(**{"auto_approve": True, **settings})
    replan_settings.replace_settings(session, reference=CLUSTER, settings=stored)
    replan_id = report(session, told("n0"), *(told(node) for node in failed)).replan_id
    assert replan_id is not None
    answer = decided({a: (RecoveryAction.SWAP, plan_on("n7", "n1")), b: (RecoveryAction.PAUSE, None)})
    solved(session, replan_id, replace(answer, gap=gap))
    return replans.get_replan(session, replan_id=replan_id)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"auto_actions": (RecoveryAction.SWAP,)}, "not: Pause it"),
        ({"auto_most_jobs": 1}, "2 jobs would act, and 1 may"),
        ({"auto_most_nodes": 3}, "4 nodes would change hands, and 3 may"),
        ({"auto_most_gap": 0.01}, "may be worth 2.0 % more, and 1.0 % is the limit"),
    ],
    ids=["action", "jobs", "nodes", "gap"],
)
def test_what_goes_beyond_the_limits_waits_for_a_person(
    sessions: SessionFactory, settings: dict[str, Any], words: str
) -> None:
    """It is proposed, says why, and can be approved by hand."""
    with transaction(sessions) as session:
        replan = _proposed(session, **settings)
        assert replan.status is ReplanStatus.PROPOSED
        (reason,) = replan.objections
        assert words in reason
        assert replans.approve_replan(session, replan_id=replan.id).status is ReplanStatus.APPROVED


def test_what_keeps_within_all_limits_is_approved_by_the_service(sessions: SessionFactory) -> None:
    """Every limit is itself allowed."""
    with transaction(sessions) as session:
        allowed = (RecoveryAction.SWAP, RecoveryAction.PAUSE)
        limits = {"auto_most_jobs": 2, "auto_most_nodes": 4, "auto_most_gap": 0.02}
        replan = _proposed(session, auto_actions=allowed, **limits)
        assert (replan.status, replan.objections) == (ReplanStatus.APPROVED, ())
        assert [(each.actor.name, each.actor.verified) for each in replan.steps] == [("meshwright", True)]


def test_nothing_is_approved_by_itself_in_a_storm(sessions: SessionFactory) -> None:
    """Three of eight nodes by one source at once: the message says so, and a larger share lets it pass."""
    with transaction(sessions) as session:
        webhooks.create_endpoint(session, url="https://a.example/all")
        replan = _proposed(session, "n4", "n5")
        assert replan.status is ReplanStatus.PROPOSED
        (reason,) = replan.objections
        assert reason.startswith("watch reported trouble on 3 of 8 nodes within 5 min")
        query = select(WebhookDeliveryRow.payload).where(WebhookDeliveryRow.event_type == "replan.proposed")
        assert json.loads(session.scalars(query).one())["data"]["objections"] == [reason]


def test_a_larger_storm_may_be_asked_for(sessions: SessionFactory) -> None:
    """Where racks fail often, half of the nodes may be the measure."""
    with transaction(sessions) as session:
        assert _proposed(session, "n4", "n5", storm_share=0.5).status is ReplanStatus.APPROVED


def test_nothing_is_approved_by_itself_for_what_is_back(sessions: SessionFactory) -> None:
    """All is well a second later: the answer waits for somebody to look."""
    with transaction(sessions) as session:
        add_cluster(session)
        a = add_job(session, "a", "n0", "n1")
        settings = ReplanSettings(auto_approve=True)
        replan_settings.replace_settings(session, reference=CLUSTER, settings=settings)
        replan_id = report(session, told("n0")).replan_id
        assert replan_id is not None
        solved_later = decided({a: (RecoveryAction.PAUSE, None)})
        _solve_after_recovery(session, replan_id, solved_later)
        replan = replans.get_replan(session, replan_id=replan_id)
        assert replan.status is ReplanStatus.PROPOSED
        assert replan.objections == ("all that opened it is reported as well again",)


def _solve_after_recovery(session: Session, replan_id: str, decision: BatchDecision) -> None:
    """The node is reported as well again while the solver works."""
    assert replan_solves.begin_attempt(session, replan_id=replan_id, now=START.replace(minute=2)) is not None
    report(session, told("n0", HealthState.RECOVERED, at_s=130), at_s=130)
    assert replan_solves.finish(session, replan_id=replan_id, decision=jsonable(decision))


@pytest.mark.parametrize("settings", [{"auto_most_gap": 2.0}, {"storm_share": -0.1}, {"auto_most_nodes": 0}])
def test_limits_must_make_sense(sessions: SessionFactory, settings: dict[str, Any]) -> None:
    """Shares lie between 0 and 1, counts begin at 1."""
    del sessions
    with pytest.raises(InvalidInput):
        ReplanSettings(**settings)
