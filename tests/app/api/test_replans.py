"""Decisions on failures over HTTP: asked for, read, approved, carried out, called off; and what would be if."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.db.engine import transaction
from app.db.tenancy import for_tenant
from app.services.decisions import preparations
from app.services.running import running_jobs
from app.settings import DEFAULT_TENANT, Role
from cluster_models.jobs.recovery import RecoveryAction
from tests.app.api_client import API, running
from tests.app.failure_bodies import SITE, failed, holders, store_cluster, store_site
from tests.app.plan_rows import wait_until
from tests.app.running_rows import CLUSTER, decided, plan_on, solved

LATE_S = 10**9


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that has the cluster with two jobs and two spares, and that solves nothing."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_site(client)
        yield client


def _propose(client: TestClient, replan_id: str, first: str, second: str) -> None:
    """Let the solver's answer be that job ``a`` moves to these nodes."""
    service = client.app.state.service  # type: ignore[attr-defined]  # Starlette's
    sessions = for_tenant(service.sessions, DEFAULT_TENANT)
    with transaction(sessions) as session:
        jobs = [running_jobs.get_job(session, reference=CLUSTER, job=name) for name in ("a", "b")]
        decision = decided({jobs[0]: (RecoveryAction.SWAP, plan_on(first, second))}, untouched=jobs[1:])
        solved(session, replan_id, decision, at_s=LATE_S)


def _replan(client: TestClient, replan_id: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"{API}/replans/{replan_id}").json()
    return found


def test_an_answer_says_all_that_a_move_takes(client: TestClient) -> None:
    """Action, map, moved ranks with sources, bytes, times, throughput, GPU-hours, what it survives, and why."""
    replan = _replan(client, failed(client, "n0")["replan"])
    answer = replan["safe_answer"]
    (job,) = answer["jobs"]
    assert (job["job"], job["action"], job["nodes_left"], job["nodes_joined"]) == ("a", "swap", ["n0"], ["n6"])
    assert job["degrees"] == job["degrees_before"]
    assert [rank["node"] for rank in job["ranks"]] == ["n6"] * 4 + ["n1"] * 4
    migration = job["migration"]
    assert [each["rank"] for each in migration["moved_ranks"]] == [0, 1, 2, 3]
    parts = ("nvlink_bytes", "leaf_bytes", "fabric_bytes", "storage_bytes")
    assert sum(migration[part] for part in parts) == pytest.approx(migration["total_bytes"])
    assert migration["restart"] == {"low_s": 90.0, "high_s": 240.0}
    assert migration["downtime"]["low_s"] <= migration["downtime"]["high_s"]
    assert 0 < job["lost_gpu_hours_low"] <= job["lost_gpu_hours_high"]
    assert {"node"} <= {losses["label"] for losses in job["survives"]}
    assert "torchrun" in job["launch_formats"]
    assert (answer["spares_used"], answer["spares_left"]) == (["n6"], ["n7"])
    assert ([each["job"] for each in answer["untouched"]], answer["fallback"]) == (["b"], True)
    assert replan["decision"] is None
    assert replan["summary"]["jobs"][0]["moved_ranks"] == 4


def test_a_new_plan_is_launched_by_the_usual_formats(client: TestClient) -> None:
    """The links of a job's answer lead to its plan and files; of jobs that stay there are none."""
    job = _replan(client, failed(client, "n0")["replan"])["safe_answer"]["jobs"][0]
    plan = client.get(job["links"]["plan"]).json()
    assert plan["configuration"]["hosts"] == ["n6", "n1"]
    formats = client.get(job["links"]["exports"]).json()
    assert [each["name"] for each in formats if each["refusal"] is None] == job["launch_formats"]
    address = job["links"]["exports"].replace("/exports", "/exports/torchrun")
    assert "n6) NODE_RANK=0" in client.get(address).text
    assert client.get(address.replace("torchrun", "abacus")).status_code == 404
    assert client.get(address + "&set=port=x").status_code == 422
    assert client.get(job["links"]["plan"].replace("?answer=safe", "")).status_code == 409, "not decided yet"
    assert client.get(job["links"]["plan"].replace(job["job_id"], "b")).status_code == 404


def test_the_safe_answer_is_approved_and_carried_out(client: TestClient) -> None:
    """Its GPUs are the job's from the approval on; the lost node is free once it is complete."""
    links = _replan(client, failed(client, "n0")["replan"])["links"]
    early = client.post(links["approve"])
    assert (early.status_code, "collecting" in early.json()["detail"]) == (409, True)
    for _ in range(2):
        approved = client.post(links["approve"], json={"answer": "safe"})
        assert (approved.json()["status"], approved.json()["chosen"]) == ("approved", "safe")
    assert holders(client) == {"a": {"n1", "n6"}, "b": {"n2", "n3"}}
    assert client.get(f"{SITE}/occupancy").json()["gpus_held"] == 20
    assert client.post(links["start"]).json()["status"] == "applying"
    assert client.post(links["complete"]).json()["status"] == "applied"
    assert client.get(f"{SITE}/occupancy").json()["gpus_held"] == 16
    assert client.get(f"{SITE}/jobs/a").json()["running_plan"]["replan"] == links["self"].rpartition("/")[2]
    for step, body in (("cancel", {}), ("fail", {"problem": "x"}), ("start", None), ("approve", None)):
        late = client.post(links[step], json=body)
        assert (late.status_code, "applied" in late.json()["detail"]) == (409, True), step


def test_the_solvers_answer_is_proposed_and_can_fail(client: TestClient) -> None:
    """Its GPUs are given back, and the reason is kept."""
    replan_id = failed(client, "n0")["replan"]
    _propose(client, replan_id, "n7", "n1")
    replan = _replan(client, replan_id)
    assert (replan["status"], replan["decision"]["jobs"][0]["nodes_joined"]) == ("proposed", ["n7"])
    assert client.post(replan["links"]["start"]).status_code == 409
    client.post(replan["links"]["approve"])
    assert holders(client)["a"] == {"n1", "n7"}
    assert client.post(replan["links"]["fail"], json={}).status_code == 422
    ended = client.post(replan["links"]["fail"], json={"problem": "n7 did not come up"}).json()
    assert (ended["status"], ended["error"]["problem"]) == ("failed", "n7 did not come up")
    assert holders(client)["a"] == {"n0", "n1"}


def test_a_false_alarm_is_called_off(client: TestClient) -> None:
    """Even after its approval; calling off again changes nothing."""
    links = _replan(client, failed(client, "n0")["replan"])["links"]
    client.post(links["approve"], json={"answer": "safe"})
    for _ in range(2):
        ended = client.post(links["cancel"], json={"problem": "A false alarm."}).json()
        assert (ended["status"], ended["error"]["problem"]) == ("cancelled", "A false alarm.")
    assert holders(client)["a"] == {"n0", "n1"}


def test_of_two_approvals_at_once_one_wins(tmp_path: Path, database_url: str) -> None:
    """They approve different answers; the second is too late, and no GPU is held for both."""
    with running(tmp_path, database_url, role=Role.WEB) as client:
        store_site(client)
        _approve_both(client)


def _approve_both(client: TestClient) -> None:
    replan_id = failed(client, "n0")["replan"]
    _propose(client, replan_id, "n7", "n1")
    address, statuses = f"{API}/replans/{replan_id}/approve", {}
    barrier = threading.Barrier(2)

    def approve(answer: str) -> None:
        barrier.wait()
        statuses[answer] = client.post(address, json={"answer": answer}).status_code

    threads = [threading.Thread(target=approve, args=(answer,)) for answer in ("safe", "decision")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses.values()) == [HTTPStatus.OK, HTTPStatus.CONFLICT]
    chosen = _replan(client, replan_id)["chosen"]
    assert statuses[chosen] == HTTPStatus.OK
    assert holders(client)["a"] == {"n1", "n6" if chosen == "safe" else "n7"}


def test_a_later_failure_overtakes_a_proposal(client: TestClient) -> None:
    """The old replan names the new one, which has all reports; the old one cannot be approved any more."""
    first = failed(client, "n0")["replan"]
    _propose(client, first, "n7", "n1")
    second = failed(client, "n1")["replan"]
    old, new = _replan(client, first), _replan(client, second)
    assert (old["status"], old["superseded_by"], len(new["events"])) == ("superseded", second, 2)
    assert client.post(old["links"]["approve"]).status_code == 409
    listed = client.get(f"{SITE}/replans").json()["items"]
    assert [each["id"] for each in listed] == [second, first]
    assert client.get(f"{SITE}/replans?status=superseded").json()["items"] == listed[1:]
    assert client.get(f"{API}/replans?limit=1").json()["items"] == listed[:1]


def test_a_decision_asked_for_ends_an_open_window(client: TestClient) -> None:
    """It is the same replan; with a key a repeated request finds it, with another body it is refused."""
    replan_id = failed(client, "n0")["replan"]
    before = _replan(client, replan_id)
    key = {"Idempotency-Key": "now"}
    asked = client.post(f"{SITE}/replans", json={"reason": "Hurry."}, headers=key)
    assert (asked.status_code, asked.json()["id"]) == (202, replan_id)
    assert asked.headers["Location"] == before["links"]["self"]
    assert _replan(client, replan_id)["window_ends_at"] < before["window_ends_at"]
    assert client.post(f"{SITE}/replans", json={"reason": "Hurry."}, headers=key).json()["id"] == replan_id
    assert client.post(f"{SITE}/replans", json={"reason": "Wait."}, headers=key).status_code == 422


def test_nothing_is_decided_where_nothing_runs(tmp_path: Path) -> None:
    """Neither now nor supposed."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        store_cluster(client)
        assert client.post(f"{SITE}/replans", json={}).status_code == 409
        assert client.post(f"{SITE}/what-if", json={"losses": [{"node": "n0"}]}).status_code == 409


def test_what_would_be_done_is_not_done(client: TestClient) -> None:
    """The answer is the one that a real failure gets; no report, no replan, no GPU."""
    supposed = client.post(f"{SITE}/what-if", json={"losses": [{"node": "n0"}]})
    assert supposed.status_code == 200, supposed.text
    for address in ("events", "replans"):
        assert client.get(f"{SITE}/{address}").json()["items"] == []
    assert client.get(f"{SITE}/conditions").json()["conditions"] == []
    real = _replan(client, failed(client, "n0")["replan"])["safe_answer"]
    found = supposed.json()
    assert found.pop("unprepared") == []
    for answer in (real, found):
        answer["jobs"][0].pop("links")
        answer.pop("snapshot")
    assert found == real


def test_losses_are_supposed_on_top_of_what_was_reported(client: TestClient) -> None:
    """A leaf with every host of a job leaves it to the spares of the other."""
    failed(client, "n6")
    answer = client.post(f"{SITE}/what-if", json={"losses": [{"kind": "switch", "part": "leaf:leaf-0"}]}).json()
    assert {job["job"] for job in answer["jobs"]} == {"a", "b"}
    assert answer["spares_before"] == ["n7"]
    assert all("n6" not in job["nodes_joined"] for job in answer["jobs"])


def test_jobs_without_prepared_answers_are_named(client: TestClient) -> None:
    """Where another shape may be missing: no spare and one node; not for two, nor once it is prepared."""

    def unprepared(*nodes: str) -> list[str]:
        losses = [{"node": node} for node in ("n6", "n7", *nodes)]
        named: list[str] = client.post(f"{SITE}/what-if", json={"losses": losses}).json()["unprepared"]
        return named

    assert (unprepared("n0"), unprepared("n0", "n2"), unprepared("n0", "n1")) == (["a"], ["a", "b"], [])
    service = client.app.state.service  # type: ignore[attr-defined]  # Starlette's
    with transaction(for_tenant(service.sessions, DEFAULT_TENANT)) as session:
        cluster_id = running_jobs.get_job(session, reference=CLUSTER, job="a").cluster_id
        asked = preparations.begin(session, cluster_id=cluster_id, now=datetime.now(UTC))
        assert asked is not None
        for job_id in asked.generations:
            preparations.store(
                session, asked=asked, job_id=job_id, document={"job_id": job_id, "hosts": [], "losses": []}
            )
    assert unprepared("n0") == []


@pytest.mark.parametrize(
    ("losses", "field"),
    [
        ([], "losses"),
        ([{"node": "n0"}, {"node": "n99"}], "losses[1].node"),
        ([{"kind": "switch", "part": "leaf:x"}], "losses[0].part"),
        ([{"kind": "gpu", "node": "n0", "part": 99}], "losses[0].part"),
        ([{"node": "n0", "state": "recovered"}], "losses[0].state"),
        ([{"node": "n0", "occurred_at": "2026-03-01T12:00:00Z"}], "losses[0].occurred_at"),
    ],
)
def test_losses_that_cannot_be_are_refused(client: TestClient, losses: list[Any], field: str) -> None:
    """With the place of each."""
    reply = client.post(f"{SITE}/what-if", json={"losses": losses})
    assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, field)


def test_the_settings_are_those_stored(client: TestClient) -> None:
    """Before that the defaults; values that cannot be are refused, fields left out are at their defaults."""
    address = f"{SITE}/replan-settings"
    default = client.get(address).json()
    assert (default["window_s"], default["auto_approve"]) == (60.0, False)
    stored = client.put(address, json={"window_s": 30, "gpu_budget": 24, "auto_approve": True}).json()
    assert stored == default | {"window_s": 30.0, "gpu_budget": 24, "auto_approve": True}
    assert client.get(address).json() == stored
    for field, value in (("window_s", 29), ("horizon_s", 0), ("gpu_budget", 0), ("effort", 1.5), ("windows", 1)):
        reply = client.put(address, json={field: value})
        assert (reply.status_code, reply.json()["errors"][0]["field"]) == (422, field)
    assert client.put(address, json={}).json() == default


def test_what_is_not_there_is_a_problem(client: TestClient) -> None:
    """Whatever is asked of it."""
    parts = ("", "/events", "/jobs/a/plan", "/jobs/a/exports", "/jobs/a/exports/torchrun")
    assert {client.get(f"{API}/replans/x{part}").status_code for part in parts} == {404}
    steps = ("approve", "start", "complete", "cancel")
    assert {client.post(f"{API}/replans/x/{step}").status_code for step in steps} == {404}
    assert client.get(f"{API}/clusters/x/replans").status_code == 404


def test_the_stream_ends_with_the_replan(client: TestClient) -> None:
    """One that has ended says so and no more."""
    links = _replan(client, failed(client, "n0")["replan"])["links"]
    client.post(links["cancel"])
    told = client.get(links["events"])
    assert told.headers["Content-Type"].startswith("text/event-stream")
    assert (told.text.count("event: "), '"status":"cancelled"' in told.text.replace(" ", "")) == (1, True)


@pytest.mark.slow
def test_a_decision_is_solved_proposed_and_carried_out(tmp_path: Path) -> None:
    """By the real solver in its own process: spares for the job that lost a node, proven, then applied."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as client:
        store_site(client)
        replan_id = failed(client, "n0")["replan"]
        assert client.post(f"{SITE}/replans", json={}).json()["id"] == replan_id
        wait_until(lambda: _replan(client, replan_id)["status"] not in ("collecting", "solving"))
        replan = _replan(client, replan_id)
        assert (replan["status"], replan["has_decision"], replan["error"]) == ("proposed", True, None)
        decision = replan["decision"]
        assert decision["objective"] <= decision["bound"] * (1 + 1e-9)
        assert decision["snapshot"] == replan["snapshot"]
        assert client.get(f"{API}/snapshots/{replan['snapshot']}").status_code == 200
        assert client.post(replan["links"]["approve"]).json()["chosen"] == "decision"
        assert client.post(replan["links"]["complete"]).json()["status"] == "applied"
        assert "n0" not in holders(client)["a"]
