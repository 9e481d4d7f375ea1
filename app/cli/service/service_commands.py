"""Commands that run the service, keep its databases and hand out the examples."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.common_options import DatabaseUrl
from app.cli.endings import reported

BackupFolder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the copies.")]


@reported
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Port to listen on.")] = None,
) -> None:
    """Run the service: web pages, HTTP API and solver.  Settings: environment, prefix MESHWRIGHT_."""
    from app.cli.service.serving import run_server  # noqa: PLC0415 - ``--help`` is quick

    run_server(host=host, port=port)


@reported
def worker() -> None:
    """Run solves only, for a server elsewhere on the same databases (PostgreSQL)."""
    from app.cli.service.serving import run_worker  # noqa: PLC0415 - ``--help`` is quick

    run_worker()


@reported
def migrate(database_url: DatabaseUrl = None) -> None:
    """Bring the database to the newest schema; the embedded one does so by itself."""
    from app.cli.clusters.stored import run_migrate  # noqa: PLC0415 - ``--help`` is quick

    run_migrate(database_url=database_url)


@reported
def backup(folder: BackupFolder) -> None:
    """Copy the embedded databases, while the service runs if need be; pg_dump does so for PostgreSQL."""
    from app.cli.service.backups import run_backup  # noqa: PLC0415 - ``--help`` is quick

    run_backup(folder)


@reported
def restore(folder: BackupFolder) -> None:
    """Put copies of both embedded databases back, where none are; the service must not run."""
    from app.cli.service.backups import run_restore  # noqa: PLC0415 - ``--help`` is quick

    run_restore(folder)


@reported
def examples(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder to write them to.")],
) -> None:
    """Write the shipped examples of clusters, models and workloads into a folder."""
    from app.cli.service.example_copies import run_examples  # noqa: PLC0415 - ``--help`` is quick

    run_examples(folder)


@reported
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Check the installation: packages, solvers, settings, databases, address; each fault with its remedy."""
    from app.cli.service.doctor import run_doctor  # noqa: PLC0415 - ``--help`` is quick

    run_doctor(as_json=as_json, database_url=database_url)


def add_commands(program: typer.Typer) -> None:
    """Put these commands into the program."""
    for command in (serve, worker, migrate, backup, restore, examples, doctor):
        program.command()(command)
