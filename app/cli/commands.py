"""The commands and their options; what a command does is imported when it runs, so that ``--help`` is quick."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from app.cli.endings import reported

app = typer.Typer(
    name="meshwright",
    help="Plans how a large language model is spread over a GPU cluster as it was measured, with a proof.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
cluster_app = typer.Typer(help="Look at clusters and keep them.", no_args_is_help=True)
app.add_typer(cluster_app, name="cluster")

Cluster = Annotated[str, typer.Option("--cluster", metavar="FILE", help="Cluster file.")]
Model = Annotated[
    str, typer.Option("--model", metavar="FILE_OR_NAME", help="Model file, config.json, or catalogue name.")
]
Workload = Annotated[str, typer.Option("--workload", metavar="FILE", help="Workload file.")]
Calibration = Annotated[
    str | None, typer.Option("--calibration", metavar="FILE", help="Own calibration; see calibrate.")
]
Json = Annotated[bool, typer.Option("--json", help="Print the plan as JSON and nothing else.")]
PlanFile = Annotated[
    Path | None, typer.Option("--output", metavar="FILE", help="Also write the plan as JSON to a file.")
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database-url", metavar="URL", help="Database; default: MESHWRIGHT_DATABASE_URL or our own."),
]


@app.command()
@reported
def plan(  # noqa: PLR0913, PLR0917 - one argument for each option
    cluster: Cluster,
    model: Model,
    workload: Workload,
    calibration: Calibration = None,
    as_json: Json = False,
    time_limit: Annotated[
        float | None, typer.Option("--time-limit", metavar="SECONDS", help="Stop searching after so long.")
    ] = None,
    effort: Annotated[
        int | None, typer.Option("--effort", min=1, max=100, help="Scale of every work budget.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", min=0, max=2**31 - 1, help="Seed of the search.")] = None,
    gap: Annotated[
        float | None, typer.Option("--gap", metavar="FRACTION", help="Good enough: 0.01 = 1 % from optimal.")
    ] = None,
    backend: Annotated[
        str | None, typer.Option("--backend", metavar="cbc|highs", help="Integer programming solver.")
    ] = None,
    output: PlanFile = None,
) -> None:
    """Search the best plan for a model and a workload on a measured cluster."""
    from app.cli import planning  # noqa: PLC0415 - see above

    options = planning.options_of(time_limit=time_limit, effort=effort, seed=seed, gap=gap, backend=backend)
    planning.run_plan(
        cluster=cluster,
        model=model,
        workload=workload,
        calibration=calibration,
        options=options,
        as_json=as_json,
        output=output,
    )


@app.command()
@reported
def predict(
    *,
    cluster: Cluster,
    model: Model,
    workload: Workload,
    configuration: Annotated[
        str, typer.Option("--configuration", metavar="FILE", help="Configuration file, given in full.")
    ],
    calibration: Calibration = None,
    as_json: Json = False,
    output: PlanFile = None,
) -> None:
    """Predict time and memory of a configuration given in full, without a search."""
    from app.cli.predicting import run_predict  # noqa: PLC0415 - see above

    run_predict(
        cluster=cluster,
        model=model,
        workload=workload,
        configuration=configuration,
        calibration=calibration,
        as_json=as_json,
        output=output,
    )


@app.command()
@reported
def export(
    plan_json: Annotated[str, typer.Argument(metavar="PLAN_JSON", help="Plan as JSON; - reads a pipe.")],
    target: Annotated[
        str,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="megatron, torchrun, slurm, hostfile, json and others; a wrong one lists them all.",
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            metavar="FILE",
            help="Write to a file instead of printing; a folder for a format of several files.",
        ),
    ] = None,
) -> None:
    """Write a plan for a launcher, a trace viewer or a spreadsheet."""
    from app.cli.exporting import run_export  # noqa: PLC0415 - see above

    run_export(plan_json=plan_json, target=target, output=output)


@app.command()
@reported
def calibrate(
    *,
    runs: Annotated[
        str | None, typer.Option("--runs", metavar="CSV", help="Measured steps, one run a line.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option("--profile", metavar="JSON", help="What the profiler script wrote.")
    ] = None,
    gpu: Annotated[
        str | None, typer.Option("--gpu", metavar="KIND", help="GPU kind of the profile, if its name is unknown.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", metavar="NAME", help="Its name; default: the output file's, or own.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the calibration as JSON.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the calibration as JSON and nothing else.")
    ] = False,
    store: Annotated[bool, typer.Option("--store", help="Keep it in the service's database.")] = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Fit the cost model to own runs, a profile of the own GPU, or both."""
    from app.cli.calibrating import run_calibrate  # noqa: PLC0415 - see above

    run_calibrate(
        runs=runs,
        profile=profile,
        gpu=gpu,
        name=name,
        output=output,
        as_json=as_json,
        store=store,
        database_url=database_url,
    )


@app.command()
@reported
def profiler() -> None:
    """Print the script that measures a GPU node: Python and PyTorch are all it needs there."""
    from app.cli.calibrating import run_profiler  # noqa: PLC0415 - see above

    run_profiler()


@app.command()
@reported
def serve(
    host: Annotated[str | None, typer.Option("--host", help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=0, max=65535, help="Port to listen on.")] = None,
) -> None:
    """Run the service: web pages, HTTP API and solver.  Settings: environment, prefix MESHWRIGHT_."""
    from app.cli.serving import run_server  # noqa: PLC0415 - see above

    run_server(host=host, port=port)


@app.command()
@reported
def worker() -> None:
    """Run solves only, for a server elsewhere on the same databases (PostgreSQL)."""
    from app.cli.serving import run_worker  # noqa: PLC0415 - see above

    run_worker()


@app.command()
@reported
def migrate(database_url: DatabaseUrl = None) -> None:
    """Bring the database to the newest schema; the embedded one does so by itself."""
    from app.cli.stored import run_migrate  # noqa: PLC0415 - see above

    run_migrate(database_url=database_url)


@cluster_app.command("import")
@reported
def import_cluster(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Cluster file.")],
    database_url: DatabaseUrl = None,
) -> None:
    """Store a cluster with its measurements; a cluster of that name is brought up to date."""
    from app.cli.stored import run_import  # noqa: PLC0415 - see above

    run_import(file=file, database_url=database_url)


@cluster_app.command("show")
@reported
def show_cluster(
    file_or_name: Annotated[str, typer.Argument(metavar="FILE_OR_NAME", help="Cluster file, or a stored one.")],
    database_url: DatabaseUrl = None,
) -> None:
    """Show nodes, links and what looks wrong about the measurements."""
    from app.cli.clusters import run_show  # noqa: PLC0415 - see above

    run_show(file_or_name=file_or_name, database_url=database_url)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"meshwright {version('meshwright')}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Plans how a large language model is spread over a GPU cluster as it was measured, with a proof."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code."""
    try:
        app(arguments)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    return 0
