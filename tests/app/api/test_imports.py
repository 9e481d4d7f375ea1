"""Files over HTTP: looked at without storing anything, stored once, and refused with their place."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select

from app.db.engine import make_engine
from app.db.tables import Base
from app.settings import Role
from tests.app.api_client import API, cluster_body, running
from tests.app.import_files import ANSWERS, FILES, NODES, TABLE, document, form

IMPORTS = f"{API}/imports"


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application that only answers, on either database."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        yield client


def rows(database_url: str) -> dict[str, int]:
    """How many rows each table has."""
    engine = make_engine(database_url)
    with engine.connect() as connection:
        counts = {
            name: connection.scalar(select(func.count()).select_from(table)) or 0
            for name, table in Base.metadata.tables.items()
            if name != "audit_log"  # says that somebody asked
        }
    engine.dispose()
    return counts


def digest_of(client: TestClient, files: dict[str, str] = FILES, **fields: Any) -> str:
    digest: str = client.post(IMPORTS, **form(files, **{"cluster": "made", "answers": ANSWERS, **fields})).json()[
        "digest"
    ]
    return digest


def stored(client: TestClient, files: dict[str, str] = FILES, **fields: Any) -> dict[str, Any]:
    """The answer to storing files as they were reported."""
    fields = {"cluster": "made", "answers": ANSWERS, **fields}
    answer = client.post(IMPORTS, **form(files, **fields, store="true", digest=digest_of(client, files, **fields)))
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def problems(answer: Any) -> list[dict[str, Any]]:
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    errors: list[dict[str, Any]] = answer.json()["errors"]
    return errors


@pytest.mark.parametrize("send", [form, document])
def test_a_report_stores_nothing(client: TestClient, database_url: str, send: Any) -> None:
    """The report says file by file what was understood; every table has the rows it had."""
    before = rows(database_url)
    answer = client.post(IMPORTS, **send(FILES, cluster="made", answers=ANSWERS))
    assert answer.status_code == 200
    report = answer.json()
    assert rows(database_url) == before
    assert [(file["name"], file["sections"][0]["format"]) for file in report["files"]] == [
        ("nodes.txt", "slurm-nodes"),
        ("table.csv", "own-table"),
    ]
    assert report["files"][0]["sections"][0]["summary"] == "2 hosts: 2 with 8 x h100"
    assert report["nodes"][0]["fields"]["gpu_count"] == {"value": "8", "origins": ["nodes.txt:1"]}
    assert report["sample_count"] == 2
    assert report["changes"] == ["Node n1 is new.", "Node n2 is new.", "2 measurements are new."]
    assert report["can_be_stored"]
    assert report["stored"] is report["document"] is report["measurements"] is None


def test_a_form_and_json_say_the_same(client: TestClient) -> None:
    """One digest whichever way the files come, whole or packed in Base64."""
    digest = digest_of(client)
    assert client.post(IMPORTS, **document(FILES, cluster="made", answers=ANSWERS)).json()["digest"] == digest
    packed = [{"name": name, "base64": base64.b64encode(text.encode()).decode()} for name, text in FILES.items()]
    body = {"files": packed, "cluster": "made", "answers": ANSWERS}
    assert client.post(IMPORTS, json=body).json()["digest"] == digest


def test_the_documents_come_when_they_are_asked_for(client: TestClient) -> None:
    """The cluster document of a report is one that the service takes as it is."""
    report = client.post(f"{IMPORTS}?documents=true", **form(FILES, cluster="made", answers=ANSWERS)).json()
    assert [sample["bandwidth_gbytes_per_s"] for sample in report["measurements"]["samples"]] == [41.5, 44.25]
    assert client.post(f"{API}/clusters", json=report["document"]).status_code == 201


def test_a_new_cluster_is_stored_as_it_was_reported(client: TestClient) -> None:
    """201 with the address; nodes, cards and measurements are those of the files and answers."""
    answer = client.post(
        IMPORTS, **form(FILES, cluster="made", answers=ANSWERS, store="true", digest=digest_of(client))
    )
    assert answer.status_code == 201
    assert answer.headers["Location"] == f"{API}/clusters/made"
    assert answer.headers["ETag"] == '"1"'
    assert answer.json()["stored"]["added"] == 2
    found = client.get(answer.headers["Location"]).json()
    assert [node["name"] for node in found["cluster"]["nodes"]] == ["n1", "n2"]
    assert found["cluster"]["nodes"][0]["nics"] == {"count": 8, "rate_gbits_per_s": 400.0, "fabric": "infiniband"}
    assert found["measurement_count"] == 2


def test_storing_again_changes_nothing(client: TestClient, database_url: str) -> None:
    """No new version, no new sample, no new alias, no new row at all."""
    stored(client)
    before = rows(database_url)
    again = stored(client)
    assert again["stored"]["added"] == 0
    assert again["stored"]["cluster"]["version"] == 1
    assert again["changes"] == ["2 measurements are stored already."]
    assert rows(database_url) == before


def test_new_measurements_make_one_new_version(client: TestClient) -> None:
    """Those that are stored already are not added again."""
    stored(client)
    more = TABLE + "n1,n2,8,alltoall,67108864,30.5,ok\n"
    found = stored(client, {"more.csv": more}, answers={})
    assert found["stored"]["added"] == 1
    assert found["stored"]["cluster"]["version"] == 2
    assert found["changes"] == ["1 measurement is new.", "2 measurements are stored already."]


def test_what_files_do_not_speak_of_stays(client: TestClient) -> None:
    """States, slowdowns, labels, own GPU kinds and switches of a stored cluster outlive an import."""
    body = cluster_body()
    body["nodes"][0] |= {"state": "degraded", "compute_slowdown": 1.2, "labels": {"leaf": "a", "rack": "r1"}}
    body["switches"] = [{"label": "leaf", "oversubscription": 4.0}]
    client.post(f"{API}/clusters", json=body)
    before = client.get(f"{API}/clusters/{body['name']}").json()["cluster"]
    one, other = (node["name"] for node in before["nodes"][:2])
    table = TABLE.replace("n1,n2,8", f"{one},{other},1").replace("41.5", "20.5").replace("44.25", "21")
    found = stored(client, {"t.csv": table}, cluster=body["name"], answers={})
    assert found["stored"]["added"] == 2
    assert client.get(f"{API}/clusters/{body['name']}").json()["cluster"] == before
    state = "NodeName=new Gres=gpu:h100:8 State=IDLE\n"
    found = stored(client, {"new.txt": state}, cluster=body["name"])
    after = client.get(f"{API}/clusters/{body['name']}").json()["cluster"]
    assert after["nodes"][:-1] == before["nodes"]
    assert after["nodes"][-1]["name"] == "new"
    assert (after["switches"], after["gpu_kinds"]) == (before["switches"], before["gpu_kinds"])


def test_other_files_than_those_reported_are_not_stored(client: TestClient, database_url: str) -> None:
    """409 for another file, other answers, or a cluster that changed; then nothing is stored."""
    digest = digest_of(client)
    before = rows(database_url)
    others: list[dict[str, Any]] = [
        form({**FILES, "table.csv": TABLE.replace("41.5", "41.6")}, cluster="made", answers=ANSWERS),
        form(FILES, cluster="made", answers={**ANSWERS, "measured_at": "2026-03-01T10:00:00Z"}),
        form(FILES, cluster="other", answers=ANSWERS),
    ]
    for sent in others:
        answer = client.post(IMPORTS, **{**sent, "data": {**sent["data"], "store": "true", "digest": digest}})
        assert answer.status_code == 409
        assert answer.json()["type"] == "/problems/conflict"
        assert "look at the new report" in answer.json()["detail"]
    assert rows(database_url) == before
    stored(client)
    client.patch(f"{API}/clusters/made/nodes/n1", json={"labels": {"leaf": "a"}})
    answer = client.post(IMPORTS, **form(FILES, cluster="made", answers=ANSWERS, store="true", digest=digest))
    assert answer.status_code == 409


def test_storing_needs_the_digest_of_a_report(client: TestClient) -> None:
    """Nobody stores what nobody looked at."""
    errors = problems(client.post(IMPORTS, **form(FILES, cluster="made", answers=ANSWERS, store="true")))
    assert (errors[0]["field"], errors[0]["problem"]) == ("digest", "is missing")


def test_the_version_can_be_asked_for(client: TestClient) -> None:
    """If-Match of another version gets 412, also of a cluster that is not there."""
    stored(client)
    fields = {"cluster": "made", "answers": ANSWERS}
    sent = form(FILES, **fields, store="true", digest=digest_of(client))
    assert client.post(IMPORTS, **sent, headers={"If-Match": '"7"'}).status_code == 412
    assert client.post(IMPORTS, **sent, headers={"If-Match": '"1"'}).status_code == 201
    sent = form(FILES, **{**fields, "cluster": "none"}, store="true", digest="d")
    assert client.post(IMPORTS, **sent, headers={"If-Match": '"1"'}).status_code == 404


def test_open_questions_keep_a_cluster_from_being_stored(client: TestClient, database_url: str) -> None:
    """422 with a line for each; the report says which field of the answers takes each answer."""
    report = client.post(IMPORTS, **form({"table.csv": TABLE}, cluster="made")).json()
    needed = {question["key"]: question for question in report["questions"] if question["needed"]}
    assert needed.keys() == {"*.gpu_count", "*.gpu_kind", "*.nics"}
    assert (needed["*.nics"]["answer_in"], needed["*.nics"]["answer_as"]) == ("chosen", "*.nics")
    assert not report["can_be_stored"]
    assert {problem["value"] for problem in report["problems"]} == {None}
    before = rows(database_url)
    sent = form({"table.csv": TABLE}, cluster="made", store="true", digest=report["digest"])
    errors = problems(client.post(IMPORTS, **sent))
    assert {error["field"] for error in errors} == {f'answers.chosen["{key}"]' for key in needed}
    assert rows(database_url) == before


@pytest.mark.parametrize("name", ["new", "import"])
def test_a_name_that_a_page_has_is_refused_before_storing(client: TestClient, name: str) -> None:
    """The report says so, and so does storing."""
    report = client.post(IMPORTS, **form(FILES, cluster=name, answers=ANSWERS)).json()
    assert not report["can_be_stored"]
    assert (report["problems"][0]["field"], report["problems"][0]["value"]) == ("name", name)
    sent = form(FILES, cluster=name, answers=ANSWERS, store="true", digest=report["digest"])
    assert problems(client.post(IMPORTS, **sent))[0]["field"] == "name"


def test_a_figure_that_no_link_has_names_its_line(client: TestClient) -> None:
    """The report and the refusal name the file and the line; the whole upload is refused."""
    files = {"nodes.txt": NODES, "table.csv": TABLE.replace("44.25", "44250")}
    report = client.post(IMPORTS, **form(files, cluster="made", answers=ANSWERS)).json()
    assert report["problems"][0]["origins"] == ["table.csv:3"]
    sent = form(files, cluster="made", answers=ANSWERS, store="true", digest=report["digest"])
    errors = problems(client.post(IMPORTS, **sent))
    assert "said at table.csv:3" in errors[0]["problem"]
    assert client.get(f"{API}/clusters/made").status_code == 404


@pytest.mark.parametrize(
    ("answers", "field"),
    [
        ({"chosen": {"*.nics": "8 x lots"}}, "nodes.n1.nics"),
        ({"chosen": {"*.nics": "9999 x 999999 infiniband"}}, "nodes[0].nics.count"),
        ({"chosen": {"*.nics": "8 x 400", "n1.name": "n2"}}, "nodes[1].name"),
        ({"chosen": {"*.nics": "8 x 400", "n1.colour": "red"}}, "nodes[0].colour"),
        ({"chosen": {"*.nics": "8 x 400", "*.state": "gone"}}, "nodes[0].state"),
        ({"node_kind": "none such"}, "nodes[0].node_kind"),
        ({**ANSWERS, "measured_at": "2099-01-01T00:00:00Z"}, "samples[0]"),
    ],
)
def test_answers_that_no_cluster_can_hold_are_problems(tmp_path: Path, answers: dict[str, Any], field: str) -> None:
    """The report names them like any other problem, and they cannot be stored."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        report = client.post(IMPORTS, **form(FILES, cluster="made", answers=answers)).json()
        assert report["problems"][0]["field"] == field
        sent = form(FILES, cluster="made", answers=answers, store="true", digest=report["digest"])
        assert problems(client.post(IMPORTS, **sent))[0]["field"] == field


@pytest.mark.parametrize("store", [{}, {"store": "true", "digest": "any"}])
def test_answers_to_no_question_are_refused_by_their_keys(client: TestClient, store: dict[str, str]) -> None:
    """Storing and the report alike name each key, with the nearest that something asks for."""
    answers = {**ANSWERS, "hosts": {"node.txt": "n1"}, "accepted": ["table.csv:2:x"], "ranks": {"table.csv:99": 8}}
    errors = problems(client.post(IMPORTS, **form(FILES, cluster="made", answers=answers, **store)))
    assert [error["field"] for error in errors] == [
        'answers.hosts["node.txt"]',
        'answers.ranks["table.csv:99"]',
        'answers.accepted["table.csv:2:x"]',
    ]
    assert errors[0]["remedy"] == "did you mean 'nodes.txt'?"


def test_nothing_usable_is_not_stored(client: TestClient) -> None:
    """Each file is refused with a reason in the report, and storing them is."""
    files = {"poem.txt": "a rose is a rose\n", "empty.txt": ""}
    report = client.post(IMPORTS, **form(files, cluster="made")).json()
    assert all(file["refusals"][0]["reason"] for file in report["files"])
    assert not report["can_be_stored"]
    errors = problems(client.post(IMPORTS, **form(files, cluster="made", store="true", digest=report["digest"])))
    assert errors[0]["problem"] == "nothing in them could be used"


def test_names_that_files_teach_resolve_later_files(client: TestClient) -> None:
    """The address that one file gives a node is its alias, and so is the answer to which node a name means."""
    stored(client)
    before = client.get(f"{API}/clusters/made/aliases").json()["aliases"]
    other = TABLE.replace("n1,n2", "login7,n2").replace("41.5", "39")
    answers = {"chosen": {"alias:login7": "n1"}}
    found = stored(client, {"other.csv": other}, answers=answers)
    assert [node["name"] for node in found["nodes"]] == ["n1", "n2"]
    assert found["stored"]["added"] == 1
    after = client.get(f"{API}/clusters/made/aliases").json()["aliases"]
    assert [alias for alias in after if alias not in before] == [{"alias": "login7", "kind": "host", "node": "n1"}]
    again = client.post(IMPORTS, **form({"third.csv": other}, cluster="made")).json()
    assert [node["name"] for node in again["nodes"]] == ["n1", "n2"]


def test_two_that_store_at_once_do_not_both_create(client: TestClient, database_url: str) -> None:
    """The cluster is made once; the slower one is told that it changed, or finds it as it wants it."""
    digest = digest_of(client)
    sent = form(FILES, cluster="made", answers=ANSWERS, store="true", digest=digest)
    with ThreadPoolExecutor(4) as pool:
        statuses = sorted(pool.map(lambda _: client.post(IMPORTS, **sent).status_code, range(4)))
    assert statuses == [201, 409, 409, 409]
    assert (rows(database_url)["clusters"], rows(database_url)["measurements"]) == (1, 2)


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"files": [("files", ("", b""))], "data": {"cluster": "made"}}, "files"),
        ({"files": [("files", ("a", b"")), ("cluster", (None, b"a")), ("cluster", (None, b"b"))]}, "cluster"),
        ({"files": [("files", (None, b"a.txt")), ("cluster", (None, b"a"))]}, "files"),
        (form(FILES), "cluster"),
        (form(FILES, cluster=""), "cluster"),
        (form(FILES, cluster="a\x1b[2J"), "cluster"),
        (form(FILES, cluster="m" * 201), "cluster"),
        (form(FILES, cluster="made", answers="{"), "answers"),
        (form(FILES, cluster="made", answers="[]"), "answers"),
        (form(FILES, cluster="made", answers={"host": {}}), "answers.host"),
        (form(FILES, cluster="made", answers={"ranks": {"a:1": "8"}}), "answers.ranks.a:1"),
        (form(FILES, cluster="made", answers={"measured_at": "yesterday"}), "answers.measured_at"),
        (form(FILES, cluster="made", answers={"hosts": {"a": " "}}), "answers.hosts.a"),
        (form(FILES, cluster="made", answers={"nodes": {"a:1": ["n1", "localhost"]}}), "answers.nodes.a:1[1]"),
        (form(FILES, cluster="made", answers={"chosen": {"alias:n1": "x" * 900}}), "answers.chosen"),
        (form(FILES, cluster="made", store="maybe"), "store"),
        (form(FILES, cluster="made", colour="red"), "colour"),
        ({"json": {"cluster": "made"}}, "files"),
        ({"json": {"cluster": "made", "files": []}}, "files"),
        ({"json": {"cluster": "made", "files": [{"name": "a"}]}}, "files[0]"),
        ({"json": {"cluster": "made", "files": [{"name": "a", "text": "", "base64": ""}]}}, "files[0]"),
        ({"json": {"cluster": "made", "files": [{"name": "a", "base64": "%"}]}}, "files[0].base64"),
        ({"json": []}, "document"),
    ],
)
def test_wrong_fields_are_named(tmp_path: Path, sent: dict[str, Any], field: str) -> None:
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        assert problems(client.post(IMPORTS, **sent))[0]["field"] == field


@pytest.mark.parametrize(
    ("kind", "status", "word"),
    [
        ("text/plain", 415, "multipart/form-data"),
        ("", 415, "multipart/form-data"),
        ("application/x-www-form-urlencoded", 415, "multipart/form-data"),
        ("multipart/form-data", 400, "boundary"),
        ("multipart/form-data; boundary=y", 400, "cannot be taken apart"),
        ("multipart/form-data; boundary=x; charset=zlib", 422, "cluster"),
        ("application/json", 422, "JSON"),
    ],
)
def test_bodies_of_other_kinds_are_refused(tmp_path: Path, kind: str, status: int, word: str) -> None:
    """The answer is a problem that says what can be sent."""
    body = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a"\r\n\r\nb\r\n--x--\r\n'
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        answer = client.post(IMPORTS, content=body, headers={"Content-Type": kind})
        assert answer.status_code == status, answer.text
        assert word in answer.json()["detail"]
