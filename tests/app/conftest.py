"""Fixtures of the command line's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.command_files import CLUSTER, WORKLOAD


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that name a small cluster, model and workload, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    return ["--cluster", "cluster.yaml", "--model", "llama-3-8b", "--workload", "workload.yaml"]


@pytest.fixture(autouse=True)
def _nobodys_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal the readline of a parent process may leave its guess of the width in the environment."""
    monkeypatch.delenv("COLUMNS", raising=False)
