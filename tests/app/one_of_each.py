"""One of everything that the service stores, and what its operations take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fastapi.testclient import TestClient

from tests.app.api.test_idempotency import MODEL
from tests.app.api_client import API, cluster_body, plan_body
from tests.app.calibration_bodies import calibration_document
from tests.app.failure_bodies import SITE, failed, job_body, plan_document, store_site
from tests.routing_counts import in_full

CALIBRATION = calibration_document().model_dump(mode="json", by_alias=True)
ROUTING = {"name": "secret-routing", "workloads": in_full("a")}
"""Bodies that would be taken, were the thing in the path one's own; all others are empty."""
BODIES: dict[str, Any] = {
    "add_measurements": {"samples": []},
    "answer_what_if": {"losses": [{"node": "n0"}]},
    "change_job": {"weight": 2.0},
    "change_node": {"state": "failed"},
    "change_webhook": {"enabled": False},
    "complete_replan_job": {},
    "create_event_source": {"name": "watch", "adapter": "plain"},
    "create_job": job_body("mine", "n4", "n5"),
    "create_replan": {},
    "create_sweep": {"each": "node"},
    "fail_replan": {"problem": "It did not start."},
    "propose_running_plan": {"plan": plan_document("n4", "n5")},
    "receive_events": {"node": "n0", "state": "failed"},
    "replace_aliases": {"aliases": []},
    "replace_cluster": cluster_body(name="eight"),
    "replace_replan_settings": {"window_s": 30.0},
    "replace_routing": {"workloads": in_full("a")},
    "replace_spares": {"nodes": []},
    "report_events": {"node": "n0", "state": "failed"},
}


def one_of_each(client: TestClient) -> dict[str, str]:
    """One of everything, stored by a client; the values that path parameters take for it."""
    store_site(client)
    failed(client, "n0")
    made: dict[str, str] = {"cluster": SITE.rpartition("/")[2], "node": "n0", "job": "a"}
    for path, body, parameter in (
        ("models", {"name": "secret-model", "model": MODEL}, "model"),
        ("calibrations", {"name": "secret-calibration", "calibration": CALIBRATION}, "calibration"),
        ("webhooks", {"url": "https://secret.example/"}, "webhook"),
        ("plans", plan_body(), "plan"),
        ("portfolios", {"plan": plan_body(), "gpus": [2, 4]}, "portfolio"),
        ("keys", {"name": "secret-key", "role": "viewer"}, "key"),
        ("clusters/eight/what-if-sweeps", {"each": "leaf"}, "sweep"),
        ("clusters/eight/event-sources", {"name": "secret-source", "adapter": "plain"}, "source"),
    ):
        answer = client.post(f"{API}/{path}", json=body)
        assert answer.status_code in (201, 202), answer.text
        made[parameter] = answer.headers["Location"].rpartition("/")[2]
    assert client.post(f"{API}/routing", json=ROUTING).status_code == 201
    assert client.post(f"{API}/webhooks/{made['webhook']}/ping").status_code == 202
    made["snapshot"] = client.post(f"{SITE}/snapshots").json()["id"]
    made["delivery"] = client.get(f"{API}/webhooks/{made['webhook']}/deliveries").json()["items"][0]["id"]
    made["replan"] = client.get(f"{API}/replans").json()["items"][0]["id"]
    made["running_plan"] = client.get(f"{SITE}/jobs/a/running-plans").json()["items"][0]["id"]
    run = client.post(f"{API}/runs", json={"plan": made["running_plan"], "step_time_s": 1.0})
    made["run"] = run.headers["Location"].rpartition("/")[2]
    return made | {"name": "secret-routing"}


def operations(client: TestClient) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Method, path and description of every operation of the API."""
    for path, methods in client.get(f"{API}/openapi.json").json()["paths"].items():
        if path.startswith(API):
            for method, operation in methods.items():
                yield method.upper(), path, operation
