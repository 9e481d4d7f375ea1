"""A part that has to be left at a stated time: nothing new goes there, and it is decided on shortly before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.orm import Session

from app.cli.failures.failure_options import ToldFailures
from app.db.engine import SessionFactory, transaction
from app.db.status import ReplanStatus
from app.events.reading import ToldEvent
from app.services.decisions import replan_settings, replans, timed_replans
from app.services.decisions.replan_settings import ReplanSettings
from app.services.health import health_events
from app.services.running import occupancy
from app.settings import Role
from cluster_models.errors import InvalidInput
from cluster_models.health.events import HealthState
from tests.app.api_client import running
from tests.app.failure_bodies import SITE, store_site
from tests.app.running_rows import CLUSTER, START, add_cluster, add_job, report, told

HOUR_S = 3600.0
LEAVE_BY = START + timedelta(days=14)


def _retired(node: str, *, leave_by_s: float = 14 * 86_400.0) -> ToldEvent:
    heard = told(node, HealthState.DRAINING)
    return replace(heard, event=replace(heard.event, leave_by=START + timedelta(seconds=leave_by_s)))


def _states(session: Session, days: float) -> dict[str, HealthState]:
    now = START + timedelta(days=days)
    found = health_events.conditions_now(session, reference=CLUSTER, now=now)
    return {each.entity.node: each.state for each in found}


def test_a_node_that_retires_in_two_weeks_is_left_in_two_weeks(sessions: SessionFactory) -> None:
    """No decision now; an hour before one opens, once, and knows of the spare that goes with it."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1")
        occupancy.replace_spares(session, reference=CLUSTER, nodes=["n7"])
        assert report(session, _retired("n0"), _retired("n7")).replan_id is None
        assert _states(session, 1) == {"n0": HealthState.SUSPECTED, "n7": HealthState.SUSPECTED}
        early, due = LEAVE_BY - timedelta(seconds=HOUR_S + 60), LEAVE_BY - timedelta(seconds=HOUR_S - 60)
        assert timed_replans.wake_deadlines(session, now=early) == []
        (replan_id,) = timed_replans.wake_deadlines(session, now=due)
        assert timed_replans.wake_deadlines(session, now=due + timedelta(seconds=3)) == []
        replan = replans.get_replan(session, replan_id=replan_id)
        assert (replan.status, len(replan.event_ids)) == (ReplanStatus.COLLECTING, 2)
        assert replan.reason == "node n0 draining: touches a."
        assert _states(session, 14)["n0"] is HealthState.DRAINING


def test_what_must_be_left_within_the_lead_is_decided_on_at_once(sessions: SessionFactory) -> None:
    """With a lead of two hours, a node that works for ninety minutes more."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1")
        settings = ReplanSettings(drain_lead_s=2 * HOUR_S)
        replan_settings.replace_settings(session, reference=CLUSTER, settings=settings)
        replan_id = report(session, _retired("n0", leave_by_s=1.5 * HOUR_S)).replan_id
        assert replan_id is not None
        assert timed_replans.wake_deadlines(session, now=START + timedelta(seconds=5)) == []


def test_nobody_is_woken_for_what_was_taken_back(sessions: SessionFactory) -> None:
    """The retirement was called off by the source."""
    with transaction(sessions) as session:
        add_cluster(session)
        add_job(session, "a", "n0", "n1")
        report(session, _retired("n0"))
        report(session, told("n0", HealthState.RECOVERED, at_s=HOUR_S), at_s=HOUR_S)
        assert timed_replans.wake_deadlines(session, now=LEAVE_BY) == []


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application with jobs."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_site(client)
        yield client


def test_the_time_is_taken_and_shown_over_http(client: TestClient) -> None:
    """Only of what drains; it stands in the report and in what follows from it."""
    body = {"node": "n0", "state": "draining", "leave_by": "2126-01-01T00:00:00Z"}
    assert client.post(f"{SITE}/events", json=body).json()["replan"] is None
    (event,) = client.get(f"{SITE}/events").json()["items"]
    (condition,) = client.get(f"{SITE}/conditions").json()["conditions"]
    assert event["leave_by"] == condition["leave_by"] == body["leave_by"]
    assert condition["state"] == "suspected"
    refused = client.post(f"{SITE}/events", json=body | {"state": "failed"})
    assert (refused.status_code, "leave_by" in refused.text) == (422, True)


def test_the_option_goes_with_draining_only() -> None:
    """Else it would say until when nothing works."""
    with pytest.raises(InvalidInput, match="--leave-within"):
        ToldFailures(lost=("n0",), leave_within_s=HOUR_S)
