"""One engine per process, for SQLite or PostgreSQL, and its sessions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.orm import Session, sessionmaker

from app.db.postgres import READ_ONLY, make_postgres_engine
from app.db.tenancy import for_tenant
from app.settings import DEFAULT_TENANT

OWN_FOLDER: Final = 0o700
OWN_FILE: Final = 0o600
"""Secrets of webhooks and event sources lie in the database: nobody else on the machine may read it."""

DATABASE_AWAY: Final = (OperationalError, InterfaceError, PoolExhausted)
"""A connection that is lost, refused or silent, a lock held for too long, a full disk: all may be over soon."""

_DISK_FULL: Final = "53100"
"""State that PostgreSQL gives."""

SessionFactory = sessionmaker[Session]


def why_away(error: Exception) -> str:
    """Why the database did not do as it was asked, by an error of ``DATABASE_AWAY``, and what to do; a sentence."""
    cause = getattr(error, "orig", None)
    states = (getattr(cause, "sqlite_errorcode", None), getattr(cause, "sqlstate", None))
    if sqlite3.SQLITE_FULL in states or _DISK_FULL in states:
        return "The disk of the database is full: what is there can be read; free space to store more."
    return "The database does not answer; try again in a moment."


def make_engine(url: str) -> Engine:
    """An engine for ``url``; an SQLite file's folder is made when it is missing."""
    parsed = make_url(url)
    if parsed.get_backend_name() != "sqlite":
        return make_postgres_engine(parsed)
    if parsed.database and parsed.database != ":memory:":
        path = Path(parsed.database)
        path.parent.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
        path.touch(mode=OWN_FILE)
    engine = create_engine(url)
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin)
    return engine


def _prepare_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    """Readers beside one writer, enforced references, and patience instead of "database is locked"."""
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON", "busy_timeout=30000"):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    """Take the write lock at once: a reader that upgrades later fails without waiting for busy_timeout."""
    read_only = connection.get_execution_options().get(READ_ONLY, False)
    connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")


def make_session_factory(engine: Engine, *, tenant: str | None = DEFAULT_TENANT) -> SessionFactory:
    """Sessions of a tenant (``None``: of all) whose objects stay readable after the commit."""
    return for_tenant(sessionmaker(engine, expire_on_commit=False), tenant)


def make_read_session_factory(engine: Engine, *, tenant: str | None = DEFAULT_TENANT) -> SessionFactory:
    """Sessions that only read, and so never wait for a writer."""
    return make_session_factory(engine.execution_options(**{READ_ONLY: True}), tenant=tenant)


@contextmanager
def transaction(sessions: SessionFactory) -> Iterator[Session]:
    """One session, committed at the end or rolled back on any error."""
    with sessions() as session, session.begin():
        yield session
