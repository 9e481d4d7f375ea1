"""Connections to a PostgreSQL server that may be frozen, unplugged or restarted: none waits for ever.

A server that is frozen still acknowledges what it is sent, so neither its own limits nor those of TCP end the wait.
Options that the operator writes into the address (``?connect_timeout=...&options=...``) go before our values.
"""

from __future__ import annotations

import math
import time
from collections.abc import Generator
from typing import Any, Final, TypeVar

import psycopg
from sqlalchemy import URL, Connection, Dialect, Engine, create_engine, event
from sqlalchemy.exc import InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry

SILENCE_S: Final = 40.0
"""Longer than any statement may take: a connection without a byte for so long is given up."""
POOL_TIMEOUT_S: Final = 10.0
LINK_TIMEOUTS: Final = {
    "connect_timeout": "5",
    "keepalives_idle": "10",
    "keepalives_interval": "5",
    "keepalives_count": "3",
    "tcp_user_timeout": "25000",
}
"""A server that does not take a connection, or whose machine is gone (libpq; the last one in milliseconds)."""
READ_ONLY: Final = "read_only"
"""Execution option of an engine whose sessions only read."""
ALONE: Final = "alone"
"""Execution option of a connection whose one statement needs no transaction."""
PING_AFTER_S: Final = 1.0
"""A connection that was used more recently is taken to be alive."""
_RETURNED_AT: Final = "returned_at"
_SERVER_TIMEOUTS: Final = {"options": "-c statement_timeout=30000"}
_MIGRATION_LOCK: Final = 0x6D657368

T = TypeVar("T")


class Silent(psycopg.OperationalError):
    """The server holds the connection and says nothing."""


class Watched(psycopg.Connection[Any]):
    """A connection that is closed once its server was silent for ``silence_s`` while it owed an answer."""

    silence_s = SILENCE_S

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:
        """Return the result of ``gen``; raises ``Silent``."""
        return super().wait(self._while_answered(gen), *args, **kwargs)

    def _while_answered(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        """``gen``, to which the caller sends a false value whenever it waited for a moment in vain."""
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > self.silence_s:
                    self.pgconn.finish()
                    raise Silent(f"the server was silent for {self.silence_s:g} s")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result


def with_link_timeouts(url: URL) -> URL:
    """The address of a PostgreSQL server with limits on how long a dead connection is waited for."""
    return url.set(query=LINK_TIMEOUTS | dict(url.query))


def make_postgres_engine(url: URL) -> Engine:
    """An engine whose connections and statements all end."""
    limited = with_link_timeouts(url)
    limited = limited.set(query=_SERVER_TIMEOUTS | dict(limited.query))
    engine = create_engine(limited, pool_timeout=POOL_TIMEOUT_S)
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "checkin", _note_return)
    event.listen(engine, "checkout", _ping_if_idle)
    event.listen(engine, "begin", _begin)
    return engine


def prepare_migration(connection: Connection) -> None:
    """Let the statements of a migration take their time, and other migrations wait for this one."""
    watched = connection.connection.driver_connection
    if isinstance(watched, Watched):
        watched.silence_s = math.inf
        connection.exec_driver_sql("SET statement_timeout = 0")
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")


def _connect(_dialect: Dialect, _record: object, cargs: tuple[Any, ...], cparams: dict[str, Any]) -> Watched:
    return Watched.connect(*cargs, autocommit=True, **cparams)


def _begin(connection: Connection) -> None:
    """Begin a transaction; all statements of one that only reads see the same moment, as on SQLite."""
    options = connection.get_execution_options()
    if not options.get(ALONE, False):
        only_reads = options.get(READ_ONLY, False)
        connection.exec_driver_sql("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY" if only_reads else "BEGIN")


def _note_return(_connection: object, record: ConnectionPoolEntry) -> None:
    record.info[_RETURNED_AT] = time.monotonic()


def _ping_if_idle(connection: Watched, record: ConnectionPoolEntry, _proxy: object) -> None:
    """Let the pool connect anew where a connection that lay idle has died meanwhile."""
    if time.monotonic() - record.info.get(_RETURNED_AT, math.inf) < PING_AFTER_S:
        return
    try:
        connection.execute("")
    except psycopg.Error as error:
        raise InvalidatePoolError from error
