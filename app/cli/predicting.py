"""What ``meshwright predict`` does: price a configuration given in full."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import typer

from app.cli.endings import Ending, Failed, complain
from app.cli.files import naming, read_configuration
from app.cli.planning import deliver, read_problem
from app.documents.configuration import ConfigurationDocument
from app.web.views.figures import gib
from cluster_models.errors import InvalidConfiguration, SolverFailed
from cluster_models.plan import Configuration, Plan
from cluster_models.workload import Recompute, Sharding
from solver.check import check_plan
from solver.check.memory import memory_violations
from solver.predict import predict
from solver.problem import PlanningProblem


def run_predict(
    *, cluster: str, model: str, workload: str, configuration: str, as_json: bool, output: Path | None
) -> None:
    """Predict, and hand out; ends with code 3 where the configuration does not fit the memory."""
    problem = read_problem(cluster, model, workload)
    document = read_configuration(configuration)
    with naming(configuration):
        given = document.to_configuration(problem.architecture)
        hosts = _hosts(document, given)
        try:
            plan = predict(problem, given, hosts=hosts, gpus_per_node=document.gpus_per_node)
        except SolverFailed as error:
            raise Failed(str(error)) from error
    deliver(plan, violations=_violations(plan, problem), as_json=as_json, output=output)
    worst = max(plan.memory, key=lambda memory: memory.total_bytes - memory.limit_bytes)
    if worst.total_bytes > worst.limit_bytes:
        complain(
            f"meshwright: the configuration does not fit: stage {worst.stage} misses "
            f"{gib(worst.total_bytes - worst.limit_bytes)} on each GPU"
        )
        raise typer.Exit(Ending.NO_PLAN)


def _hosts(document: ConfigurationDocument, given: Configuration) -> tuple[str, ...] | None:
    """The hosts in rank order, if they are given; raises where they do not make up the ranks."""
    hosts = document.host_order()
    if hosts is not None and document.gpus_per_node not in (None, given.degrees.gpus / len(hosts)):
        raise InvalidConfiguration(
            "gpus_per_node",
            document.gpus_per_node,
            f"{len(hosts)} hosts x {document.gpus_per_node} GPUs are not the {given.degrees.gpus} ranks "
            f"of {given.degrees}",
        )
    return hosts


def _violations(plan: Plan, problem: PlanningProblem) -> tuple[str, ...]:
    """What the checker finds, apart from the limits a prediction may exceed: memory, and the search's leave."""
    workload = replace(
        problem.workload,
        pinned={},
        forbidden={},
        recompute=tuple(Recompute),
        sharding=tuple(Sharding),
        max_gpus=None,
        avoid_nodes=(),
    )
    asked = replace(problem, workload=workload)
    judged = plan if plan.workload is None else replace(plan, workload=workload)
    expected = set(memory_violations(judged, asked))
    return tuple(found for found in check_plan(judged, asked) if found not in expected)
