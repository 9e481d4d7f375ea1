"""Pages of other sites can neither change nor read anything through somebody's browser."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from app.main import create_app
from app.settings import Settings
from app.startup import listening_socket
from app.trusted_requests import TrustedRequests

HERE = "http://planner.example:8080"
EVENTS = "/api/v1/clusters/two-nodes/events/plain"


async def _done(_request: Request) -> PlainTextResponse:
    return PlainTextResponse("done")


@pytest.fixture
def client() -> TestClient:
    """A client of something that does as it is told behind the checks."""
    routes = [Route("/{path:path}", _done, methods=["GET", "POST", "DELETE"])]
    return TestClient(TrustedRequests(Starlette(routes=routes), ("planner.example", "[::1]")), base_url=HERE)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        {"origin": HERE},
        {"host": "PLANNER.example"},
        {"host": "[::1]:8080"},
        {},
    ],
)
def test_our_own_pages_and_plain_clients_may_change_things(client: TestClient, headers: dict[str, str]) -> None:
    """Same origin, a bookmark, an old browser on our page, other spellings of a name, a tool, not a browser."""
    assert client.post(EVENTS, headers=headers).text == "done"


@pytest.mark.parametrize("method", ["POST", "DELETE"])
@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://elsewhere.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "origin": HERE},
    ],
)
def test_pages_of_other_sites_may_change_nothing(client: TestClient, method: str, headers: dict[str, str]) -> None:
    """Another site, a sister site, an opaque origin, and a forged origin beside an honest browser header."""
    answer = client.request(method, EVENTS, headers=headers, content=b"{}")
    assert (answer.status_code, answer.json()["type"]) == (403, "/problems/foreign-origin")
    assert client.get(EVENTS, headers=headers).text == "done", "a link from elsewhere may be followed"


@pytest.mark.parametrize("host", ["evil.example:8080", "", "planner.example.evil.example", "[::2]:8080"])
def test_a_name_that_points_here_is_not_ours(client: TestClient, host: str) -> None:
    """Whoever owns a name can point it at us, and the visitor's browser calls the page one of our own."""
    answer = client.delete("/api/v1/clusters/two-nodes", headers={"host": host, "sec-fetch-site": "same-origin"})
    assert (answer.status_code, answer.json()["type"]) == (421, "/problems/unknown-host")
    assert "MESHWRIGHT_ALLOWED_HOSTS" in answer.json()["detail"]
    page = client.get("/plans", headers={"host": host, "accept": "text/html"})
    assert page.status_code == 421
    assert "<h1" in page.text


@pytest.mark.parametrize(
    ("values", "host", "status"),
    [
        ({}, "localhost:8080", 404),
        ({}, "127.0.0.1:8080", 404),
        ({}, "planner.example", 421),
        ({"allowed_hosts": ("planner.example",)}, "planner.example", 404),
        ({"allowed_hosts": ("planner.example",)}, "localhost", 421),
        ({"host": "0.0.0.0", "access": "open-to-everyone"}, "planner.example", 404),  # noqa: S104 - as the image listens
    ],
)
def test_the_service_is_known_by_its_address_or_by_what_its_operator_says(
    tmp_path: Path, values: dict[str, object], host: str, status: int
) -> None:
    """On a loopback address by that alone; on all addresses by any name, unless names are given."""
    app = create_app(Settings.model_validate({"data_dir": tmp_path, **values}))
    answer = TestClient(app).get("/api/v1/nothing", headers={"host": host})
    assert answer.status_code == status


def test_answers_are_sent_at_once(tmp_path: Path) -> None:
    """A head and a body in two packets do not wait for one another's acknowledgement."""
    with listening_socket(Settings(data_dir=tmp_path, port=0)) as listening:
        assert listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
