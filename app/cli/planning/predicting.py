"""``meshwright predict``: price a configuration given in full."""

from __future__ import annotations

from pathlib import Path

import typer

from app.cli.endings import Ending, Failed, complain
from app.cli.files import check_writable, naming, read_configuration
from app.cli.planning.planning import ProblemFiles, deliver, read_problem
from app.presentation.figures import gib
from app.services.planning.predictions import predict_configuration
from cluster_models.errors import SolverFailed


def run_predict(
    files: ProblemFiles, *, configuration: str, as_json: bool, output: Path | None, everything: bool
) -> None:
    """Predict, and hand out; ends with code 3 where the configuration does not fit the memory."""
    check_writable(output)
    problem = read_problem(files)
    document = read_configuration(configuration)
    with naming(configuration):
        try:
            prediction = predict_configuration(problem, document=document)
        except SolverFailed as error:
            raise Failed(str(error)) from error
    plan = prediction.plan
    deliver(plan, as_json=as_json, output=output, everything=everything)
    if prediction.missing_bytes > 0:
        worst = max(plan.memory, key=lambda memory: memory.total_bytes - memory.limit_bytes)
        complain(
            f"meshwright: the configuration does not fit: stage {worst.stage} misses "
            f"{gib(prediction.missing_bytes)} on each GPU"
        )
        raise typer.Exit(Ending.NO_PLAN)
