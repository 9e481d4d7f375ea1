"""Inserts that leave a row alone which is there already."""

from __future__ import annotations

from typing import Any

from sqlalchemy import inspect
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from app.db.base import Base


def insert_if_absent(session: Session, table: type[Base], **values: Any) -> bool:
    """Insert a row unless its primary or unique key is taken; returns whether it was inserted."""
    insert = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
    keys = inspect(table).primary_key
    # Some drivers count no rows here; what comes back does not lie.
    return (
        session.execute(insert(table).values(**values).on_conflict_do_nothing().returning(*keys)).first()
        is not None
    )
