"""``meshwright doctor``: every fault of an installation is named with its remedy."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from app import diagnosis
from app.cli import main
from app.db.engine import make_engine
from app.db.migrate import upgrade


@pytest.fixture(autouse=True)
def _own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHWRIGHT_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("MESHWRIGHT_PORT", "0")


def examined(capsys: pytest.CaptureFixture[str], *options: str, code: int = 0) -> dict[str, dict[str, Any]]:
    """The command's findings, by part."""
    assert main(["doctor", "--json", *options]) == code
    return {each["part"]: each for each in json.loads(capsys.readouterr().out)}


def test_a_fresh_installation_is_well_and_nothing_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ten parts, each good, on a machine where the service never ran."""
    found = examined(capsys)
    assert {each["health"] for each in found.values()} == {"good"}, found
    assert found["solvers"]["detail"] == "cbc and highs solve"
    assert not (tmp_path / "data").exists()
    assert main(["doctor"]) == 0
    assert "Meshwright" in capsys.readouterr().out


def test_what_is_installed_must_fit(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A package that is missing or too old is named; extras that nobody asked for are not."""
    needed = ["pulp>=99", "no-such-package>=1", 'other>=1; extra == "dev"', "numpy>=1"]
    monkeypatch.setattr(diagnosis, "requires", lambda _: needed)
    packages = examined(capsys, code=1)["packages"]
    assert packages["health"] == "broken"
    assert packages["detail"].startswith("pulp is ")
    assert packages["detail"].endswith("not >=99; no-such-package is missing")


def test_misspelt_settings_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """They break nothing, and change nothing."""
    monkeypatch.setenv("MESHWRIGHT_DATABSE_URL", "x")
    found = examined(capsys)["settings"]
    assert (found["health"], "MESHWRIGHT_DATABSE_URL" in found["detail"]) == ("doubtful", True)


def test_databases_are_opened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One at an old schema, one at the newest, one that is none, one whose server is away."""
    url = f"sqlite:///{tmp_path / 'own.sqlite'}"
    engine = make_engine(url)
    upgrade(engine, revision="0001")
    assert examined(capsys, "--database-url", url)["database"]["health"] == "doubtful"
    upgrade(engine)
    engine.dispose()
    assert "newest schema" in examined(capsys, "--database-url", url)["database"]["detail"]
    (tmp_path / "own.sqlite").write_bytes(bytes(range(256)) * 32)
    assert "cannot be used" in examined(capsys, "--database-url", url, code=1)["database"]["detail"]
    away = "postgresql://nobody:secret@127.0.0.1:1/none"
    found = examined(capsys, "--database-url", away, code=1)["database"]
    assert "cannot be used" in found["detail"]
    assert "secret" not in found["detail"]


def test_a_port_that_a_stranger_holds_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It does not answer as a service of ours does."""
    monkeypatch.setattr(diagnosis, "_ANSWER_WITHIN_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setenv("MESHWRIGHT_PORT", str(taken.getsockname()[1]))
        assert "cannot listen" in examined(capsys, code=1)["address"]["detail"]
