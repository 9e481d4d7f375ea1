"""Changes of what was read only, and answers that the client has already (RFC 9110, sections 8.8.3 and 13)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.conditional_requests import tags_in
from app.settings import Role
from tests.app.api_client import API, plan_body, running
from tests.app.failure_bodies import SITE, job_body, store_cluster
from tests.app.one_of_each import BODIES, one_of_each, operations

CHANGES: list[tuple[str, str, str, Any]] = [
    (f"{SITE}/jobs/a", "PATCH", "weight", {"weight": 3.0}),
    (f"{SITE}/spares", "PUT", "nodes", {"nodes": ["n5"]}),
    (f"{SITE}/replan-settings", "PUT", "window_s", {"window_s": 30.0}),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client of an application that has the cluster, and a job."""
    folder: Path = tmp_path_factory.mktemp("site")
    with running(folder, f"sqlite:///{folder}/a.sqlite", role=Role.WEB) as client:
        store_cluster(client)
        client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1"))
        yield client


@pytest.mark.parametrize(("path", "method", "_field", "body"), CHANGES)
def test_the_second_of_two_changes_is_refused(
    client: TestClient, path: str, method: str, _field: str, body: dict[str, Any]
) -> None:
    """The tag that was read is good for one change; the answer to that has the next one."""
    read = client.get(path).headers["ETag"]
    first = client.request(method, path, json=body, headers={"If-Match": read})
    assert first.status_code == 200, first.json()
    late = client.request(method, path, json=body, headers={"If-Match": read})
    assert (late.status_code, late.json()["type"]) == (412, "/problems/version-mismatch")
    assert client.get(path).headers["ETag"] == first.headers["ETag"] != read
    assert client.request(method, path, json=body, headers={"If-Match": "*"}).status_code == 200
    assert client.request(method, path, json=body).status_code == 200


def test_whatever_changes_or_forgets_takes_if_match(tmp_path: Path) -> None:
    """Every such operation of the description: the tag of its GET is taken, another one refused."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        made = one_of_each(client)
        described = [
            (method, re.sub(r"{(\w+)}", lambda found: made[found[1]], path), operation["operationId"])
            for method, path, operation in operations(client)
            if method in ("PUT", "PATCH", "DELETE")
        ]
        for tags, refused in (('"another"', True), (None, False)):
            for method, path, name in sorted(described, key=lambda each: (each[0] == "DELETE", -len(each[1]))):
                read = client.get(path).headers
                assert "ETag" in read, f"{path} has no ETag"
                body = {"json": BODIES[name]} if name in BODIES else {}
                answer = client.request(method, path, headers={"If-Match": tags or read["ETag"]}, **body)
                assert (answer.status_code == 412) is refused, (name, answer.text)
                assert answer.status_code != 404, (name, answer.text)
    assert len(described) > 15


def test_a_plan_that_went_on_is_not_deleted_by_its_old_tag(client: TestClient) -> None:
    """Called off since it was read: 412, and with the tag of now it is gone."""
    plan = client.post(f"{API}/plans", json=plan_body()).headers["Location"]
    read = client.get(plan).headers["ETag"]
    client.post(f"{plan}/cancel")
    assert client.delete(plan, headers={"If-Match": read}).status_code == 412
    now = client.get(plan).headers["ETag"]
    assert client.delete(plan, headers={"If-Match": now}).status_code == 204


@pytest.mark.parametrize(
    ("tags", "status"),
    [
        ('"1"', 200),
        ('"7", "1"', 200),
        ("*", 200),
        ('"7"', 412),
        ('"abc"', 412),
        ('W/"1"', 412),
        ("1", 422),
        ('"1" "2"', 422),
        ("", 422),
    ],
)
def test_tags_are_compared_as_the_standard_says(client: TestClient, tags: str, status: int) -> None:
    """Any of a list, weak ones never, a tag that is none of ours is that of nothing; what is not a tag is wrong."""
    answer = client.patch(f"{SITE}/nodes/n7", json={}, headers={"If-Match": tags})
    assert answer.status_code == status, answer.text


@pytest.mark.parametrize("path", [SITE, f"{SITE}/jobs/a", f"{SITE}/spares", f"{SITE}/replan-settings"])
def test_what_the_client_has_is_not_sent_again(client: TestClient, path: str) -> None:
    """304 without a body for its tag, strong or weak, alone or in a list; another tag changes nothing."""
    whole = client.get(path)
    tag = whole.headers["ETag"]
    for known in (tag, f"W/{tag}", f'"x", {tag}', "*"):
        short = client.get(path, headers={"If-None-Match": known})
        assert (short.status_code, short.content, short.headers["ETag"]) == (304, b"", tag)
        assert "content-type" not in short.headers
    assert client.get(path, headers={"If-None-Match": '"x"'}).json() == whole.json()
    assert client.head(path, headers={"If-None-Match": tag}).status_code == 304


def test_lists_of_tags_are_read() -> None:
    """Empty members count for nothing, and commas belong to tags."""
    assert tags_in('"a,b" ,, W/"c"') == ('"a,b"', 'W/"c"')
    assert tags_in(", ,") is None
    assert tags_in('"a') is None
    for endless in (" ," * 20_000 + "x", '"a"  ' * 10_000 + "x", '"a" , ' * 10_000 + "x"):
        assert tags_in(endless) is None, "within a moment, or one request would hold up all others for ever"


def test_the_description_names_the_headers_of_answers(client: TestClient) -> None:
    """Every answer has the id of its request; those with a tag are described as such, and as 304."""
    described = client.get(f"{API}/openapi.json").json()["paths"]
    for path in described.values():
        for operation in path.values():
            assert all("X-Request-Id" in answer["headers"] for answer in operation["responses"].values())
        for parameter in (each for operation in path.values() for each in operation.get("parameters", ())):
            assert "'null'" not in str(parameter["schema"]), f"{parameter['name']}: nothing in an address is null"
    for path in (f"{API}/clusters/{{cluster}}", f"{API}/clusters/{{cluster}}/spares", f"{API}/plans/{{plan}}"):
        answers = described[path]["get"]["responses"]
        assert "ETag" in answers["200"]["headers"]
        assert "304" in answers
    assert "Location" in described[f"{API}/clusters"]["post"]["responses"]["201"]["headers"]
