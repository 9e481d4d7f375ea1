"""Whatever goes wrong, the answer is a problem and the service unharmed."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from app.documents.health_events import EventDocument
from app.services.pagination import encode_cursor
from app.settings import Role
from tests.app.api_client import API, cluster_body, plan_body, running

CLUSTERS = f"{API}/clusters"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that only answers, on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


@pytest.mark.parametrize(
    ("method", "path", "status", "kind"),
    [
        ("GET", "/api/v1/nothing", 404, "not-found"),
        ("GET", "/api/v1/clusters/none", 404, "not-found"),
        ("PATCH", "/api/v1/clusters", 405, "method-not-allowed"),
        ("GET", "/api/v1/plans?limit=0", 422, "invalid-input"),
        ("GET", "/api/v1/plans?status=lost", 422, "invalid-input"),
        ("GET", "/api/v1/plans?cursor=WzFd", 422, "invalid-input"),
        ("GET", "/api/v1/plans?cursor=WzEsIlx1ZDgwMCJd", 422, "invalid-input"),
        ("GET", f"/api/v1/plans?cursor={encode_cursor(10**40, 'a')}", 422, "invalid-input"),
        ("GET", f"/api/v1/audit?cursor={encode_cursor(2**31)}", 422, "invalid-input"),
        ("GET", f"/api/v1/clusters?cursor={encode_cursor(float('nan'))}", 422, "invalid-input"),
        ("GET", f"/api/v1/clusters?cursor={encode_cursor(chr(0))}", 422, "invalid-input"),
        ("GET", f"/api/v1/clusters?cursor={'W1tb' * 3000}", 422, "invalid-input"),
        ("GET", "/problems/none", 404, "not-found"),
    ],
)
def test_every_error_is_a_problem(client: TestClient, method: str, path: str, status: int, kind: str) -> None:
    """Type, title, status, detail, path and the request's id are always there, and the type can be looked up."""
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["type"] == f"/problems/{kind}"
    assert body["status"] == status
    assert body["detail"]
    assert body["instance"] == path.partition("?")[0]
    assert body["request_id"] == answer.headers["x-request-id"]
    assert client.get(body["type"]).json()["meaning"] == body["title"]


def test_head_is_answered_as_get_without_the_body(client: TestClient) -> None:
    """Status, type and length are those of the GET, for pages, the API and errors; nothing is made by a HEAD."""
    for path in ("/", "/clusters", CLUSTERS, f"{API}/frameworks", f"{API}/openapi.json", f"{CLUSTERS}/none"):
        head, get = client.head(path), client.get(path)
        assert head.content == b""
        assert head.status_code == get.status_code
        for name in ("content-type", "content-length"):
            assert head.headers[name] == get.headers[name]
    assert client.head(f"{API}/predictions").status_code == 405


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\xff" * 500_000,
        b"[" * 100_000,
        b'{"name": ' * 50_000,
        b"null",
        b"",
        b'"text"',
        b'{"name": "x", "nodes": NaN}',
        b'{"name": "x", "nodes": [1e999]}',
        b'{"name": "x\\u0000", "nodes": []}',
        b'{"name": "\\ud800", "nodes": []}',
    ],
    ids=["bytes", "brackets", "nested", "null", "empty", "text", "nan", "infinite", "nul", "surrogate"],
)
def test_garbage_is_refused_and_does_no_harm(client: TestClient, body: bytes) -> None:
    """Nothing is stored, and the next request is served."""
    answer = client.post(CLUSTERS, content=body, headers=JSON)
    assert answer.status_code in {400, 422}
    assert answer.headers["content-type"] == "application/problem+json"
    assert client.post(CLUSTERS, json=cluster_body()).status_code == 201


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"name": "x", "name": "y"}', "the key 'name' is given twice"),
        (b'{"name": \n oops}', "is not valid JSON: Expecting value (line 2, column 2)"),
        (b"\xff\xfe{}", "is not UTF-8 text"),
        (b'{"name": ' + b"9" * 5000 + b"}", "thousands of digits"),
        (b"[" * 100_000, "nested more than"),
        (b'{"nodes": [{"compute_slowdown": NaN}]}', "nodes[0].compute_slowdown: must be a finite number"),
    ],
)
def test_a_body_is_read_as_strictly_as_a_file(client: TestClient, body: bytes, words: str) -> None:
    """A mistake in the text is named with its place, and no value is lost to its own repetition."""
    answer = client.post(CLUSTERS, content=body, headers=JSON)
    assert answer.status_code == 422
    assert words in answer.json()["detail"]


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/yaml"])
def test_a_body_of_another_type_is_refused_as_that(client: TestClient, kind: str) -> None:
    """Also a page of another site can send these without asking."""
    answer = client.post(CLUSTERS, content=json.dumps(cluster_body()), headers={"Content-Type": kind})
    assert answer.status_code == 415
    assert "application/json" in answer.json()["detail"]


@pytest.mark.parametrize("last", ["0", "1e999"])
def test_a_body_of_a_million_numbers_costs_no_second(client: TestClient, last: str) -> None:
    """Where no list belongs, or with a number at its end that is not finite; it took 1.6 s for each MiB."""
    body = f'{{"cluster":[{"0," * 500_000}{last}]}}'.encode()
    before_s = time.process_time()
    answer = client.post("/api/v1/plans", content=body, headers=JSON)
    assert answer.status_code == 422
    assert time.process_time() - before_s < 0.8


@pytest.mark.parametrize("declared", [True, False])
def test_a_body_that_is_too_large_is_refused(client: TestClient, declared: bool) -> None:
    """Also when it is sent in pieces, without saying how long it is."""
    large = b" " * 3_000_000
    answer = client.post(CLUSTERS, content=large if declared else iter([large[:1_500_000]] * 2), headers=JSON)
    assert answer.status_code == 413
    assert answer.json()["type"] == "/problems/content-too-large"


def test_a_breakage_tells_nothing_of_the_inside(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer has the request's id and no trace of the code; the log has the reason."""

    def breaks(*_args: object, **_more: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr("app.services.clusters.clusters.list_clusters", breaks)
    with capture_logs() as logged:
        answer = client.get(CLUSTERS, headers={"X-Request-Id": "mine-1"})
    assert [str(event["exc_info"]) for event in logged if event["log_level"] == "error"] == ["secret"]
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["type"] == "/problems/internal"
    assert answer.json()["request_id"] == "mine-1"


def test_a_database_that_is_away_is_told_from_a_breakage(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503 says that trying again may help."""

    def away(*_args: object, **_more: object) -> None:
        raise OperationalError("SELECT 1", {}, Exception("connection refused"))

    monkeypatch.setattr("app.services.clusters.clusters.list_clusters", away)
    answer = client.get(CLUSTERS)
    assert (answer.status_code, answer.json()["type"]) == (503, "/problems/not-ready")
    assert "refused" not in answer.text


def test_a_request_id_that_could_spoil_the_log_is_replaced(client: TestClient) -> None:
    """Only short plain ids are taken over."""
    answer = client.get("/healthz", headers={"X-Request-Id": "a b\tc"})
    assert answer.headers["x-request-id"] != "a b\tc"


def test_long_values_are_cut_in_problems(client: TestClient) -> None:
    """A megabyte that was sent is not sent back."""
    answer = client.post(f"{API}/plans", json=plan_body(model="x" * 1_000_000))
    assert answer.status_code == 422
    assert len(answer.content) < 10_000


def test_a_misspelt_field_is_answered_with_the_right_one(client: TestClient) -> None:
    """The remedy names the field that was probably meant."""
    answer = client.post(CLUSTERS, json=cluster_body() | {"gpu_kind": []})
    assert "'gpu_kinds'" in answer.json()["errors"][0]["remedy"]


@pytest.mark.parametrize("in_list", [False, True])
def test_a_field_that_is_like_none_is_answered_with_all(client: TestClient, in_list: bool) -> None:
    """In a list and alone: what the body takes does not depend on how it is spelled."""
    report = {"node": "n0", "gpu": 3, "state": "failed"}
    body = [report] if in_list else report
    (found,) = client.post(f"{CLUSTERS}/nowhere/events", json=body).json()["errors"]
    assert found["problem"] == "unknown field"
    assert all(name in found["remedy"] for name in EventDocument.model_fields)


def test_every_method_of_an_address_is_named(client: TestClient) -> None:
    """Also those of other functions at the same address."""
    for path, methods in (("/api/v1/plans", "HEAD, GET, POST"), ("/api/v1/plans/x", "HEAD, GET, DELETE")):
        answer = client.patch(path)
        assert (answer.status_code, answer.headers["Allow"]) == (405, methods)


def test_a_slash_at_the_end_leads_to_the_address_without_a_host(client: TestClient) -> None:
    """Whatever host the request names, the redirect stays where the client is; nothing leads nowhere."""
    answer = client.get("/api/v1/plans/?limit=1", headers={"host": "testserver"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (307, "/api/v1/plans?limit=1")
    assert client.get("/api/v1/nothing/", follow_redirects=False).status_code == 404


def test_an_unknown_query_parameter_is_refused(client: TestClient) -> None:
    """A filter that is misspelt would otherwise answer with everything."""
    answer = client.get("/api/v1/plans?statsu=failed&limit=3")
    assert answer.status_code == 422
    assert answer.json()["errors"] == [
        {
            "field": "query.statsu",
            "value": "failed",
            "problem": "is not a parameter of this address",
            "remedy": "did you mean 'status'?",
        }
    ]
    assert client.get("/api/v1/plans?status=failed&limit=3").is_success
