"""Databases that start at the newest schema: copies of one that a service was started on once.

Migrating anew for every test took most of its time; what migrating does is tested where empty databases are.
"""

from __future__ import annotations

import functools
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest
from sqlalchemy import Engine, create_engine, make_url, text
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.util import LRUCache

from app.db import migrate
from app.db.engine import make_engine, make_session_factory
from app.jobs.runtime import JobRuntime
from app.metrics import make_metrics
from app.settings import Settings

QUICK_FOLDER_BYTES: Final = 4 * 2**30
"""Free bytes that leave room for a server of each worker; containers often have 64 MiB."""
_NUMBERS = itertools.count()


def begin_at_newest(settings: Settings) -> None:
    """Where the embedded database of the settings is missing, lay it and its job engine's at the newest schema."""
    if not settings.uses_sqlite:
        return
    urls = settings.resolved_database_url, settings.resolved_jobs_database_url
    for url, content in zip(urls, _newest_sqlite(), strict=True):
        file = Path(make_url(url).database or "")
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


@functools.cache
def _newest_sqlite() -> tuple[bytes, bytes]:
    """The embedded database and its job engine's, after a service was started and stopped."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(data_dir=Path(folder), database_url="")
        _start_once(settings)
        first, second = Path(folder, "meshwright.sqlite"), Path(folder, "jobs.sqlite")
        assert not list(Path(folder).glob("*-wal")), "what is in the log would be missing in the copies"
        return first.read_bytes(), second.read_bytes()


def _start_once(settings: Settings) -> None:
    engine = make_engine(settings.resolved_database_url)
    migrate.upgrade(engine)
    runtime = JobRuntime(settings, make_session_factory(engine), make_metrics())
    runtime.start()
    runtime.stop()
    engine.dispose()


def share_compiled_statements(patch: pytest.MonkeyPatch) -> None:
    """Let all engines on one kind of database keep compiled statements in one place.

    SQLAlchemy keeps them by engine, and a test has engines of its own: it compiled every statement anew.
    """
    compiled: dict[tuple[Any, ...], LRUCache[Any, Any]] = {}
    begin = Engine.__init__

    def kind(dialect: Any) -> tuple[Any, ...]:
        return type(dialect), dialect._json_serializer, dialect._json_deserializer

    def begin_with_shared(engine: Engine, *arguments: Any, **options: Any) -> None:
        begin(engine, *arguments, **options)
        engine._compiled_cache = compiled.setdefault(kind(engine.dialect), LRUCache(20_000))

    patch.setattr(Engine, "__init__", begin_with_shared)
    patch.setattr(DefaultDialect, "__hash__", lambda dialect: hash(type(dialect)))
    patch.setattr(DefaultDialect, "__eq__", lambda one, other: type(one) is type(other))


def quick_folder() -> Path | None:
    """Memory that stands as a folder, where there is plenty: a new database takes an eighth of the time there."""
    memory = Path("/dev/shm")  # noqa: S108 - only a folder in it, which is made with a name nobody can guess
    with suppress(OSError):
        if os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > QUICK_FOLDER_BYTES:
            return memory
    return None


class PostgresServer:
    """A server whose databases nobody needs after a crash."""

    def __init__(self, url: str, pid: int) -> None:
        self._pid = pid
        self._address = make_url(url)
        self._admin: Engine = create_engine(url, isolation_level="AUTOCOMMIT")
        for setting in ("fsync", "synchronous_commit", "full_page_writes", "autovacuum"):
            self._run(f"ALTER SYSTEM SET {setting} = off")
        self._run("SELECT pg_reload_conf()")

    @contextmanager
    def database(self, *, template: str = "template1") -> Iterator[str]:
        """The URL of a new database, a copy of the template; it is dropped in the end."""
        name = f"meshwright_test_{next(_NUMBERS)}"
        self._run(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        yield self._url(name)
        self._run(f'DROP DATABASE "{name}" WITH (FORCE)')

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """The server with all its processes stands still meanwhile."""
        main = psutil.Process(self._pid)
        main.suspend()
        processes = [main, *main.children()]
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    @functools.cached_property
    def newest(self) -> str:
        """The name of a database at the newest schema that a service was started on once."""
        name = "meshwright_newest"
        self._run(f'CREATE DATABASE "{name}"')
        with tempfile.TemporaryDirectory() as folder:
            _start_once(Settings(data_dir=Path(folder), database_url=self._url(name)))
        return name

    def close(self) -> None:
        """Give the connections back."""
        self._admin.dispose()

    def _url(self, name: str) -> str:
        return self._address.set(database=name).render_as_string(hide_password=False)

    def _run(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.execute(text(statement))
