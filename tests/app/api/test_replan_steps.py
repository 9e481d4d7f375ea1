"""Steps with a decision over HTTP: job by job, and who took each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.settings import Role
from tests.app.api_client import API, running
from tests.app.failure_bodies import SITE, failed, holders, store_site


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """A client behind a proxy that names who sends a request; jobs a and b lost a node each."""
    monkeypatch.setenv("MESHWRIGHT_ACTOR_HEADER", "X-Forwarded-User")
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_site(client)
        yield client


def _approved(client: TestClient, **headers: str) -> str:
    failed(client, "n0")
    replan_id = failed(client, "n2")["replan"]
    body = {"answer": "safe", "actor": "said"}
    reply = client.post(f"{API}/replans/{replan_id}/approve", json=body, headers=headers)
    assert reply.status_code == 200, reply.text
    assert reply.json()["remaining"] == ["a", "b"]
    return f"{API}/replans/{replan_id}"


def test_jobs_are_completed_one_by_one(client: TestClient) -> None:
    """The second by its running plan; with it the replan is applied."""
    address = _approved(client)
    done = client.post(f"{address}/jobs/a/complete", json={"actor": "orchestrator"}).json()
    assert (done["status"], done["remaining"]) == ("applying", ["b"])
    assert client.post(f"{address}/jobs/x/complete").status_code == 404
    plans = client.get(f"{SITE}/jobs/b/running-plans").json()["items"]
    applied = client.post(plans[0]["links"]["apply"])
    assert (applied.status_code, applied.json()["status"]) == (200, "applied")
    replan = client.get(address).json()
    assert (replan["status"], replan["remaining"]) == ("applied", [])
    held = holders(client)
    assert sorted(held["a"] | held["b"]) == ["n1", "n3", "n6", "n7"]
    assert (len(held["a"]), len(held["b"])) == (2, 2)
    steps: list[dict[str, Any]] = replan["steps"]
    assert [(each["step"], each["job"]) for each in steps] == [
        ("approved", None),
        ("started", None),
        ("job_completed", "a"),
        ("job_completed", "b"),
        ("applied", None),
    ]
    assert (steps[2]["actor"], steps[2]["verified"]) == ("orchestrator", False)


def test_the_header_of_the_proxy_says_who_approved(client: TestClient) -> None:
    """It overrules what the request says of itself; without it that is kept, not verified."""
    address = _approved(client, **{"X-Forwarded-User": "j.doe"})
    client.post(f"{address}/start", json={"actor": "somebody"})
    steps = client.get(address).json()["steps"]
    assert [(each["actor"], each["verified"]) for each in steps] == [("j.doe", True), ("somebody", False)]
    assert client.post(f"{address}/start", json={"actor": "x" * 201}).status_code == 422


def test_the_word_of_the_operator_needs_a_signature_where_a_source_of_that_name_signs(client: TestClient) -> None:
    """Its secret is what proves an operator's program; a report without it is refused."""
    source = {"name": "operator", "adapter": "plain"}
    secret = client.post(f"{SITE}/event-sources", json=source).json()["secret"]
    body = {"node": "n0", "state": "failed", "source": "operator"}
    assert client.post(f"{SITE}/events", json=body).status_code == 401
    signed = client.post(
        f"{SITE}/events/plain?source=operator",
        json={"node": "n0", "state": "failed"},
        headers={"Authorization": f"Bearer {secret}"},
    )
    assert signed.status_code == 200


def test_a_cluster_may_take_signed_reports_only(client: TestClient) -> None:
    """Neither plain ones nor any format that no source was stored for."""
    assert client.put(f"{SITE}/replan-settings", json={"signed_only": True}).json()["signed_only"] is True
    for path in ("events", "events/plain"):
        reply = client.post(f"{SITE}/{path}", json={"node": "n0", "state": "failed"})
        assert (reply.status_code, "signed reports only" in reply.json()["detail"]) == (401, True), path


def test_the_limits_of_automatic_approval_are_stored(client: TestClient) -> None:
    """Actions by name; an unknown one is refused with its place."""
    body = {"auto_approve": True, "auto_actions": ["swap"], "auto_most_jobs": 2, "auto_most_gap": 0.05}
    stored = client.put(f"{SITE}/replan-settings", json=body).json()
    assert stored == stored | body
    assert client.get(f"{SITE}/replan-settings").json() == stored
    refused = client.put(f"{SITE}/replan-settings", json={"auto_actions": ["dance"]})
    assert (refused.status_code, "auto_actions[0]" in refused.text) == (422, True)
