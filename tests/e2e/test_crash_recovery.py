"""A plan in progress survives whatever is killed: real processes, on both databases."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import httpx2
import pytest

from app.db import migrate
from app.db.engine import make_engine
from tests.app.api_client import API, plan_body
from tests.e2e.processes import Deployment, deployment, is_gone, service, wait_until, worker

PLANS = f"{API}/plans"
pytestmark = pytest.mark.slow


@pytest.fixture
def shared(tmp_path: Path, empty_database_url: str) -> Deployment:
    """A service whose solver takes two seconds."""
    engine = make_engine(empty_database_url)
    migrate.upgrade(engine)
    engine.dispose()
    return deployment(tmp_path, empty_database_url, seconds=2.0)


def _plan(client: httpx2.Client, address: str) -> dict[str, Any]:
    plan: dict[str, Any] = client.get(address).json()
    return plan


def test_a_plan_survives_kill_9_of_the_service_and_finishes_once(shared: Deployment) -> None:
    """After a restart it starts over and ends once; the solver of the killed service died with it."""
    with service(shared) as (process, client):
        address = client.post(PLANS, json=plan_body()).headers["Location"]
        wait_until(lambda: shared.starts() == 1, shared)
        wait_until(lambda: _plan(client, address)["progress"] is not None, shared)
        process.kill()
        process.join()
    wait_until(lambda: all(map(is_gone, shared.solver_pids())), shared)
    assert shared.ends() == 0
    with service(shared) as (_, client):
        wait_until(lambda: _plan(client, address)["status"] == "succeeded", shared)
        plan = _plan(client, address)
        assert (plan["attempts"], plan["rescues"]) == (2, 1)
        assert plan["result"]["result"] == "plan"
        assert len(client.get(PLANS).json()["items"]) == 1
    assert (shared.starts(), shared.ends()) == (2, 1)


@pytest.mark.parametrize("empty_database_url", ["sqlite"], indirect=True)
def test_a_stopped_service_ends_its_solver_and_the_next_one_goes_on(shared: Deployment) -> None:
    """An orderly stop is not a crash: the plan waits again, and no rescue is counted."""
    with service(shared) as (process, client):
        address = client.post(PLANS, json=plan_body()).headers["Location"]
        wait_until(lambda: shared.starts() == 1, shared)
        process.terminate()
        process.join(timeout=15)
        assert process.exitcode in {0, -signal.SIGTERM}
        assert all(map(is_gone, shared.solver_pids()))
    with service(shared) as (_, client):
        wait_until(lambda: _plan(client, address)["status"] == "succeeded", shared)
        assert _plan(client, address)["rescues"] == 0
    assert shared.ends() == 1


@pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)
def test_a_newer_service_beside_the_old_one_takes_its_plans(
    shared: Deployment, tmp_path: Path, empty_database_url: str
) -> None:
    """A rolling upgrade: the old one is told to end while a plan runs and one waits; each ends once, unrescued."""
    endless = deployment(tmp_path, empty_database_url, seconds=600.0)
    with service(endless) as (old, client):
        running, waiting = (client.post(PLANS, json=plan_body()).headers["Location"] for _ in range(2))
        wait_until(lambda: shared.starts() == 1, shared)
        with service(shared, MESHWRIGHT_DATA_DIR=str(tmp_path / "newer")) as (_, newer):
            old.terminate()
            old.join(timeout=60)
            assert old.exitcode in {0, -signal.SIGTERM}
            for address in (running, waiting):
                wait_until(lambda address=address: _plan(newer, address)["status"] == "succeeded", shared)
                assert _plan(newer, address)["rescues"] == 0
    assert (shared.starts(), shared.ends()) == (3, 2)


@pytest.mark.parametrize(
    ("empty_database_url", "how"),
    [("sqlite", signal.SIGKILL), ("postgresql", signal.SIGKILL), ("postgresql", signal.SIGSTOP)],
    indirect=["empty_database_url"],
    ids=["sqlite-killed", "postgresql-killed", "postgresql-frozen"],
)
def test_another_worker_takes_over_from_one_that_vanished(shared: Deployment, how: signal.Signals) -> None:
    """Whether its worker is dead or only silent, the plan ends once; the web process only watches."""
    with service(shared, MESHWRIGHT_ROLE="web") as (_, client):
        with worker(shared) as first:
            address = client.post(PLANS, json=plan_body()).headers["Location"]
            wait_until(lambda: shared.starts() == 1, shared)
            if how is signal.SIGSTOP:
                os.kill(shared.solver_pids()[0], signal.SIGSTOP)
            os.kill(first.pid or 0, how)
            try:
                with worker(shared):
                    wait_until(lambda: _plan(client, address)["status"] == "succeeded", shared)
            finally:
                if how is signal.SIGSTOP:  # a frozen process cannot see that its parent is gone
                    os.kill(shared.solver_pids()[0], signal.SIGKILL)
        plan = _plan(client, address)
        assert (plan["attempts"], plan["rescues"]) == (2, 1)
    assert shared.starts() == 2


@pytest.mark.parametrize("empty_database_url", ["sqlite"], indirect=True)
def test_a_second_service_on_the_same_folder_refuses(shared: Deployment) -> None:
    """It says so in a sentence and leaves the first one alone."""
    with service(shared) as (_, client):
        with pytest.raises(AssertionError, match="Another Meshwright serves from"), service(shared):
            pass
        assert client.get("/readyz").is_success
