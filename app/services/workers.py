"""Signs of life of the processes that solve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import CursorResult, delete, func, select, update
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.tables import WorkerRow


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker as another one sees it; ``pid`` means something only within ``pid_scope``."""

    executor_id: str
    pid: int
    pid_scope: str
    beats: int


def beat(session: Session, *, executor_id: str, pid: int, pid_scope: str) -> None:
    """One sign of life; also brings back the row of a worker that was taken for dead."""
    now = clock(session)
    done = session.execute(
        update(WorkerRow).where(WorkerRow.executor_id == executor_id).values(beats=WorkerRow.beats + 1, beat_at=now)
    )
    assert isinstance(done, CursorResult)
    if done.rowcount == 0:
        session.add(
            WorkerRow(executor_id=executor_id, pid=pid, pid_scope=pid_scope, beats=1, started_at=now, beat_at=now)
        )


def list_workers(session: Session) -> list[Worker]:
    """Every worker that is not known to be gone."""
    rows = session.scalars(select(WorkerRow).order_by(WorkerRow.executor_id))
    return [Worker(row.executor_id, row.pid, row.pid_scope, row.beats) for row in rows]


def list_unregistered(session: Session, *, executor_ids: Iterable[str]) -> set[str]:
    """Executors that have no row here."""
    return set(executor_ids) - set(session.scalars(select(WorkerRow.executor_id)))


def register_silent(session: Session, *, executor_id: str) -> None:
    """Enter an executor that runs jobs but was never heard: from now on its silence counts."""
    epoch = datetime.fromtimestamp(0, UTC)
    values = {"pid": 0, "pid_scope": "", "beats": 0, "started_at": epoch, "beat_at": epoch}
    insert_if_absent(session, WorkerRow, executor_id=executor_id, **values)


def remove(session: Session, *, executor_id: str) -> bool:
    """Strike a worker off; of several that try, one gets ``True``, and with it the worker's solves."""
    done = session.execute(delete(WorkerRow).where(WorkerRow.executor_id == executor_id))
    assert isinstance(done, CursorResult)
    return done.rowcount == 1


def silence(session: Session) -> timedelta | None:
    """How long no worker was heard, by the one clock that all machines share; ``None`` where none ever was."""
    heard = session.scalar(select(func.max(WorkerRow.beat_at)))
    return None if heard is None else clock(session) - heard


def clock(session: Session) -> datetime:
    """The database server's time, which workers and web processes on machines of their own agree on."""
    if session.get_bind().dialect.name == "sqlite":
        return datetime.now(UTC)
    now: datetime = session.execute(select(func.now())).scalar_one()
    return now
