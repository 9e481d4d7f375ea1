"""Real service processes on loopback, and how to end them the hard way.

Each is forked from one that has loaded all modules, which takes most of the processor time of a start; that of
the browser tests is started as an operator starts his.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx2

from app.serialization import jsonable
from tests.app import stand_in_solver
from tests.e2e import loaded_service
from tests.plans import small_plan

REPOSITORY = Path(__file__).parents[2]
_ONE_USE = httpx2.Limits(max_keepalive_connections=0)
"""The server ends what stays idle for seconds, as a busy machine may let a connection, when it is used again."""
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload([loaded_service.__name__])


@dataclass(frozen=True, slots=True)
class Deployment:
    """Things that the processes of one service share: settings by environment, and the ledger of their solver."""

    environment: dict[str, str]
    ledger: Path
    log: Path

    def starts(self) -> int:
        """How many solvers were started."""
        return sum(line.startswith("start") for line in self._lines())

    def ends(self) -> int:
        """How many solvers came to their end."""
        return self._lines().count("end")

    def solver_pids(self) -> list[int]:
        """Process numbers of every solver started."""
        return [int(line.split()[1]) for line in self._lines() if line.startswith("start")]

    def _lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []


def deployment(folder: Path, database_url: str, **solver: Any) -> Deployment:
    """A service in ``folder`` whose stand-in solver behaves as ``solver`` says."""
    plan = folder / "plan.json"
    plan.write_text(json.dumps(jsonable(small_plan())))
    options = {"ledger": str(folder / "ledger"), "plan": str(plan)} | solver
    environment = {
        "MESHWRIGHT_DATA_DIR": str(folder / "data"),
        "MESHWRIGHT_DATABASE_URL": database_url,
        "MESHWRIGHT_SOLVE_COMMAND": json.dumps([sys.executable, stand_in_solver.__file__, json.dumps(options)]),
        "MESHWRIGHT_HEARTBEAT_S": "0.3",
        "MESHWRIGHT_WORKER_LOST_AFTER_S": "2",
        "PYTHONPATH": str(REPOSITORY),
    }
    return Deployment(environment, folder / "ledger", folder / "log")


@contextlib.contextmanager
def service(shared: Deployment, **more: str) -> Iterator[tuple[BaseProcess, httpx2.Client]]:
    """A serving process that is ready, and a client of it; killed in the end if it still runs."""
    port = free_port()
    environment = {"MESHWRIGHT_PORT": str(port)} | more
    with (
        _process(shared, environment) as process,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60.0, limits=_ONE_USE) as client,
    ):
        wait_until(lambda: not process.is_alive() or _answers(client), shared)
        assert process.is_alive(), shared.log.read_text()
        yield process, client


@contextlib.contextmanager
def worker(shared: Deployment) -> Iterator[BaseProcess]:
    """A process that only solves."""
    with _process(shared, {"MESHWRIGHT_ROLE": "worker"}) as process:
        yield process


def wait_until(condition: Callable[[], bool], shared: Deployment, *, within_s: float = 90.0) -> None:
    """Return once ``condition()`` holds; shows the processes' log when it never does."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, shared.log.read_text()[-5000:]
        time.sleep(0.05)


def is_gone(pid: int) -> bool:
    """Whether a process has ended; a zombie has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def free_port() -> int:
    """A port that nothing listens on just now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@contextlib.contextmanager
def _process(shared: Deployment, environment: dict[str, str]) -> Iterator[BaseProcess]:
    process = _FORKS.Process(
        target=loaded_service.run, args=(shared.environment | environment, str(shared.log)), daemon=True
    )
    process.start()
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _answers(client: httpx2.Client) -> bool:
    try:
        return client.get("/healthz").is_success
    except httpx2.TransportError:
        return False
