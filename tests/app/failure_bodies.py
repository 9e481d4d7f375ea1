"""A stored cluster with two jobs and two spares, made over HTTP, and bodies about it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx2
from fastapi.testclient import TestClient

from app.documents.cluster import ClusterDocument
from app.documents.plan import PlanDocument
from tests.app.api_client import API
from tests.app.running_rows import CLUSTER, plan_on
from tests.cluster_models.clusters import cluster_of, host

SITE = f"{API}/clusters/{CLUSTER}"


def plan_document(first: str, second: str, **changes: Any) -> dict[str, Any]:
    """The small plan on two nodes, in full."""
    return PlanDocument.from_plan(plan_on(first, second), timeline=False).model_dump(mode="json") | changes


def job_body(name: str, first: str, second: str, **changes: Any) -> dict[str, Any]:
    """A job that runs on two nodes."""
    return {"name": name, "plan": plan_document(first, second), "is_running": True} | changes


def store_cluster(client: httpx2.Client) -> None:
    """Eight nodes ``n0``, ``n1``, ... of four GPUs, four to a leaf."""
    hosts = [host(f"n{index}", leaf=f"leaf-{index // 4}", gpus=4, cards=4) for index in range(8)]
    document = ClusterDocument.from_cluster(replace(cluster_of(hosts), name=CLUSTER), ())
    assert client.post(f"{API}/clusters", json=document.model_dump(mode="json")).status_code == 201


def store_site(client: httpx2.Client) -> None:
    """The cluster with job ``a`` on n0 and n1, job ``b`` on n2 and n3, and spares n6 and n7."""
    store_cluster(client)
    for name, first, second in (("a", "n0", "n1"), ("b", "n2", "n3")):
        assert client.post(f"{SITE}/jobs", json=job_body(name, first, second)).status_code == 201
    assert client.put(f"{SITE}/spares", json={"nodes": ["n6", "n7"]}).status_code == 200


def holders(client: TestClient) -> dict[str, set[str]]:
    """The nodes by the name of the job that holds GPUs of them and stays."""
    found: dict[str, set[str]] = {}
    for node in client.get(f"{SITE}/occupancy").json()["nodes"]:
        for gpu in node["gpus"]:
            if not gpu["releasing"]:
                found.setdefault(gpu["job"], set()).add(node["node"])
    return found


def failed(client: TestClient, node: str, **changes: Any) -> dict[str, Any]:
    """Report that a node failed; what became of the report."""
    reply = client.post(f"{SITE}/events", json={"node": node, "state": "failed"} | changes)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found
