"""``meshwright import``, ``import-formats`` and ``measure``: clusters from tools, and what to measure on them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.common_options import DatabaseUrl, Json, LaunchOptions, Store
from app.cli.endings import reported


@reported
def import_files(  # noqa: PLR0913 - one argument for each option
    *,
    files: Annotated[
        list[str], typer.Argument(metavar="FILES...", help="Files and folders; - reads standard input.")
    ],
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="What to call the cluster.")
    ] = None,
    into: Annotated[
        str | None,
        typer.Option("--into", metavar="FILE_OR_NAME", help="Add to this cluster file, or to a stored cluster."),
    ] = None,
    hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--host",
            metavar="FILE=NODE",
            help="The node that a file is from, * = one of many alike; of a folder for each node: */FILE={folder}.",
        ),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Answer a question of the report, by its key."),
    ] = None,
    accepted: Annotated[
        list[str] | None,
        typer.Option("--accept", metavar="KEY", help="Use figures in spite of a doubt: FILE:LINE:CODE, or a CODE."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the cluster file that plan takes.")
    ] = None,
    store: Store = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the whole report as JSON and nothing else.")
    ] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Read what other tools printed, and say what was understood; nothing is kept unless asked for."""
    from app.cli.clusters.import_next import Asked  # noqa: PLC0415 - ``--help`` is quick
    from app.cli.clusters.importing import run_import  # noqa: PLC0415 - see above

    options = (("--host", hosts or ()), ("--set", settings or ()), ("--accept", accepted or ()))
    asked = Asked(
        files=tuple(files),
        cluster=cluster,
        into=into,
        output=output,
        store=store,
        answers=tuple(word for option, values in options for value in values for word in (option, value)),
        database_url=database_url,
    )
    run_import(asked, hosts=hosts or (), settings=settings or (), accepted=accepted or (), as_json=as_json)


@reported
def import_formats(
    as_json: Annotated[bool, typer.Option("--json", help="Print them as JSON and nothing else.")] = False,
) -> None:
    """List the kinds of file that import knows."""
    from app.cli.clusters.importing import run_import_formats  # noqa: PLC0415 - see above

    run_import_formats(as_json=as_json)


@reported
def measure(  # noqa: PLR0913 - one argument for each option
    *,
    cluster: Annotated[str, typer.Argument(metavar="FILE_OR_NAME", help="Cluster file, or a stored one.")],
    plan: Annotated[
        str | None,
        typer.Option(
            "--plan", metavar="FILE_OR_ID", help="Measure what this plan, a file or a stored one, rests on."
        ),
    ] = None,
    launcher: Annotated[
        str | None,
        typer.Option("--for", metavar="slurm|mpi|kubernetes", help="Print the script that measures, or write it."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="DIR", help="Write the scripts into a folder.")
    ] = None,
    most_pairs: Annotated[int, typer.Option("--most-pairs", min=1, help="At most so many pairs.")] = 200,
    most_minutes: Annotated[
        float, typer.Option("--most-minutes", metavar="MINUTES", help="At most about so long.")
    ] = 240.0,
    given: LaunchOptions = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Choose the pairs of nodes to measure next, and write nccl-tests scripts that measure them."""
    from app.cli.clusters.measuring import run_measure  # noqa: PLC0415 - see above

    run_measure(
        cluster=cluster,
        plan=plan,
        launcher=launcher,
        given=given or (),
        limits=(most_pairs, most_minutes),
        as_json=as_json,
        output=output,
        database_url=database_url,
    )


def add_commands(program: typer.Typer) -> None:
    """Put the commands into the program."""
    program.command("import")(import_files)
    program.command("import-formats")(import_formats)
    program.command()(measure)
