"""Rows of replans and their changes of status; each change is one guarded UPDATE."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanRow
from app.db.running_tables import RunningPlanRow
from app.db.status import OPEN_REPLANS, ReplanStatus, RunningPlanStatus
from app.services.clusters import clusters
from app.services.errors import WrongStatus
from app.services.planning.solves import failure
from app.services.rows import row_by_id
from app.services.running import occupancy


def row_of(session: Session, replan_id: str) -> ReplanRow:
    """The row of that id; raises ``NotFound``."""
    return row_by_id(session, ReplanRow, replan_id, "replan")


def open_row(session: Session, cluster_id: str) -> ReplanRow | None:
    """The replan of a cluster that is open, if one is."""
    query = select(ReplanRow).where(ReplanRow.cluster_id == cluster_id, ReplanRow.status.in_(OPEN_REPLANS))
    return session.scalar(query)


def locked(session: Session, replan_id: str) -> ReplanRow:
    """The row, its cluster held against other changes until the transaction ends; raises ``NotFound``."""
    row = row_of(session, replan_id)
    clusters.lock(session, reference=row.cluster_id, expected_version=None)
    session.refresh(row)
    return row


def change(session: Session, replan_id: str, allowed: Sequence[ReplanStatus], **values: object) -> bool:
    """Change a replan if its status is one of ``allowed``; returns whether it was."""
    done = session.execute(
        update(ReplanRow)
        .where(ReplanRow.id == replan_id, ReplanRow.status.in_(allowed))
        .values(**values)
        .execution_options(synchronize_session=False)
    )
    assert isinstance(done, CursorResult)
    session.expire_all()
    return done.rowcount == 1


def demand(session: Session, row: ReplanRow, allowed: Sequence[ReplanStatus], **values: object) -> None:
    """Change a replan; raises ``WrongStatus`` where its status is not one of ``allowed``."""
    if not change(session, row.id, allowed, **values):
        raise WrongStatus("replan", row.id, row.status, f"this needs one that is {' or '.join(allowed)}")


def close(
    session: Session, row: ReplanRow, allowed: Sequence[ReplanStatus], *, status: ReplanStatus, problem: str
) -> None:
    """End a replan without its being applied; raises ``WrongStatus`` where that is too late."""
    demand(session, row, allowed, status=status, error=failure(problem), finished_at=datetime.now(UTC))
    undo(session, replan_id=row.id)


def undo(session: Session, *, replan_id: str) -> None:
    """Give back what a replan claimed, and call off the plans that it made."""
    occupancy.give_back(session, claim_id=replan_id)
    cancel_plans(session, replan_id=replan_id)


def cancel_plans(session: Session, *, replan_id: str) -> None:
    """Call off the plans that a replan made and that no job runs by yet."""
    session.execute(
        update(RunningPlanRow)
        .where(RunningPlanRow.replan_id == replan_id, RunningPlanRow.status == RunningPlanStatus.APPROVED)
        .values(status=RunningPlanStatus.CANCELLED, ended_at=datetime.now(UTC))
    )
    session.expire_all()
