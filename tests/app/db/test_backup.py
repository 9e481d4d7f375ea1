"""Copies of the embedded databases: taken while they are used, and put back."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.cli import main
from tests.app.api_client import API, cluster_body, ended, plan_body, running


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where the service has its data."""
    data = tmp_path / "data"
    monkeypatch.setenv("MESHWRIGHT_DATA_DIR", str(data))
    return data


def test_a_backup_of_a_running_service_is_restored_elsewhere(
    tmp_path: Path, at: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that ended is there, one that was open is solved, and nobody else reads the copies."""
    copies = tmp_path / "copies"
    with running(tmp_path, "", seconds=0.5) as client:
        client.post(f"{API}/clusters", json=cluster_body())
        done = client.post(f"{API}/plans", json=plan_body()).headers["Location"]
        assert ended(client, done)["status"] == "succeeded"
        waiting = client.post(f"{API}/plans", json=plan_body()).headers["Location"]
        assert main(["backup", str(copies)]) == 0
        assert ended(client, waiting)["status"] == "succeeded"
        assert main(["restore", str(copies)]) == 2, "a service uses the folder"
    assert [path.name for path in copies.iterdir() if path.stat().st_mode & 0o077] == []
    assert main(["restore", str(copies)]) == 2, "databases are there"
    elsewhere = tmp_path / "elsewhere"
    monkeypatch.setenv("MESHWRIGHT_DATA_DIR", str(elsewhere / "data"))
    assert main(["restore", str(copies)]) == 0
    with running(elsewhere, "", seconds=0.1) as client:
        assert client.get(done).json()["status"] == "succeeded"
        assert ended(client, waiting)["status"] == "succeeded"


def test_what_cannot_be_saved_or_restored_is_said(
    tmp_path: Path, at: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No databases yet, damaged copies, and a server with tools of its own; nothing is written."""
    folder = tmp_path / "copies"
    assert main(["backup", str(folder)]) == 2
    assert "is not there" in capsys.readouterr().err
    folder.mkdir()
    for name in ("jobs.sqlite", "meshwright.sqlite"):
        (folder / name).write_bytes(b"SQLite format 3\0" + b"x" * 4096)
    assert main(["restore", str(folder)]) == 2
    assert "not a whole copy" in capsys.readouterr().err
    assert list(at.glob("*.sqlite")) == []
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", "postgresql://u:secret@h/d")
    assert main(["backup", str(folder)]) == 2
    err = capsys.readouterr().err
    assert "pg_dump" in err
    assert "secret" not in err
