"""``meshwright events`` and ``conditions``: what was reported of stored clusters, and what follows from it."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.common_options import ClusterName, DatabaseUrl, EventFile, Json
from app.cli.endings import reported
from app.cli.failures.job_commands import app as jobs_app
from app.cli.failures.replan_commands import AdapterName, Degraded, Draining, Lost, replan, resilience
from app.cli.failures.replan_stored_commands import app as replans_app

app = typer.Typer(help="Report failures of a stored cluster, and look at what was reported.", no_args_is_help=True)


@app.command()
@reported
def report(  # noqa: PLR0913 - one argument for each option
    *,
    cluster: ClusterName,
    lost: Lost = None,
    degraded: Degraded = None,
    draining: Draining = None,
    leave_within: Annotated[
        str | None,
        typer.Option("--leave-within", metavar="TIME", help="How long what is draining still works: 14d, 6h."),
    ] = None,
    recovered: Annotated[
        list[str] | None, typer.Option("--recovered", metavar="PART", help="What works again.")
    ] = None,
    events: EventFile = None,
    adapter: AdapterName = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="NAME", help="Who says so; default: operator, or the format.")
    ] = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Report what failed or recovered; where a job is touched, a decision is opened with its safe answer."""
    from app.cli.failures.failure_options import ToldFailures  # noqa: PLC0415 - the database takes a while to load
    from app.cli.failures.failure_stored import run_report  # noqa: PLC0415 - see above
    from app.cli.failures.replan_options import seconds_of  # noqa: PLC0415 - see above

    told = ToldFailures(
        lost or (),
        degraded or (),
        draining or (),
        recovered or (),
        events=events,
        adapter=adapter,
        source=source,
        leave_within_s=None if leave_within is None else seconds_of("--leave-within", leave_within),
    )
    run_report(cluster, told, as_json=as_json, database_url=database_url)


@app.command("list")
@reported
def list_events(
    *,
    cluster: ClusterName,
    unknown: Annotated[
        bool, typer.Option("--unknown", help="Only reports about parts that the cluster does not have.")
    ] = False,
    device: Annotated[
        str | None, typer.Option("--device", help="Only those about hardware of this serial number or UUID.")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, max=200, help="At most so many.")] = 50,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List the reports on a cluster, the newest first."""
    from app.cli.failures.failure_stored import run_events  # noqa: PLC0415 - see above

    run_events(cluster, unknown=unknown, device=device, most=most, as_json=as_json, database_url=database_url)


@reported
def conditions(cluster: ClusterName, as_json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Show the parts of a stored cluster that are not well now, and nodes that should stay out."""
    from app.cli.failures.failure_stored import run_conditions  # noqa: PLC0415 - see above

    run_conditions(cluster, as_json=as_json, database_url=database_url)


@reported
def reliability(cluster: ClusterName, as_json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Show how often parts of a stored cluster failed and how long they were out, from its own reports."""
    from app.cli.failures.failure_stored import run_reliability  # noqa: PLC0415 - see above

    run_reliability(cluster, as_json=as_json, database_url=database_url)


def add_commands(program: typer.Typer) -> None:
    """Put the commands about failures into the program."""
    for command in (replan, resilience, conditions, reliability):
        program.command()(command)
    for name, group in (("jobs", jobs_app), ("events", app), ("replans", replans_app)):
        program.add_typer(group, name=name)
