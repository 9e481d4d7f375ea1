"""A site with something on every page, by the paths of the routes that show pages."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Final

import uvicorn

from app.db.engine import transaction
from app.db.status import PlanStatus
from app.documents.cluster import ClusterDocument
from app.serialization import jsonable
from app.services.calibration import calibrations
from app.services.clusters import clusters
from app.services.experts import routing
from app.services.feedback import measured_runs
from app.services.planning import solves
from app.services.webhooks import webhooks
from app.web.routes import router
from cluster_models.calibration.run_report import RunReport
from cluster_models.fleet.plan import NoFleetPlan, NoFleetReason
from solver.problem import Progress
from tests.app.api_client import cluster_body, every_route
from tests.app.calibration_bodies import calibration_document
from tests.app.failed_site import Failed, failed_site
from tests.app.running_rows import CLUSTER
from tests.app.web.test_imports import NODES, TABLE
from tests.app.web_site import where
from tests.plans import STEP_S, small_no_plan, small_plan
from tests.routing_counts import workload
from tests.serving_plans import two_models

NO_PAGES: Final = {
    "/static/{name}",
    "/calibrations/{name}/file",
    "/clusters/{name:path}/measure/{launcher}",
    "/frameworks/{name}/file",
    "/replans/{replan_id}/files/{job}/{file_format}",
    "/sign-in/answer",
    "/sign-in/provider",
}
"""Files, and what sends the browser on."""
PARTS: Final = {
    "/plans/{plan_id}/progress",
    "/replans/{replan_id}/progress",
    "/what-if-sweeps/{sweep_id}/progress",
    "/portfolios/{portfolio_id}/progress",
}
"""Parts that another page takes in."""
OURS: Final = "two-and-a-spare"


def page_paths() -> set[str]:
    """The paths of all routes that show a page."""
    found = {route.path for route in every_route(router.routes) if "GET" in (route.methods or ())}
    return found - NO_PAGES - PARTS


@contextmanager
def whole_site(folder: Path) -> Iterator[tuple[str, dict[str, list[str]]]]:
    """The address of a server, and by the path of each page the addresses that show it."""
    with failed_site(folder) as failed, _served(failed) as address:
        yield address, _addresses(failed)


def _addresses(failed: Failed) -> dict[str, list[str]]:
    """Store what there is to show; where it is shown."""
    with transaction(failed.service.sessions) as session:
        clusters.create_cluster(session, document=ClusterDocument.model_validate(cluster_body()))
    asked = {"cluster": OURS, "model": "llama-3-8b", "sequence_length": "2048", "global_batch_sequences": "8"}
    asked |= {
        "recompute": "none",
        "sharding": "none",
        "offload": "none",
        "context_exchange": "ring",
        "schedule": "1f1b",
    }
    plan = _plan(failed, "/plans/new", asked, PlanStatus.SUCCEEDED, small_plan())
    other = _plan(failed, "/plans/new", asked, PlanStatus.SUCCEEDED, small_plan())
    none = _plan(failed, "/plans/new", asked, PlanStatus.INFEASIBLE, small_no_plan())
    queued = _plan(failed, "/plans/new", asked | {"effort": "2"})
    searching = _plan(failed, "/plans/new", asked)
    with transaction(failed.service.sessions) as session:
        solves.begin_attempt(session, plan_id=searching)
        newest = jsonable(Progress(3.0, "placement", 200, 50, 0.61, 0.59, 0.033, "tp2 pp2 dp2"))
        solves.save_progress(session, plan_id=searching, progress=newest)
    serve = {"cluster": OURS, "model": "llama-3.1-8b", "input_tokens": "1024", "output_tokens": "512"}
    serve |= {"concurrency": "64", "weights": "fp8", "modes": "aggregated"}
    serving = _plan(failed, "/plans/new/serving", serve, PlanStatus.SUCCEEDED, two_models())
    share = {"cluster": CLUSTER, "fleet_text": "fleet: work", "time_limit_s": "30"}
    nothing = NoFleetPlan(NoFleetReason.NOTHING_RUNS, ("a",), ())
    fleet = _plan(failed, "/plans/new/fleet", share, PlanStatus.INFEASIBLE, nothing)
    failed.service.answer_failures(failed.replan_id)
    with transaction(failed.service.sessions) as session:
        calibrations.create_calibration(session, document=calibration_document())
        routing.create_routing(session, name="ours", workloads=[workload("a"), workload("b", seed=1)])
        hook = webhooks.create_endpoint(session, url="https://example.com/hook").endpoint.id
        for slower in (1.0, 1.2):
            now, report = datetime.now(UTC), RunReport(STEP_S * slower)
            measured_runs.record_run(session, plan=plan, report=report, ended_at=now, now=now)
    eight, small = f"/clusters/{CLUSTER}", f"/clusters/{OURS}"
    curve = where(failed.browser.post(f"/plans/{plan}/portfolio", data={"gpus": "4, 8"}))
    sweep = where(failed.browser.post(f"{eight}/what-if-sweeps", data={"each": "leaf"}))
    running = json.dumps({"physical_to_logical_map": [[slot % 16 for slot in range(24)]] * 3})
    forms = {
        "/clusters/import": {"cluster": "lab", "pasted": NODES + TABLE, "do": "look"},
        "/experts/ours": {"ranks": "4", "redundant_experts": "4", "nodes": "2", "planned": "a", "counts": "worst"},
        "/experts/rebalance": {"ranks": "4", "routing": "ours", "expert_bytes": "1e6", "running_text": running},
        f"{eight}/what-if": {"node": "n2"},
        "/runs": {"name": "ours"},
    }
    return {
        **{path: [path] for path in page_paths() if "{" not in path},
        "/answers/{page_id}": [where(failed.browser.post(form, data=sent)) for form, sent in forms.items()],
        "/plans/compare": [f"/plans/compare?plan={plan}&plan={other}"],
        "/plans/new": ["/plans/new", f"/plans/new?cluster={OURS}&model=llama-3-8b"],
        "/plans/{plan_id}": [f"/plans/{each}" for each in (plan, none, queued, searching, serving, fleet)],
        "/plans/{plan_id}/compare": [f"/plans/{plan}/compare"],
        "/plans/{plan_id}/run": [f"/plans/{plan}/run", f"/plans/{serving}/run"],
        "/plans/{plan_id}/sensitivity": [f"/plans/{plan}/sensitivity"],
        "/clusters/{name:path}": [eight, small, f"{small}?link=a%3Eb"],
        "/clusters/{name:path}/failures": [f"{eight}/failures"],
        "/clusters/{name:path}/jobs/{job}": [f"{eight}/jobs/a"],
        "/clusters/{name:path}/measure": [f"{small}/measure"],
        "/clusters/{name:path}/what-if": [f"{eight}/what-if", f"{eight}/what-if?node=n2"],
        "/calibrations/{name}": ["/calibrations/slow"],
        "/experts/{name}": ["/experts/ours"],
        "/portfolios/{portfolio_id}": [curve],
        "/replans/{replan_id}": [failed.address],
        "/replans/{replan_id}/free-nodes": [f"{failed.address}/free-nodes"],
        "/what-if-sweeps/{sweep_id}": [sweep],
        "/webhooks/{endpoint_id}": [f"/webhooks/{hook}"],
    }


def _plan(
    failed: Failed, form: str, fields: dict[str, str], status: PlanStatus | None = None, result: object = None
) -> str:
    """The id of a plan that was asked for in a form, with this result; without a status it still waits."""
    plan_id = where(failed.browser.post(form, data=fields)).rpartition("/")[2]
    if status is not None:
        with transaction(failed.service.sessions) as session:
            solves.begin_attempt(session, plan_id=plan_id)
            assert solves.finish(session, plan_id=plan_id, status=status, result=jsonable(result))
    return plan_id


@contextmanager
def _served(failed: Failed) -> Iterator[str]:
    """The address of a server of the site, in a thread."""
    server = uvicorn.Server(uvicorn.Config(failed.browser.app, port=0, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.05)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
