"""Plans over HTTP, from the request to the exports, on both databases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.api_client import API, cluster_body, ended, plan_body, running

PLANS = f"{API}/plans"


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application that solves at once."""
    with running(tmp_path, database_url) as client:
        yield client


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application whose solves never end by themselves, on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", behaviour="hang") as client:
        yield client


def test_a_plan_goes_from_request_to_export(client: TestClient) -> None:
    """202 with an address, under which there is first a state and then the plan, its timeline and its exports."""
    accepted = client.post(PLANS, json=plan_body())
    assert accepted.status_code == 202
    address = accepted.headers["Location"]
    assert accepted.json()["links"]["self"] == address
    plan = ended(client, address)
    assert plan["status"] == "succeeded"
    assert plan["result"]["result"] == "plan"
    assert plan["result"]["configuration"]["degrees"]["tensor"] == 2
    assert plan["attempts"] == 1
    timeline = client.get(f"{address}/timeline").json()
    assert timeline
    assert {"name", "start_s"} <= set(timeline[0])
    exports = client.get(f"{address}/exports").json()
    assert {"torchrun", "slurm", "json"} <= {export["name"] for export in exports}
    for export in exports:
        answer = client.get(export["address"])
        if export["refusal"]:
            assert answer.status_code == 422
            assert answer.json()["errors"][0]["problem"] in export["refusal"]
            continue
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith(export["media_type"])
        assert export["file_name"] in answer.headers["content-disposition"]
    assert json.loads(client.get(f"{address}/exports/json").text)["model"] == plan["result"]["model"]
    refused = client.get(f"{address}/exports/json", params={"set": "image=train:2"})
    assert (refused.status_code, refused.json()["errors"][0]["field"]) == (422, "options.image")


def test_the_real_solver_plans_over_http(tmp_path: Path) -> None:
    """A proven plan for the small problem, and a reason with remedies for a model that fits nowhere."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", real_solver=True) as client:
        large = plan_body(model="deepseek-v3", workload=_workload(sequence_length=4096))
        plan, none = (
            ended(client, client.post(PLANS, json=body).headers["Location"]) for body in (plan_body(), large)
        )
    assert plan["status"] == "succeeded", plan["error"]
    assert plan["result"]["certificate"]["stopped_by"] == "proven"
    assert plan["result"]["provenance"]["snapshot_id"] == plan["snapshot"]
    assert none["status"] == "infeasible", none["error"]
    assert none["result"]["result"] == "no_plan"
    assert none["result"]["remedies"]


def test_a_stored_cluster_is_planned_by_name_id_or_snapshot(client: TestClient) -> None:
    """All three make plans from the same snapshot, and the snapshot is listed under the cluster."""
    stored = client.post(f"{API}/clusters", json=cluster_body()).json()
    first = client.post(PLANS, json=plan_body(cluster=stored["name"])).json()
    snapshot = client.get(first["links"]["self"]).json()["snapshot"]
    second = client.post(PLANS, json=plan_body(cluster=stored["id"], snapshot=snapshot)).json()
    assert client.get(second["links"]["self"]).json()["snapshot"] == snapshot
    listed = client.get(f"{API}/clusters/{stored['name']}/snapshots").json()["items"]
    assert [entry["id"] for entry in listed] == [snapshot]
    content = client.get(f"{API}/snapshots/{snapshot}").json()
    assert len(content["cluster"]["samples"]) == 2
    assert content["cluster"]["nodes"] == stored["cluster"]["nodes"]
    assert [each["pairs"] for each in content["link_classes"]] == [3]
    assert content["slow_links"] == []


def test_a_snapshot_outlives_changes_of_its_cluster(client: TestClient) -> None:
    """A plan can be made from how the cluster was, even after a node failed."""
    name = client.post(f"{API}/clusters", json=cluster_body()).json()["name"]
    snapshot = client.post(f"{API}/clusters/{name}/snapshots").json()["id"]
    client.patch(f"{API}/clusters/{name}/nodes/a", json={"state": "failed"})
    old = client.post(PLANS, json=plan_body(cluster=name, snapshot=snapshot)).json()
    new = client.post(PLANS, json=plan_body(cluster=name)).json()
    assert client.get(old["links"]["self"]).json()["snapshot"] == snapshot
    assert client.get(new["links"]["self"]).json()["snapshot"] != snapshot


def test_an_idempotency_key_makes_one_plan(client: TestClient) -> None:
    """The same request finds its plan again; another request with the key is refused."""
    key = {"Idempotency-Key": "once"}
    first = client.post(PLANS, json=plan_body(), headers=key)
    again = client.post(PLANS, json=plan_body(), headers=key)
    other = client.post(PLANS, json=plan_body(options={"seed": 7}), headers=key)
    assert first.json()["id"] == again.json()["id"]
    assert again.status_code == 202
    assert other.status_code == 422
    assert other.json()["type"] == "/problems/idempotency-key-reused"
    assert len(client.get(PLANS).json()["items"]) == 1


def test_plans_are_listed_newest_first_in_pages(client: TestClient) -> None:
    """Following ``next`` yields every plan once; filters keep what they say."""
    made = [client.post(PLANS, json=plan_body(options={"seed": seed})).json()["id"] for seed in range(5)]
    for plan_id in made:
        ended(client, f"{PLANS}/{plan_id}")
    seen: list[str] = []
    address: str | None = f"{PLANS}?limit=2&status=succeeded"
    while address is not None:
        page = client.get(address).json()
        seen += [plan["id"] for plan in page["items"]]
        address = page["next"]
    assert seen == made[::-1]
    assert client.get(f"{PLANS}?status=failed").json()["items"] == []
    assert client.get(f"{PLANS}?cluster=other").json()["items"] == []
    assert len(client.get(f"{PLANS}?cluster=two-and-a-spare").json()["items"]) == 5
    assert client.get(f"{PLANS}?limit=201").status_code == 422


def test_progress_and_the_end_come_as_events(tmp_path: Path) -> None:
    """The stream tells of progress, ends with the plan, and numbers its events."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", seconds=2.0) as client:
        address = client.post(PLANS, json=plan_body()).headers["Location"]
        text = client.get(f"{address}/events").text
    events = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]
    assert [int(event["id"]) for event in events] == list(range(1, len(events) + 1))
    assert {event["event"] for event in events[:-1]} == {"progress"}
    assert events[-1]["event"] == "end"
    assert json.loads(events[-1]["data"])["status"] == "succeeded"
    assert any((json.loads(event["data"])["progress"] or {}).get("phase") == "search" for event in events)


def test_a_cancelled_plan_stays_cancelled(slow: TestClient) -> None:
    """It is cancelled at once for whoever looks, twice is as good as once, and its solver's slot is free again."""
    first = slow.post(PLANS, json=plan_body()).headers["Location"]
    for _ in range(2):
        assert slow.post(f"{first}/cancel").json()["status"] == "cancelled"
    assert slow.get(first).json()["result"] is None
    assert slow.get(f"{first}/timeline").status_code == 409
    assert slow.get(f"{first}/exports/json").json()["type"] == "/problems/conflict"


def test_a_search_without_a_plan_is_not_stopped(slow: TestClient) -> None:
    """409 with what to do instead."""
    address = slow.post(PLANS, json=plan_body()).headers["Location"]
    answer = slow.post(f"{address}/stop")
    assert (answer.status_code, answer.json()["type"]) == (409, "/problems/conflict"), answer.text
    assert "or cancel it" in answer.json()["detail"]
    assert slow.get(address).json()["is_stopping"] is False


def test_a_deleted_plan_is_gone(slow: TestClient) -> None:
    """Whatever is asked of it afterwards, the answer is 404."""
    address = slow.post(PLANS, json=plan_body()).headers["Location"]
    assert slow.delete(address).status_code == 204
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/cancel"), ("GET", "/events"), ("GET", "/exports")):
        answer = slow.request(method, address + path)
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found"), path


def _workload(**changes: Any) -> dict[str, Any]:
    workload: dict[str, Any] = plan_body()["workload"]
    return workload | changes


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"cluster": "nowhere"}, None),
        ({"model": "llama-3-71b"}, "model"),
        ({"model": {"layers": 3}}, "model.name"),
        ({"workload": _workload(avoid_nodes=["a", "d"])}, "workload.avoid_nodes[1]"),
        ({"workload": _workload(avoid_nodes=["a", "b", "c"])}, "workload.avoid_nodes"),
        ({"workload": _workload(pinned={"tensor": 3})}, "workload.pinned.tensor"),
        ({"workload": _workload(pinned={"tenser": 2})}, "workload.pinned.tenser"),
        ({"workload": _workload(pinned={"data": 3})}, "workload.pinned.data"),
        ({"workload": _workload(global_batch_sequences=0)}, "workload.global_batch_sequences"),
        ({"workload": _workload(sequence_lenght=4)}, "workload.sequence_lenght"),
        ({"workload": {"kind": "serving", "prompt_tokens": 1000, "ttft_ms": 500}}, "workload.prompt_tokens"),
        ({"options": {"time_limit_s": 1e9}}, "options.time_limit_s"),
        ({"options": {"backend": "gurobi"}}, "options.backend"),
        ({"cluster": cluster_body(nodes=[])}, "cluster.nodes"),
        ({"cluster": cluster_body(), "snapshot": "abc"}, "snapshot"),
        ({"cluster": 7}, "cluster"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_before_it_is_accepted(
    slow: TestClient, changes: dict[str, Any], field: str | None
) -> None:
    """The problem names the field with its path in the request, and nothing is stored."""
    answer = slow.post(PLANS, json=plan_body(**changes))
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    if field is None:
        assert (answer.status_code, body["type"]) == (404, "/problems/not-found")
    else:
        assert answer.status_code == 422, body
        assert field in [error["field"] for error in body["errors"]]
        assert all(error["problem"] for error in body["errors"])
        if field == "workload.kind":
            assert len(body["errors"]) == 1
    assert slow.get(PLANS).json()["items"] == []
