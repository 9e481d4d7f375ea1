"""The steps that were taken with replans: who took each, and when; each is announced as it is stored."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanRow, ReplanStepRow
from app.db.running_tables import RunningJobRow
from app.db.status import ReplanStep
from app.services.webhooks import announcements
from app.services.webhooks.webhooks import EventType
from cluster_models.errors import InvalidInput

LONGEST_ACTOR: Final = 200


@dataclass(frozen=True, slots=True)
class Actor:
    """Actor of a step.  ``verified`` where a proxy that is trusted named them; else it is what the request says.

    Raises ``InvalidInput`` where the name is too long or holds control characters.
    """

    name: str = ""
    verified: bool = False

    def __post_init__(self) -> None:
        if len(self.name) > LONGEST_ACTOR or not self.name.isprintable():
            problem = f"must have at most {LONGEST_ACTOR} printable characters"
            raise InvalidInput("actor", self.name[:LONGEST_ACTOR], problem)


NOBODY: Final = Actor()
"""Nobody said who it was."""
SERVICE: Final = Actor("meshwright", verified=True)
"""The service itself, as its settings or a later failure have it."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """A step; ``job`` is the name of the job that it is about (its id where it was forgotten), if of one."""

    step: ReplanStep
    actor: Actor
    job_id: str | None
    job: str | None
    taken_at: datetime


def take(
    session: Session, *, row: ReplanRow, step: ReplanStep, actor: Actor, job: RunningJobRow | None = None
) -> None:
    """Store a step that a replan has just made, and announce it."""
    job_id = None if job is None else job.id
    session.add(
        ReplanStepRow(
            id=uuid.uuid4().hex,
            replan_id=row.id,
            step=step,
            job_id=job_id,
            actor=actor.name,
            verified=actor.verified,
            taken_at=datetime.now(UTC),
        )
    )
    session.flush()
    more = {} if job is None else {"job": job.name, "job_id": job.id}
    announcements.tell_of_replan(
        session, event_type=EventType(f"replan.{step}"), row=row, more={"actor": actor.name, **more}
    )


def steps_of(session: Session, *, replan_ids: Sequence[str]) -> dict[str, list[StepRecord]]:
    """Steps of each replan, the first first."""
    query = (
        select(ReplanStepRow, RunningJobRow.name)
        .outerjoin(RunningJobRow, RunningJobRow.id == ReplanStepRow.job_id)
        .where(ReplanStepRow.replan_id.in_(replan_ids))
        .order_by(ReplanStepRow.taken_at, ReplanStepRow.id)
    )
    found: dict[str, list[StepRecord]] = {}
    for row, name in session.execute(query):
        actor = Actor(row.actor, verified=row.verified)
        record = StepRecord(ReplanStep(row.step), actor, row.job_id, name or row.job_id, row.taken_at)
        found.setdefault(row.replan_id, []).append(record)
    return found


def completed_jobs(session: Session, *, replan_id: str) -> frozenset[str]:
    """The ids of the jobs that were reported to run as a replan decided."""
    query = select(ReplanStepRow.job_id).where(
        ReplanStepRow.replan_id == replan_id, ReplanStepRow.step == ReplanStep.JOB_COMPLETED
    )
    return frozenset(job_id for job_id in session.scalars(query) if job_id is not None)


def is_completed(session: Session, *, replan_id: str, job_id: str) -> bool:
    """Whether that job was reported to run as a replan decided."""
    same = ReplanStepRow.replan_id == replan_id, ReplanStepRow.job_id == job_id
    return bool(session.scalar(select(exists().where(*same, ReplanStepRow.step == ReplanStep.JOB_COMPLETED))))
