"""The audit log: who changed, approved or deleted what, when and from where, and who was refused to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from app.db.access_tables import AuditRow
from app.services.pagination import Page, decode_cursor, page_of


@dataclass(frozen=True, slots=True)
class Act:
    """One request that changed something or was refused to (``status`` 403); 0 stands for the command line."""

    actor: str
    key_id: str | None
    action: str
    subject: str
    status: int
    request_id: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry(Act):
    """An act as the log has it."""

    id: int
    occurred_at: datetime


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Filter of entries; ``None`` means any.  ``subject`` is the beginning of one."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


def record(session: Session, act: Act) -> None:
    """Write an act into the log of the session's tenant."""
    session.add(
        AuditRow(
            occurred_at=datetime.now(UTC),
            actor=act.actor[:200],
            key_id=act.key_id,
            action=act.action[:100],
            subject=act.subject[:2000],
            status=act.status,
            request_id=act.request_id[:64],
            address=act.address[:64],
        )
    )


def list_entries(
    session: Session, *, which: AuditFilter, limit: int, cursor: str | None = None
) -> Page[AuditEntry]:
    """Entries of the session's tenant, newest first."""
    query = select(AuditRow).where(*_conditions(which))
    if cursor is not None:
        (before,) = decode_cursor(cursor, int)
        query = query.where(AuditRow.id < before)
    rows = session.scalars(query.order_by(AuditRow.id.desc()).limit(limit + 1)).all()
    return page_of(rows, limit=limit, item=_entry, keys=lambda row: (row.id,))


def _conditions(which: AuditFilter) -> Iterator[ColumnElement[bool]]:
    if which.actor is not None:
        yield AuditRow.actor == which.actor
    if which.action is not None:
        yield AuditRow.action == which.action
    if which.subject is not None:
        yield AuditRow.subject.startswith(which.subject, autoescape=True)
    if which.since is not None:
        yield AuditRow.occurred_at >= which.since
    if which.until is not None:
        yield AuditRow.occurred_at < which.until


def _entry(row: AuditRow) -> AuditEntry:
    return AuditEntry(
        actor=row.actor,
        key_id=row.key_id,
        action=row.action,
        subject=row.subject,
        status=row.status,
        request_id=row.request_id,
        address=row.address,
        id=row.id,
        occurred_at=row.occurred_at,
    )
