"""``meshwright predict``: price a configuration given in full."""

from __future__ import annotations

from pathlib import Path

import typer

from app.cli.endings import Ending, Failed, complain
from app.cli.files import check_writable, naming, read_configuration
from app.cli.planning.planning import ProblemFiles, deliver, read_problem
from app.cli.planning.remote_planning import remote_prediction
from app.cli.server import chosen_server
from app.presentation.figures import gib
from app.services.planning.predictions import predict_configuration
from cluster_models.errors import SolverFailed
from cluster_models.training.plan import Plan


def run_predict(
    files: ProblemFiles, *, configuration: str, as_json: bool, output: Path | None, everything: bool
) -> None:
    """Predict, and hand out; ends with code 3 where the configuration does not fit the memory."""
    check_writable(output)
    if chosen_server().address is None:
        plan, missing_bytes = _predicted(files, configuration)
    else:
        plan, missing_bytes = remote_prediction(files, configuration)
    deliver(plan, as_json=as_json, output=output, everything=everything)
    if missing_bytes > 0:
        worst = max(plan.memory, key=lambda memory: memory.total_bytes - memory.limit_bytes)
        complain(
            f"meshwright: the configuration does not fit: stage {worst.stage} misses "
            f"{gib(missing_bytes)} on each GPU"
        )
        raise typer.Exit(Ending.NO_PLAN)


def _predicted(files: ProblemFiles, configuration: str) -> tuple[Plan, float]:
    """The configuration as a plan, and the bytes that its fullest GPU lacks."""
    problem = read_problem(files)
    document = read_configuration(configuration)
    with naming(configuration):
        try:
            prediction = predict_configuration(problem, document=document)
        except SolverFailed as error:
            raise Failed(str(error)) from error
    return prediction.plan, prediction.missing_bytes
