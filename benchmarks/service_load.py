"""Answers of one service process on kept connections, and how long an upload keeps other writers waiting.

python -m benchmarks.service_load                 answers a second, SQLite, role web
python -m benchmarks.service_load --upload 135    all pairs of 135 nodes at 100 sizes: 904,500 samples
python -m benchmarks.service_load --upload 135 --plans 4    and as many plans meanwhile, role all
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from app.api.v1.answers import PREFIX
from app.main import create_app
from app.settings import Role, Settings
from app.startup import listening_socket

SIZES = [float(2**20 + 1000 * step) for step in range(100)]
WORKLOAD = {"sequence_length": 4096, "global_batch_sequences": 512}


def main() -> None:
    """Start a service in this process, ask it, and print what it did."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="for each kind of request")
    parser.add_argument("--clients", type=int, nargs="*", default=[1, 4], help="connections at once")
    parser.add_argument("--upload", type=int, metavar="NODES", help="measure an upload instead")
    parser.add_argument("--plans", type=int, default=0, help="plans that are asked for before the upload")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            data_dir=Path(folder), database_url="", role=Role.ALL if given.plans else Role.WEB, port=0
        )
        with listening_socket(settings) as listening:
            server = uvicorn.Server(uvicorn.Config(create_app(settings), log_level="warning"))
            thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
            thread.start()
            base = f"http://127.0.0.1:{listening.getsockname()[1]}"
            while not server.started:
                time.sleep(0.05)
            try:
                if given.upload:
                    upload(base, given.upload, given.plans)
                else:
                    load(base, given.clients, given.seconds)
            finally:
                server.should_exit = True
                thread.join()


def cluster(nodes: int) -> dict[str, Any]:
    """A cluster of so many nodes without measurements."""
    kinds = {"node_kind": "DGX A100", "gpu_kind": "A100-SXM4-80GB"}
    return {"name": "load", "source": "made", "nodes": [{"name": f"n{number}", **kinds} for number in range(nodes)]}


def load(base: str, clients: list[int], seconds: float) -> None:
    """Answers a second and their median time, by kind of request and number of kept connections."""
    httpx2.post(f"{base}{PREFIX}/clusters", json=cluster(16)).raise_for_status()
    for path in ("/healthz", f"{PREFIX}/clusters", f"{PREFIX}/clusters/load"):
        for number in clients:
            times: list[float] = []
            threads = [threading.Thread(target=_ask, args=(base + path, seconds, times)) for _ in range(number)]
            used, started = time.process_time(), time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            took, cpu = time.perf_counter() - started, time.process_time() - used
            middle, each = 1e3 * statistics.median(times), 1e3 * cpu / len(times)
            print(
                f"{path:24} {number:2} connections: {len(times) / took:6.0f}/s, median {middle:5.1f} ms,", end=" "
            )
            print(f"{each:.1f} ms of processor time each (client included)")


def _ask(url: str, seconds: float, times: list[float]) -> None:
    until = time.perf_counter() + seconds
    with httpx2.Client() as client:
        while (started := time.perf_counter()) < until:
            client.get(url).raise_for_status()
            times.append(time.perf_counter() - started)


def upload(base: str, nodes: int, plans: int = 0) -> None:
    """The longest wait of another writer while many measurements are stored, and what became of ``plans``."""
    with httpx2.Client(base_url=base + PREFIX, timeout=600.0) as client:
        client.post("/clusters", json=cluster(nodes)).raise_for_status()
        names = [f"n{number}" for number in range(nodes)]
        rows = [[*pair, *([9] * len(SIZES))] for pair in itertools.combinations(names, 2)]
        table = {"tool": "made", "collective": "alltoall", "message_bytes": SIZES, "pairs": rows}
        asked = {"cluster": "load", "model": "llama-3-8b", "workload": WORKLOAD, "options": {"time_limit_s": 20.0}}
        ids = [client.post("/plans", json=asked).raise_for_status().json()["id"] for _ in range(plans)]
        done = threading.Event()
        waits: list[tuple[float, int]] = []
        writer = threading.Thread(target=_write, args=(base, done, waits))
        writer.start()
        started = time.perf_counter()
        added = client.post("/clusters/load/measurements", json={"measurement_tables": [table]})
        took = time.perf_counter() - started
        ends = [_end_of_plan(client, plan) for plan in ids]
        done.set()
        writer.join()
    longest = max(wait for wait, _status in waits)
    refused = sum(status >= 500 for _wait, status in waits)
    print(f"{added.json()['added']} samples in {took:.1f} s;", end=" ")
    print(f"{len(waits)} other writes: longest {longest:.1f} s, {refused} refused; plans: {ends}")


def _end_of_plan(client: httpx2.Client, plan: str) -> str:
    """The status that a plan ends in."""
    while (found := client.get(f"/plans/{plan}").json())["status"] in {"queued", "running"}:
        time.sleep(0.5)
    return str(found["status"])


def _write(base: str, done: threading.Event, waits: list[tuple[float, int]]) -> None:
    with httpx2.Client(base_url=base + PREFIX, timeout=600.0) as client:
        while not done.is_set():
            started = time.perf_counter()
            answer = client.post("/webhooks", json={"url": "https://hooks.example/"})
            waits.append((time.perf_counter() - started, answer.status_code))
            time.sleep(0.1)


if __name__ == "__main__":
    main()
