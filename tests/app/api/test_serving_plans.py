"""Plans of serving over HTTP, from the request to the exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.documents.serving_plan import serving_document
from app.serialization import jsonable
from tests.app.api_client import API, cluster_body, ended, plan_body, running
from tests.serving_bad_input import SOUND as WORKLOAD
from tests.serving_plans import two_replicas

PLANS = f"{API}/plans"
OUTLOOKS = f"{API}/outlooks"


def serving_body(**changes: Any) -> dict[str, Any]:
    """A request for a plan of a small model on the small cluster."""
    return {"cluster": cluster_body(), "model": "llama-3.1-8b", "workload": WORKLOAD} | changes


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A client of an application whose solver answers with two replicas at once."""
    plan = tmp_path / "serving.json"
    plan.write_text(json.dumps(jsonable(two_replicas())))
    with running(tmp_path, database_url, plan=str(plan)) as client:
        yield client


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application whose solves never end by themselves, on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", behaviour="hang") as client:
        yield client


def test_a_serving_plan_goes_from_request_to_export(client: TestClient) -> None:
    """By the addresses of training plans, without a timeline."""
    accepted = client.post(PLANS, json=serving_body())
    assert accepted.status_code == 202, accepted.text
    assert "timeline" not in accepted.json()["links"]
    address = accepted.headers["Location"]
    plan = ended(client, address)
    assert (plan["kind"], plan["status"], plan["model"]) == ("serving", "succeeded", "llama-3.1-8b")
    assert plan["result"] == json.loads(serving_document(two_replicas()).model_dump_json())
    assert client.get(f"{address}/timeline").status_code == 409
    exports = {export["name"]: export for export in client.get(f"{address}/exports").json()}
    assert exports["vllm"]["refusal"] is None
    assert "the plan is for vLLM" in exports["sglang"]["refusal"]
    for name, export in exports.items():
        answer = client.get(export["address"])
        assert answer.status_code == (422 if export["refusal"] else 200), name
    script = client.get(exports["vllm"]["address"], params={"set": "model_path=/weights/mine"})
    assert "vllm serve /weights/mine" in script.text
    assert client.get(f"{address}/exports/megatron").status_code == 404
    assert client.get(f"{address}/exports/none").status_code == 404


def test_an_outlook_of_serving_needs_no_search(slow: TestClient) -> None:
    """Smallest replicas and needed GPUs; or why nothing serves; and nothing is stored."""
    body = {name: value for name, value in serving_body().items() if name != "options"}
    seen = slow.post(OUTLOOKS, json=body).json()
    assert seen["result"] == "serving_outlook"
    assert seen["models"][0]["needed_gpus"] >= seen["models"][0]["least_gpus"] >= 1
    none = slow.post(OUTLOOKS, json=body | {"workload": WORKLOAD | {"time_to_first_token_ms": 0.01}}).json()
    assert none["result"] == "no_serving_plan"
    assert none["nearest"]
    assert slow.post(OUTLOOKS, json=body | {"model": "no-such"}).status_code == 422
    assert slow.get(PLANS).json()["items"] == []


def test_both_kinds_are_listed_together(client: TestClient) -> None:
    """Each names its kind; what belongs to training alone is refused for serving."""
    served = client.post(PLANS, json=serving_body()).json()["id"]
    client.post(PLANS, json=plan_body())
    assert sorted(item["kind"] for item in client.get(PLANS).json()["items"]) == ["serving", "training"]
    ended(client, f"{PLANS}/{served}")
    compared = client.post(f"{API}/comparisons", json={"plan": served, "others": []})
    assert compared.status_code in {409, 422}, compared.text


def test_the_same_key_gives_the_same_plan(slow: TestClient) -> None:
    """Another workload under it is refused; a plan that waits is called off."""
    headers = {"Idempotency-Key": "one"}
    first, second = (slow.post(PLANS, json=serving_body(), headers=headers).json()["id"] for _ in range(2))
    assert first == second
    other = serving_body(workload=WORKLOAD | {"concurrency": 8.0})
    assert slow.post(PLANS, json=other, headers=headers).status_code == 422
    assert slow.post(f"{PLANS}/{first}/cancel").json()["status"] == "cancelled"


def test_the_reason_why_nothing_serves_is_an_answer(tmp_path: Path) -> None:
    """As stored by the solver, with what comes nearest and what would help."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", real_solver=True) as client:
        limits = {"time_per_output_token_ms": 0.5}
        address = client.post(PLANS, json=serving_body(workload=WORKLOAD | limits)).headers["Location"]
        none = ended(client, address)
        found = ended(client, client.post(PLANS, json=serving_body()).headers["Location"])
    assert none["status"] == "infeasible", none["error"]
    assert none["result"]["result"] == "no_serving_plan"
    assert none["result"]["nearest"]["time_per_output_token_ms"] > 0.5
    assert none["result"]["remedies"]
    assert found["status"] == "succeeded", found["error"]
    assert found["result"]["certificate"]["gap"] <= 0.001
    assert found["result"]["provenance"]["snapshot_id"] == found["snapshot"]
