"""Queues what is due by the clock, and what a process that died had meant to queue.

Each function looks at the tables alone, so a round that comes twice, or on two workers at once, queues once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, TypeVar

import structlog
from sqlalchemy.orm import Session

from app.db.engine import SessionFactory, transaction
from app.db.replan_tables import ReplanRow
from app.db.status import PlanStatus
from app.db.tables import ClusterRow
from app.db.tenancy import for_each_owner, for_owner
from app.jobs.client import DONE, OPEN_JOBS, JobClient
from app.jobs.sweeping import job_id_of
from app.services.decisions import preparations, replan_solves, sweep_answers, timed_replans
from app.services.decisions.safe_answers import answer_safely
from app.services.planning import solves, turns
from app.services.planning.solves import failure
from app.services.webhooks import webhook_deliveries
from app.services.webhooks.webhook_deliveries import Due, Outcome

WHAT_IFS_AT_ONCE: Final = 64
"""Failures of a sweep that wait in the engine: more than a worker answers between two rounds of its keeper."""

T = TypeVar("T")
log = structlog.get_logger(__name__)


def queue_all(sessions: SessionFactory, client: JobClient) -> None:
    """Do all of it once."""
    queue_plans(sessions, client)
    queue_decisions(sessions, client)
    queue_deliveries(sessions, client)
    queue_what_ifs(sessions, client)
    queue_preparations(sessions, client)
    answer_the_unanswered(sessions)


def queue_plans(sessions: SessionFactory, client: JobClient) -> None:
    """Queue plans whose row was committed but whose job was not, and close those whose job broke."""

    def broke(plan_id: str) -> None:
        error = failure("The solve broke inside the service.", "The service's log says where.")
        with transaction(sessions) as session:
            solves.finish(session, plan_id=plan_id, status=PlanStatus.FAILED, error=error)

    def waiting(session: Session) -> dict[str, tuple[str, int]]:
        return {plan_id: (plan_id, turn) for plan_id, turn in turns.open_turns(session).items()}

    _queue(
        sessions,
        client,
        waiting=waiting,
        enqueue=lambda plan: client.enqueue(plan[0], turn=plan[1]),
        broke=lambda plan: broke(plan[0]),
    )


def queue_decisions(sessions: SessionFactory, client: JobClient) -> None:
    """Queue replans whose window has ended, wake jobs whose parts are back or must go, and close what broke."""
    now = datetime.now(UTC)

    def broke(replan_id: str) -> None:
        error = failure("The decision broke inside the service.", "The service's log says where.")
        with transaction(for_owner(sessions, ReplanRow, replan_id)) as session:
            replan_solves.finish_without(session, replan_id=replan_id, error=error)

    def waiting(session: Session) -> dict[str, str]:
        return {replan_id: replan_id for replan_id in replan_solves.due(session, now=now)}

    for own in for_each_owner(sessions, ClusterRow):
        with transaction(own) as session:
            timed_replans.wake_waiting(session, now=now)
            timed_replans.wake_deadlines(session, now=now)
    _queue(sessions, client, waiting=waiting, enqueue=client.enqueue_decision, broke=broke)


def queue_deliveries(sessions: SessionFactory, client: JobClient) -> None:
    """Queue messages that are due; an attempt that broke inside the service counts as one that failed."""
    now = datetime.now(UTC)

    def broke(due: Due) -> None:
        outcome = Outcome(None, "The attempt broke inside the service.")
        with transaction(sessions) as session:
            webhook_deliveries.record(
                session, delivery_id=due.delivery_id, attempts=due.attempts, outcome=outcome, now=now
            )

    def waiting(session: Session) -> dict[str, Due]:
        return {due.job_id: due for due in webhook_deliveries.due(session, now=now)}

    _queue(sessions, client, waiting=waiting, enqueue=client.enqueue_delivery, broke=broke)


def queue_what_ifs(sessions: SessionFactory, client: JobClient) -> None:
    """Queue the next failures of each sweep, a few at a time: sweeps have thousands."""

    def broke(failure: tuple[str, int]) -> None:
        sweep_id, number = failure
        error = "The answer broke inside the service; its log says where."
        with transaction(sessions) as session:
            sweep_answers.answer(session, sweep_id=sweep_id, number=number, summary=None, state="", error=error)

    def waiting(session: Session) -> dict[str, tuple[str, int]]:
        found = sweep_answers.due(session, at_once=WHAT_IFS_AT_ONCE, now=datetime.now(UTC))
        return {job_id_of(*failure): failure for failure in found}

    def enqueue(failure: tuple[str, int]) -> None:
        client.enqueue_what_if(job_id_of(*failure), *failure)

    _queue(sessions, client, waiting=waiting, enqueue=enqueue, broke=broke)


def _queue(
    sessions: SessionFactory,
    client: JobClient,
    *,
    waiting: Callable[[Session], Mapping[str, T]],
    enqueue: Callable[[T], None],
    broke: Callable[[T], None],
) -> None:
    """Queue what is ``waiting``, by job id, and has no job; tell ``broke`` of what has one that broke.

    A job that ended well wrote so into our tables before.  Where those say nothing of it, they are from an older
    backup than the engine's: its record is dropped, and the next round queues the work again.
    """
    with transaction(sessions) as session:
        found = waiting(session)
    states = client.states(list(found))
    if done := [job_id for job_id, state in states.items() if state == DONE]:
        with transaction(sessions) as session:
            still = waiting(session)
        client.forget([job_id for job_id in done if job_id in still])
    for job_id, item in found.items():
        state = states.get(job_id)
        if state is None:
            enqueue(item)
        elif state not in (*OPEN_JOBS, DONE):
            broke(item)


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
            answer_safely(for_owner(sessions, ReplanRow, replan_id), replan_id=replan_id)
        except Exception:  # one that breaks must not keep the others waiting
            log.exception("no_safe_answer", replan_id=replan_id)
