"""``meshwright calibrate``, ``experiments`` and ``profiler``: own calibrations, and what to measure for one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.common_options import Calibration, Cluster, DatabaseUrl, FrameworkFile, Json, Model, Store, Workload
from app.cli.endings import reported


@reported
def calibrate(  # noqa: PLR0913 - one argument for each option
    *,
    runs: Annotated[
        str | None, typer.Option("--runs", metavar="CSV", help="Measured steps, one run a line.")
    ] = None,
    serving: Annotated[
        str | None, typer.Option("--serving", metavar="CSV", help="Measured points of serving, one a line.")
    ] = None,
    framework_files: Annotated[
        list[str] | None,
        typer.Option("--framework-file", metavar="FILE", help="What a framework of the runs does; repeatable."),
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
    store: Store = False,
    database_url: DatabaseUrl = None,
) -> None:
    """Fit the cost model to own runs, a profile of the own GPU, or points of serving."""
    from app.cli.calibration.calibrating import MeasuredFiles, run_calibrate  # noqa: PLC0415 - ``--help`` is quick

    run_calibrate(
        MeasuredFiles(runs, framework_files or (), profile, gpu, serving),
        name=name,
        output=output,
        as_json=as_json,
        store=store,
        database_url=database_url,
    )


@reported
def experiments(
    *,
    cluster: Cluster,
    model: Model,
    workload: Workload,
    framework_file: FrameworkFile = None,
    calibration: Calibration = None,
    runs: Annotated[int, typer.Option("--runs", metavar="COUNT", help="How many runs at most.")] = 6,
    as_json: Json = False,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="CSV", help="Write the table to fill in, for calibrate.")
    ] = None,
) -> None:
    """Choose the runs to measure next that make the predictions of good configurations surest."""
    from app.cli.calibration.experiments import run_experiments  # noqa: PLC0415 - help stays quick
    from app.cli.planning.planning import ProblemFiles  # noqa: PLC0415 - help stays quick
    from app.cli.planning.routed import Routed  # noqa: PLC0415 - help stays quick

    files = ProblemFiles(cluster, model, workload, framework_file, calibration, Routed((), (), False))
    run_experiments(files, runs=runs, as_json=as_json, output=output)


@reported
def profiler() -> None:
    """Print the script that measures a GPU node: Python and PyTorch are all it needs there."""
    from app.cli.calibration.calibrating import run_profiler  # noqa: PLC0415 - ``--help`` is quick

    run_profiler()


def add_commands(program: typer.Typer) -> None:
    """Put the commands into the program."""
    for command in (calibrate, experiments, profiler):
        program.command()(command)
