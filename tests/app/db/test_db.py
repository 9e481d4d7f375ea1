"""Promises of the engine on both databases."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import Engine, select, text
from sqlalchemy.exc import IntegrityError

from app.db.engine import SessionFactory, make_engine, make_read_session_factory, transaction
from app.db.tables import ClusterRow, ClusterVersionRow, ModelRow
from app.settings import Settings


def _model(name: str, created_at: datetime) -> ModelRow:
    return ModelRow(id=name, name=name, document={"layers": 2}, created_at=created_at)


def test_moments_keep_their_instant_and_zone(sessions: SessionFactory) -> None:
    """A moment stored in another zone comes back as the same instant, in UTC."""
    moment = datetime(2026, 3, 1, 1, 30, tzinfo=timezone(timedelta(hours=5, minutes=30)))
    with transaction(sessions) as session:
        session.add(_model("a", moment))
    with sessions() as session:
        stored = session.execute(select(ModelRow.created_at)).scalar_one()
    assert stored == moment
    assert stored.tzinfo is UTC


def test_references_are_enforced(sessions: SessionFactory) -> None:
    """A version of a cluster that does not exist is refused."""
    row = ClusterVersionRow(cluster_id="none", version=1, document={}, created_at=datetime.now(UTC))
    with pytest.raises(IntegrityError), transaction(sessions) as session:
        session.add(row)


def test_an_error_leaves_nothing_behind(sessions: SessionFactory) -> None:
    """Rows that a transaction wrote before it failed are gone."""

    def write_and_fail() -> None:
        with transaction(sessions) as session:
            session.add(_model("a", datetime.now(UTC)))
            session.flush()
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        write_and_fail()
    with sessions() as session:
        assert session.execute(select(ModelRow)).all() == []


def test_many_writers_all_succeed(sessions: SessionFactory) -> None:
    """Threads that read and then write the same row lose no update."""
    now = datetime.now(UTC)
    with transaction(sessions) as session:
        session.add(
            ClusterRow(id="c", name="c", version=0, node_count=0, gpu_count=0, created_at=now, updated_at=now)
        )

    def count_up() -> None:
        for _ in range(5):
            with transaction(sessions) as session:
                row = session.execute(select(ClusterRow).with_for_update()).scalar_one()
                row.version += 1

    threads = [threading.Thread(target=count_up) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with sessions() as session:
        assert session.execute(select(ClusterRow.version)).scalar_one() == 20


def test_a_reader_does_not_wait_for_a_writer(engine: Engine, sessions: SessionFactory) -> None:
    """While a write is open, readers see the state before it."""
    with transaction(sessions) as writer:
        writer.add(_model("a", datetime.now(UTC)))
        writer.flush()
        with make_read_session_factory(engine)() as reader:
            assert reader.execute(select(ModelRow)).all() == []


def test_all_statements_of_a_reader_see_one_moment(engine: Engine, sessions: SessionFactory) -> None:
    """Rows that are stored or deleted between two reads are in neither."""
    with make_read_session_factory(engine)() as reader:
        assert reader.execute(select(ModelRow)).all() == []
        with transaction(sessions) as writer:
            writer.add(_model("a", datetime.now(UTC)))
        assert reader.execute(select(ModelRow)).all() == []


def test_sqlite_makes_its_folder_and_uses_a_write_ahead_log(tmp_path: Path) -> None:
    """The embedded database needs no preparation."""
    engine = make_engine(f"sqlite:///{tmp_path / 'new' / 'folder' / 'a.sqlite'}")
    with engine.connect() as connection:
        assert connection.execute(text("PRAGMA journal_mode")).scalar_one() == "wal"
    engine.dispose()


def test_settings_default_to_two_files_and_follow_a_postgresql_url(tmp_path: Path) -> None:
    """Without a URL both databases are files in the data folder; with one, both use it, with psycopg."""
    embedded = Settings(data_dir=tmp_path)
    assert embedded.resolved_database_url == f"sqlite:///{tmp_path}/meshwright.sqlite"
    assert embedded.resolved_jobs_database_url == f"sqlite:///{tmp_path}/jobs.sqlite"
    grown = Settings(data_dir=tmp_path, database_url="postgres://u@h/d")
    assert grown.resolved_database_url == "postgresql+psycopg://u@h/d"
    assert grown.resolved_jobs_database_url == grown.resolved_database_url
    assert not grown.uses_sqlite


def test_nobody_else_on_the_machine_reads_the_secrets_in_it(tmp_path: Path) -> None:
    """Folder and file of the embedded database are their owner's, and so are the files that SQLite adds."""
    engine = make_engine(f"sqlite:///{tmp_path / 'own' / 'a.sqlite'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE a (b INTEGER)"))
        files = list((tmp_path / "own").iterdir())
        assert len(files) > 1
        assert [path.name for path in (tmp_path / "own", *files) if path.stat().st_mode & 0o077] == []
    engine.dispose()
