"""Runs are reported, kept beside their predictions, and say which nodes are slow and what to recalibrate."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from app.documents.plan import PlanDocument
from app.settings import Role
from tests.app.api_client import API, cluster_body, ended, plan_body, running
from tests.plans import STEP_S, small_cluster, small_plan

NAME = small_cluster().name


@pytest.fixture
def client(tmp_path: Path, database_url: str) -> Iterator[TestClient]:
    """A service with the small cluster stored."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        assert client.post(f"{API}/clusters", json=cluster_body()).status_code == 201
        yield client


def _plan() -> dict[str, Any]:
    return PlanDocument.from_plan(small_plan()).model_dump(mode="json")


def _report(**changes: Any) -> dict[str, Any]:
    return {"plan": _plan(), "step_time_s": 1.1 * STEP_S} | changes


def _reported(client: TestClient, **changes: Any) -> dict[str, Any]:
    answer = client.post(f"{API}/runs", json=_report(**changes))
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_run_is_kept_beside_its_prediction(client: TestClient) -> None:
    """Step, percentiles and memory with what the plan said of each; read alone, in lists, and forgotten."""
    steps = {"step_time_p10_s": 0.53, "step_time_p90_s": 0.6, "steps": 100}
    run = _reported(client, **steps, peak_memory_gib=60.0, memory_counter="reserved", note="driver 550")
    assert run["measured_over_predicted"] == pytest.approx(1.1)
    assert (run["predicted_step_time_s"], run["cluster"], run["hosts"]) == (STEP_S, NAME, ["b", "a"])
    assert 0 < run["predicted_memory_gib"] < 80
    address = f"{API}/runs/{run['id']}"
    assert client.get(address).json() == run
    for query in (f"cluster={NAME}", "framework=megatron-core-0.12", "since=2020-01-01T00:00:00Z"):
        assert [each["id"] for each in client.get(f"{API}/runs?{query}").json()["items"]] == [run["id"]]
    assert client.get(f"{API}/runs?cluster=other").json()["items"] == []
    assert client.delete(address, headers={"If-Match": '"0"'}).status_code == 412
    assert client.delete(address).status_code == 204
    assert client.get(address).status_code == 404


def test_a_report_names_the_plan_or_the_running_plan_by_its_id(client: TestClient) -> None:
    """A job's plan is found by the running plan; a repeated report with its key is one run."""
    job = {"name": "j", "plan": _plan(), "is_running": True}
    made = client.post(f"{API}/clusters/{NAME}/jobs", json=job).json()
    plan = made["running_plan"]["id"]
    headers = {"Idempotency-Key": "once"}
    answers = [client.post(f"{API}/runs", json=_report(plan=plan), headers=headers).json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["running_plan"] == plan
    assert len(client.get(f"{API}/runs?plan={plan}").json()["items"]) == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"step_time_s": 500.0}, "step_time_s"),
        ({"step_time_p10_s": 2.0}, "step_time_s"),
        ({"nodes": [{"node": "nowhere", "compute_time_s": 1.0}]}, "nodes"),
        ({"nodes": [{"node": "a", "compute_time_s": 1.0}] * 2}, "nodes"),
        ({"ended_at": "2999-01-01T00:00:00Z"}, "ended_at"),
        ({"step_time_s": -1.0}, "step_time_s"),
    ],
)
def test_a_report_that_cannot_be_of_the_plan_is_refused(
    client: TestClient, change: dict[str, Any], field: str
) -> None:
    """The field is named, and nothing is stored."""
    answer = client.post(f"{API}/runs", json=_report(**change))
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["field"] == field
    assert client.get(f"{API}/runs").json()["items"] == []


def test_an_unknown_plan_is_not_found(client: TestClient) -> None:
    """By an id, or a cluster that is not stored."""
    assert client.post(f"{API}/runs", json=_report(plan="0123")).status_code == 404
    elsewhere = _plan()
    elsewhere["provenance"]["cluster"] = "elsewhere"
    assert client.post(f"{API}/runs", json=_report(plan=elsewhere)).status_code == 422


def test_drift_says_since_when_steps_are_longer(client: TestClient) -> None:
    """Twelve runs as predicted and twelve a tenth longer: the change is found, by cluster, framework and node."""
    random = np.random.default_rng(0)
    for number in range(24):
        factor = (1.0 if number < 12 else 1.1) * float(np.exp(0.01 * random.standard_normal()))
        _reported(client, step_time_s=STEP_S * factor, ended_at=f"2026-01-{number + 1:02}T00:00:00Z")
    found = client.get(f"{API}/drift?cluster={NAME}").json()
    assert found["runs"] == 24
    names = {(each["by"], each["name"]) for each in found["groups"]}
    assert {("cluster", NAME), ("node", f"{NAME}: a"), ("node", f"{NAME}: b")} <= names
    for each in found["groups"]:
        assert each["changed_at"] == "2026-01-13T00:00:00Z"
        assert (each["before"], each["after"]) == pytest.approx((1.0, 1.1), rel=0.02)


def test_a_node_whose_ranks_compute_longer_is_named(client: TestClient) -> None:
    """By the timers that the runs brought along."""
    for _ in range(3):
        _reported(client, nodes=[{"node": "a", "compute_time_s": 0.3}, {"node": "b", "compute_time_s": 0.36}])
    (suspect,) = client.get(f"{API}/drift").json()["suspects"]
    assert (suspect["kind"], suspect["names"], suspect["evidence"]) == ("node", ["b"], "compute_times")
    assert suspect["slowdown"] == pytest.approx(0.36 / 0.33)


def test_a_recalibration_is_offered_with_its_effect_and_then_accepted(client: TestClient) -> None:
    """Runs a third slower than predicted move the prediction of the job that runs; accepted, plans can name it."""
    job = {"name": "j", "plan": _plan(), "is_running": True}
    client.post(f"{API}/clusters/{NAME}/jobs", json=job)
    for number in range(4):
        _reported(client, step_time_s=STEP_S * (1.3 + 0.01 * number))
    answer = client.post(f"{API}/recalibrations", json={"name": "ours", "cluster": NAME})
    assert answer.status_code == 200, answer.text
    offered = answer.json()
    fit = offered["calibration"]["fit"]
    assert offered["runs"] == 4
    assert fit["error_after_fraction"] < fit["error_before_fraction"]
    (effect,) = offered["jobs"]
    assert effect["job"] == "j"
    assert client.get(f"{API}/calibrations").json()["items"] == []
    assert client.post(f"{API}/calibrations", json={"calibration": offered["calibration"]}).status_code == 201


def test_without_runs_there_is_nothing_to_recalibrate(client: TestClient) -> None:
    """The answer says how to report one."""
    answer = client.post(f"{API}/recalibrations", json={})
    assert answer.status_code == 422
    assert "meshwright runs report" in answer.json()["errors"][0]["remedy"]


def test_a_run_of_a_plan_of_the_service_keeps_its_id(tmp_path: Path, database_url: str) -> None:
    """The plan's own cluster is what it ran on, stored or not."""
    with running(tmp_path, database_url) as client:
        accepted = client.post(f"{API}/plans", json=plan_body())
        plan = ended(client, accepted.headers["Location"])
        run = _reported(client, plan=plan["id"])
        assert (run["plan"], run["cluster"]) == (plan["id"], NAME)
        assert client.delete(f"{API}/plans/{plan['id']}").status_code == 204
        assert client.get(f"{API}/runs/{run['id']}").json()["plan"] is None
