"""``meshwright jobs``: jobs that run on stored clusters, and the nodes kept as their spares."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.common_options import ClusterName, DatabaseUrl, Json
from app.cli.endings import reported

app = typer.Typer(help="Keep the jobs that run on stored clusters.", no_args_is_help=True)

JobName = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job.")]


@app.command()
@reported
def add(
    *,
    cluster: ClusterName,
    job: JobName,
    plan: Annotated[
        str, typer.Option("--plan", metavar="FILE_OR_ID", help="Its plan: a file, or a plan of the service.")
    ],
    weight: Annotated[float, typer.Option("--weight", metavar="NUMBER", help="Worth of its work.")] = 1.0,
    recovery: Annotated[
        str | None, typer.Option("--recovery", metavar="FILE", help="Checkpoints, restart times, what it may do.")
    ] = None,
    proposed: Annotated[
        bool, typer.Option("--proposed", help="It does not run yet: its GPUs are not taken.")
    ] = False,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Store a job that runs by a plan: its GPUs are the job's from now on."""
    from app.cli.failures.job_stored import AddedJob, run_add  # noqa: PLC0415 - the database takes a while to load

    added = AddedJob(cluster, job, plan, weight, recovery, runs=not proposed)
    run_add(added, as_json=as_json, database_url=database_url)


@app.command("list")
@reported
def list_jobs(cluster: ClusterName, as_json: Json = False, database_url: DatabaseUrl = None) -> None:
    """List the jobs of a cluster."""
    from app.cli.failures.job_stored import run_list  # noqa: PLC0415 - see above

    run_list(cluster, as_json=as_json, database_url=database_url)


@app.command()
@reported
def show(cluster: ClusterName, job: JobName, as_json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Show a job: the plan it runs by, its nodes, and what may be done with it."""
    from app.cli.failures.job_stored import run_show  # noqa: PLC0415 - see above

    run_show(cluster, job, as_json=as_json, database_url=database_url)


@app.command()
@reported
def remove(cluster: ClusterName, job: JobName, database_url: DatabaseUrl = None) -> None:
    """Forget a job that has ended: its GPUs are free."""
    from app.cli.failures.job_stored import run_remove  # noqa: PLC0415 - see above

    run_remove(cluster, job, database_url=database_url)


@app.command()
@reported
def spares(
    cluster: ClusterName,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODES]...", help="Keep these in place of all.", show_default=False),
    ] = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the nodes kept for jobs that lose one, or keep others."""
    from app.cli.failures.job_stored import run_spares  # noqa: PLC0415 - see above

    run_spares(cluster, nodes or (), as_json=as_json, database_url=database_url)
