"""Inserts that leave a row alone which is there already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.base import Base


def insert_if_absent(session: Session, table: type[Base], **values: Any) -> bool:
    """Insert a row unless its primary or unique key is taken; returns whether it was inserted."""
    keys = inspect(table).primary_key
    # Some drivers count no rows here; what comes back does not lie.
    return session.execute(_insert(session, table).values(**values).returning(*keys)).first() is not None


def insert_all_absent(session: Session, table: type[Base], rows: Sequence[Mapping[str, Any]]) -> set[Any]:
    """Insert those rows whose keys are not taken, by the table or by a row before; returns their primary keys."""
    (key,) = inspect(table).primary_key
    if not rows:
        return set()
    return set(session.connection().scalars(_insert(session, table).returning(key), [dict(row) for row in rows]))


def _insert(session: Session, table: type[Base]) -> postgresql.Insert | sqlite.Insert:
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    return insert(table).on_conflict_do_nothing()
