"""Whether anything was stored since an earlier moment, by any process."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine

from app.db.postgres import ALONE

_MARK: Final = "SELECT pg_current_snapshot() || ' ' || extract(epoch FROM pg_postmaster_start_time())"


def has_marks(engine: Engine) -> bool:
    """Whether the database can say what it shows at a moment, as PostgreSQL can."""
    return engine.dialect.name == "postgresql"


def mark_of(engine: Engine) -> str:
    """A mark of the rows that the database shows at this moment: equal marks show the same.

    PostgreSQL names the transactions that have ended (its snapshot), all of which are lost or kept together as long
    as the server runs; after a restart, or on a stand-in that took over, the mark is another.
    """
    with engine.connect().execution_options(**{ALONE: True}) as connection:
        return str(connection.exec_driver_sql(_MARK).scalar_one())
