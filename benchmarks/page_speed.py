"""How soon pages of 1,024 nodes are painted: ``python -m benchmarks.page_speed`` (needs Chromium).

The service and the browser share this machine; a plan is searched for first, which takes a minute.  Bytes are
those of the page as sent, compressed.  Each page is opened once to fill caches of the service, then three times in
a browser that keeps nothing; the median counts.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any, Final

import uvicorn
from playwright.sync_api import Browser, sync_playwright

from app.db.engine import make_engine, make_session_factory, transaction
from app.db.status import PlanStatus
from app.documents.cluster import ClusterDocument
from app.documents.workload import WorkloadDocument
from app.main import create_app
from app.serialization import jsonable
from app.services.clusters import clusters
from app.services.planning import plans, solves
from app.services.planning.requests import PlanRequest
from app.services.planning.submission import submit_plan
from app.settings import Role, Settings
from benchmarks.large_clusters import cluster_by_class, measured_link
from solver.problem import SearchOptions
from solver.search import plan

NODES: Final = 1024
NEIGHBOURS: Final = 8
"""Nodes after it that each node is measured with, in both directions."""
TIMES: Final = 3
PAGES: Final = ("/clusters", "/clusters/large", "/clusters/large/failures", "/plans/new?cluster=large", "/plans")
SEARCH_S: Final = 30.0
_PAINT: Final = """() => {
  const page = performance.getEntriesByType("navigation")[0];
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  return [page.responseStart, paint.startTime, page.encodedBodySize];
}"""


def main() -> None:
    """Print milliseconds to the first byte and paint, and bytes, of each page."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        sys.exit("Chromium is not on PATH; install it")
    with (
        tempfile.TemporaryDirectory() as folder,
        _site(Path(folder)) as (site, found),
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        print(f"| page, {NODES:,} nodes | first byte, ms | first paint, ms | sent, kB |\n|---|---|---|---|")
        for name, address in (*zip(PAGES, PAGES, strict=True), ("a plan on all of them", found)):
            _opened(browser, f"{site}{address}")
            first, paint, size = map(statistics.median, zip(*_times(browser, f"{site}{address}"), strict=True))
            print(f"| {name} | {first:,.0f} | {paint:,.0f} | {size / 1e3:,.0f} |", flush=True)
        browser.close()


def _times(browser: Browser, address: str) -> list[list[float]]:
    return [_opened(browser, address) for _ in range(TIMES)]


def _opened(browser: Browser, address: str) -> list[float]:
    """Milliseconds to the first byte and to the first paint, and bytes of the page."""
    # Waiting for an expression evaluates it in the page, which our policy for scripts forbids.
    with browser.new_context(bypass_csp=True) as context:
        page = context.new_page()
        page.set_default_timeout(300_000)
        page.goto(address)
        page.wait_for_function("performance.getEntriesByName('first-contentful-paint').length > 0")
        found: list[float] = page.evaluate(_PAINT)
        return found


@contextmanager
def _site(folder: Path) -> Iterator[tuple[str, str]]:
    """The address of a service with the cluster ``large``, and the path of a plan on it."""
    settings = Settings(data_dir=folder, role=Role.WEB)
    server = uvicorn.Server(uvicorn.Config(create_app(settings), port=0, log_level="error"))
    thread = Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.1)
        found = _store(settings)
        sockets: Any = server.servers[0].sockets
        yield f"http://127.0.0.1:{sockets[0].getsockname()[1]}", found
    finally:
        server.should_exit = True
        thread.join()


def _store(settings: Settings) -> str:
    """Store the cluster and a plan of Llama 3.1 405B on it; the path of the plan's page."""
    cluster = replace(cluster_by_class(NODES, 0).cluster, name="large")
    samples = [
        measured_link(one, other, 4e10 * (0.2 if (a + step) % 97 == 0 else 1.0))
        for a, node in enumerate(cluster.nodes)
        for step in range(1, NEIGHBOURS + 1)
        for peer in (cluster.nodes[(a + step) % NODES],)
        for one, other in ((node, peer), (peer, node))
    ]
    engine = make_engine(settings.resolved_database_url)
    workload = WorkloadDocument(sequence_length=8192, global_batch_sequences=4096)
    asked = PlanRequest(cluster="large", model="llama-3.1-405b", workload=workload)
    with transaction(make_session_factory(engine)) as session:
        clusters.create_cluster(session, document=ClusterDocument.from_cluster(cluster, samples))
        plan_id = submit_plan(session, request=asked, settings=settings)
        solves.begin_attempt(session, plan_id=plan_id)
        made = plan(plans.get_problem(session, plan_id=plan_id), SearchOptions(time_limit_s=SEARCH_S))
        solves.finish(session, plan_id=plan_id, status=PlanStatus.SUCCEEDED, result=jsonable(made))
    engine.dispose()
    return f"/plans/{plan_id}"


if __name__ == "__main__":
    main()
