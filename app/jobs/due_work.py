"""Queues what is due by the clock, and what a process that died had meant to queue.

Each function looks at the tables alone, so a round that comes twice, or on two workers at once, queues once.
"""

from __future__ import annotations

from datetime import UTC, datetime

import structlog

from app.db.engine import SessionFactory, transaction
from app.jobs.client import OPEN_JOBS, JobClient
from app.services import preparations, replan_solves, reports, webhook_deliveries
from app.services.safe_answers import answer_safely
from app.services.solves import failure
from app.services.webhook_deliveries import Outcome

log = structlog.get_logger(__name__)


def queue_all(sessions: SessionFactory, client: JobClient) -> None:
    """Do all of it once."""
    queue_decisions(sessions, client)
    queue_deliveries(sessions, client)
    queue_preparations(sessions, client)
    answer_the_unanswered(sessions)


def queue_decisions(sessions: SessionFactory, client: JobClient) -> None:
    """Queue replans whose window has ended, wake jobs whose parts are back, and close what broke."""
    now = datetime.now(UTC)
    with transaction(sessions) as session:
        reports.wake_waiting(session, now=now)
        replan_ids = replan_solves.due(session, now=now)
    states = client.states(replan_ids)
    for replan_id in replan_ids:
        state = states.get(replan_id)
        if state is None:
            client.enqueue_decision(replan_id)
        elif state not in OPEN_JOBS:
            error = failure("The decision broke inside the service.", "The service's log says where.")
            with transaction(sessions) as session:
                replan_solves.finish_without(session, replan_id=replan_id, error=error)


def queue_deliveries(sessions: SessionFactory, client: JobClient) -> None:
    """Queue messages that are due; an attempt that broke inside the service counts as one that failed."""
    now = datetime.now(UTC)
    with transaction(sessions) as session:
        found = webhook_deliveries.due(session, now=now)
    states = client.states([each.job_id for each in found])
    for each in found:
        state = states.get(each.job_id)
        if state is None:
            client.enqueue_delivery(each)
        elif state not in OPEN_JOBS:
            outcome = Outcome(None, "The attempt broke inside the service.")
            with transaction(sessions) as session:
                webhook_deliveries.record(
                    session, delivery_id=each.delivery_id, attempts=each.attempts, outcome=outcome, now=now
                )


def queue_preparations(sessions: SessionFactory, client: JobClient) -> None:
    """Queue the preparation of running plans that lack it."""
    with transaction(sessions) as session:
        wanted = preparations.wanted(session)
    for cluster_id, job_id in wanted.items():
        client.enqueue_preparation(job_id, cluster_id)


def answer_the_unanswered(sessions: SessionFactory) -> None:
    """Give replans a safe answer whose request died before it could."""
    with transaction(sessions) as session:
        replan_ids = replan_solves.without_safe_answer(session)
    for replan_id in replan_ids:
        try:
            answer_safely(sessions, replan_id=replan_id)
        except Exception:  # one that breaks must not keep the others waiting
            log.exception("no_safe_answer", replan_id=replan_id)
