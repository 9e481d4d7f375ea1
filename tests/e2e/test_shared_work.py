"""Work that is asked for as one is worked off by all workers, also when one of them is killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sqlalchemy import text

from app.db import migrate
from app.db.engine import make_engine
from tests.app.api_client import API, plan_body
from tests.app.failure_bodies import SITE, store_site
from tests.e2e.processes import Deployment, deployment, service, wait_until, worker

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("empty_database_url", ["postgresql"], indirect=True)]


@pytest.fixture
def shared(tmp_path: Path, empty_database_url: str) -> Deployment:
    """A service whose solver takes two seconds."""
    engine = make_engine(empty_database_url)
    migrate.upgrade(engine)
    engine.dispose()
    return deployment(tmp_path, empty_database_url, seconds=2.0)


def _executors(database_url: str, status: str) -> Counter[str]:
    """Processes by the number of jobs that they have in a state, as the engine has it."""
    engine = make_engine(database_url)
    with engine.begin() as connection:
        query = text("SELECT executor_id FROM dbos.workflow_status WHERE status = :status")
        found = Counter(
            str(row.executor_id).split("-")[-2] for row in connection.execute(query, {"status": status})
        )
    engine.dispose()
    return found


def _workers(database_url: str) -> list[str]:
    """Workers that have given a sign of life."""
    engine = make_engine(database_url)
    with engine.begin() as connection:
        found = [str(each) for each in connection.execute(text("SELECT executor_id FROM workers")).scalars()]
    engine.dispose()
    return found


def test_workers_share_the_failures_of_a_sweep(shared: Deployment, empty_database_url: str) -> None:
    """Two workers answer some each; one is killed with a job in hand, and the other answers all the rest, once."""
    with service(shared, MESHWRIGHT_ROLE="web") as (_, client), worker(shared):
        store_site(client)
        with worker(shared) as killed:
            losses = [{"node": f"n{number}"} for number in range(8)]
            failures = [{"name": f"{number}", "losses": losses[: 1 + number % 8]} for number in range(16)]
            made = client.post(f"{SITE}/what-if-sweeps", json={"failures": failures})
            address = made.headers["Location"]
            wait_until(lambda: len(_executors(empty_database_url, "SUCCESS")) == 2, shared)
            wait_until(lambda: str(killed.pid) in _executors(empty_database_url, "PENDING"), shared)
            killed.kill()
        wait_until(lambda: client.get(address).json()["status"] == "finished", shared)
        found = client.get(f"{address}?worst=100").json()
    assert (found["answered"], found["refused"]) == (16, 0)
    assert sorted(int(each["name"]) for each in found["worst"]) == list(range(16))


def test_workers_share_the_plans_of_a_portfolio(shared: Deployment, empty_database_url: str) -> None:
    """Four plans of two seconds on two workers; one is killed under its first, which the other solves again."""
    body = {"plan": plan_body(), "gpus": [4, 8], "variants": [{"name": f"{n}", "change": {}} for n in range(2)]}
    with service(shared, MESHWRIGHT_ROLE="web") as (_, client), worker(shared):
        with worker(shared) as killed:
            wait_until(lambda: len(_workers(empty_database_url)) == 2, shared)
            address = client.post(f"{API}/portfolios", json=body).headers["Location"]
            wait_until(lambda: str(killed.pid) in _executors(empty_database_url, "PENDING"), shared)
            wait_until(lambda: shared.starts() == 2, shared)
            killed.kill()
        wait_until(lambda: not client.get(address).json()["is_open"], shared)
        found = client.get(address).json()
        plans = [client.get(f"{API}/plans/{each['plan']}").json() for each in found["members"]]
    assert [each["status"] for each in found["members"]] == ["succeeded"] * 4
    assert sorted(plan["rescues"] for plan in plans) == [0, 0, 0, 1]
    assert found["certificate"]["gap"] is not None
    assert (shared.starts(), shared.ends()) == (5, 4)
