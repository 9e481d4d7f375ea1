"""``meshwright experiments``: which runs to measure for a calibration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.common_options import Calibration, Cluster, FrameworkFile, Json, Model, Workload
from app.cli.endings import reported


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
