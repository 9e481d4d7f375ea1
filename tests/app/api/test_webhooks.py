"""Addresses that are told of failures and decisions, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.db.engine import transaction
from app.services.webhooks import webhook_deliveries
from app.services.webhooks.webhook_deliveries import RETRY_AFTER_S, Outcome
from app.settings import Role
from tests.app.api_client import API, running
from tests.app.failure_bodies import failed, store_site

ADDRESS = f"{API}/webhooks"
URL = "https://hooks.example/a"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that has the cluster with two jobs, and that sends nothing."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_site(client)
        yield client


def _made(client: TestClient, **body: Any) -> dict[str, Any]:
    reply = client.post(ADDRESS, json={"url": URL} | body)
    assert reply.status_code == 201, reply.text
    assert reply.headers["Location"] == reply.json()["links"]["self"]
    found: dict[str, Any] = reply.json()
    return found


def _told(client: TestClient, made: dict[str, Any]) -> list[str]:
    return [each["event_type"] for each in client.get(made["links"]["deliveries"]).json()["items"]]


def test_a_secret_is_shown_once(client: TestClient) -> None:
    """When it is made and when it is renewed; another one then."""
    made = _made(client)
    assert "whsec_" not in client.get(ADDRESS).text + client.get(made["links"]["self"]).text
    renewed = client.post(made["links"]["secret"]).json()
    assert renewed["secret"].startswith("whsec_")
    assert renewed["secret"] != made["secret"]
    given = "whsec_" + "A" * 43 + "="
    assert _made(client, secret=given)["secret"] == given


def test_a_repeated_request_with_a_key_finds_the_address(client: TestClient) -> None:
    """With its secret, for the first answer may be lost; another address under the key is refused."""
    key = {"Idempotency-Key": "k"}
    first, again = (client.post(ADDRESS, json={"url": URL}, headers=key).json() for _ in range(2))
    assert first == again
    assert len(client.get(ADDRESS).json()["items"]) == 1
    assert client.post(ADDRESS, json={"url": URL + "b"}, headers=key).status_code == 422


def test_each_is_told_what_it_wants(client: TestClient) -> None:
    """A failure is told with the safe answer, a name that nobody has by itself; disabled ones are told nothing."""
    everything = _made(client)
    names_only = _made(client, event_types=["event.unknown_name"])
    disabled = _made(client)
    changed = client.patch(disabled["links"]["self"], json={"enabled": False}).json()
    assert (changed["enabled"], changed["disabled_because"]) == (False, "It was disabled.")
    failed(client, "n0")
    failed(client, "nobody")
    assert sorted(_told(client, everything)) == ["event.unknown_name", "replan.safe_answer"]
    assert (_told(client, names_only), _told(client, disabled)) == (["event.unknown_name"], [])


def test_a_ping_tests_the_address_whatever_it_wants(client: TestClient) -> None:
    """One that is disabled is not tested."""
    made = _made(client, event_types=["replan.failed"])
    reply = client.post(made["links"]["ping"])
    (delivery,) = client.get(made["links"]["deliveries"]).json()["items"]
    assert (reply.status_code, delivery["id"]) == (202, reply.json()["delivery"])
    assert (delivery["event_type"], delivery["status"]) == ("webhook.ping", "pending")
    client.patch(made["links"]["self"], json={"enabled": False})
    assert client.post(made["links"]["ping"]).status_code == 409


def test_a_message_that_was_given_up_is_sent_once_more(client: TestClient) -> None:
    """Only such a one, and only of its own address."""
    made, other = _made(client), _made(client)
    delivery = client.post(made["links"]["ping"]).json()["delivery"]
    retry = f"{made['links']['deliveries']}/{delivery}/retry"
    assert client.post(retry).json() == {"retried": False}, "it waits"
    with transaction(client.app.state.service.sessions) as session:  # type: ignore[attr-defined]  # Starlette's
        for attempts in range(len(RETRY_AFTER_S) + 1):
            outcome = Outcome(500, "no")
            webhook_deliveries.record(
                session, delivery_id=delivery, attempts=attempts, outcome=outcome, now=datetime.now(UTC)
            )
    given_up = client.get(f"{made['links']['deliveries']}?status=failed").json()["items"]
    assert [(each["id"], each["last_status"], each["last_error"]) for each in given_up] == [(delivery, 500, "no")]
    assert client.post(f"{other['links']['deliveries']}/{delivery}/retry").status_code == 404
    assert client.post(retry).json() == {"retried": True}
    assert client.get(f"{made['links']['deliveries']}?status=failed").json()["items"] == []


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "url"),
        ({"url": "ftp://hooks.example/"}, "url"),
        ({"url": "https://user:word@hooks.example/"}, "url"),
        ({"url": "https://hooks.example/#there"}, "url"),
        ({"url": "https://hooks.example:99999/"}, "url"),
        ({"url": "https://" + "a" * 3000}, "url"),
        ({"url": URL, "event_types": ["replan.won"]}, "event_types[0]"),
        ({"url": URL, "secret": "hunter2"}, "secret"),
        ({"url": URL, "enabled": True}, "enabled"),
    ],
)
def test_what_cannot_be_told_is_refused(client: TestClient, body: dict[str, Any], field: str) -> None:
    """With the field, and never with the secret."""
    reply = client.post(ADDRESS, json=body)
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, field)
    assert "hunter2" not in reply.text
    assert client.get(ADDRESS).json()["items"] == []


def test_an_address_is_forgotten_with_its_messages(client: TestClient) -> None:
    """And cannot be asked for any more."""
    made = _made(client)
    client.post(made["links"]["ping"])
    assert client.delete(made["links"]["self"]).status_code == 204
    assert {client.get(made["links"][part]).status_code for part in ("self", "deliveries")} == {404}
    assert client.post(made["links"]["ping"]).status_code == 404
    assert client.delete(made["links"]["self"]).status_code == 404
