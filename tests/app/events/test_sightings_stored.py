"""A node that is asked every minute leaves a row only where something changed."""

from __future__ import annotations

from datetime import timedelta

from app.db.engine import SessionFactory, transaction
from app.events.reading import ToldEvent
from app.services.health import health_events
from cluster_models.health.events import HealthState
from tests.app.running_rows import CLUSTER, START, add_cluster, report, told


def test_polls_are_stored_only_where_something_changed(sessions: SessionFactory) -> None:
    seen = [HealthState.RECOVERED, HealthState.FAILED, HealthState.FAILED, HealthState.RECOVERED]
    with transaction(sessions) as session:
        add_cluster(session)
        answers = []
        for minute, state in enumerate(seen):
            at_s = 60.0 * minute
            each = told("n0", state, at_s=at_s)
            answers.append(report(session, ToldEvent(each.event, "n0", True, is_sighting=True), at_s=at_s))
        assert [(len(answer.events), answer.repeated) for answer in answers] == [(0, 1), (1, 0), (0, 1), (1, 0)]
        now = START + timedelta(hours=1)
        assert health_events.conditions_now(session, reference=CLUSTER, now=now) == ()
