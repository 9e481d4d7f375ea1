"""``meshwright cluster``: its commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.common_options import DatabaseUrl, Json
from app.cli.endings import reported

app = typer.Typer(help="Look at clusters and keep them.", no_args_is_help=True)


@app.command("import")
@reported
def import_cluster(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Cluster file.")],
    database_url: DatabaseUrl = None,
) -> None:
    """Store a cluster with its measurements; a cluster of that name is brought up to date."""
    from app.cli.clusters.clusters import run_import  # noqa: PLC0415 - the database takes a while to load

    run_import(file=file, database_url=database_url)


@app.command("show")
@reported
def show_cluster(
    file_or_name: Annotated[str, typer.Argument(metavar="FILE_OR_NAME", help="Cluster file, or a stored one.")],
    database_url: DatabaseUrl = None,
) -> None:
    """Show nodes, links and what looks wrong about the measurements."""
    from app.cli.clusters.clusters import run_show  # noqa: PLC0415 - the database takes a while to load

    run_show(file_or_name=file_or_name, database_url=database_url)


@app.command("list")
@reported
def list_clusters(as_json: Json = False, database_url: DatabaseUrl = None) -> None:
    """List the stored clusters by name."""
    from app.cli.clusters.clusters import run_list_clusters  # noqa: PLC0415 - the database takes a while to load

    run_list_clusters(as_json=as_json, database_url=database_url)
