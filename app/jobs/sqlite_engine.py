"""Functions and settings of SQLite that the job engine needs and does not arrange itself.

Its schema calls ``unixepoch('subsec')``, which SQLite knows since 3.42 (May 2023) and stable distributions
still lack; and without a write-ahead log a thousand enqueues take twenty seconds instead of two.
"""

from __future__ import annotations

import sqlite3
import time
from typing import Final

from sqlalchemy import Engine, event

FIRST_WITH_SUBSECONDS: Final = (3, 42, 0)


@event.listens_for(Engine, "connect")
def _prepare(connection: object, _record: object) -> None:
    if not isinstance(connection, sqlite3.Connection):
        return
    if sqlite3.sqlite_version_info < FIRST_WITH_SUBSECONDS:
        connection.create_function("unixepoch", -1, _unixepoch)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def _unixepoch(*modifiers: object) -> float:
    """Seconds since 1970; whole ones without the modifier ``subsec``."""
    now = time.time()
    return now if "subsec" in modifiers else int(now)
