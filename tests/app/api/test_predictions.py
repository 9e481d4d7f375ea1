"""Predictions over HTTP, with the real cost model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.settings import Role
from tests.app.api_client import API, plan_body, running

DEGREES = {"tensor": 2, "pipeline": 2, "data": 2}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that only answers, on SQLite."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        yield client


def _body(**configuration: Any) -> dict[str, Any]:
    return plan_body(configuration={"degrees": DEGREES} | configuration)


def test_a_configuration_is_priced_at_once(client: TestClient) -> None:
    """Time, memory and a place for every rank, without a search; the timeline comes when it is asked for."""
    answer = client.post(f"{API}/predictions", json=_body())
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["fits"] is True
    assert body["missing_gib"] == 0
    assert len(body["result"]["ranks"]) == 8
    assert body["result"]["tokens_per_s"] > 0
    assert body["result"]["certificate"]["stopped_by"] == "no_search"
    assert body["result"]["timeline"] is None
    with_timeline = client.post(f"{API}/predictions", json=_body() | {"timeline": True}).json()
    assert with_timeline["result"]["timeline"]


def test_given_hosts_are_kept_in_order(client: TestClient) -> None:
    """The ranks sit on the hosts that were named, in that order."""
    body = client.post(f"{API}/predictions", json=_body(hosts=["c", "a"], gpus_per_node=4)).json()
    assert [rank["node"] for rank in body["result"]["ranks"]] == ["c"] * 4 + ["a"] * 4


def test_pessimistic_links_make_a_slower_step(client: TestClient) -> None:
    """The prediction says what links it was made on, and that drift is around the medians either way."""
    median, careful = (
        client.post(f"{API}/predictions", json=_with_links(choice)).json()["result"]
        for choice in ("median", "pessimistic")
    )
    assert careful["provenance"]["link_bandwidth"] == "pessimistic"
    assert careful["time"]["step_time_s"] > median["time"]["step_time_s"]
    assert careful["robustness"] == median["robustness"]
    assert median["robustness"]["rivals"] == []


def test_other_words_for_links_are_refused(client: TestClient) -> None:
    """The problem names the field and what may stand there."""
    answer = client.post(f"{API}/predictions", json=_with_links("optimistic"))
    assert answer.status_code == 422
    assert "workload.link_bandwidth" in answer.text
    assert "pessimistic" in answer.text


def _with_links(choice: str) -> dict[str, Any]:
    body = _body()
    return body | {"workload": body["workload"] | {"link_bandwidth": choice}}


@pytest.mark.parametrize(
    ("configuration", "field"),
    [
        ({"degrees": DEGREES | {"tensor": 3}}, "configuration"),
        ({"stage_layers": [[1, 1]]}, "configuration.stage_layers"),
        ({"hosts": ["a", "a"]}, "configuration.hosts[1]"),
        ({"hosts": ["a", "b"], "gpus_per_node": 3}, "configuration.gpus_per_node"),
        ({"hosts": ["a", "z"]}, "configuration.hosts"),
        ({"hosts": []}, "configuration.hosts"),
        ({"hosts": [f"h{index}" for index in range(100_000)]}, "configuration.hosts"),
        ({"gpus_per_node": 10**12}, "configuration.gpus_per_node"),
        ({"degrees": {"tensor": 4, "data": 4, "pipeline": 2}}, "configuration"),
    ],
)
def test_a_configuration_that_breaks_a_rule_is_refused(
    client: TestClient, configuration: dict[str, Any], field: str
) -> None:
    """The problem names the field within the request."""
    answer = client.post(f"{API}/predictions", json=_body(**configuration))
    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["field"] == field


def test_an_outlook_needs_no_search(client: TestClient) -> None:
    """Says whether it fits, on how few GPUs and about how fast, or why nothing does; nothing is stored."""
    body = plan_body()
    seen = client.post(f"{API}/outlooks", json=body).json()
    assert seen["result"] == "outlook"
    assert seen["least_gpus"] >= 1
    assert seen["first"]["step_s"] > 0
    assert seen["first"]["configuration"]["degrees"]["tensor"] >= 1
    full = body["workload"] | {"memory_headroom_fraction": 0.9999}
    none = client.post(f"{API}/outlooks", json=body | {"workload": full}).json()
    assert none["result"] == "no_plan"
    assert none["remedies"]
    wrong = client.post(f"{API}/outlooks", json=body | {"model": "no-such"})
    assert wrong.status_code == 422
    assert client.get(f"{API}/plans").json()["items"] == []
