"""The options of the program that name a service elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import click
import typer

ServerAddress = Annotated[
    str | None,
    typer.Option(
        "--server",
        metavar="URL",
        envvar="MESHWRIGHT_SERVER",
        help="Service to plan on and to keep things in, as http://planner.example:8080; none: this process.",
    ),
]
ServerKey = Annotated[
    str | None, typer.Option("--key", metavar="KEY", envvar="MESHWRIGHT_KEY", help="Key of that service.")
]


@dataclass(frozen=True, slots=True)
class Server:
    """A service by its address, and the key for it; without an address there is none."""

    address: str | None = None
    key: str | None = None


def chosen_server() -> Server:
    """What ``--server`` and ``--key`` of the running command say."""
    context = click.get_current_context(silent=True)
    found = None if context is None else context.find_root().obj
    return found if isinstance(found, Server) else Server()
