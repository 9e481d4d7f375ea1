"""``meshwright --server``: the same commands, on a service elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import connection, main
from app.client import Client
from app.logs import warnings_only
from tests.app.access.callers import OURS, guarded, key_of, with_key
from tests.app.api_client import running

SERVER = ["--server", "http://planner.example:8080"]


@pytest.fixture
def _served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A service, which solves with the stand-in, under whatever address."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    with warnings_only(), running(folder, f"sqlite:///{folder}/a.sqlite") as http:
        http.close = lambda: None  # type: ignore[method-assign]  # each command closes its connection
        monkeypatch.setattr(connection, "connect", lambda _address, *, key: Client(http, retries=0))  # noqa: ARG005
        yield


@pytest.mark.usefixtures("_served")
def test_a_plan_is_made_kept_and_shown_there(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Files from here, or names from there; the printed plan is the same whenever it is looked at."""
    assert main([*SERVER, "cluster", "import", "cluster.yaml"]) == 0
    assert main([*SERVER, "cluster", "list"]) == 0
    assert "pair" in capsys.readouterr().out
    assert main([*SERVER, "plan", *files, "--json"]) == 0
    made = capsys.readouterr().out
    named = ["--cluster", "pair", *files[2:]]
    assert main([*SERVER, "plan", *named, "--json"]) == 0
    assert capsys.readouterr().out == made
    assert main([*SERVER, "plans", "list", "--status", "succeeded", "--json"]) == 0
    plans = [each["id"] for each in json.loads(capsys.readouterr().out)]
    assert len(plans) == 2
    assert main([*SERVER, "plans", "show", plans[0], "--json"]) == 0
    assert capsys.readouterr().out == made
    assert main([*SERVER, "plans", "delete", plans[0]]) == 0
    assert main([*SERVER, "plans", "show", plans[0]]) == 2
    assert "There is no plan" in capsys.readouterr().err


@pytest.mark.usefixtures("_served")
def test_a_prediction_is_the_same_there(
    files: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """To the last digit, and with the same exit code where it does not fit."""
    (tmp_path / "c.yaml").write_text("degrees: {data: 8}\nrecompute: none\n")
    answers = []
    for server in ([], SERVER):
        code = main([*server, "predict", *files, "--configuration", "c.yaml", "--json"])
        out, err = capsys.readouterr()
        told = json.loads(out)
        del told["timeline"]
        answers.append((code, told, err))
    assert answers[0] == answers[1]
    assert answers[0][0] == 3


@pytest.mark.usefixtures("_served")
def test_what_the_service_refuses_is_one_line_here(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Field, value and remedy, as of a file."""
    assert main([*SERVER, "plan", "--cluster", "nowhere", *files[2:]]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert "nowhere" in err


@pytest.mark.usefixtures("_served")
def test_a_plan_in_the_background_is_asked_for_as_such(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a service is asked so: without one nobody else waits."""
    asked, create_plan = [], Client.create_plan

    def noted(client: Client, body: dict[str, object]) -> object:
        asked.append(body["background"])
        return create_plan(client, body)

    monkeypatch.setattr(Client, "create_plan", noted)
    for words in ([], ["--background"]):
        assert main([*SERVER, *words, "plan", *files, "--json"]) == 0
    assert asked == [False, True]
    assert main(["--background", "plan", *files]) == 2
    assert "--server" in capsys.readouterr().err


def test_a_server_is_refused_by_what_does_not_ask_it(capsys: pytest.CaptureFixture[str]) -> None:
    """Nobody is led to believe that something was stored elsewhere."""
    assert main([*SERVER, "export", "plan.json", "--format", "json"]) == 2
    assert "--server: is not asked by export" in capsys.readouterr().err
    assert main([*SERVER, "cluster", "show", "stored"]) == 2
    assert "works on the database itself" in capsys.readouterr().err


def test_a_key_is_needed_where_the_service_asks_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the option or the environment."""
    with warnings_only(), guarded(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as http:
        key = key_of(http, OURS)

        def connected(_address: str, *, key: str | None) -> Client:
            return Client(with_key(http, key or ""), retries=0)

        monkeypatch.setattr(connection, "connect", connected)
        assert main([*SERVER, "plans", "list"]) == 2
        assert "needs a key" in capsys.readouterr().err
        monkeypatch.setenv("MESHWRIGHT_KEY", key)
        assert main([*SERVER, "plans", "list"]) == 0
        assert "No plans" in capsys.readouterr().out
