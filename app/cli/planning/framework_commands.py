"""``meshwright frameworks``: its commands and options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.common_options import Json
from app.cli.endings import reported

app = typer.Typer(help="List the shipped framework generations, or print one to start your own from.")


@app.callback(invoke_without_command=True)
@reported
def list_frameworks(context: typer.Context, as_json: Json = False) -> None:
    """List the shipped framework generations, or print one to start your own from."""
    from app.cli.planning.frameworks import run_list  # noqa: PLC0415 - documents take a while to load

    if context.invoked_subcommand is None:
        run_list(as_json=as_json)


@app.command("show")
@reported
def show_framework(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A shipped generation.")],
    as_json: Json = False,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write to a file instead of printing.")
    ] = None,
) -> None:
    """Print a generation as a description: a file to change, for --framework-file."""
    from app.cli.planning.frameworks import run_show  # noqa: PLC0415 - documents take a while to load

    run_show(name=name, as_json=as_json, output=output)
