"""Copies of the two embedded databases, made while the service runs, and put back while it does not.

The job engine's is copied first, so that ours never knows less: a job that the one has as open and the other as
ended ends at once; the other way round ``app.jobs.due_work`` would have it done again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import make_url

from app.db.engine import OWN_FILE, OWN_FOLDER
from app.settings import Settings
from cluster_models.errors import InvalidInput

_FILES: Final = ("jobs.sqlite", "meshwright.sqlite")


def backup(settings: Settings, folder: Path) -> tuple[Path, ...]:
    """Copy both databases into a folder that holds no copies yet; returns the copies.

    Raises ``InvalidInput`` where the databases are not files, are missing, or a copy is there already.
    """
    sources = _files(settings)
    for source in sources:
        if not source.exists():
            raise InvalidInput("MESHWRIGHT_DATA_DIR", str(source), "is not there", "name the service's own folder")
    copies = tuple(folder / name for name in _FILES)
    _check_absent(copies)
    folder.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
    for source, copy in zip(sources, copies, strict=True):
        _copy(source, copy)
    return copies


def restore(settings: Settings, folder: Path) -> tuple[Path, ...]:
    """Put copies that ``backup`` made back in place; returns the databases.

    Nobody may use them.  Raises ``InvalidInput`` where a copy is missing or damaged, or a database is there.
    """
    copies, targets = tuple(folder / name for name in _FILES), _files(settings)
    for copy in copies:
        _check_whole(copy)
    _check_absent(targets)
    for copy, target in zip(copies, targets, strict=True):
        target.parent.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
        _copy(copy, target)
    return targets


def _files(settings: Settings) -> tuple[Path, ...]:
    """The job engine's file and ours."""
    urls = (settings.resolved_jobs_database_url, settings.resolved_database_url)
    for url in map(make_url, urls):
        if url.get_backend_name() != "sqlite":
            problem = "is a PostgreSQL server, whose own tools save both databases at one moment"
            remedy = "pg_dump --format=custom --file=meshwright.dump, and pg_restore into an empty database"
            raise InvalidInput("MESHWRIGHT_DATABASE_URL", url.render_as_string(), problem, remedy)
    return tuple(Path(make_url(url).database or "") for url in urls)


def _check_absent(files: tuple[Path, ...]) -> None:
    for file in files:
        if file.exists():
            raise InvalidInput("folder", str(file), "is there already", "move it away, or name another folder")


def _check_whole(copy: Path) -> None:
    try:
        with _opened(copy) as database:
            whole = database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    except sqlite3.Error:
        whole = False
    if not whole:
        raise InvalidInput("folder", str(copy), "is not a whole copy of a database", "take another backup")


def _copy(source: Path, target: Path) -> None:
    """Copy a database that may be in use; what is half written is never there under its name."""
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    part.touch(mode=OWN_FILE)
    with _opened(source) as before, closing(sqlite3.connect(part)) as after:
        before.backup(after)
        after.execute("PRAGMA journal_mode=DELETE")  # one file, without a log beside it
    part.rename(target)


@contextmanager
def _opened(file: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        yield connection
