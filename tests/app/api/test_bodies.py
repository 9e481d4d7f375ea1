"""Answers of every route of the API: written once, in the thread that made them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from anyio import to_thread

from app.settings import Role
from tests.app.api_client import API, cluster_body, running


def test_a_read_waits_for_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that asks the database writes the answer, too, headers and status included."""
    turns: list[Any] = []
    run_sync = to_thread.run_sync

    def counted(function: Any, *arguments: Any, **options: Any) -> Any:
        turns.append(function)
        return run_sync(function, *arguments, **options)

    with running(tmp_path, "", role=Role.WEB) as client:
        made = client.post(f"{API}/clusters", json=cluster_body())
        monkeypatch.setattr(to_thread, "run_sync", counted)
        read = client.get(f"{API}/clusters/{made.json()['name']}")
        monkeypatch.undo()
    assert len(turns) == 1
    assert made.status_code == 201
    assert made.headers["location"].endswith(made.json()["name"])
    assert read.headers["content-type"] == "application/json"
    assert read.headers["etag"] == made.headers["etag"] == '"1"'
    assert json.loads(read.content) == made.json()
