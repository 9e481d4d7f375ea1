"""From documents to a serving problem that the planner can take, refused here where that is cheap to see."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.documents.serving import GOAL_FIELDS, ServingWorkloadDocument
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidConfiguration, InvalidInput, InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.serving.checks import check_serving
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker
from solver.serving.plan import check_problem
from solver.serving.problem import ServingProblem

Wanted = tuple[Architecture, ServingWorkloadDocument]
"""A model and the requests to it."""


def serving_problem(
    snapshot: ClusterSnapshot,
    first: Wanted,
    others: Sequence[Wanted] = (),
    *,
    fitted: FittedParameters | None = None,
) -> ServingProblem:
    """The problem of serving all models on a cluster with own rates; the goal is that of the first workload.

    Raises ``InvalidInput`` with fields as in the documents: ``workload`` of the first, ``others[0].workload`` ...
    """
    goal = first[1].to_goal()
    models = [first[1].served(first[0])]
    _check_pins(models[0], goal.pinned)
    for index, (architecture, workload) in enumerate(others):
        field = f"others[{index}].workload"
        if given := [name for name in GOAL_FIELDS if name in workload.model_fields_set]:
            reason = "stands in the workload of the first model, for all of them"
            value = workload.model_dump(mode="json")[given[0]]
            raise InvalidInput(f"{field}.{given[0]}", value, reason, "leave it out here")
        try:
            models.append(workload.served(architecture))
            _check_pins(models[-1], goal.pinned)
        except InvalidInput as error:
            path = error.field.replace("workload", field, 1)
            raise InvalidInput(path, error.value, error.problem, error.remedy) from error
    if fitted is not None:
        models = [replace(each, own=fitted.own_rates(each.workload.engine.name)) for each in models]
    problem = ServingProblem(snapshot, tuple(models), goal)
    check_problem(problem)
    return problem


def _check_pins(served: ServedModel, pinned: Mapping[str, int]) -> None:
    """Raise ``InvalidWorkload`` where no worker of the model on its engine can have the pinned degrees."""
    degrees = {"tensor": 1, "attention_data": 1, "expert": 1, "pipeline": 1} | dict(pinned)
    if "attention_data" not in pinned and "expert" in pinned:
        degrees["attention_data"] = degrees["expert"] // math.gcd(degrees["expert"], degrees["tensor"])
    try:
        worker = Worker(**degrees)
        check_serving(served.architecture, served.workload, ServingConfiguration(Pool(worker)))
    except InvalidConfiguration as error:
        name = error.field.rpartition(".")[2]
        value = pinned.get(name, pinned.get("expert"))
        raise InvalidWorkload(f"workload.pinned.{name}", value, error.problem, error.remedy) from error
