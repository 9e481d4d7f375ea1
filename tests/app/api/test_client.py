"""The typed client: made from the routes, true to the description, and patient where that does no harm."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from app.api.client_source import FOLDER, sources
from app.cli.connection import service
from app.client import Client, Refusal, ServiceAway, connect, every
from app.documents.cluster import ClusterDocument
from app.services.errors import NotFound
from cluster_models.errors import InvalidInput
from tests.app.api_client import API, cluster_body, plan_body, running
from tests.plans import small_cluster, small_samples

DESCRIPTION = json.loads((Path(__file__).parents[3] / "openapi.json").read_text())
OPERATIONS = {
    operation["operationId"]: (method, path, operation)
    for path, operations in DESCRIPTION["paths"].items()
    for method, operation in operations.items()
    if path.startswith(API)
}


@pytest.mark.parametrize("name", sorted(sources()))
def test_the_operations_are_those_of_the_routes(name: str) -> None:
    """The committed client is that of today's routes; the failure says how to renew it."""
    assert (FOLDER / name).read_text() == sources()[name], "renew it with: python -m app.api.client_source"


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_an_operation_sends_what_the_description_asks_for(name: str) -> None:
    """Method, path and all query parameters and headers arrive under the names of ``openapi.json``."""
    method, path, operation = OPERATIONS[name]
    seen: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(418)

    client = Client(httpx2.Client(base_url="http://s", transport=httpx2.MockTransport(answer)), retries=0)
    operate = getattr(client, name)
    arguments = inspect.signature(operate).parameters
    places = [each for each, kind in arguments.items() if kind.kind is not kind.KEYWORD_ONLY and each != "body"]
    named = {each: "x" for each, kind in arguments.items() if kind.kind is kind.KEYWORD_ONLY}
    body = [b"{}" if "bytes" in str(arguments["body"].annotation) else {}] if "body" in arguments else []
    with pytest.raises(ServiceAway):
        list(operate(*(f"{each} /?" for each in places), *body, **named) or ())
    (sent,) = seen
    asked = {each["in"]: set() for each in operation.get("parameters", ())} | {"query": set(), "header": set()}
    for each in operation.get("parameters", ()):
        asked[each["in"]].add(each["name"])
    assert sent.method == method.upper()
    assert re.fullmatch(re.sub(r"{\w+}", "[a-z_]+%20%2F%3F", path), sent.url.raw_path.decode().partition("?")[0])
    assert set(sent.url.params) == asked["query"]
    assert {each for each in ("idempotency-key", "if-match") if each in sent.headers} == asked["header"]
    assert bool(body) is ("requestBody" in operation)


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Client]:
    """A client of a service that solves with the stand-in."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as http:
        yield Client(http, retries=0)


def test_a_cluster_and_its_plan_come_back_as_models(asked: Client) -> None:
    """Stored, planned on, followed to the end and read; the plan's document is a plan again."""
    document = ClusterDocument.from_cluster(small_cluster(), small_samples())
    stored = asked.create_cluster(document)
    assert [each.name for each in every(asked.list_clusters, limit=1)] == [stored.name]
    accepted = asked.create_plan(plan_body(cluster=stored.name))
    events = list(asked.stream_plan(accepted.id))
    assert (events[-1].event, json.loads(events[-1].data)["status"]) == ("end", "succeeded")
    plan = asked.get_plan(accepted.id)
    assert plan.result is not None
    assert plan.result.to_value().model == plan.model  # type: ignore[union-attr]  # it succeeded
    assert asked.get_export(accepted.id, "json").startswith(b"{")
    asked.delete_plan(accepted.id, if_match=asked.etag)
    assert list(every(asked.list_plans)) == []


def test_refusals_are_errors_that_say_why(asked: Client) -> None:
    """A wrong value names its field, a missing thing and a stale tag their kind."""
    with pytest.raises(InvalidInput, match=r"nodes\[0\]\.gpu"):
        asked.create_cluster(cluster_body(nodes=[{"name": "a", "gpu": "none", "gpus": 8}]))
    with pytest.raises(Refusal) as missing:
        asked.get_plan("no such plan")
    assert (missing.value.kind, missing.value.status, bool(missing.value.request_id)) == ("not-found", 404, True)
    asked.create_cluster(cluster_body())
    with pytest.raises(Refusal) as stale:
        asked.delete_cluster(small_cluster().name, if_match='"99"')
    assert stale.value.kind == "version-mismatch"


def _scripted(*answers: httpx2.Response | Exception) -> tuple[Client, list[httpx2.Request]]:
    """A client of something that answers so in turn, and what it was sent."""
    left, sent = list(answers), []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        found = left.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    return Client(httpx2.Client(base_url="http://s", transport=httpx2.MockTransport(answer))), sent


def test_what_makes_something_is_sent_again_under_one_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy service and a lost connection are waited for as long as asked; the key makes it one plan."""
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    busy = httpx2.Response(
        503, headers={"Retry-After": "7"}, json={"type": "/problems/not-ready", "detail": "busy"}
    )
    made = {"id": "p", "status": "queued", "links": {}, "told_by_a_newer_service": 1}
    client, sent = _scripted(busy, httpx2.ReadError("gone"), httpx2.Response(202, json=made))
    assert client.create_plan(plan_body()).id == "p"
    assert len({request.headers["idempotency-key"] for request in sent}) == 1
    assert pauses == [7.0, 14.0]


def test_what_changes_something_is_not_sent_again() -> None:
    """Nobody knows whether the first one arrived."""
    client, sent = _scripted(httpx2.ReadError("gone"), httpx2.Response(200))
    with pytest.raises(ServiceAway, match="does not answer"):
        client.cancel_plan("p")
    assert len(sent) == 1


def test_a_stream_that_breaks_goes_on_where_it_broke() -> None:
    """The next connection says which event was the last."""
    first = httpx2.Response(
        200, headers={"content-type": "text/event-stream"}, text="id: 1\nevent: progress\ndata: {}\n\n"
    )
    second = httpx2.Response(
        200, headers={"content-type": "text/event-stream"}, text="id: 2\nevent: end\ndata: {}\n\n"
    )
    client, sent = _scripted(first, second)
    assert [event.event for event in client.stream_plan("p")] == ["progress", "end"]
    assert [request.headers.get("last-event-id") for request in sent] == [None, "1"]


@pytest.mark.parametrize("address", ["planner:8080", "ftp://planner", ""])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    """Before anything is sent."""
    with pytest.raises(InvalidInput, match="--server"):
        connect(address)


def test_a_page_of_something_else_is_no_service(tmp_path: Path) -> None:
    """An answer that is no problem of ours is said to be from elsewhere."""
    client, _ = _scripted(httpx2.Response(404, text="<html>"))
    with pytest.raises(ServiceAway, match="not Meshwright"):
        client.get_plan("p")


def test_commands_without_a_server_ask_one_in_their_own_process(tmp_path: Path) -> None:
    """It works on the database that is named, for the tenant that is named, and starts no solve."""
    url = f"sqlite:///{tmp_path}/own.sqlite"
    with service(url) as client:
        client.create_cluster(cluster_body())
    with service(url) as client:
        assert [each.name for each in every(client.list_clusters)] == [small_cluster().name]
    with pytest.raises(NotFound, match="lab"), service(url, tenant="lab"):
        pass
