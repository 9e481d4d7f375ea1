"""``meshwright runs``: runs that were measured, beside their predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.common_options import DatabaseUrl, Json, Most
from app.cli.endings import reported

app = typer.Typer(
    help="Report measured runs, see how far predictions were off, and calibrate by them.", no_args_is_help=True
)

OnCluster = Annotated[
    str | None, typer.Option("--cluster", metavar="NAME", help="Only runs on this stored cluster.")
]
OfFramework = Annotated[
    str | None, typer.Option("--framework", metavar="NAME", help="Only runs of this framework generation.")
]


@app.command()
@reported
def report(
    *,
    plan: Annotated[
        str,
        typer.Option("--plan", metavar="ID_OR_FILE", help="Plan or running plan it ran by, or a plan file."),
    ],
    log: Annotated[
        str | None,
        typer.Option("--log", metavar="FILE", help="Log of the run, with steps and peak memory; - reads a pipe."),
    ] = None,
    step_time: Annotated[
        float | None, typer.Option("--step-time", metavar="SECONDS", help="Median step, in place of a log.")
    ] = None,
    memory: Annotated[
        float | None, typer.Option("--memory", metavar="GIB", help="Peak memory of the fullest GPU.")
    ] = None,
    memory_counter: Annotated[
        str, typer.Option("--memory-counter", metavar="NAME", help="driver, reserved or allocated.")
    ] = "driver",
    note: Annotated[str, typer.Option("--note", metavar="TEXT", help="For people.")] = "",
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Report a finished run: it is kept beside what its plan had predicted."""
    from app.cli.feedback.measured_runs import Measured, run_report  # noqa: PLC0415 - ``--help`` is quick

    measured = Measured(log, step_time, memory, memory_counter, note)
    run_report(plan, measured, as_json=as_json, database_url=database_url)


@app.command("list")
@reported
def list_runs(
    *,
    cluster: OnCluster = None,
    framework: OfFramework = None,
    most: Most = 20,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """List measured runs beside their predictions, the last that ended first."""
    from app.cli.feedback.measured_runs import run_list  # noqa: PLC0415 - see above

    run_list(cluster=cluster, framework=framework, most=most, as_json=as_json, database_url=database_url)


@app.command()
@reported
def drift(
    *,
    cluster: OnCluster = None,
    framework: OfFramework = None,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Say how far steps are from predictions, since when, and which nodes and links they point to."""
    from app.cli.feedback.measured_runs import run_drift  # noqa: PLC0415 - see above

    run_drift(cluster=cluster, framework=framework, as_json=as_json, database_url=database_url)


@app.command()
@reported
def recalibrate(
    *,
    cluster: OnCluster = None,
    framework: OfFramework = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="What to call the calibration.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Also write the calibration as JSON.")
    ] = None,
    store: Annotated[bool, typer.Option("--store", help="Accept it: keep it for plans to name.")] = False,
    as_json: Json = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Fit a calibration to reported runs and say what it would change; it is kept only if asked for."""
    from app.cli.feedback.measured_runs import run_recalibrate  # noqa: PLC0415 - see above

    asked = {"cluster": cluster, "framework": framework, "name": name}
    run_recalibrate(asked, output=output, store=store, as_json=as_json, database_url=database_url)
