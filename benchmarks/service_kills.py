"""Plans that are queued while web process, workers and database are killed: none is lost, and each ends once.

python -m benchmarks.service_kills [--plans 1000] [--kills 20] [--seed 1]
python -m benchmarks.service_kills --real-solver --plans 60 --kills 6

Two workers on PostgreSQL, and a stand-in that solves in a tenth of a second; whoever is killed starts again.
Each plan is asked for with a key of its own until it is accepted, as clients do, by several clients at once; kills
come at random among the plans.  Ends with 1 where one is lost or stored twice.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import dataclasses
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import httpx2
import psutil

from app.api.v1.answers import PREFIX
from app.db.status import PlanStatus
from app.documents.reading import parse_text
from benchmarks.service_scale import EXAMPLES, Site, is_up, metrics, site, store, wait

SOLVER: Final = Path("tests/app/stand_in_solver.py")
LONGEST_S: Final = 3600.0
CLIENTS: Final = 4
KILLED: Final = ("web", "worker 1", "worker 2", "database")


def main() -> int:
    """Kill, wait, count."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plans", type=int, default=1000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real-solver", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, site() as empty, contextlib.ExitStack() as stack:
        ledger = Path(folder, "ledger")
        here = _quick_to_notice(empty, None if given.real_solver else ledger)
        running = {name: stack.enter_context(here.process(name.partition(" ")[0])) for name in KILLED[:3]}

        def revive() -> None:
            """Start whoever is gone, as a supervisor does: a process that finds no database ends by itself."""
            for name, process in running.items():
                if process.status() == psutil.STATUS_ZOMBIE:
                    running[name] = stack.enter_context(here.process(name.partition(" ")[0]))

        client = stack.enter_context(httpx2.Client(base_url=here.url + PREFIX, timeout=60.0))
        wait(lambda: is_up(client))
        store(client, "two-nodes")
        accepted: list[str] = []
        asking = [
            threading.Thread(target=_ask, args=(here, range(first, given.plans, CLIENTS), accepted))
            for first in range(CLIENTS)
        ]
        for each in asking:
            each.start()
        chance, killed = random.Random(given.seed), collections.Counter[str]()  # noqa: S311 - no secret
        for before in sorted(chance.sample(range(given.plans), given.kills)):
            wait(lambda before=before: revive() or _ended(here) >= before, within_s=LONGEST_S)
            name = chance.choice(KILLED)
            killed[name] += 1
            if name == "database":
                _kill_database(here)
            else:
                running[name].kill()
        while any(each.is_alive() for each in asking):
            revive()
            time.sleep(0.5)
        wait(lambda: revive() or _open(here) == 0, within_s=LONGEST_S)
        states, listed = _states(client)
        ends = 0 if given.real_solver else ledger.read_text().splitlines().count("end")
    print(f"{given.kills} kills: {', '.join(f'{name} {count}' for name, count in sorted(killed.items()))}")
    more = "" if given.real_solver else f"; {ends} solves came to their end"
    print(f"{len(accepted)} plans accepted, {listed} stored: {states}{more}")
    return 0 if states == {"succeeded": given.plans} and len(set(accepted)) == listed == given.plans else 1


def _quick_to_notice(here: Site, ledger: Path | None) -> Site:
    """The site with workers that notice soon who is gone, and with the stand-in where there is a ledger for it."""
    more = {"HEARTBEAT_S": "0.5", "WORKER_LOST_AFTER_S": "5"}
    if ledger is not None:
        solver = [sys.executable, str(SOLVER.absolute()), json.dumps({"ledger": str(ledger), "seconds": 0.1})]
        more["SOLVE_COMMAND"] = json.dumps(solver)
    return dataclasses.replace(
        here, environment=here.environment | {f"MESHWRIGHT_{name}": value for name, value in more.items()}
    )


def _ended(here: Site) -> int:
    """Plans that came to their end; 0 where nobody says."""
    states = _counts(here)
    return 0 if states is None else sum(states.values()) - states["queued"] - states["running"]


def _ask(here: Site, numbers: range, accepted: list[str]) -> None:
    """Ask for each plan until its answer is there."""
    workload = parse_text((EXAMPLES / "workloads" / "llama-3-8b-small.yaml").read_text("utf-8"), what="workload")
    body = {"cluster": "two-nodes", "model": "llama-3-8b", "workload": workload}
    with httpx2.Client(base_url=here.url + PREFIX, timeout=60.0) as client:
        for number in numbers:
            key = {"Idempotency-Key": f"plan-{number}"}
            while (made := _answer(client, body, key)) is None:
                time.sleep(0.5)
            accepted.append(made)


def _answer(client: httpx2.Client, body: dict[str, Any], key: dict[str, str]) -> str | None:
    with contextlib.suppress(httpx2.TransportError):
        answer = client.post("/plans", json=body, headers=key)
        if answer.status_code < 500:
            found: str = answer.raise_for_status().json()["id"]
            return found
    return None


def _kill_database(here: Site) -> None:
    server = psutil.Process(here.database.get_pid())
    for process in [server, *server.children()]:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs([server], timeout=10.0)
    here.database.ensure_postgres_running()


def _open(here: Site) -> int | None:
    """Plans that wait or run; ``None`` where nobody says."""
    states = _counts(here)
    return None if states is None else states["queued"] + states["running"]


def _counts(here: Site) -> collections.Counter[str] | None:
    """Plans by status; ``None`` where nobody says."""
    with contextlib.suppress(httpx2.TransportError):
        lines = dict(line.rsplit(" ", 1) for line in metrics(here).splitlines() if line.startswith("meshwright_"))
        if lines["meshwright_database_up"] == "1.0":
            counts = {state: lines.get(f'meshwright_plans{{status="{state}"}}', "0") for state in PlanStatus}
            return collections.Counter({state: int(float(count)) for state, count in counts.items()})
    return None


def _states(client: httpx2.Client) -> tuple[dict[str, int], int]:
    """Plans by status, and how many there are."""
    states, cursor = collections.Counter[str](), None
    while True:
        query = {"limit": 200} | ({"cursor": cursor} if cursor else {})
        page = client.get("/plans", params=query).raise_for_status().json()
        states.update(each["status"] for each in page["items"])
        if (cursor := page["next_cursor"]) is None:
            return dict(states), states.total()


if __name__ == "__main__":
    sys.exit(main())
