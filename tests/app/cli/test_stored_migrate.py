"""The command that brings a database to the newest schema."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main
from app.db.engine import make_engine
from app.db.migrate import is_current
from tests.app.command_files import CLUSTER
from tests.databases import PostgresServer


def test_migrate_makes_an_empty_database_current(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """After ``meshwright migrate`` the schema is the newest one, and the database is named without secrets."""
    url = f"sqlite:///{tmp_path / 'new.sqlite'}"
    assert main(["migrate", "--database-url", url]) == 0
    assert is_current(make_engine(url))
    assert "newest schema" in " ".join(capsys.readouterr().out.split())


def test_migrate_refuses_an_address_that_names_no_database(capsys: pytest.CaptureFixture[str]) -> None:
    """A wrong address ends with code 2 and names the option."""
    assert main(["migrate", "--database-url", "nonsense://x"]) == 2
    assert "--database-url" in capsys.readouterr().err


def test_only_migrate_changes_the_schema_of_a_server(
    postgres_server: PostgresServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Storing a cluster in an empty PostgreSQL database is refused with what to do, and works after that."""
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    with postgres_server.database() as url:
        store = ["cluster", "import", str(tmp_path / "cluster.yaml"), "--database-url", url]
        assert main(store) == 2
        assert "migrate it with: meshwright migrate" in capsys.readouterr().err
        assert main(["migrate", "--database-url", url]) == 0
        assert main(store) == 0
