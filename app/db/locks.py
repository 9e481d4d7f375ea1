"""Locks on what no row stands for."""

from __future__ import annotations

import hashlib

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db.tenancy import tenant_of


def one_at_a_time(session: Session, what: str) -> None:
    """Wait for other transactions of the tenant with a lock of that name; ours ends with the transaction.

    SQLite has one writer at a time, and needs none.
    """
    if session.get_bind().dialect.name == "postgresql":
        digest = hashlib.sha256(f"{tenant_of(session)} {what}".encode()).digest()
        session.execute(select(func.pg_advisory_xact_lock(int.from_bytes(digest[:8], signed=True))))
