"""Sweeps of supposed failures over HTTP: asked for, worked off by the engine, read, called off, forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.settings import Role
from tests.app.api_client import API, running
from tests.app.failure_bodies import SITE, store_cluster, store_site
from tests.app.plan_rows import wait_until

SWEEPS = f"{API}/what-if-sweeps"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that has the cluster with two jobs, and that works off nothing."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_site(client)
        yield client


def _asked(client: TestClient, **body: Any) -> dict[str, Any]:
    answer = client.post(f"{SITE}/what-if-sweeps", json=body or {"each": "leaf"})
    assert answer.status_code == 202, answer.text
    found: dict[str, Any] = answer.json()
    assert answer.headers["Location"] == found["links"]["self"]
    return found


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_the_engine_answers_every_failure_and_ranks_them(tmp_path: Path, database_url: str) -> None:
    """Each node of eight: those that hold jobs first, with what becomes of each job; idle ones cost nothing."""
    with running(tmp_path, database_url, role=Role.ALL, heartbeat_s=0.2) as client:
        store_site(client)
        sweep = _asked(client, each="node")["links"]["self"]
        wait_until(lambda: client.get(sweep).json()["status"] == "finished")
        found = client.get(sweep).json()
        assert (found["failures"], found["answered"], found["refused"], found["changed"]) == (8, 8, 0, False)
        assert found["explanation"] == "8 of 8 failures answered, finished."
        names = [each["name"] for each in found["worst"]]
        assert set(names[:4]) == {"n0", "n1", "n2", "n3"}
        assert all(each["jobs"][0]["action"] == "swap" for each in found["worst"][:4])
        assert all(each["must_move"] and each["spares_used"] for each in found["worst"][:4])
        assert [each["jobs"] for each in found["worst"][4:]] == [[]] * 4
        assert [each["name"] for each in client.get(f"{sweep}?worst=2").json()["worst"]] == names[:2]


def test_a_sweep_is_asked_for_once_listed_called_off_and_forgotten(client: TestClient) -> None:
    """The key finds the same one; what is cancelled stays so, and a stale tag forgets nothing."""
    key = {"Idempotency-Key": "nightly"}
    first, again = (
        client.post(f"{SITE}/what-if-sweeps", json={"each": "node"}, headers=key).json() for _ in range(2)
    )
    assert first["id"] == again["id"]
    other = client.post(f"{SITE}/what-if-sweeps", json={"each": "leaf"}, headers=key)
    assert other.status_code == 422
    assert [each["id"] for each in client.get(f"{SWEEPS}?cluster=eight").json()["items"]] == [first["id"]]
    assert client.get(f"{SWEEPS}?cluster=nine").status_code == 404
    address = first["links"]["self"]
    tag = client.get(address).headers["ETag"]
    assert client.post(first["links"]["cancel"]).json()["status"] == "cancelled"
    assert client.post(first["links"]["cancel"]).json()["status"] == "cancelled"
    assert client.delete(address, headers={"If-Match": tag}).status_code == 412
    assert client.delete(address).status_code == 204
    assert client.get(address).status_code == 404


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "each"),
        ({"each": "node", "failures": [{"name": "a", "losses": [{"node": "n0"}]}]}, "each"),
        ({"each": "rack"}, "each"),
        ({"failures": [{"name": "a", "losses": []}]}, "failures[0].losses"),
        ({"failures": [{"name": "a", "losses": [{"node": "n0"}]}, {"name": "b", "losses": [{"node": "x"}]}]}, None),
        ({"failures": [{"name": "a", "losses": [{"node": "n0", "state": "recovered"}]}]}, None),
        ({"failures": [{"name": "a", "losses": [{"kind": "gpu", "node": "n0", "part": "9"}]}]}, None),
        ({"failures": [{"name": "a", "losses": [{"node": "n0"}]}] * 2049}, "failures"),
        ({"failures": [{"name": f"{n}", "losses": [{"node": "n0"}] * 6} for n in range(2000)]}, "failures"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_field(
    client: TestClient, body: dict[str, Any], field: str | None
) -> None:
    """Neither or both ways to name failures, unknown labels and parts, no losses, too many; nothing is stored."""
    answer = client.post(f"{SITE}/what-if-sweeps", json=body)
    assert answer.status_code == 422, answer.text
    found = answer.json()["errors"][0]["field"]
    assert found == field if field else found.startswith("failures[") and ".losses[0]." in found
    assert client.get(SWEEPS).json()["items"] == []


def test_a_cluster_without_jobs_has_nothing_to_ask(tmp_path: Path) -> None:
    """409, as of one what-if; 404 where there is no cluster."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        assert client.post(f"{SITE}/what-if-sweeps", json={"each": "node"}).status_code == 404
        store_cluster(client)
        assert client.post(f"{SITE}/what-if-sweeps", json={"each": "node"}).status_code == 409
