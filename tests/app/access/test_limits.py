"""Limits of requests and quotas of tenants: 429, and when to come again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.access import tenants
from app.access.limits import RequestLimits
from app.access.principals import ANYBODY, Principal
from app.access.tenants import Quotas
from app.db.engine import SessionFactory, transaction
from app.db.tables import PlanRow, SnapshotRow
from tests.app.access.callers import OURS, THEIRS, guarded, key_of, service_of, with_key
from tests.app.api_client import API, cluster_body, plan_body

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[TestClient]:
    """A service that asks for keys."""
    with guarded(tmp_path, "") as client:
        yield client


def _quotas(client: TestClient, **quotas: Any) -> TestClient:
    """A client of the tenant ``ours``, which has these quotas from now on."""
    with transaction(service_of(client).sessions) as session:
        tenants.change_quotas(session, name=OURS, quotas=Quotas(**quotas))
    return with_key(client, key_of(client, OURS))


def test_a_key_sends_so_many_requests_a_minute(service: TestClient) -> None:
    """The one after the last is refused with the time to wait; other keys go on."""
    slow = with_key(service, key_of(service, OURS, requests_per_minute=3))
    assert [slow.get(f"{API}/access").status_code for _ in range(4)] == [200, 200, 200, 429]
    refused = slow.get(f"{API}/access")
    assert refused.json()["type"] == "/problems/too-many-requests"
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert with_key(service, key_of(service, OURS)).get(f"{API}/access").status_code == 200


def test_whoever_needs_no_key_is_not_counted() -> None:
    """On this machine alone nothing is limited."""
    limits, person = RequestLimits(1), Principal("t", "p", frozenset(), limited_as="person")
    assert [limits.wait_s(ANYBODY) for _ in range(3)] == [0, 0, 0]
    assert limits.wait_s(person) == 0
    assert limits.wait_s(person) > 0


def test_a_tenant_queues_so_many_plans(service: TestClient) -> None:
    """One too many is refused; a plan called off makes room, and another tenant has its own queue."""
    client, body = _quotas(service, queued_plans=1), plan_body()
    first = client.post(f"{API}/plans", json=body)
    assert first.status_code == 202
    second = client.post(f"{API}/plans", json=body)
    assert (second.status_code, second.json()["type"]) == (429, "/problems/too-many-requests")
    assert int(second.headers["Retry-After"]) > 0
    assert "1 may" in second.json()["detail"]
    assert with_key(service, key_of(service, THEIRS)).post(f"{API}/plans", json=body).status_code == 202
    client.post(f"{first.headers['Location']}/cancel")
    assert client.post(f"{API}/plans", json=body).status_code == 202


def test_a_tenant_stores_so_many_measurements(service: TestClient) -> None:
    """Stored samples are counted before a request that brings more."""
    client = _quotas(service, stored_samples=1)
    assert client.post(f"{API}/clusters", json=cluster_body()).status_code == 201
    full = client.post(f"{API}/clusters", json=cluster_body(name="another"))
    assert full.status_code == 429
    assert "measurements are stored" in full.json()["detail"]
    assert client.get(f"{API}/clusters").status_code == 200


@pytest.mark.parametrize(
    ("started_h", "finished_h", "limit_s", "again_h"),
    [
        (-2.0, -1.0, 3600.0, 22.0),
        (-2.0, -1.0, 3601.0, None),
        (-25.0, -23.5, 1800.0, 0.0),
        (-25.0, -24.5, 1.0, None),
        (-1.0, None, 3600.0, 23.0),
    ],
)
def test_seconds_of_solving_count_for_a_day(
    sessions: SessionFactory, started_h: float, finished_h: float | None, limit_s: float, again_h: float | None
) -> None:
    """Only what lies within the last 24 hours counts, and a plan that runs counts until now."""
    started, finished = (None if h is None else NOW + timedelta(hours=h) for h in (started_h, finished_h))
    named = {"cluster_name": "c", "created_at": NOW}
    with transaction(sessions) as session:
        session.add(SnapshotRow(id="s", document={}, **named))
        session.flush()
        times = {"started_at": started, "finished_at": finished, "status": "cancelled"}
        session.add(PlanRow(id="p", snapshot_id="s", model_name="m", problem={}, options={}, **times, **named))
    with sessions() as session:
        found = tenants.full_queue(session, Quotas(solver_s_per_day=limit_s), now=NOW)
    if again_h is None:
        assert found is None
    else:
        assert found is not None
        assert found.again_after_s == pytest.approx(max(60.0, again_h * 3600.0), abs=1.0)
