"""The life of a plan's row while it is solved.

Each change is one guarded UPDATE: a plan that ended is never changed again, whichever of two workers that ran
it (one of them taken for dead) comes second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from app.db.status import OPEN_STATUSES, PlanStatus
from app.db.tables import PlanRow, SnapshotRow

MAX_RESCUES: Final = 3
"""Workers that may vanish under one solve; a solve that takes its worker down would do so for ever."""


@dataclass(frozen=True, slots=True)
class SolveRequest:
    """Input of a solving child, as JSON values of the domain; ``waited_s`` until the first attempt at it."""

    snapshot: dict[str, Any]
    problem: dict[str, Any]
    options: dict[str, Any]
    kind: str
    tenant_id: str
    waited_s: float | None


def begin_attempt(session: Session, *, plan_id: str) -> SolveRequest | None:
    """Mark the plan as running and return what to solve; ``None`` when it ended or is gone."""
    now = datetime.now(UTC)
    values = {"status": PlanStatus.RUNNING, "attempts": PlanRow.attempts + 1}
    if not _change_open(session, plan_id, **values):
        return None
    session.execute(
        update(PlanRow).where(PlanRow.id == plan_id, PlanRow.started_at.is_(None)).values(started_at=now)
    )
    row = session.execute(
        select(
            SnapshotRow.document,
            PlanRow.problem,
            PlanRow.options,
            PlanRow.kind,
            PlanRow.tenant_id,
            PlanRow.attempts,
            PlanRow.created_at,
        )
        .join(SnapshotRow, (SnapshotRow.id == PlanRow.snapshot_id) & (SnapshotRow.tenant_id == PlanRow.tenant_id))
        .where(PlanRow.id == plan_id)
    ).one()
    document, problem, options, kind, tenant_id, attempts, created_at = row
    waited_s = (now - created_at).total_seconds() if attempts == 1 else None
    return SolveRequest(document, problem, options, kind, tenant_id, waited_s)


def save_progress(session: Session, *, plan_id: str, progress: dict[str, Any] | None) -> bool:
    """Store the newest progress, if there is any; returns whether the plan is still wanted."""
    if progress is not None:
        return _change_open(session, plan_id, progress=progress)
    return session.scalar(select(PlanRow.status).where(PlanRow.id == plan_id)) in OPEN_STATUSES


def is_enough(session: Session, *, plan_id: str) -> bool:
    """Whether somebody wants the best plan so far, and no further search."""
    return bool(session.scalar(select(PlanRow.stop_asked).where(PlanRow.id == plan_id)))


def ask_to_stop(session: Session, *, plan_id: str) -> bool:
    """Ask a search for the best plan so far; returns whether it still ran."""
    return _change_open(session, plan_id, stop_asked=True)


def finish(
    session: Session,
    *,
    plan_id: str,
    status: PlanStatus,
    result: dict[str, Any] | None = None,
    error: dict[str, Any] | None = None,
) -> bool:
    """Record how the plan ended, unless that is recorded already; returns whether this call did it."""
    return _change_open(session, plan_id, status=status, result=result, error=error, finished_at=datetime.now(UTC))


def wait_again(session: Session, *, plan_ids: Sequence[str]) -> None:
    """Show running plans as queued: their worker stops, and another will start them over."""
    session.execute(
        update(PlanRow)
        .where(PlanRow.id.in_(plan_ids), PlanRow.status == PlanStatus.RUNNING)
        .values(status=PlanStatus.QUEUED)
    )


def count_rescue(session: Session, *, plan_id: str) -> bool:
    """Count one more worker lost under this plan; returns whether it may be tried again.

    A plan past its last rescue fails with a sentence that says why.
    """
    rescues = session.scalar(
        update(PlanRow)
        .where(PlanRow.id == plan_id, PlanRow.status.in_(OPEN_STATUSES))
        .values(rescues=PlanRow.rescues + 1, status=PlanStatus.QUEUED)
        .returning(PlanRow.rescues)
    )
    if rescues is None or rescues <= MAX_RESCUES:
        return True
    error = failure(
        f"The solve was given up: {rescues} workers vanished while they ran it.",
        "Ask for fewer GPUs or a lower effort, or set a memory limit for solves (MESHWRIGHT_SOLVE_MEMORY_GIB).",
    )
    finish(session, plan_id=plan_id, status=PlanStatus.FAILED, error=error)
    return False


def failure(problem: str, remedy: str = "") -> dict[str, Any]:
    """An error as plans carry it."""
    return {"problem": problem, "remedy": remedy}


def _change_open(session: Session, plan_id: str, **values: object) -> bool:
    done = session.execute(
        update(PlanRow).where(PlanRow.id == plan_id, PlanRow.status.in_(OPEN_STATUSES)).values(**values)
    )
    assert isinstance(done, CursorResult)
    return done.rowcount == 1
