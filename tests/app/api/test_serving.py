"""Predictions of serving over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.settings import Role
from tests.app.api_client import API, cluster_body, running

PREDICTIONS = f"{API}/serving-predictions"
WORKLOAD = {"kind": "serving", "input_tokens": 1024, "output_tokens": 512, "concurrency": 16.0, "weights": "fp8"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that only answers, on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


def _body(**changes: Any) -> dict[str, Any]:
    return {
        "cluster": cluster_body(),
        "model": "llama-3.1-8b",
        "workload": WORKLOAD,
        "configuration": {"worker": {"tensor": 2, "replicas": 2}},
    } | changes


def test_a_configuration_is_priced_at_once(client: TestClient) -> None:
    """Times, throughput and memory, on the cluster of the body or on a stored one alike."""
    answer = client.post(PREDICTIONS, json=_body())
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["fits"] is True
    assert body["gpus"] == 4
    assert body["time_to_first_token_ms"]["low"] < body["time_to_first_token_ms"]["high"]
    assert client.post(f"{API}/clusters", json=cluster_body()).status_code == 201
    stored = client.post(PREDICTIONS, json=_body(cluster=cluster_body()["name"]))
    assert stored.status_code == 200, stored.text
    assert stored.json() == body


def test_a_power_cap_slows_what_is_predicted(client: TestClient) -> None:
    """One that is lower than can be priced is refused; one above the board's power does nothing."""
    answers = [
        client.post(PREDICTIONS, json=_body(workload=WORKLOAD | {"gpu_power_cap_watts": watts}))
        for watts in (900.0, 420.0, 100.0)
    ]
    free, slow = (answer.json()["time_per_output_token_ms"]["value"] for answer in answers[:2])
    assert free == client.post(PREDICTIONS, json=_body()).json()["time_per_output_token_ms"]["value"]
    assert free < slow < 1.05 * free  # decoding of so few draws little above the cap
    assert answers[2].json()["errors"][0]["field"] == "workload.gpu_power_cap_watts", answers[2].text


def test_experts_are_placed_for_counts_in_the_workload(client: TestClient) -> None:
    """Uneven ones slow the experts; those of another model are refused."""
    times = []
    for heavy in (1, 20):
        routing = {"workloads": [{"name": "decode", "logical_count": [[heavy] * 5 + [1] * 123]}]}
        body = _body(model="qwen3-30b-a3b", workload=WORKLOAD | {"routing": routing})
        answer = client.post(PREDICTIONS, json=body | {"configuration": {"worker": {"tensor": 4, "expert": 4}}})
        assert answer.status_code == 200, answer.text
        times.append(answer.json()["decode_step"]["experts_ms"])
    assert times[0] < times[1]
    refused = client.post(PREDICTIONS, json=body | {"model": "llama-3.1-8b"})
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"].startswith("workload.routing"), refused.text


def test_counts_may_be_named_where_they_are_stored(client: TestClient) -> None:
    """As if they stood in the workload; a name that is not there, or one beside counts, is refused at its field."""
    counts = [{"name": "decode", "logical_count": [[20] * 5 + [1] * 123]}]
    assert client.post(f"{API}/routing", json={"name": "ours", "workloads": counts}).status_code == 201
    worker = {"configuration": {"worker": {"tensor": 4, "expert": 4}}, "model": "qwen3-30b-a3b"}

    def predicted(**routing: Any) -> Any:
        return client.post(PREDICTIONS, json=_body(**worker, workload=WORKLOAD | {"routing": routing}))

    whole, named = predicted(workloads=counts, redundant_experts=4), predicted(stored="ours", redundant_experts=4)
    assert named.status_code == 200, named.text
    assert named.json() == whole.json()
    for routing in ({"stored": "theirs"}, {"stored": "ours", "workloads": counts}):
        refused = predicted(**routing)
        assert refused.status_code == 422
        assert refused.json()["errors"][0]["field"] == "workload.routing.stored", refused.text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"configuration": {"worker": {"tensor": 3}}}, "configuration.worker.tensor"),
        ({"configuration": {"worker": {"tensor": 2, "replicas": 999}}}, "configuration"),
        ({"workload": WORKLOAD | {"concurrency": 0}}, "workload.concurrency"),
        ({"workload": WORKLOAD | {"input_tokens": 200_000}}, "workload.input_tokens"),
        ({"workload": WORKLOAD | {"engine": "none"}}, "workload.engine"),
        ({"workload": WORKLOAD | {"kind": "training"}}, "workload.kind"),
        ({"model": "no-such-model"}, "model"),
    ],
)
def test_bad_input_is_a_problem_with_its_field(client: TestClient, changes: dict[str, Any], field: str) -> None:
    """Problem details with the path in the request."""
    answer = client.post(PREDICTIONS, json=_body(**changes))
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["errors"][0]["field"] == field
