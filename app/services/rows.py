"""Rows that a caller names: found or deleted, else ``NotFound`` with the word for what they are."""

from __future__ import annotations

from typing import TypeVar

from sqlalchemy import ColumnElement, delete, select
from sqlalchemy.orm import Session

from app.db.base import Base
from app.services.errors import NotFound

Row = TypeVar("Row", bound=Base)


def row_by_id(session: Session, table: type[Row], row_id: str, kind: str) -> Row:
    """The row with this primary key; raises ``NotFound``."""
    row = session.get(table, row_id)
    if row is None:
        raise NotFound(kind, row_id)
    return row


def row_where(session: Session, table: type[Row], condition: ColumnElement[bool], kind: str, name: str) -> Row:
    """The one row that meets ``condition``; raises ``NotFound``."""
    row = session.scalar(select(table).where(condition))
    if row is None:
        raise NotFound(kind, name)
    return row


def delete_where(session: Session, table: type[Base], condition: ColumnElement[bool], kind: str, name: str) -> None:
    """Delete the one row that meets ``condition``; raises ``NotFound``."""
    if not session.scalars(delete(table).where(condition).returning(condition)).all():
        raise NotFound(kind, name)
