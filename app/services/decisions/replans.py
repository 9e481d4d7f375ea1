"""Decisions on failures: opened by reports, solved, approved, applied, called off.

One of a cluster is open at a time, which its table makes sure of.  Every change of status is one guarded UPDATE;
the cluster's row is locked by whatever moves GPUs.  ``app.services.decisions.replan_solves`` is the part
of whoever solves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.replan_tables import HealthEventRow, ReplanRow
from app.db.status import OPEN_REPLANS, ReplanStatus, ReplanStep
from app.db.tables import ClusterRow
from app.serialization import load
from app.services.clusters import clusters
from app.services.decisions import replan_answers, replan_completion, replan_rows, replan_steps, reports
from app.services.decisions.replan_answers import DecisionSummary
from app.services.decisions.replan_steps import NOBODY, Actor, StepRecord
from app.services.pagination import Page, newest_first
from app.services.planning.plans import PlanError

_WAITS: Final = (ReplanStatus.SOLVING, ReplanStatus.PROPOSED)


class Answer(StrEnum):
    """One of a replan's two answers."""

    DECISION = "decision"
    """Answer that the solver found; the safe answer where it found none."""
    SAFE = "safe"
    """Answer prepared in advance; there within a second."""


@dataclass(frozen=True, slots=True)
class ReplanRecord:
    """A replan without its answers.

    ``summary`` is of the decision, before there is one of the safe answer.  ``error`` says why it failed or was
    called off, or why only the safe answer is there.  ``objections``: what speaks against approving it
    unseen.  ``causes_recovered``: nobody approved it, and all that opened it is reported as well
    again.  ``remaining``: names of the jobs that are still to be carried out as approved.
    """

    id: str
    cluster_id: str
    cluster_name: str
    status: ReplanStatus
    reason: str
    window_ends_at: datetime
    event_ids: tuple[str, ...]
    snapshot_id: str | None
    has_safe_answer: bool
    has_decision: bool
    summary: DecisionSummary | None
    progress: dict[str, Any] | None
    error: PlanError | None
    chosen: Answer | None
    superseded_by: str | None
    objections: tuple[str, ...]
    causes_recovered: bool
    steps: tuple[StepRecord, ...]
    remaining: tuple[str, ...]
    attempts: int
    rescues: int
    created_at: datetime
    solving_at: datetime | None
    proposed_at: datetime | None
    approved_at: datetime | None
    finished_at: datetime | None

    @property
    def is_open(self) -> bool:
        """Whether something is still to happen with it."""
        return self.status in OPEN_REPLANS


def get_replan(session: Session, *, replan_id: str) -> ReplanRecord:
    """The replan of that id; raises ``NotFound``."""
    return _records(session, [replan_rows.row_of(session, replan_id)])[0]


def list_replans(
    session: Session,
    *,
    limit: int,
    cursor: str | None = None,
    reference: str | None = None,
    status: ReplanStatus | None = None,
) -> Page[ReplanRecord]:
    """Replans, newest first, of one cluster (raises ``NotFound``) or of all."""
    query = select(ReplanRow)
    if reference is not None:
        query = query.where(ReplanRow.cluster_id == clusters.find_cluster(session, reference=reference).id)
    if status is not None:
        query = query.where(ReplanRow.status == status)
    page = newest_first(session, query, ReplanRow.created_at, lambda row: row, limit, cursor)
    return Page(tuple(_records(session, page.items)), page.next_cursor)


def open_replan_of(session: Session, *, reference: str) -> ReplanRecord | None:
    """The replan of a cluster that is open, if one is; raises ``NotFound``."""
    row = replan_rows.open_row(session, clusters.find_cluster(session, reference=reference).id)
    return None if row is None else _records(session, [row])[0]


def approve_replan(
    session: Session, *, replan_id: str, answer: Answer = Answer.DECISION, actor: Actor = NOBODY
) -> ReplanRecord:
    """Take the GPUs that an answer needs; nothing happens where that answer was approved already.

    The safe answer can be approved as soon as it is there, the solver's once it is proposed.  Raises ``GpusTaken``,
    and ``WrongStatus`` where it is too late, too early, or the jobs have changed since.
    """
    row = replan_rows.locked(session, replan_id)
    if row.status in (ReplanStatus.APPROVED, ReplanStatus.APPLYING, ReplanStatus.APPLIED) and row.chosen == answer:
        return get_replan(session, replan_id=replan_id)
    replan_answers.approve(session, row=row, safe=answer is Answer.SAFE, actor=actor)
    return get_replan(session, replan_id=replan_id)


def begin_applying(session: Session, *, replan_id: str, actor: Actor = NOBODY) -> ReplanRecord:
    """Note that an approved replan is being carried out; nothing happens where that is known."""
    row = replan_rows.locked(session, replan_id)
    replan_completion.begin(session, row=row, actor=actor)
    return get_replan(session, replan_id=replan_id)


def complete_job(session: Session, *, replan_id: str, job: str, actor: Actor = NOBODY) -> ReplanRecord:
    """Note that the job of that name or id runs, or stands still, as decided; see ``replan_completion``."""
    row = replan_rows.locked(session, replan_id)
    replan_completion.complete_job(session, row=row, job=job, actor=actor)
    return get_replan(session, replan_id=replan_id)


def finish_applied(session: Session, *, replan_id: str, actor: Actor = NOBODY) -> ReplanRecord:
    """All jobs run as decided: the GPUs they left are free, their former plans superseded."""
    row = replan_rows.locked(session, replan_id)
    replan_completion.complete_all(session, row=row, actor=actor)
    return get_replan(session, replan_id=replan_id)


def fail_replan(session: Session, *, replan_id: str, problem: str, actor: Actor = NOBODY) -> ReplanRecord:
    """Note that carrying it out failed: the GPUs of jobs that were not completed go back to their holders.

    A new replan may be asked for.
    """
    row = replan_rows.locked(session, replan_id)
    if row.status == ReplanStatus.FAILED:
        return get_replan(session, replan_id=replan_id)
    replan_rows.close(
        session, row, [ReplanStatus.APPROVED, ReplanStatus.APPLYING], status=ReplanStatus.FAILED, problem=problem
    )
    replan_steps.take(session, row=row, step=ReplanStep.FAILED, actor=actor)
    return get_replan(session, replan_id=replan_id)


def cancel_replan(
    session: Session, *, replan_id: str, problem: str = "It was called off.", actor: Actor = NOBODY
) -> ReplanRecord:
    """Call off a replan that is not applied yet: what it had claimed is given back, its solver ends in a second.

    Jobs that were completed keep what they run on.
    """
    row = replan_rows.locked(session, replan_id)
    if row.status in (ReplanStatus.CANCELLED, ReplanStatus.SUPERSEDED):
        return get_replan(session, replan_id=replan_id)
    replan_rows.close(session, row, OPEN_REPLANS, status=ReplanStatus.CANCELLED, problem=problem)
    replan_steps.take(session, row=row, step=ReplanStep.CANCELLED, actor=actor)
    return get_replan(session, replan_id=replan_id)


def _records(session: Session, rows: Sequence[ReplanRow]) -> list[ReplanRecord]:
    names_query = select(ClusterRow.id, ClusterRow.name).where(ClusterRow.id.in_({row.cluster_id for row in rows}))
    names = {row.id: row.name for row in session.execute(names_query)}
    events: dict[str, list[str]] = {}
    events_query = (
        select(HealthEventRow.replan_id, HealthEventRow.id)
        .where(HealthEventRow.replan_id.in_([row.id for row in rows]))
        .order_by(HealthEventRow.occurred_at, HealthEventRow.id)
    )
    for replan_id, event_id in session.execute(events_query):
        events.setdefault(str(replan_id), []).append(event_id)
    steps = replan_steps.steps_of(session, replan_ids=[row.id for row in rows])
    now = datetime.now(UTC)
    over = {row.id for row in rows if row.status in _WAITS and reports.is_over(session, row=row, now=now)}
    return [
        _record(row, names[row.cluster_id], events.get(row.id, []), steps.get(row.id, []), row.id in over)
        for row in rows
    ]


def _record(
    row: ReplanRow,
    cluster_name: str,
    event_ids: Sequence[str],
    steps: Sequence[StepRecord],
    causes_recovered: bool,
) -> ReplanRecord:
    summary = None if row.summary is None else load(DecisionSummary, row.summary)
    done = {each.job_id for each in steps}
    return ReplanRecord(
        id=row.id,
        cluster_id=row.cluster_id,
        cluster_name=cluster_name,
        status=ReplanStatus(row.status),
        reason=row.reason,
        window_ends_at=row.window_ends_at,
        event_ids=tuple(event_ids),
        snapshot_id=row.snapshot_id,
        has_safe_answer=row.safe_revision > 0,
        has_decision=row.has_decision,
        summary=summary,
        progress=row.progress,
        error=None if row.error is None else PlanError(**row.error),
        chosen=None if row.chosen is None else Answer(row.chosen),
        superseded_by=row.superseded_by,
        objections=() if row.objections is None else tuple(row.objections["reasons"]),
        causes_recovered=causes_recovered,
        steps=tuple(steps),
        remaining=_remaining(row, summary, done),
        attempts=row.attempts,
        rescues=row.rescues,
        created_at=row.created_at,
        solving_at=row.solving_at,
        proposed_at=row.proposed_at,
        approved_at=row.approved_at,
        finished_at=row.finished_at,
    )


def _remaining(row: ReplanRow, summary: DecisionSummary | None, done: set[str | None]) -> tuple[str, ...]:
    """Names of the jobs that are still to be carried out as approved."""
    if summary is None or row.status not in replan_completion.APPROVED:
        return ()
    asked = [(job.job, job.job_id) for job in summary.jobs if job.action in replan_completion.TO_BE_DONE]
    asked += [(job.job, job.job_id) for job in summary.serving if job.is_to_be_done]
    return tuple(sorted(name for name, job_id in asked if job_id not in done))
