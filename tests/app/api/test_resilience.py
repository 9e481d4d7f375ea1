"""Costs of failures for a plan, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.settings import Role
from tests.app.api_client import API, cluster_body, ended, plan_body, running
from tests.app.failure_bodies import plan_document, store_cluster
from tests.app.running_rows import CLUSTER

ADDRESS = f"{API}/resilience"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that has the cluster."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_cluster(client)
        yield client


def _asked(client: TestClient, **changes: Any) -> dict[str, Any]:
    reply = client.post(ADDRESS, json={"plan": plan_document("n0", "n1"), "cluster": CLUSTER} | changes)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def test_the_share_of_useful_time_follows_the_published_formula(client: TestClient) -> None:
    """(1 - N r (u + t / 2)) / (1 + w / t) with the figures of the answer itself."""
    found = _asked(client, failures_per_node_day=0.5, checkpoint_write_s=4.0)["effective_training"]
    rate, interval = found["failures_per_day"] / 86_400, found["interval_s"]
    assert (found["failures_per_day"], found["checkpoint_write_s"], interval) == (1.0, 4.0, 100 * 0.5)
    expected = (1 - rate * (found["restart_s"] + interval / 2)) / (1 + 4.0 / interval)
    assert found["ratio"] == pytest.approx(expected)
    assert found["best_ratio"] >= found["ratio"]


def test_a_checkpoint_in_memory_survives_a_node_more(client: TestClient) -> None:
    """It is offered where there is none, with its price, and counts where there is one."""
    without = _asked(client)
    with_it = _asked(client, recovery={"memory_checkpoint": True})
    counts = [{each["label"]: each["count"] for each in found["survives"]} for found in (without, with_it)]
    assert (counts[0]["node"], counts[1]["node"]) == (0, 1)
    (offered,) = [each for each in without["hardenings"] if each["kind"] == "memory_checkpoint"]
    assert (offered["count"], offered["extra_gpu_bytes"]) == (1, 0.0)
    assert offered["extra_host_bytes"] > 0
    assert all(each["kind"] != "memory_checkpoint" for each in with_it["hardenings"])


def test_the_planner_looks_for_another_plan_where_it_is_asked_to(client: TestClient) -> None:
    """Its plan survives a node, at the step that it adds."""
    assert all(each["kind"] != "spread" for each in _asked(client)["hardenings"])
    (offered,) = [each for each in _asked(client, search_time_limit_s=5)["hardenings"] if each["kind"] == "spread"]
    assert (offered["count"], offered["is_possible"]) == (1, True)


def test_no_failures_cost_only_the_writing(client: TestClient) -> None:
    """Nothing written beside, nothing lost: all time is useful."""
    found = _asked(client, failures_per_node_day=0, checkpoint_write_s=0)["effective_training"]
    assert (found["ratio"], found["best_ratio"], found["failures_per_day"]) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"label": "lef"}, "label"),
        ({"plan": plan_document("n0", "n9")}, "plan.ranks[4]"),
        ({"plan": plan_document("n0", "n1", stages=[])}, "plan.stages"),
        ({"cluster": None}, "plan.provenance.snapshot_id"),
        ({"failures_per_node_day": -1}, "failures_per_node_day"),
        ({"checkpoint_write_s": "4"}, "checkpoint_write_s"),
        ({"recovery": {"optimizer_instances": 0}}, "recovery.optimizer_instances"),
    ],
)
def test_what_cannot_be_judged_is_refused(client: TestClient, changes: dict[str, Any], field: str) -> None:
    """With the field that is wrong."""
    reply = client.post(ADDRESS, json={"plan": plan_document("n0", "n1"), "cluster": CLUSTER} | changes)
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, field)


def test_a_finished_plan_is_judged_on_its_own_snapshot(tmp_path: Path) -> None:
    """By GET with the usual checkpoints, and by POST alike."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as client:
        client.post(f"{API}/clusters", json=cluster_body())
        plan = ended(client, client.post(f"{API}/plans", json=plan_body()).headers["Location"])
        address = f"{API}/plans/{plan['id']}/resilience"
        found = client.get(address)
        assert found.json() == client.post(ADDRESS, json={"plan": plan["id"]}).json()
        often = client.get(f"{address}?failures_per_node_day=1").json()["effective_training"]
        assert often["ratio"] < found.json()["effective_training"]["ratio"]
        assert client.get(f"{address}?failures_per_node_day=nan").status_code == 422
        assert client.get(f"{API}/plans/x/resilience").status_code == 404
