"""Reports over HTTP: taken once, believed when signed, shown with what follows from them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from standardwebhooks import Webhook

from app.settings import Role
from tests.app.api_client import API, running
from tests.app.failure_bodies import SITE, failed, store_site

EVENTS = f"{SITE}/events"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that has the cluster with two jobs and two spares."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_site(client)
        yield client


def test_a_report_on_a_job_opens_a_replan_with_its_safe_answer(client: TestClient) -> None:
    """It is listed with the replan that decides on it, and the part is not well."""
    told = failed(client, "n0", id="ticket-1", text="no power", code="PSU")
    assert (told["stored"], told["repeated"], told["unknown"]) == (1, 0, 0)
    replan = client.get(told["links"]["replan"]).json()
    assert (replan["status"], replan["events"], replan["has_safe_answer"]) == ("collecting", told["events"], True)
    (event,) = client.get(f"{EVENTS}?replan={told['replan']}").json()["items"]
    assert event["entity"] == {"kind": "node", "node": "n0", "part": None}
    assert (event["source_id"], event["text"], event["code"], event["known"]) == (
        "ticket-1",
        "no power",
        "PSU",
        True,
    )
    (condition,) = client.get(f"{SITE}/conditions").json()["conditions"]
    assert (condition["entity"]["node"], condition["state"], condition["failures"]) == ("n0", "failed", 1)


def test_a_report_on_no_job_opens_nothing(client: TestClient) -> None:
    """It is kept all the same."""
    assert failed(client, "n5")["replan"] is None
    assert client.get(f"{SITE}/replans").json()["items"] == []
    assert len(client.get(EVENTS).json()["items"]) == 1


def test_a_repeated_report_is_counted(client: TestClient) -> None:
    """Alike in source, id and state; the replan is told again."""
    first, again = failed(client, "n5", id="1"), failed(client, "n5", id="1")
    assert (first["stored"], again["stored"], again["repeated"]) == (1, 0, 1)
    assert client.get(EVENTS).json()["items"][0]["repeats"] == 1


def test_a_list_is_one_request_and_all_or_nothing(client: TestClient) -> None:
    """Both failures are decided on together; one that is wrong names its place and keeps the others out."""
    wrong = [{"node": "n0", "state": "failed"}, {"kind": "gpu", "node": "n2", "state": "failed"}]
    reply = client.post(EVENTS, json=wrong)
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "[1].part")
    assert client.get(EVENTS).json()["items"] == []
    reply = client.post(EVENTS, json=[wrong[0], wrong[1] | {"part": 3}])
    assert (reply.json()["stored"], len(client.get(reply.json()["links"]["replan"]).json()["events"])) == (2, 2)


def test_unknown_names_are_kept_and_shown(client: TestClient) -> None:
    """They change nothing; stored as an alias, the name is known."""
    assert failed(client, "gpu-host-0")["unknown_names"] == ["gpu-host-0"]
    (unknown,) = client.get(f"{EVENTS}?known=false").json()["items"]
    assert (unknown["told_name"], unknown["known"]) == ("gpu-host-0", False)
    assert client.get(f"{EVENTS}?known=true").json()["items"] == []
    assert client.get(f"{SITE}/conditions").json()["conditions"] == []
    client.put(f"{SITE}/aliases", json={"aliases": [{"alias": "gpu-host-0", "node": "n0"}]})
    assert failed(client, "gpu-host-0.example")["replan"] is not None


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"node": "n0"}, "state"),
        ({"node": "n0", "state": "broken"}, "state"),
        ({"state": "failed"}, "node"),
        ({"node": "n0", "state": "failed", "part": "3"}, "part"),
        ({"kind": "switch", "node": "n0", "part": "leaf:leaf-0", "state": "failed"}, "node"),
        ({"kind": "link", "node": "n0", "part": "n0", "state": "failed"}, "part"),
        ({"kind": "gpu", "node": "n0", "part": -1, "state": "failed"}, "part"),
        ({"kind": "gpu", "node": "n0", "part": 1024, "state": "failed"}, "part"),
        ({"node": "n0", "state": "degraded", "compute_slowdown": 0.5}, "compute_slowdown"),
        ({"node": "n0", "state": "degraded", "bandwidth_share": 0}, "bandwidth_share"),
        ({"node": "n0", "state": "failed", "occurred_at": "2026-03-01T12:00:00"}, "occurred_at"),
        ({"node": "n0", "state": "failed", "occurred_at": 1.0}, "occurred_at"),
        ({"node": "n0", "state": "failed", "sauce": "x"}, "sauce"),
        ([], "document"),
        ("n0", "document"),
        ([{"node": "n0", "state": "failed"}] * 10_001, "document"),
    ],
)
def test_a_report_that_says_nothing_clear_is_refused(client: TestClient, sent: Any, field: str) -> None:
    """With the field that is wrong."""
    reply = client.post(EVENTS, json=sent)
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, field)


def test_a_report_from_the_future_is_refused(client: TestClient) -> None:
    """It would overrule all that comes until then; a clock some minutes ahead is not far."""
    now = datetime.now(UTC)
    soon, late = ((now + timedelta(minutes=minutes)).isoformat() for minutes in (5, 60))
    assert failed(client, "n5", occurred_at=soon)["stored"] == 1
    reply = client.post(EVENTS, json={"node": "n5", "state": "failed", "occurred_at": late})
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "occurred_at")


def test_numbers_that_are_none_are_refused(client: TestClient) -> None:
    """NaN is not a slowdown, and no JSON."""
    body = '{"node": "n0", "state": "degraded", "compute_slowdown": NaN}'
    reply = client.post(EVENTS, content=body, headers={"Content-Type": "application/json"})
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "compute_slowdown")


def test_every_adapter_takes_its_own_example(client: TestClient) -> None:
    """Posted raw to the address of its format; a format that is not there is not found."""
    adapters = client.get(f"{API}/event-adapters").json()
    assert {adapter["name"] for adapter in adapters} >= {"plain", "alertmanager", "kubernetes"}
    for adapter in adapters:
        reply = client.post(f"{EVENTS}/{adapter['name']}", content=adapter["example"])
        assert reply.status_code == 200, reply.text
        assert reply.json()["stored"] >= 1
    assert client.post(f"{EVENTS}/carrier-pigeon", content="{}").status_code == 404
    assert client.post(f"{API}/clusters/x/events/plain", content="{}").status_code == 404


def test_entries_that_cannot_be_read_do_not_stop_the_others(client: TestClient) -> None:
    """They are named with their place."""
    body = json.dumps([{"node": "n0", "state": "failed"}, {"node": "n1", "state": "melted"}])
    told = client.post(f"{EVENTS}/plain", content=body).json()
    assert (told["stored"], [each["field"] for each in told["unread"]]) == (1, ["[1].state"])


def _source(client: TestClient) -> tuple[str, Webhook, str]:
    """The address of a stored source, its signer, and its secret."""
    reply = client.post(f"{SITE}/event-sources", json={"name": "watch", "adapter": "plain"})
    assert reply.status_code == 201, reply.text
    made = reply.json()
    return made["links"]["report_to"], Webhook(made["secret"]), made["secret"]


def _signed(signer: Webhook, body: str, moment: datetime) -> dict[str, str]:
    signature = signer.sign("msg_1", moment, body)
    return {
        "webhook-id": "msg_1",
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": signature,
    }


def test_reports_of_a_source_must_prove_it(client: TestClient) -> None:
    """Signed to the byte and lately, or with the secret as a bearer token; anything else is 401 and not stored."""
    address, signer, secret = _source(client)
    body, now = '{"node": "n5", "state": "failed"}', datetime.now(UTC).replace(microsecond=0)
    refused: list[tuple[str, str, dict[str, str]]] = [
        (address, body, {}),
        (f"{EVENTS}/plain", body, {}),
        (address, body, {"Authorization": "Bearer whsec_wrong"}),
        (address, body, {"Authorization": f"Basic {secret}"}),
        (address, body, _signed(signer, body, now - timedelta(hours=1))),
        (address, body + " ", _signed(signer, body, now)),
        (address, body, _signed(Webhook("whsec_" + "A" * 32), body, now)),
    ]
    for where, sent, headers in refused:
        reply = client.post(where, content=sent, headers=headers)
        assert (reply.status_code, reply.headers["WWW-Authenticate"]) == (401, "Bearer"), headers
    assert client.get(EVENTS).json()["items"] == []
    for headers in (_signed(signer, body, now), {"Authorization": f"Bearer {secret}"}):
        assert client.post(address, content=body, headers=headers).status_code == 200
    assert {event["source"] for event in client.get(EVENTS).json()["items"]} == {"watch"}


def test_nobody_speaks_in_the_name_of_a_source(client: TestClient) -> None:
    """A report without a signature that names a signed source is refused, alone or among others."""
    _source(client)
    forged = {"source": "watch", "node": "n5", "state": "failed"}
    for body in (forged, [{**forged, "source": "somebody"}, forged]):
        assert client.post(EVENTS, json=body).status_code == 401
    assert client.get(EVENTS).json()["items"] == []
    assert client.post(EVENTS, json={**forged, "source": "somebody"}).status_code == 200


def test_a_source_speaks_its_own_format_only(client: TestClient) -> None:
    """Its secret opens no other, and a source that is not there is named as wrong."""
    _, _, secret = _source(client)
    headers = {"Authorization": f"Bearer {secret}"}
    for address in (f"{EVENTS}/kubernetes?source=watch", f"{EVENTS}/plain?source=wach"):
        reply = client.post(address, content="{}", headers=headers)
        assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, "query.source")


def test_a_secret_is_shown_once(client: TestClient) -> None:
    """With the answer that makes the source; names are unique, adapters known, secrets long."""
    _source(client)
    shown = client.get(f"{SITE}/event-sources").text + client.get(f"{SITE}/event-sources/watch").text
    assert "whsec_" not in shown
    assert client.post(f"{SITE}/event-sources", json={"name": "watch", "adapter": "plain"}).status_code == 409
    for body, field in (
        ({"name": "x", "adapter": "plane"}, "adapter"),
        ({"name": "x", "adapter": "plain", "secret": "whsec_AAAA"}, "secret"),
        ({"name": "a/b", "adapter": "plain"}, "name"),
    ):
        reply = client.post(f"{SITE}/event-sources", json=body)
        assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, field)
        assert "AAAA" not in reply.text
    assert client.delete(f"{SITE}/event-sources/watch").status_code == 204
    assert client.get(f"{SITE}/event-sources/watch").status_code == 404
    assert client.post(f"{EVENTS}/plain", content='{"node": "n5", "state": "failed"}').status_code == 200


def test_a_node_that_fails_often_is_to_be_kept_out(client: TestClient) -> None:
    """After as many failures as the settings say."""
    client.put(f"{SITE}/replan-settings", json={"quarantine_after": 2})
    start = datetime.now(UTC) - timedelta(hours=1)
    reports = [
        {"node": "n5", "state": state, "occurred_at": (start + timedelta(minutes=15 * index)).isoformat()}
        for index, state in enumerate(("failed", "recovered", "failed"))
    ]
    client.post(EVENTS, json=reports)
    (found,) = client.get(f"{SITE}/conditions").json()["quarantine"]
    assert (found["node"], found["failures"]) == ("n5", 2)


def test_the_history_of_hardware_is_listed_by_its_serial_number(client: TestClient) -> None:
    """Wherever it sat."""
    for node in ("n5", "n6"):
        failed(client, node, kind="gpu", part=0, device="GPU-5e0c")
    failed(client, "n6", kind="gpu", part=1)
    found = client.get(f"{EVENTS}?device=GPU-5e0c").json()["items"]
    assert {each["entity"]["node"] for each in found} == {"n5", "n6"}
    assert {each["device"] for each in found} == {"GPU-5e0c"}


def test_reports_come_in_pages(client: TestClient) -> None:
    """Each once, whatever the size of a page."""
    client.post(EVENTS, json=[{"node": "n5", "state": "failed", "id": str(number)} for number in range(5)])
    seen, address = [], f"{EVENTS}?limit=2"
    while address:
        page = client.get(address).json()
        seen += [event["source_id"] for event in page["items"]]
        address = page["next"]
    assert sorted(seen) == ["0", "1", "2", "3", "4"]
