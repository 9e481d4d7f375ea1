"""Configurations given in full, priced without a search."""

from __future__ import annotations

from dataclasses import dataclass, replace

from app.documents.configuration import ConfigurationDocument
from cluster_models.errors import InvalidConfiguration, SolverFailed
from cluster_models.training.plan import Configuration, Plan
from solver.check import check_plan
from solver.check.memory import memory_violations
from solver.check.offload import room_violations
from solver.degrees.layout import filled_stages
from solver.predict import predict, unrestricted
from solver.problem import PlanningProblem


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted plan of a configuration; ``missing_bytes``: those its fullest GPU lacks, 0 where it fits."""

    plan: Plan
    missing_bytes: float


def predict_configuration(problem: PlanningProblem, *, document: ConfigurationDocument) -> Prediction:
    """The prediction, checked independently.

    Raises ``InvalidConfiguration`` where a rule is broken, with fields as they are called in ``document``, and
    ``SolverFailed`` where our own answer does not pass the check.
    """
    workload = replace(problem.workload, choose_power_caps=False)  # searches alone choose
    problem = replace(problem, workload=workload)
    given = _with_own_layers(document, problem).to_configuration(problem.architecture)
    plan = predict(problem, given, hosts=_hosts_in_order(document, given), gpus_per_node=document.gpus_per_node)
    if broken := _violations(plan, problem):
        raise SolverFailed(f"The prediction breaks its own rules: {' '.join(broken)}")
    missing = max(memory.total_bytes - memory.limit_bytes for memory in plan.memory)
    return Prediction(plan, max(0.0, missing))


def _with_own_layers(document: ConfigurationDocument, problem: PlanningProblem) -> ConfigurationDocument:
    """The document with the layers of a framework that spreads them by itself, where it leaves them out."""
    degrees = document.degrees
    if document.stage_layers is not None or not problem.workload.framework.fills_stages:
        return document
    filled = filled_stages(problem.architecture, degrees.pipeline)
    if filled is None:
        raise InvalidConfiguration(
            "degrees.pipeline",
            degrees.pipeline,
            f"{problem.workload.framework.name} would leave stages without any module",
            "lower pipeline",
        )
    return document.model_copy(update={"stage_layers": [list(filled)] * degrees.virtual_pipeline})


def _hosts_in_order(document: ConfigurationDocument, given: Configuration) -> tuple[str, ...] | None:
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
    """Findings of the checker, apart from the limits a prediction may exceed: memory, and the search's leave."""
    asked = unrestricted(problem)
    judged = plan if plan.workload is None else replace(plan, workload=asked.workload)
    expected = {*memory_violations(judged, asked), *room_violations(judged, asked)}
    return tuple(found for found in check_plan(judged, asked) if found not in expected)
