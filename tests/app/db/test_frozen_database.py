"""A PostgreSQL server that holds its connections and says nothing: a frozen machine, a full disk below it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.pq import TransactionStatus
from sqlalchemy import Connection, event, text
from sqlalchemy.exc import OperationalError

from app.db import postgres
from app.db.changes import mark_of
from app.db.engine import make_engine
from app.settings import Role
from tests.app.api_client import API, running
from tests.databases import PostgresServer

MORE_THAN_THREADS = 45
"""Requests at once; the server has 40 threads for them and 15 connections."""


@pytest.fixture
def url(postgres_server: PostgresServer) -> Iterator[str]:
    """A database of its own at the newest schema."""
    with postgres_server.database(template=postgres_server.newest) as url:
        yield url


def test_probes_are_answered_while_every_request_waits(
    tmp_path: Path, url: str, postgres_server: PostgresServer
) -> None:
    """The process says that it lives and that it cannot work; when the server goes on, so do the requests."""
    answers: list[int] = []
    with running(tmp_path, url, role=Role.WEB) as client:
        assert "worker" in client.get("/readyz").json()["detail"]
        waiting = [
            threading.Thread(target=lambda: answers.append(client.get(f"{API}/plans").status_code))
            for _ in range(MORE_THAN_THREADS)
        ]
        with postgres_server.frozen():
            for thread in waiting:
                thread.start()
            probes = [client.get(path) for path in ("/healthz", "/readyz", "/metrics")]
        for thread in waiting:
            thread.join()
    assert [probe.status_code for probe in probes] == [200, 503, 200]
    assert probes[1].json()["detail"] == "The database does not answer."
    assert set(answers) <= {200, 503}


def test_a_silent_server_is_given_up(
    url: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an open connection nor a new one waits for ever; afterwards there are new ones."""
    engine = make_engine(url)
    with engine.connect() as connection:
        monkeypatch.setattr(postgres.Watched, "silence_s", 0.5)
        with postgres_server.frozen(), pytest.raises(OperationalError, match=r"silent for 0\.5 s"):
            connection.execute(text("SELECT 1"))
    monkeypatch.setattr(postgres.Watched, "silence_s", 40.0)
    with engine.connect() as connection:
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "30s"
        assert connection.execute(text("SELECT pg_sleep(0.3)")).all()
    engine.dispose()


def test_a_connection_that_died_while_idle_is_replaced(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees an error for it; one that was used a moment ago is not asked whether it lives."""
    engine, other = make_engine(url), make_engine(url)
    asked: list[str] = []
    monkeypatch.setattr(postgres.Watched, "execute", lambda _self, query: asked.append(query))
    for _ in range(3):
        with engine.connect() as connection:
            backend = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    assert not asked
    monkeypatch.undo()
    with other.begin() as connection:
        connection.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})
    monkeypatch.setattr(postgres, "PING_AFTER_S", 0.0)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT pg_backend_pid()")).scalar_one() != backend
    engine.dispose()
    other.dispose()


def test_a_look_for_changes_opens_no_transaction(url: str) -> None:
    """Its one statement is one way to the server and back."""
    engine = make_engine(url)
    seen: list[TransactionStatus] = []

    def note(connection: Connection, *_others: object) -> None:
        watched = connection.connection.driver_connection
        assert isinstance(watched, postgres.Watched)
        seen.append(watched.info.transaction_status)

    event.listen(engine, "after_cursor_execute", note)
    assert mark_of(engine) == mark_of(engine)
    assert seen == [TransactionStatus.IDLE] * 2
    engine.dispose()


def test_the_operators_own_limits_go_first(url: str) -> None:
    """Settings in the address are not replaced."""
    engine = make_engine(f"{url}{'&' if '?' in url else '?'}options=-c%20statement_timeout%3D7000")
    with engine.connect() as connection:
        assert connection.execute(text("SHOW statement_timeout")).scalar_one() == "7s"
    engine.dispose()
