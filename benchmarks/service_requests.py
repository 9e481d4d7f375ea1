"""Made-up requests to every operation of a running service, by all checks of schemathesis, which keep state.

python -m benchmarks.service_requests [--seconds 300] [--seed 1]

The service asks for keys and runs on PostgreSQL; requests are sent with the key of an administrator, so that those
without it, or with another, must be refused.  The phase that keeps state has a third of the time for itself.  Ends
with 1 where something was found.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

from app.api.v1.answers import PREFIX
from benchmarks.service_scale import Site, site

CONFIG = Path("tests/schemathesis.toml")
PHASES = {"examples,coverage,fuzzing": 2 / 3, "stateful": 1 / 3}
"""Phases that are run together, and their share of the time."""
SETTINGS = {
    "ACCESS": "keys",
    "REQUESTS_PER_MINUTE": "1000000",
    "MAX_TIME_LIMIT_S": "2",
    "DEFAULT_TIME_LIMIT_S": "2",
}


def main() -> int:
    """Ask, and print what schemathesis found and says at its end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with site() as empty:
        more = {f"MESHWRIGHT_{name}": value for name, value in SETTINGS.items()}
        here = dataclasses.replace(empty, environment=empty.environment | more)
        header = f"Authorization: Bearer {_key(here)}"
        with here.process("all"):
            codes = [
                _ask(here, header, phases, int(share * given.seconds), given.seed)
                for phases, share in PHASES.items()
            ]
    return max(codes)


def _ask(here: Site, header: str, phases: str, seconds: int, seed: int) -> int:
    command = [
        *("-m", "schemathesis.cli", "--config-file", str(CONFIG), "run", f"{here.url}{PREFIX}/openapi.json"),
        *("--wait-for-schema", "300", "--header", header, "--checks", "all", "--continue-on-failure"),
        *("--phases", phases, "--max-time", str(seconds), "--seed", str(seed)),
        *("--suppress-health-check", "all", "--request-timeout", "120"),
    ]
    done = subprocess.run(  # noqa: S603 - a program that we name
        [sys.executable, *command], capture_output=True, text=True, check=False
    )
    begins = " FAILURES " if done.returncode else " SUMMARY "
    print(done.stdout.partition(begins)[2].lstrip("= \n") or done.stdout + done.stderr, flush=True)
    return done.returncode


def _key(here: Site) -> str:
    program = Path(sys.executable).parent / "meshwright"
    command = [str(program), "keys", "create", "requests", "--role", "admin", "--json"]
    environment = os.environ | here.environment
    made = subprocess.run(  # noqa: S603 - our own
        command, env=environment, capture_output=True, text=True, check=True
    )
    key: str = json.loads(made.stdout)["key"]
    return key


if __name__ == "__main__":
    sys.exit(main())
