"""The audit log: every change with its actor, nothing else, for its own tenant only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.access.principals import Scope
from tests.app.access.callers import OURS, THEIRS, guarded, key_of, with_key
from tests.app.api.test_idempotency import MODEL
from tests.app.api_client import API
from tests.app.failure_bodies import SITE, store_cluster


@pytest.fixture
def service(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A service that asks for keys."""
    with guarded(tmp_path, database_url) as client:
        yield client


def _log(client: TestClient, **query: str) -> list[dict[str, object]]:
    answer = client.get(f"{API}/audit", params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, object]] = answer.json()["items"]
    return found


def test_moments_are_written_out(service: TestClient) -> None:
    """A number could be seconds or milliseconds since whatever year: 422."""
    client = with_key(service, key_of(service, OURS))
    assert client.get(f"{API}/audit", params={"until": "0"}).status_code == 422
    made = client.post(f"{API}/keys", json={"name": "a", "role": "viewer", "expires_at": 4102444800})
    assert made.status_code == 422


def test_changes_and_refusals_are_written_down(service: TestClient) -> None:
    """Who, what, how it ended and under which request id; reads and mistakes are not."""
    admin, viewer = (with_key(service, key_of(service, OURS, *scopes)) for scopes in ((), (Scope.READ,)))
    store_cluster(admin)
    admin.get(SITE)
    admin.post(f"{API}/models", json={})
    viewer.delete(SITE, headers={"X-Request-Id": "refused-1"})
    admin.delete(SITE, headers={"X-Request-Id": "done-1"})
    deleted, refused, created = _log(admin)
    assert (created["action"], created["subject"], created["status"]) == ("clusters.create_cluster", SITE, 201)
    assert (refused["action"], refused["status"], refused["request_id"]) == (
        "clusters.delete_cluster",
        403,
        "refused-1",
    )
    assert (deleted["actor"], deleted["status"], deleted["request_id"]) == (f"key of {OURS}", 204, "done-1")
    assert deleted["address"] == "testclient"
    assert _log(with_key(service, key_of(service, THEIRS))) == []
    assert viewer.get(f"{API}/audit").status_code == 403


def test_the_log_is_read_in_pages_and_by_filter(service: TestClient) -> None:
    """Following the cursor gives every entry once; filters narrow, and a moment before all of it finds nothing."""
    admin = with_key(service, key_of(service, OURS))
    for number in range(7):
        admin.post(f"{API}/models", json={"name": f"m{number}", "model": MODEL})
    admin.delete(f"{API}/models/m3")
    address, seen = f"{API}/audit?limit=3", []
    while address:
        page = admin.get(address).json()
        seen += [entry["id"] for entry in page["items"]]
        address = page["next"]
    assert len(seen) == len(set(seen)) == 8
    assert seen == sorted(seen, reverse=True)
    assert [entry["subject"] for entry in _log(admin, action="models.delete_model")] == [f"{API}/models/m3"]
    assert len(_log(admin, subject=f"{API}/models/m3")) == 2
    assert _log(admin, actor="somebody else") == _log(admin, until="2020-01-01T00:00:00Z") == []
    assert admin.get("/audit?subject=/api", headers={"accept": "text/html"}).text.count("models.create_model") == 7
