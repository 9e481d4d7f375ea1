"""A running application with a client, and bodies that it accepts."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from app.documents.cluster import ClusterDocument
from app.documents.model import ModelDocument
from app.documents.workload import WorkloadDocument
from app.main import create_app
from app.serialization import jsonable
from app.settings import SOLVE_COMMAND, Access, Role, Settings
from tests.app import stand_in_solver
from tests.app.shared_routes import with_shared_routes
from tests.databases import begin_at_newest
from tests.plans import small_architecture, small_cluster, small_plan, small_samples, small_workload

API = "/api/v1"


@contextmanager
def running(
    tmp_path: Path,
    database_url: str,
    *,
    role: Role = Role.ALL,
    real_solver: bool = False,
    access: Access = Access.LOOPBACK,
    **behaviour: Any,
) -> Iterator[TestClient]:
    """A client of an application whose solver answers with the small plan, or really solves."""
    (tmp_path / "plan.json").write_text(json.dumps(jsonable(small_plan())))
    options = {"ledger": str(tmp_path / "ledger"), "plan": str(tmp_path / "plan.json")} | behaviour
    stand_in = (sys.executable, stand_in_solver.__file__, json.dumps(options))
    settings = Settings(
        data_dir=tmp_path / "data",
        database_url=database_url,
        role=role,
        access=access,
        solve_command=SOLVE_COMMAND if real_solver else stand_in,
        allowed_hosts=("localhost", "testserver"),  # the second is what generated requests say
        heartbeat_s=0.5,
        max_body_bytes=2_000_000,
    )
    begin_at_newest(settings)
    app = with_shared_routes(create_app(settings))
    with TestClient(app, base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def every_route(routes: Iterable[Any]) -> Iterator[APIRoute]:
    """Those of ``routes``, and those of the routers among them."""
    for route in routes:
        if isinstance(route, APIRoute):
            yield route
        elif hasattr(route, "original_router"):
            yield from every_route(route.original_router.routes)


def cluster_body(**changes: Any) -> dict[str, Any]:
    """The small cluster with its measurements as a document."""
    document = ClusterDocument.from_cluster(small_cluster(), small_samples())
    return document.model_dump(mode="json") | changes


def plan_body(**changes: Any) -> dict[str, Any]:
    """A request for a plan of the small model on the small cluster, in full."""
    return {
        "cluster": cluster_body(),
        "model": ModelDocument.from_architecture(small_architecture()).model_dump(mode="json"),
        "workload": WorkloadDocument.from_value(small_workload()).model_dump(mode="json"),
    } | changes


def ended(client: TestClient, address: str, *, within_s: float = 60.0) -> dict[str, Any]:
    """The plan under an address, once it has ended."""
    until = time.monotonic() + within_s
    while (plan := client.get(address).json())["status"] in ("queued", "running"):
        assert time.monotonic() < until, plan
        time.sleep(0.05)
    found: dict[str, Any] = plan
    return found
