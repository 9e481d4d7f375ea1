"""``meshwright plans``: plans that a service keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.common_options import Cluster, DatabaseUrl, Json, Most, PlanFile, SolverName, TimeLimit
from app.cli.endings import reported

app = typer.Typer(help="Look at the plans of a service, and call them off.", no_args_is_help=True)

PlanId = Annotated[str, typer.Argument(metavar="PLAN", help="Id of the plan.")]


@reported
def fleet(
    *,
    jobs: Annotated[
        str,
        typer.Argument(metavar="FLEET_FILE", help="Jobs, their weights, deadlines and budgets, and offers."),
    ],
    cluster: Cluster,
    time_limit: TimeLimit = None,
    backend: SolverName = None,
    as_json: Json = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print the step of each job by GPUs as well.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Also write the fleet plan as JSON to a file.")
    ] = None,
) -> None:
    """Decide how many GPUs each of several jobs gets, on which nodes, and what to rent."""
    from app.cli.planning.fleet import run_fleet  # noqa: PLC0415 - ``--help`` is quick
    from app.cli.planning.planning import options_of  # noqa: PLC0415 - see above

    options = options_of(time_limit=time_limit, effort=None, seed=None, gap=None, backend=backend)
    run_fleet(jobs, cluster=cluster, options=options, as_json=as_json, everything=verbose, output=output)


@app.command("list")
@reported
def list_plans(
    *,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Only those for this cluster.")
    ] = None,
    status: Annotated[
        str | None, typer.Option("--status", metavar="STATUS", help="Only those: queued, running, succeeded ...")
    ] = None,
    most: Most = 20,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List plans, the newest first."""
    from app.cli.planning.stored_plans import run_list  # noqa: PLC0415 - ``--help`` is quick

    run_list(cluster=cluster, status=status, most=most, as_json=as_json, database_url=database_url)


@app.command()
@reported
def show(
    *,
    plan: PlanId,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print hosts, memory by part and more.")] = False,
    output: PlanFile = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Show a plan, or why there is none."""
    from app.cli.planning.stored_plans import run_show  # noqa: PLC0415 - see above

    run_show(plan, as_json=as_json, everything=verbose, output=output, database_url=database_url)


@app.command()
@reported
def portfolio(
    *,
    request: Annotated[str, typer.Argument(metavar="FILE", help="Body of /api/v1/portfolios; - reads a pipe.")],
    as_json: Json = False,
) -> None:
    """Ask a service (--server) for several plans at once, as on 8, 16 and 32 GPUs, and prove the best of all."""
    from app.cli.planning.portfolios import run_portfolio  # noqa: PLC0415 - see above

    run_portfolio(request, as_json=as_json)


@app.command()
@reported
def cancel(plan: PlanId, database_url: DatabaseUrl = None) -> None:
    """Call off a plan that waits or runs; one that has ended stays."""
    from app.cli.planning.stored_plans import run_cancel  # noqa: PLC0415 - see above

    run_cancel(plan, database_url=database_url)


@app.command()
@reported
def stop(plan: PlanId, database_url: DatabaseUrl = None) -> None:
    """End a search with the best plan so far; one that has ended stays."""
    from app.cli.planning.stored_plans import run_stop  # noqa: PLC0415 - see above

    run_stop(plan, database_url=database_url)


@app.command()
@reported
def delete(plan: PlanId, database_url: DatabaseUrl = None) -> None:
    """Forget a plan; one that waits or runs is called off."""
    from app.cli.planning.stored_plans import run_delete  # noqa: PLC0415 - see above

    run_delete(plan, database_url=database_url)
