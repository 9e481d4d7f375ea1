"""Reads that repeat: answered from what was read before while the database shows the same, on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from app import looks
from app.access import control, tokens
from app.access.principals import Scope
from app.db.access_tables import ApiKeyRow
from app.db.engine import DATABASE_AWAY, transaction
from app.services.clusters import clusters
from app.services.planning import plans
from tests.app.access.callers import OURS, THEIRS, guarded, key_of, service_of, with_key
from tests.app.api_client import API, cluster_body, plan_body
from tests.databases import PostgresServer


@pytest.fixture
def service(tmp_path: Path, postgres_server: PostgresServer) -> Iterator[TestClient]:
    """A service that asks for keys, on PostgreSQL."""
    with (
        postgres_server.database(template=postgres_server.newest) as url,
        guarded(tmp_path, url) as client,
    ):
        yield client


@pytest.fixture
def ours(service: TestClient) -> TestClient:
    """A client with a key that has been noted as used, and a cluster and a plan."""
    client = with_key(service, key_of(service, OURS))
    assert client.post(f"{API}/clusters", json=cluster_body()).status_code == 201
    assert client.post(f"{API}/plans", json=plan_body()).status_code == 202
    return client


def test_what_is_unchanged_is_not_read_again(ours: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, a cluster with its nodes and a plan, packed or not; 304 and HEAD follow from them."""
    cluster, plan = (ours.get(f"{API}/{kind}").json()["items"][0] for kind in ("clusters", "plans"))
    named = f"{API}/clusters/{cluster['name']}"
    paths = [f"{API}/clusters", f"{API}/plans?limit=3", named, f"{named}/nodes", f"{API}/plans/{plan['id']}"]
    coded = [{"Accept-Encoding": coding} for coding in ("identity", "gzip")]
    before = [ours.get(path, headers=headers) for path in paths for headers in coded]
    for module, name in ((clusters, "list_clusters"), (clusters, "find_cluster"), (plans, "get_plan")):
        monkeypatch.setattr(module, name, None)
    monkeypatch.setattr(control, "read_credentials", None)
    after = [ours.get(path, headers=headers) for path in paths for headers in coded]
    for one, other in zip(before, after, strict=True):
        assert (one.status_code, one.content) == (other.status_code, other.content) == (200, one.content)
        assert one.headers["X-Request-Id"] != other.headers["X-Request-Id"]
        assert dict(one.headers) | {"x-request-id": ""} == dict(other.headers) | {"x-request-id": ""}
    known = {"If-None-Match": before[-1].headers["ETag"], "Accept-Encoding": "gzip"}
    assert ours.get(paths[-1], headers=known).status_code == 304
    assert ours.head(named).headers["ETag"] == '"1"'
    counted = service_of(ours).metrics.requests.labels("list_clusters", "200")._value.get()
    assert counted == 5


def test_a_change_of_any_kind_is_seen_by_the_next_read(ours: TestClient, service: TestClient) -> None:
    """By another key, and of another process: here a statement beside the service."""
    plan = ours.get(f"{API}/plans").json()["items"][0]["id"]
    other = with_key(service, key_of(service, OURS))
    assert ours.get(f"{API}/plans/{plan}").json()["status"] == "queued"
    other.post(f"{API}/plans/{plan}/cancel")
    assert ours.get(f"{API}/plans/{plan}").json()["status"] == "cancelled"
    with transaction(service_of(service).of_tenant(OURS).sessions) as session:
        plans.delete_plan(session, plan_id=plan)
        assert ours.get(f"{API}/plans/{plan}").status_code == 200, "not before it is committed"
    assert ours.get(f"{API}/plans/{plan}").status_code == 404


def test_an_answer_is_for_whom_it_was_made(ours: TestClient, service: TestClient) -> None:
    """Another tenant sees its own, a key without the scope nothing, and a key is not a cookie."""
    assert ours.get(f"{API}/clusters").json()["items"]
    theirs = with_key(service, key_of(service, THEIRS))
    assert theirs.get(f"{API}/clusters").json()["items"] == []
    blind = with_key(service, key_of(service, OURS, Scope.PLAN))
    assert blind.get(f"{API}/clusters").status_code == 403
    assert service.get(f"{API}/clusters").status_code == 401
    key = ours.headers["Authorization"].split()[1]
    assert service.get(f"{API}/clusters", headers={"Cookie": f"meshwright_session={key}"}).status_code == 401


def test_a_key_that_ends_opens_nothing_at_once(ours: TestClient, service: TestClient) -> None:
    """Revoked, or past its time without anything being stored."""
    key = key_of(service, OURS)
    client = with_key(service, key)
    soon = datetime.now(UTC) + timedelta(seconds=0.3)
    with transaction(service_of(service).sessions) as session:
        session.execute(update(ApiKeyRow).where(ApiKeyRow.id == tokens.key_id_of(key)).values(expires_at=soon))
    while datetime.now(UTC) < soon:
        status = client.get(f"{API}/clusters").status_code
        assert status == 200 or datetime.now(UTC) >= soon
    assert client.get(f"{API}/clusters").status_code == 401
    mine = ours.headers["Authorization"].split()[1]
    ours.delete(f"{API}/keys/{tokens.key_id_of(mine)}")
    assert ours.get(f"{API}/clusters").status_code == 401


def test_a_database_that_does_not_say_is_read(ours: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look that fails or takes too long makes a read slower, and no worse."""
    monkeypatch.setattr(looks, "PATIENCE_S", 0.05)
    for look in (lambda _: (_ for _ in ()).throw(DATABASE_AWAY[0]("", {}, Exception())), _slow):
        monkeypatch.setattr(looks, "mark_of", look)
        assert ours.get(f"{API}/clusters").json()["items"]


def _slow(_engine: object) -> str:
    until = datetime.now(UTC) + timedelta(seconds=0.2)
    while datetime.now(UTC) < until:
        pass
    return "too late"
