"""How soon a running service answers failures: a real server on loopback with SQLite, asked over its public API.

    python -m benchmarks.replanning_service [--nodes 256 --jobs 50] [--node-only | --leaf-only] [--unprepared]
        [--json]

Registers made-up jobs (``benchmarks.replanning_cases``) on a made-up cluster, lets the service prepare, then loses
one node and, after that replan was carried out, a whole leaf.  CPU seconds are those of the thread that answers,
and of the whole serving process, which minds its other work meanwhile.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import httpx2

from app.documents.cluster import ClusterDocument
from app.documents.plan import PlanDocument
from app.documents.running_jobs import RecoveryDocument
from benchmarks.large_clusters import LEAF_NODES
from benchmarks.replanning_cases import SMALLER, Crowd, crowd
from cluster_models.jobs.running import RunningJob
from cluster_models.units import MIB

SPARES: Final = 8
LONGEST_WAIT_S: Final = 1800.0
QUIET_S: Final = 8.0
"""Without a solving process for so long, everything is prepared: the keeper looks every three seconds."""
BOTH: Final = slice(0, 2)
MOST_LOG: Final = 5000
"""Characters of the server's log that are shown where a request fails."""
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Answered:
    """Outcome of one batch of reports.

    ``reply_s``, ``reply_cpu_s`` of the busiest thread and ``process_cpu_s``: until the reply, which has the safe
    answer.  ``decision_s``: from the order to decide to the proposal, of which the search may take 15 s;
    ``decision_cpu_s``: of the solving processes that ended meanwhile.
    """

    case: str
    jobs_touched: int
    has_safe_answer: bool
    reply_s: float
    reply_cpu_s: float
    process_cpu_s: float
    decision_s: float
    decision_cpu_s: float
    gap: float
    stopped_by: str


@dataclass(frozen=True, slots=True)
class Measured:
    """Figures of one size of cluster.

    ``prepare_s``: until every job was prepared for the loss of any node, ``None`` where nobody waited for that.
    """

    nodes: int
    jobs: int
    register_s: float
    prepare_s: float | None
    answers: tuple[Answered, ...]
    database_mib: float
    rss_mib: float


@dataclass(frozen=True, slots=True)
class Server:
    """A serving process, its client and its data folder."""

    process: subprocess.Popen[bytes]
    client: httpx2.Client
    folder: Path

    def call(self, method: str, path: str, body: object = None) -> Any:
        """The answer to a request; raises ``httpx2.HTTPStatusError``."""
        return self.client.request(method, f"/api/v1{path}", json=body).raise_for_status().json()

    def cpu_s(self) -> dict[str, float]:
        """CPU seconds of each thread of the serving process; solvers are processes of their own."""
        found = {}
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            fields = (task / "stat").read_text().rsplit(")", 1)[1].split()
            found[task.name] = (int(fields[11]) + int(fields[12])) / _TICKS
        return found

    def solvers_cpu_s(self) -> float:
        """CPU seconds of all solving processes that ended."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[13]) + int(fields[14])) / _TICKS

    def is_solving(self) -> bool:
        """Whether the service has a solving process."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return any((task / "children").read_text().strip() for task in tasks)

    def rss_mib(self) -> float:
        """Resident memory of the serving process."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def database_mib(self) -> float:
        """Size of the service's database with its log."""
        return sum(file.stat().st_size for file in self.folder.glob("meshwright.sqlite*")) / MIB


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """A server that has started and warmed up, on an empty folder."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "log").open("ab") as log:
        settings = {"MESHWRIGHT_DATA_DIR": folder, "MESHWRIGHT_PORT": str(port)}
        process = subprocess.Popen(
            [sys.executable, "-m", "app.main"], env=os.environ | settings, stdout=log, stderr=log
        )
        try:
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=LONGEST_WAIT_S) as client:
                server = Server(process, client, Path(folder))
                _wait(lambda: _answers(client))
                _wait_until_still(server)
                yield server
        except Exception:
            sys.stderr.write((Path(folder) / "log").read_text()[-MOST_LOG:])
            raise
        finally:
            process.terminate()
            process.wait()


def measure(nodes: int, jobs: int, *, losses: slice = BOTH, waits: bool = True) -> Measured:
    """Register ``jobs`` jobs on ``nodes`` nodes, lose a node, and then a leaf, or what ``losses`` leaves of that.

    ``waits``: until everything is prepared.
    """
    site = crowd(jobs, nodes, SMALLER)
    with serving() as server:
        cluster = server.call("POST", "/clusters", _json(ClusterDocument.from_cluster(site.whole.cluster)))["name"]
        bodies = [_json_of_job(job) for job in site.jobs]
        started = time.perf_counter()
        for body in bodies:
            server.call("POST", f"/clusters/{cluster}/jobs", body)
        registered = time.perf_counter()
        server.call("PUT", f"/clusters/{cluster}/spares", {"nodes": list(site.free[:SPARES])})
        if waits:
            _wait_until_still(server)
        prepared = time.perf_counter()
        answers = []
        for case, lost in _losses(site)[losses]:
            answers.append(_answer(server, cluster, case, lost))
            if waits:
                _wait_until_still(server)
        return Measured(
            nodes,
            jobs,
            registered - started,
            prepared - registered - QUIET_S if waits else None,
            tuple(answers),
            server.database_mib(),
            server.rss_mib(),
        )


def _losses(site: Crowd) -> list[tuple[str, tuple[str, ...]]]:
    """A node of the first job, and a leaf without it."""
    names = [node.name for node in site.whole.cluster.nodes]
    node = site.jobs[0].nodes[0]
    first = LEAF_NODES if node not in names[LEAF_NODES : 2 * LEAF_NODES] else 2 * LEAF_NODES
    return [("a node lost", (node,)), ("a leaf lost", tuple(names[first : first + LEAF_NODES]))]


def _answer(server: Server, cluster: str, case: str, lost: Sequence[str]) -> Answered:
    """Report ``lost`` as failed, wait for the decision, and carry it out."""
    reports = [{"node": name, "state": "failed"} for name in lost]
    before, started = server.cpu_s(), time.perf_counter()
    replan = server.call("POST", f"/clusters/{cluster}/events", reports)["replan"]
    reply_s = time.perf_counter() - started
    cpu_s = [seconds - before.get(thread, 0.0) for thread, seconds in server.cpu_s().items()]
    has_safe_answer = server.call("GET", f"/replans/{replan}")["has_safe_answer"]
    asked, solved_s = time.perf_counter(), server.solvers_cpu_s()
    server.call("POST", f"/clusters/{cluster}/replans", {})
    _wait(lambda: server.call("GET", f"/replans/{replan}")["status"] not in {"collecting", "solving"})
    decision_s, decision_cpu_s = time.perf_counter() - asked, server.solvers_cpu_s() - solved_s
    found = server.call("GET", f"/replans/{replan}")
    for step in ("approve", "start", "complete"):
        server.call("POST", f"/replans/{replan}/{step}")
    decision = found["decision"]
    touched = len(decision["jobs"])
    return Answered(
        case,
        touched,
        has_safe_answer,
        reply_s,
        max(cpu_s),
        sum(cpu_s),
        decision_s,
        decision_cpu_s,
        decision["gap"],
        decision["stopped_by"],
    )


def _json(document: Any) -> Any:
    return document.model_dump(mode="json")


def _json_of_job(job: RunningJob) -> dict[str, object]:
    """The body that registers a job as running."""
    return {
        "name": job.name,
        "plan": _json(PlanDocument.from_plan(job.plan, timeline=False)),
        "is_running": True,
        "weight": job.weight,
        "recovery": _json(RecoveryDocument.from_value(job.recovery)),
    }


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + LONGEST_WAIT_S
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)


def _wait_until_still(server: Server) -> None:
    """Return once no solver has run for ``QUIET_S``."""
    still_since = time.monotonic()
    until = still_since + LONGEST_WAIT_S
    while time.monotonic() - still_since < QUIET_S:
        if server.is_solving():
            still_since = time.monotonic()
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.1)


def _answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/healthz").is_success
    except httpx2.TransportError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.replanning_service", description="answers over HTTP"
    )
    parser.add_argument("--nodes", type=int, default=256, help="nodes of 8 GPUs")
    parser.add_argument("--jobs", type=int, default=50, help="jobs that run on them")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--node-only", dest="losses", action="store_const", const=slice(0, 1), help="lose a node only, no leaf"
    )
    which.add_argument(
        "--leaf-only",
        dest="losses",
        action="store_const",
        const=slice(1, 2),
        help="lose a leaf only, not a node before",
    )
    parser.set_defaults(losses=BOTH)
    parser.add_argument("--unprepared", action="store_true", help="wait for no preparation, which takes longest")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args(arguments)
    found = measure(asked.nodes, asked.jobs, losses=asked.losses, waits=not asked.unprepared)
    if asked.json:
        print(json.dumps(asdict(found), indent=2))
        return 0
    prepared = "not prepared" if found.prepare_s is None else f"prepared {found.prepare_s:.0f} s later"
    print(
        f"{found.jobs} jobs on {found.nodes} nodes: registered in {found.register_s:.1f} s, {prepared}, "
        f"database {found.database_mib:.0f} MiB, memory {found.rss_mib:.0f} MiB"
    )
    for answer in found.answers:
        safe = "with" if answer.has_safe_answer else "without"
        print(
            f"  {answer.case}: reply after {answer.reply_s:.2f} s ({answer.reply_cpu_s:.2f} s CPU, of the "
            f"process {answer.process_cpu_s:.2f} s) {safe} a safe "
            f"answer; decision on {answer.jobs_touched} jobs after {answer.decision_s:.1f} s "
            f"({answer.decision_cpu_s:.1f} s CPU), "
            f"gap {100 * answer.gap:.2f} % ({answer.stopped_by})"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
