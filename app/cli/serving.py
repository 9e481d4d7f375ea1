"""What ``meshwright serve`` and ``meshwright worker`` do: run until a signal ends them."""

from __future__ import annotations

from app.cli.endings import complain
from app.cli.environment import read_settings
from app.main import serve
from app.settings import Role


def run_server(*, host: str | None, port: int | None) -> None:
    """Serve with the settings of the environment; ``host`` and ``port`` go before them."""
    given = {"host": host, "port": port}
    settings = read_settings(**{name: value for name, value in given.items() if value is not None})
    serve(settings, announce=lambda address: complain(f"Meshwright serves on {address} - Ctrl-C ends it"))


def run_worker() -> None:
    """Solve what a server elsewhere queues, without serving anything."""
    serve(read_settings(role=Role.WORKER))
