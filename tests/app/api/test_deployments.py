"""Serving deployments as jobs of the service: registered, decided about after failures, carried out."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.db.engine import SessionFactory, transaction
from app.db.status import PlanStatus
from app.db.tenancy import for_tenant
from app.documents.cluster import ClusterDocument
from app.documents.serving_plan import ServingPlanDocument
from app.jobs.replan_child import work
from app.serialization import jsonable
from app.services.clusters import snapshots
from app.services.decisions import replan_solves
from app.services.planning import serving_plans, solves
from app.settings import DEFAULT_TENANT, Role
from cluster_models.cluster.topology import Node
from cluster_models.serving.goal import ServingMode
from cluster_models.serving.plan import ServingPlan
from solver.problem import SearchOptions
from tests.app.api_client import API, running
from tests.app.failure_bodies import SITE, failed, holders
from tests.app.running_rows import CLUSTER, START
from tests.app.web_site import told
from tests.cluster_models.clusters import cluster_of
from tests.solver.serving.planning.problems import CHAT, nodes, problem, served, sound_plan


@cache
def _hosts() -> list[Node]:
    return nodes(4, gpus=2)


@cache
def _plan() -> ServingPlan:
    """Two replicas of two GPUs, a node each, for as many requests as they answer within the limits."""
    load = served("qwen3-32b", **CHAT, concurrency=300.0)
    asked = {"modes": (ServingMode.AGGREGATED,), "pinned": {"tensor": 2}}
    plan = sound_plan(problem(_hosts(), load, objective="gpus", **asked))
    assert len(plan.replicas) == 2
    return plan


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A client of an application that solves nothing, with the deployment running and the other nodes spare."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite", role=Role.WEB) as client:
        cluster = ClusterDocument.from_cluster(replace(cluster_of(_hosts()), name=CLUSTER), ())
        stored = client.post(f"{API}/clusters", json=cluster.model_dump(mode="json"))
        assert stored.status_code == 201, stored.text
        body = {"name": "chat", "plan": _document(), "is_running": True, "replica_start": {"start_high_s": 300}}
        made = client.post(f"{SITE}/jobs", json=body)
        assert made.status_code == 201, made.text
        spares = sorted({node.name for node in _hosts()} - set(_nodes(_document())))
        assert client.put(f"{SITE}/spares", json={"nodes": spares}).status_code == 200
        yield client


def _document() -> dict[str, Any]:
    return ServingPlanDocument.from_plan(_plan()).model_dump(mode="json")


def _nodes(plan: dict[str, Any]) -> list[str]:
    return [place["node"] for group in plan["groups"] for each in group["replicas"] for place in each["places"]]


def _sessions(client: TestClient) -> SessionFactory:
    return for_tenant(client.app.state.service.sessions, DEFAULT_TENANT)  # type: ignore[attr-defined]  # Starlette's


def _solve(client: TestClient, replan_id: str) -> None:
    """Let the deciding process answer, in this one."""
    sessions = _sessions(client)
    with transaction(sessions) as session:
        request = replan_solves.begin_attempt(session, replan_id=replan_id, now=START + timedelta(days=10_000))
    assert request is not None
    answer = work({**asdict(request), "task": "decide"}, io.StringIO())
    assert answer["kind"] == "decision", answer
    with transaction(sessions) as session:
        assert replan_solves.finish(session, replan_id=replan_id, decision=answer["decision"])


def test_a_deployment_is_a_job_with_its_plan(client: TestClient) -> None:
    """It holds its GPUs; lists and pages show replicas and output tokens; its exports start engines."""
    job = client.get(f"{SITE}/jobs/chat").json()
    assert (job["kind"], job["standing"], job["gpus_held"], job["recovery"]) == ("serving", "running", 4, None)
    assert job["replica_start"]["start_high_s"] == 300
    plan = job["running_plan"]
    assert (plan["degrees"], plan["step_time_s"]) == ("2 x tp2", None)
    content = client.get(plan["links"]["self"]).json()["content"]
    assert content == _document()
    formats = [each["name"] for each in client.get(plan["links"]["exports"]).json() if each["refusal"] is None]
    assert {"vllm", "nginx"} <= set(formats)
    assert "vllm serve" in client.get(f"{plan['links']['exports']}/vllm").text
    words = told(client.get(f"/clusters/{CLUSTER}/jobs/chat").text)
    assert "2 x tp2" in words
    assert "output tokens/s" in words
    assert "a replica answers after" in words


def test_wrong_policies_and_plans_are_refused(client: TestClient) -> None:
    """The policy of a training job, and a plan for a cluster without its GPUs."""
    for more, words in (
        ({"recovery": {}}, "is about training jobs, and this job serves"),
        ({"plan": _document() | {"groups": []}}, "has none for the model 0"),
    ):
        answer = client.post(f"{SITE}/jobs", json={"name": "b", "plan": _document(), **more})
        assert answer.status_code == 422, answer.text
        assert words in answer.text
    assert client.get(f"{SITE}/jobs/b").status_code == 404
    patch = client.patch(f"{SITE}/jobs/chat", json={"recovery": {}}, headers={"If-Match": "*"})
    assert patch.status_code == 422


def test_a_lost_replica_starts_on_a_spare_and_comes_back_as_decided(client: TestClient) -> None:
    """Safe answer at once, then the solver's; words on the page; GPUs change hands when it is done."""
    lost, kept = _nodes(_document())
    replan_id = failed(client, lost)["replan"]
    safe = client.get(f"{API}/replans/{replan_id}").json()["safe_answer"]
    assert [each["action"] for each in safe["serving"]] == ["start_replicas"]
    _solve(client, replan_id)
    replan = client.get(f"{API}/replans/{replan_id}").json()
    (made,) = replan["decision"]["serving"]
    assert (made["action"], made["lost"], len(made["started"])) == ("start_replicas", [0], 1)
    assert replan["summary"]["serving"][0]["requests_per_s_after"] > 0
    new = client.get(made["links"]["plan"]).json()
    assert kept in _nodes(new)
    assert lost not in _nodes(new)
    words = told(client.get(f"/replans/{replan_id}").text)
    assert "Take replica 0 of chat out of the balancer." in words
    assert "serves on; replicas start in place of the lost ones" in words
    assert "vllm serve" in client.get(f"/replans/{replan_id}/files/chat/vllm").text
    assert client.post(replan["links"]["approve"]).json()["remaining"] == ["chat"]
    done = client.post(f"{API}/replans/{replan_id}/jobs/chat/complete").json()
    assert done["status"] == "applied"
    assert holders(client) == {"chat": set(_nodes(new))}


def test_one_that_lost_all_is_paused_and_served_again_when_there_is_room(client: TestClient) -> None:
    """Nothing answers without GPUs; a later decision starts it again for all that was asked for."""
    client.put(f"{SITE}/spares", json={"nodes": []})
    for node in _nodes(_document()):
        replan_id = failed(client, node)["replan"]
    _solve(client, replan_id)
    replan = client.get(f"{API}/replans/{replan_id}").json()
    assert replan["decision"]["serving"][0]["action"] == "stop"
    client.post(replan["links"]["approve"])
    client.post(replan["links"]["complete"])
    job = client.get(f"{SITE}/jobs/chat").json()
    assert (job["standing"], job["gpus_held"]) == ("paused", 0)
    spares = sorted({node.name for node in _hosts()} - set(_nodes(_document())))
    client.put(f"{SITE}/spares", json={"nodes": spares})
    again = client.post(f"{SITE}/replans", json={})
    assert again.status_code == 202, again.text
    _solve(client, again.json()["id"])
    (made,) = client.get(f"{API}/replans/{again.json()['id']}").json()["decision"]["serving"]
    assert sorted(_nodes(made["plan"])) == spares
    (load,) = made["loads"]
    assert load["before_per_s"] == 0
    assert load["after_per_s"] == pytest.approx(load["asked_per_s"], rel=0.02)


def test_a_page_makes_a_finished_plan_a_deployment(client: TestClient) -> None:
    """The form asks how replicas start, and nothing about checkpoints; a number that cannot be comes back."""
    sessions = _sessions(client)
    with transaction(sessions) as session:
        snapshot = snapshots.take_snapshot(session, reference=CLUSTER)
        given = replace(problem(_hosts(), served("qwen3-32b", concurrency=8.0)), snapshot=snapshot)
        plan_id = serving_plans.create_serving_plan(session, problem=given, options=SearchOptions())
        assert solves.finish(session, plan_id=plan_id, status=PlanStatus.SUCCEEDED, result=jsonable(_plan()))
    client.delete(f"{SITE}/jobs/chat")
    assert f"/plans/{plan_id}/run" in client.get(f"/plans/{plan_id}").text
    form = client.get(f"/plans/{plan_id}/run").text
    assert "2 x tp2 on 2 nodes" in told(form)
    assert "heckpoint" not in form
    sent = {
        "cluster": CLUSTER,
        "name": "web",
        "weight": "2",
        "how": "applied",
        "start_low_s": "20",
        "may": "may_replan",
    }
    wrong = client.post(f"/plans/{plan_id}/run", data=sent | {"start_high_s": "10"})
    assert (wrong.status_code, "must be at least the lower time" in told(wrong.text)) == (422, True)
    client.post(f"/plans/{plan_id}/run", data=sent)
    job = client.get(f"{SITE}/jobs/web").json()
    assert (job["weight"], job["standing"], job["replica_start"]["start_low_s"]) == (2.0, "running", 20.0)
    client.post(f"/clusters/{CLUSTER}/jobs/web", data={"do": "change", "weight": "3", "start_low_s": "25"})
    job = client.get(f"{SITE}/jobs/web").json()
    assert (job["weight"], job["replica_start"]["start_low_s"]) == (3.0, 25.0)
    assert job["replica_start"]["may_replan"] is False
