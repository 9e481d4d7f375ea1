"""What ``meshwright predict`` does: price a configuration given in full."""

from __future__ import annotations

from pathlib import Path

from app.cli.endings import Failed
from app.cli.files import naming, read_configuration
from app.cli.planning import deliver, read_problem
from cluster_models.errors import InvalidConfiguration, SolverFailed
from solver.predict import predict


def run_predict(
    *, cluster: str, model: str, workload: str, configuration: str, as_json: bool, output: Path | None
) -> None:
    """Price a configuration given in full."""
    problem = read_problem(cluster, model, workload)
    document = read_configuration(configuration)
    with naming(configuration):
        given = document.to_configuration(problem.architecture)
        hosts = document.host_order()
        if hosts is not None and document.gpus_per_node not in (None, given.degrees.gpus / len(hosts)):
            raise InvalidConfiguration(
                "gpus_per_node",
                document.gpus_per_node,
                f"{len(hosts)} hosts x {document.gpus_per_node} GPUs are not the {given.degrees.gpus} ranks "
                f"of {given.degrees}",
            )
    try:
        result = predict(problem, given, hosts=hosts)
    except SolverFailed as error:
        raise Failed(str(error)) from error
    deliver(result, problem, as_json=as_json, output=output)
