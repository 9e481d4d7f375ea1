"""The options of the program that name a service elsewhere."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from cluster_models.errors import InvalidInput

ASK_A_SERVICE: Final = frozenset({"cluster", "fleet", "plan", "plans", "predict", "runs"})
"""Commands that work on what a service has; the others read and write files here."""

ServerAddress = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="MESHWRIGHT_SERVER",
        help="Service to plan on and to keep things in, as http://planner.example:8080; none: this process.",
    ),
]
Background = Annotated[
    bool, typer.Option("--background", help="Plans asked of that service let all others go first.")
]
ServerKey = Annotated[
    str | None, typer.Option("--key", metavar="KEY", envvar="MESHWRIGHT_KEY", help="Key of that service.")
]


@dataclass(frozen=True, slots=True)
class Server:
    """A service by its address, and the key for it; without an address there is none.

    Plans that are asked of it ``background`` let all others go first.
    """

    address: str | None = None
    key: str | None = None
    background: bool = False


_NONE: Final = Server()
_CHOSEN: Final[ContextVar[Server]] = ContextVar("chosen_server", default=_NONE)


def choose_server(server: Server, *, command: str | None, is_typed: bool) -> None:
    """Let the command know the service; raises ``InvalidInput`` where it is typed for one that asks none."""
    if is_typed and command not in ASK_A_SERVICE:
        problem, remedy = f"is not asked by {command}", f"leave it out, or use {', '.join(sorted(ASK_A_SERVICE))}"
        raise InvalidInput("--server", server.address, problem, remedy)
    if server.background and server.address is None:
        raise InvalidInput("--background", True, "concerns plans of a service", "name it with --server")
    _CHOSEN.set(server)


def chosen_server() -> Server:
    """The service that ``--server`` and ``--key`` name."""
    return _CHOSEN.get()


def refuse_server(command: str) -> None:
    """Raise ``InvalidInput`` where a service is chosen: ``command`` works on the database itself."""
    if (address := chosen_server().address) is not None:
        raise InvalidInput("--server", address, f"{command} works on the database itself", "leave it out")
