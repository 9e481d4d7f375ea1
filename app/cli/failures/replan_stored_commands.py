"""``meshwright replans``: decisions on failures of stored clusters."""

from __future__ import annotations

from typing import Annotated

import typer

from app.cli.common_options import ClusterName, DatabaseUrl, DecisionFolder, Json, LaunchFormats, LaunchOptions
from app.cli.endings import reported

app = typer.Typer(help="Look at decisions on failures, approve them, and say how they went.", no_args_is_help=True)

Replan = Annotated[
    str, typer.Argument(metavar="REPLAN", help="Id of a decision, its beginning, or a cluster: the one open there.")
]
By = Annotated[
    str | None, typer.Option("--by", metavar="NAME", help="Who does it, for the record; else who is logged in.")
]
Safe = Annotated[bool, typer.Option("--safe", help="The safe answer, which is there within a second.")]


@app.command("list")
@reported
def list_replans(
    *,
    cluster: Annotated[
        str | None, typer.Argument(metavar="[CLUSTER]", help="Only of this stored cluster.", show_default=False)
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only those: collecting, proposed, applied ...")
    ] = None,
    most: Annotated[int, typer.Option("--most", min=1, max=200, help="At most so many.")] = 20,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List decisions, the newest first."""
    from app.cli.failures.replan_stored import run_list  # noqa: PLC0415 - the database takes a while to load

    run_list(cluster, status=status, most=most, as_json=as_json, database_url=database_url)


@app.command()
@reported
def show(
    *,
    replan: Replan,
    safe: Safe = False,
    as_json: Json = False,
    output: DecisionFolder = None,
    formats: LaunchFormats = None,
    given: LaunchOptions = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Show a decision: what to do, what becomes of each job, and why."""
    from app.cli.failures.replan_files import DecisionFiles  # noqa: PLC0415 - see above
    from app.cli.failures.replan_stored import run_show  # noqa: PLC0415 - see above

    files = DecisionFiles(output, tuple(formats or ()), tuple(given or ()))
    run_show(replan, safe=safe, as_json=as_json, files=files, database_url=database_url)


@app.command()
@reported
def approve(
    *, replan: Replan, safe: Safe = False, by: By = None, as_json: Json = False, database_url: DatabaseUrl = None
) -> None:
    """Take the GPUs that a decision needs, all or none; nothing is stopped or started by it."""
    from app.cli.failures.replan_stored import run_approve  # noqa: PLC0415 - see above

    run_approve(replan, safe=safe, by=by, as_json=as_json, database_url=database_url)


@app.command()
@reported
def start(replan: Replan, by: By = None, as_json: Json = False, database_url: DatabaseUrl = None) -> None:
    """Say that an approved decision is being carried out."""
    from app.cli.failures.replan_stored import run_start  # noqa: PLC0415 - see above

    run_start(replan, by=by, as_json=as_json, database_url=database_url)


@app.command()
@reported
def complete(
    *,
    replan: Replan,
    job: Annotated[
        str | None,
        typer.Option("--job", metavar="NAME", help="Only this job: a later failure finds it as it runs now."),
    ] = None,
    by: By = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Say that one job, or all, run as decided: the GPUs that they left are free."""
    from app.cli.failures.replan_stored import run_complete  # noqa: PLC0415 - see above

    run_complete(replan, job=job, by=by, as_json=as_json, database_url=database_url)


@app.command()
@reported
def fail(
    *,
    replan: Replan,
    problem: Annotated[str, typer.Option("--problem", metavar="TEXT", help="What happened.")],
    by: By = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Say that it could not be carried out: GPUs of jobs not completed go back to their holders."""
    from app.cli.failures.replan_stored import run_fail  # noqa: PLC0415 - see above

    run_fail(replan, problem=problem, by=by, as_json=as_json, database_url=database_url)


@app.command()
@reported
def cancel(
    *,
    replan: Replan,
    problem: Annotated[
        str, typer.Option("--problem", metavar="TEXT", help="Why it is called off.")
    ] = "It was called off.",
    by: By = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Call off a decision that is not applied yet; what it had taken is given back."""
    from app.cli.failures.replan_stored import run_cancel  # noqa: PLC0415 - see above

    run_cancel(replan, problem=problem, by=by, as_json=as_json, database_url=database_url)


@app.command()
@reported
def sweep(
    *,
    cluster: ClusterName,
    each: Annotated[
        str | None,
        typer.Option("--each", metavar="LABEL", help="Each of these fails: node, leaf, rack ...; default: node."),
    ] = None,
    failures: Annotated[
        str | None,
        typer.Option("--failures", metavar="FILE", help="Failures in place of that: names and losses."),
    ] = None,
    worst: Annotated[int, typer.Option("--worst", min=1, help="Show so many, the worst first.")] = 20,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Say which of many failures hurts most, and what none of the spares covers; nothing is changed."""
    from app.cli.failures.sweeping import run_sweep  # noqa: PLC0415 - see above

    run_sweep(cluster, each=each, failures=failures, worst=worst, as_json=as_json, database_url=database_url)
