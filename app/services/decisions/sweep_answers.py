"""Answers to the failures of a sweep, each worked out by a job of its own and stored once."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from sqlalchemy import CursorResult, Select, func, select, update
from sqlalchemy.orm import Session

from app.db.replan_tables import HealthEventRow
from app.db.sweep_tables import SweepRow, SweptFailureRow
from app.events.reading import ReportedEvent
from app.serialization import canonical, jsonable, load
from app.services.decisions import preparations, replan_settings, what_if
from app.services.decisions.replan_answers import DecisionSummary, summary_of
from app.services.decisions.what_if import Question
from app.services.running import occupancy
from cluster_models.errors import MeshwrightError

ANSWERED: Final = "answered"
REFUSED: Final = "refused"
GONE: Final = "gone"
_PREPARED_WITHIN: Final = timedelta(minutes=5)
"""A sweep waits no longer: preparations may fail."""
T = TypeVar("T")


class Transact(Protocol):
    """Runs a function in one transaction, as patiently as the caller wants."""

    def __call__(self, do: Callable[[Session], T], /) -> T:
        """Result of the function."""


def work_out(transact: Transact, *, sweep_id: str, number: int) -> str:
    """Answer one failure and store the answer; returns the outcome as a word."""

    def ask(session: Session) -> tuple[Question, str] | None:
        return question_of(session, sweep_id=sweep_id, number=number, now=datetime.now(UTC))

    summary, state, error, began = None, "", "", time.monotonic()
    try:
        if (asked := transact(ask)) is None:
            return GONE
        question, state = asked
        summary = summary_of(question.decision())
    except MeshwrightError as refusal:  # nothing runs there any more, or a part is gone
        error = str(refusal)

    spent_s = time.monotonic() - began
    store = partial(
        answer, sweep_id=sweep_id, number=number, summary=summary, state=state, error=error, spent_s=spent_s
    )
    if not transact(store):
        return GONE
    return REFUSED if error else ANSWERED


def due(session: Session, *, at_once: int, now: datetime) -> list[tuple[str, int]]:
    """Sweep and number of the next failures without an answer, at most ``at_once`` of each sweep.

    A sweep of jobs whose answers are being prepared waits for these: it would rank the lack of them.
    """
    is_ready = SweepRow.cluster_id.not_in(list(preparations.wanted(session)))
    place = func.row_number().over(partition_by=SweptFailureRow.sweep_id, order_by=SweptFailureRow.number)
    found = unanswered(SweptFailureRow.sweep_id, SweptFailureRow.number, place.label("place"))
    waiting = found.where(is_ready | (SweepRow.created_at < now - _PREPARED_WITHIN)).subquery()
    query = select(waiting.c.sweep_id, waiting.c.number).where(waiting.c.place <= at_once)
    return [(row.sweep_id, row.number) for row in session.execute(query.order_by(waiting.c.number))]


def question_of(session: Session, *, sweep_id: str, number: int, now: datetime) -> tuple[Question, str] | None:
    """The question of one failure, and the digest of the state that it starts from; ``None`` where nobody waits.

    Raises as ``what_if.question_of`` does.
    """
    query = unanswered(SweepRow.cluster_id, SweptFailureRow.losses)
    row = session.execute(
        query.where(SweptFailureRow.sweep_id == sweep_id, SweptFailureRow.number == number)
    ).one_or_none()
    if row is None:
        return None
    losses = load(tuple[ReportedEvent, ...], row.losses["losses"])
    question = what_if.question_of(session, reference=row.cluster_id, losses=losses, now=now)
    return question, _state(session, row.cluster_id, question)


def answer(
    session: Session,
    *,
    sweep_id: str,
    number: int,
    summary: DecisionSummary | None,
    state: str,
    error: str = "",
    spent_s: float = 0.0,
) -> bool:
    """Store the answer of one failure, or why there is none; returns whether this call did it.

    An answer that comes after its sweep was called off is dropped.
    A job that runs faster afterwards (its plan was priced otherwise) makes up for no other.
    """
    values: dict[str, Any] = {
        "error": error or None,
        "state": state or None,
        "spent_s": spent_s,
        "answered_at": datetime.now(UTC),
    }
    if summary is not None:
        values |= {
            "summary": jsonable(summary),
            "lost_tokens_per_s": math.fsum(
                max(0.0, job.tokens_per_s_before - job.tokens_per_s_after) for job in summary.jobs
            ),
            "lost_requests_per_s": math.fsum(
                max(0.0, each.requests_per_s_before - each.requests_per_s_after) for each in summary.serving
            ),
            "lost_gpu_hours": math.fsum(job.lost_gpu_hours_high for job in summary.jobs),
        }
    done = session.execute(
        update(SweptFailureRow)
        .where(
            SweptFailureRow.sweep_id == sweep_id,
            SweptFailureRow.number == number,
            SweptFailureRow.answered_at.is_(None),
            SweptFailureRow.sweep_id.in_(select(SweepRow.id).where(SweepRow.cancelled_at.is_(None))),
        )
        .values(**values)
    )
    assert isinstance(done, CursorResult)
    return done.rowcount == 1


def unanswered(*columns: Any) -> Select[Any]:
    """Columns of the failures that still wait for an answer."""
    return (
        select(*columns)
        .join(SweepRow, SweepRow.id == SweptFailureRow.sweep_id)
        .where(SweptFailureRow.answered_at.is_(None), SweepRow.cancelled_at.is_(None))
    )


def _state(session: Session, cluster_id: str, question: Question) -> str:
    """Digest of what is stored of cluster, jobs, spares, settings and reports, without the supposed losses."""
    newest = func.max(HealthEventRow.received_at)
    reports = session.execute(
        select(func.count(HealthEventRow.id), newest).where(HealthEventRow.cluster_id == cluster_id)
    ).one()
    found = question.situation
    told = (
        found.snapshot.id.partition("+")[0],
        found.document["jobs"],
        found.document["deployments"],
        occupancy.spare_names(session, cluster_id=cluster_id),
        replan_settings.settings_of(session, cluster_id=cluster_id),
        *reports,
    )
    return hashlib.sha256(canonical(told).encode()).hexdigest()
