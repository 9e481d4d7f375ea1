"""Jobs, their plans and the GPUs they hold, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.documents.calibration import CalibrationDocument
from app.settings import Role
from tests.app.api_client import API, cluster_body, ended, plan_body, running
from tests.app.failure_bodies import SITE, holders, job_body, plan_document, store_cluster


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that has the cluster, and no job yet."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_cluster(client)
        yield client


def test_a_job_registered_as_running_holds_its_gpus(client: TestClient) -> None:
    """Its plan is applied; the answer is what is read afterwards, by name and by id."""
    reply = client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1", weight=2.5))
    assert reply.status_code == 201
    made = reply.json()
    assert reply.headers["Location"] == made["links"]["self"] == f"{SITE}/jobs/a"
    assert (made["standing"], made["gpus_held"], made["weight"]) == ("running", 8, 2.5)
    assert (made["running_plan"]["status"], made["running_plan"]["degrees"]) == ("applied", "tp2 pp2 dp2")
    assert client.get(f"{SITE}/jobs/a").json() == client.get(f"{SITE}/jobs/{made['id']}").json() == made
    assert client.get(f"{SITE}/jobs").json()["items"] == [made]
    assert client.get(f"{SITE}/occupancy").json()["gpus_held"] == 8
    assert holders(client) == {"a": {"n0", "n1"}}


def test_a_cluster_is_kept_while_jobs_run_on_it(client: TestClient) -> None:
    """The refusal names them; nothing is gone."""
    client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1"))
    refused = client.delete(SITE)
    assert refused.status_code == 409
    assert "(a)" in refused.json()["detail"]
    assert holders(client) == {"a": {"n0", "n1"}}


def test_the_recovery_policy_is_read_back_as_written(client: TestClient) -> None:
    """PATCH replaces it whole and leaves the weight alone."""
    recovery = {"checkpoint_interval_steps": 7, "storage_gbytes_per_s": 3.5, "may_move": True, "most_gpus": 8}
    made = client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1", recovery=recovery)).json()
    assert {name: made["recovery"][name] for name in recovery} == recovery
    changed = client.patch(f"{SITE}/jobs/a", json={"recovery": {"memory_checkpoint": True}}).json()
    assert (changed["recovery"]["memory_checkpoint"], changed["recovery"]["may_move"]) == (True, False)
    assert changed["weight"] == 1.0
    assert client.patch(f"{SITE}/jobs/a", json={"weight": 9.0}).json()["weight"] == 9.0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"weight": 0}, "weight"),
        ({"weight": True}, "weight"),
        ({"name": "a/b"}, "name"),
        ({"recovery": {"restart_low_s": 10.0, "restart_high_s": 1.0}}, "recovery.restart_high_s"),
        ({"recovery": {"most_gpus": 1, "least_gpus": 2}}, "recovery.most_gpus"),
        ({"recovery": {"may_walk": True}}, "recovery.may_walk"),
        ({"plan": None}, "plan"),
        ({"plan": plan_document("n0", "n1", ranks=[])}, "plan.ranks"),
        ({"plan": plan_document("n0", "elsewhere")}, "plan.ranks[4]"),
        ({"plan": plan_document("n0", "n0")}, "plan.hosts[1]"),
        ({"plan": plan_document("n0", "n1", tokens_per_s=1.0)}, "plan.tokens_per_s"),
        ({"plan": plan_document("n0", "n1", memory=[])}, "plan.memory"),
        ({"plan": plan_document("n0", "n1", workload=None)}, "plan"),
    ],
)
def test_a_job_that_cannot_be_is_refused_with_its_field(
    client: TestClient, changes: dict[str, Any], field: str
) -> None:
    """Nothing of it is stored."""
    reply = client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1") | changes)
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, field)
    assert client.get(f"{SITE}/jobs").json()["items"] == []
    assert client.get(f"{SITE}/occupancy").json()["gpus_held"] == 0


def test_the_calibration_of_a_plan_must_be_stored(client: TestClient) -> None:
    """Otherwise what is done after a failure would be priced with other parameters than the plan."""
    values = {"memory_share": {"value": 0.8, "low": 0.8, "high": 0.8, "steps": 1}}
    calibration = {"name": "mine", "gpus": {"H100": values}, "frameworks": {}}
    label = CalibrationDocument.model_validate(calibration).to_fitted().source
    body = job_body("a", "n0", "n1")
    body["plan"]["provenance"]["calibration"] = label
    refused = client.post(f"{SITE}/jobs", json=body)
    assert refused.status_code == 422
    assert refused.json()["errors"][0]["field"] == "plan.provenance.calibration"
    assert client.post(f"{API}/calibrations", json={"calibration": calibration}).status_code == 201
    assert client.post(f"{SITE}/jobs", json=body).status_code == 201


def test_degrees_of_astronomic_size_are_refused_at_once(client: TestClient) -> None:
    """Not with lists of that length in memory."""
    for degree in ("data", "virtual_pipeline"):
        body = job_body("a", "n0", "n1")
        body["plan"]["configuration"]["degrees"][degree] = 10**12
        assert client.post(f"{SITE}/jobs", json=body).status_code == 422


def test_no_gpu_is_given_twice(client: TestClient) -> None:
    """A second job on a held node is refused whole; one may be proposed there, and not approved."""
    assert client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1")).status_code == 201
    taken = client.post(f"{SITE}/jobs", json=job_body("b", "n1", "n2"))
    assert (taken.status_code, "n1:0" in taken.json()["detail"]) == (409, True)
    assert [job["name"] for job in client.get(f"{SITE}/jobs").json()["items"]] == ["a"]
    proposed = client.post(f"{SITE}/jobs", json=job_body("b", "n1", "n2", is_running=False)).json()
    assert (proposed["standing"], proposed["gpus_held"], proposed["running_plan"]) == ("idle", 0, None)
    plan = client.get(f"{SITE}/jobs/b/running-plans").json()["items"][0]
    assert client.post(plan["links"]["approve"]).status_code == 409
    assert holders(client) == {"a": {"n0", "n1"}}


def test_a_plan_goes_from_proposed_to_applied_and_cannot_go_back(client: TestClient) -> None:
    """Approved it holds old and new GPUs, applied the new ones only; the old plan is superseded."""
    client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1"))
    reply = client.post(f"{SITE}/jobs/a/running-plans", json={"plan": plan_document("n1", "n2")})
    plan = reply.json()
    assert (reply.status_code, reply.headers["Location"]) == (201, plan["links"]["self"])
    assert client.post(plan["links"]["apply"]).status_code == 409, "before it is approved"
    assert client.post(plan["links"]["approve"]).json()["status"] == "approved"
    assert client.get(f"{SITE}/occupancy").json()["gpus_held"] == 12
    assert client.post(plan["links"]["apply"]).json()["status"] == "applied"
    assert client.post(plan["links"]["apply"]).json()["status"] == "applied", "again changes nothing"
    assert holders(client) == {"a": {"n1", "n2"}}
    statuses = [each["status"] for each in client.get(f"{SITE}/jobs/a/running-plans").json()["items"]]
    assert sorted(statuses) == ["applied", "superseded"]
    content = client.get(plan["links"]["self"]).json()["content"]
    assert content["configuration"]["hosts"] == ["n1", "n2"]
    assert "n2) NODE_RANK=1" in client.get(f"{plan['links']['exports']}/torchrun").text
    assert client.post(plan["links"]["cancel"]).json()["status"] == "cancelled"
    assert client.post(plan["links"]["approve"]).status_code == 409
    assert holders(client) == {}


def test_a_repeated_request_with_a_key_finds_what_the_first_made(client: TestClient) -> None:
    """For jobs and for their plans; with another body it is refused."""
    key = {"Idempotency-Key": "k"}
    first = client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1"), headers=key)
    again = client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1"), headers=key)
    assert (again.status_code, again.json()) == (201, first.json())
    assert client.post(f"{SITE}/jobs", json=job_body("c", "n4", "n5"), headers=key).status_code == 422
    assert client.post(f"{SITE}/jobs", json=job_body("a", "n4", "n5"), headers=key).status_code == 422
    heavier = {**job_body("a", "n0", "n1"), "weight": 2.0}
    assert client.post(f"{SITE}/jobs", json=heavier, headers=key).status_code == 422
    client.patch(f"{SITE}/jobs/a", json={"weight": 3.0})
    repeated = client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1"), headers=key).json()
    assert (repeated["id"], repeated["weight"]) == (first.json()["id"], 3.0)
    assert client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1")).status_code == 409
    plans = f"{SITE}/jobs/a/running-plans"
    made = [client.post(plans, json={"plan": plan_document("n1", "n2")}, headers=key).json() for _ in range(2)]
    assert made[0] == made[1]
    assert client.post(plans, json={"plan": plan_document("n1", "n3")}, headers=key).status_code == 422
    assert len(client.get(plans).json()["items"]) == 2


def test_a_job_is_forgotten_with_its_gpus(client: TestClient) -> None:
    """Not while an approved plan moves it."""
    client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1"))
    plan = client.post(f"{SITE}/jobs/a/running-plans", json={"plan": plan_document("n1", "n2")}).json()
    client.post(plan["links"]["approve"])
    assert client.delete(f"{SITE}/jobs/a").status_code == 409
    assert client.post(plan["links"]["cancel"]).status_code == 200
    assert client.delete(f"{SITE}/jobs/a").status_code == 204
    assert client.get(f"{SITE}/jobs/a").status_code == 404
    assert client.get(plan["links"]["self"]).status_code == 404
    assert client.get(f"{SITE}/occupancy").json() == {"gpus": 32, "gpus_held": 0, "nodes": []}


def test_spares_are_nodes_of_the_cluster(client: TestClient) -> None:
    """PUT replaces all; those that a job holds are not free; unknown ones are refused by their place."""
    client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1"))
    stored = client.put(f"{SITE}/spares", json={"nodes": ["n7", "n0", "n7"]}).json()
    assert stored == {"spares": [{"node": "n0", "free": False}, {"node": "n7", "free": True}]}
    assert client.get(f"{SITE}/spares").json() == stored
    wrong = client.put(f"{SITE}/spares", json={"nodes": ["n6", "n66"]})
    assert (wrong.status_code, wrong.json()["errors"][0]["field"]) == (422, "nodes[1]")
    assert client.get(f"{SITE}/spares").json() == stored


def test_jobs_come_in_pages(client: TestClient) -> None:
    """By name; the last page says that it is the last."""
    for index, name in enumerate("cab"):
        client.post(f"{SITE}/jobs", json=job_body(name, f"n{2 * index}", f"n{2 * index + 1}"))
    first = client.get(f"{SITE}/jobs?limit=2").json()
    rest = client.get(first["next"]).json()
    assert [job["name"] for job in first["items"] + rest["items"]] == ["a", "b", "c"]
    assert rest["next"] is None


def test_what_is_not_there_is_a_problem(client: TestClient) -> None:
    """Clusters, jobs, plans and formats."""
    addresses = (
        f"{API}/clusters/x/jobs",
        f"{SITE}/jobs/x",
        f"{SITE}/jobs/x/running-plans",
        f"{API}/running-plans/x",
    )
    assert [client.get(address).status_code for address in addresses] == [404] * 4
    assert client.post(f"{SITE}/jobs", json=job_body("a", "n0", "n1", plan="nowhere")).status_code == 404


def test_a_job_runs_by_a_finished_plan_of_the_service(tmp_path: Path) -> None:
    """Named by its id; a plan that is not finished, or infeasible, is not ready."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as client:
        client.post(f"{API}/clusters", json=cluster_body())
        plan = ended(client, client.post(f"{API}/plans", json=plan_body()).headers["Location"])
        body = {"name": "a", "plan": plan["id"], "is_running": True}
        made = client.post(f"{API}/clusters/two-and-a-spare/jobs", json=body).json()
    assert (made["running_plan"]["plan"], made["gpus_held"]) == (plan["id"], 8)
