"""Fixtures of the tests of the command line and the service."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from app.main import DescribedApp
from app.services import subprocesses
from app.settings import Settings
from tests.app.command_files import CLUSTER, WORKLOAD
from tests.databases import begin_at_newest


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options that name a small cluster, model and workload, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    return ["--cluster", "cluster.yaml", "--model", "llama-3-8b", "--workload", "workload.yaml"]


@pytest.fixture
def kept_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An embedded database without rows at the newest schema, in an empty folder, which commands use."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MESHWRIGHT_DATABASE_URL", f"sqlite:///{tmp_path / 'kept.sqlite'}")
    begin_at_newest(Settings())


@pytest.fixture(scope="session", autouse=True)
def _one_description() -> Iterator[None]:
    """The description of the API, made once: all applications have the same, and it takes two seconds to make."""
    made, known = DescribedApp.openapi, list[dict[str, Any]]()

    def openapi(app: DescribedApp) -> dict[str, Any]:
        if not known:
            known.append(made(app))
        return known[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DescribedApp, "openapi", openapi)
        yield


@pytest.fixture(autouse=True)
def _nobodys_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal the readline of a parent process may leave its guess of the width in the environment."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _no_subprocess(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compute in the test's own process what the service computes beside itself, except where that is the subject.

    A new process imports the solver, which takes longer than most tests.
    """

    async def inline(function: Callable[..., Any], arguments: tuple[object, ...], limit_s: float) -> Any:
        return function(*arguments)

    if "subprocess" not in request.keywords:
        monkeypatch.setattr(subprocesses, "_run", inline)
