"""The program: its commands by feature, each of which is imported when it runs: ``--help`` is quick."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated

import typer

from app.cli.calibration import calibration_commands
from app.cli.clusters import import_commands
from app.cli.endings import reported
from app.cli.failures import failure_commands
from app.cli.groups import add_groups
from app.cli.planning import comparison_commands, lengths_command, planning_commands
from app.cli.server import Background, Server, ServerAddress, ServerKey, choose_server
from app.cli.service import access_commands, service_commands

app = typer.Typer(
    name="meshwright",
    help="Plans how a large language model is spread over a GPU cluster as it was measured, with a proof.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
add_groups(app)
for commands in (
    planning_commands,
    import_commands,
    access_commands,
    comparison_commands,
    failure_commands,
    lengths_command,
    service_commands,
    calibration_commands,
):
    commands.add_commands(app)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"meshwright {version('meshwright')}")
        raise typer.Exit


@app.callback()
@reported
def _options(
    context: typer.Context,
    *,
    server: ServerAddress = None,
    key: ServerKey = None,
    background: Background = False,
    _version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Plans how a large language model is spread over a GPU cluster as it was measured, with a proof."""
    source = context.get_parameter_source("server")
    is_typed = source is not None and source.name == "COMMANDLINE"
    choose_server(Server(server, key, background), command=context.invoked_subcommand, is_typed=is_typed)


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    try:
        app(arguments)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    return 0
