"""Plans that come in full over the wire: looked at as closely as if we had not written them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Final

from app.documents.plan import PlanDocument
from app.documents.reading import FieldProblem, InvalidDocument
from app.documents.serving_plan import ServingPlanDocument
from app.exports.launch_value import launch_of
from app.services.running.running_plans import PlanSource
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan
from cluster_models.units import GIB, TFLOP

LONGEST_STEP_S: Final = 1e9
_SUM_TOLERANCE: Final = 0.01
_LONGEST_NAME: Final = 200
_FASTEST_FLOPS_PER_S: Final = 1e18
_MOST_BYTES: Final = 1e15
_REMEDY: Final = "give the plan as it was answered"


def source_of(plan: str | PlanDocument | ServingPlanDocument) -> PlanSource:
    """Where a plan comes from; raises ``InvalidInput``, fields as in the plan, of one that contradicts itself."""
    if isinstance(plan, str):
        return PlanSource(plan_id=plan)
    return PlanSource(plan=given_plan(plan) if isinstance(plan, PlanDocument) else given_serving_plan(plan))


def given_plan(document: PlanDocument) -> Plan:
    """The plan of a document; raises ``InvalidInput`` where a sum is broken or a figure cannot be."""
    plan = document.to_value()
    launch_of(plan)
    if problems := list(_problems(plan)):
        raise InvalidDocument(problems)
    return plan


def given_serving_plan(document: ServingPlanDocument) -> ServingPlan:
    """The plan of a document; raises ``InvalidInput`` where its replicas and figures do not go together."""
    plan = document.to_plan()
    if problems := list(_serving_problems(plan)):
        raise InvalidDocument(problems)
    return plan


def _serving_problems(plan: ServingPlan) -> Iterator[FieldProblem]:
    if len(plan.figures) != len(plan.models):
        yield FieldProblem(
            "figures", len(plan.figures), f"must be one for each of {len(plan.models)} models", _REMEDY
        )
    if served := set(range(len(plan.models))) - {group.model for group in plan.groups}:
        yield FieldProblem("groups", len(plan.groups), f"has none for the model {min(served)}", _REMEDY)
    if strangers := {group.model for group in plan.groups} - set(range(len(plan.models))):
        yield FieldProblem("groups", len(plan.groups), f"names the model {max(strangers)}, which is none", _REMEDY)
    if sorted(replica.number for replica in plan.replicas) != list(range(len(plan.replicas))):
        yield FieldProblem("groups", len(plan.groups), "must number replicas from 0, each once", _REMEDY)
    for replica in plan.replicas:
        if (gpus := sum(len(place.gpus) for place in replica.places)) != replica.worker.gpus:
            problem = f"has {gpus} GPUs for {replica.worker}, which takes {replica.worker.gpus}"
            yield FieldProblem(f"replicas[{replica.number}].places", gpus, problem, _REMEDY)
    if plan.gpus != sum(replica.worker.gpus for replica in plan.replicas):
        yield FieldProblem("gpus", plan.gpus, "is not the sum over its replicas", _REMEDY)


def _problems(plan: Plan) -> Iterator[FieldProblem]:
    if not 0 < len(plan.model) <= _LONGEST_NAME or not plan.model.isprintable():
        yield FieldProblem("model", plan.model, f"must have 1 to {_LONGEST_NAME} characters on one line")
    for place in plan.placement.ranks:
        if place.gpu < 0:
            yield FieldProblem(f"ranks[{place.rank}].gpu", place.gpu, "must not be negative")
    yield from _stage_problems(plan)
    step_s = plan.time.step_s
    if not 0 < step_s <= LONGEST_STEP_S:
        yield FieldProblem("time.step_time_s", step_s, f"must be positive, at most {LONGEST_STEP_S:g}")
    else:
        yield from _figure_problems(plan)


def _stage_problems(plan: Plan) -> Iterator[FieldProblem]:
    stages = list(range(plan.configuration.degrees.pipeline))
    for name in ("stages", "memory"):
        if (found := [each.stage for each in getattr(plan, name)]) != stages:
            problem = f"must be those of the {len(stages)} pipeline ranks, in their order"
            yield FieldProblem(name, found, problem, _REMEDY)
    for memory in plan.memory:
        if not (0 < memory.limit_bytes <= _MOST_BYTES and 0 < memory.total_bytes <= _MOST_BYTES):
            yield FieldProblem(
                f"memory[{memory.stage}]", memory.limit_bytes / GIB, "is not the memory of a GPU", _REMEDY
            )


def _figure_problems(plan: Plan) -> Iterator[FieldProblem]:
    step_s = plan.time.step_s
    for part in fields(plan.time):
        if not -_SUM_TOLERANCE * step_s <= (value := getattr(plan.time, part.name)) <= LONGEST_STEP_S:
            yield FieldProblem(f"time.{part.name}", value, "is not part of the step time")
    if not 0 < plan.model_flops_per_s_per_gpu <= _FASTEST_FLOPS_PER_S:
        value = plan.model_flops_per_s_per_gpu / TFLOP
        yield FieldProblem("model_tflops_per_s_per_gpu", value, "is not a rate of a GPU", _REMEDY)
    if plan.workload is not None:
        expected = plan.workload.tokens_per_step / step_s
        if not math.isclose(plan.tokens_per_s, expected, rel_tol=_SUM_TOLERANCE):
            problem = f"does not follow from batch and step time, which make {expected:.6g}"
            yield FieldProblem("tokens_per_s", plan.tokens_per_s, problem, _REMEDY)
