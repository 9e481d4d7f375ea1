"""The plans of running jobs: read them, approve them (their GPUs are taken), say that they run, call them off."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from app.actors import actor_of
from app.answers.running_jobs import RunningPlanAnswer, RunningPlanSummaryAnswer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import RunningPlanPath, ServiceDep
from app.api.v1.plan_exports import (
    FILE_RESPONSES,
    ExportAnswer,
    SetOptions,
)
from app.api.v1.replan_bodies import StepDocument
from app.api.v1.serving_exports import any_export_answers, any_export_file, known_format_of_any
from app.db.engine import transaction
from app.services.decisions import replan_completion
from app.services.running import running_plans

router = APIRouter(tags=["jobs"], route_class=BodyRoute)


@router.get("/running-plans/{running_plan}")
def get_running_plan(running_plan: RunningPlanPath, service: ServiceDep) -> RunningPlanAnswer:
    """A plan of a job, with its content."""
    with service.read_sessions() as session:
        record = running_plans.get_running_plan(session, running_plan_id=running_plan)
        content = running_plans.get_content(session, running_plan_id=running_plan)
    return RunningPlanAnswer.make(record, content)


@router.post("/running-plans/{running_plan}/approve")
def approve_running_plan(running_plan: RunningPlanPath, service: ServiceDep) -> RunningPlanSummaryAnswer:
    """Take the GPUs for a proposed plan, all or none.  409 where another job holds one, or the plan has ended."""
    with transaction(service.sessions) as session:
        record = running_plans.approve_plan(session, running_plan_id=running_plan)
    return RunningPlanSummaryAnswer.from_value(record)


@router.post("/running-plans/{running_plan}/apply")
def apply_running_plan(
    request: Request, running_plan: RunningPlanPath, service: ServiceDep, document: StepDocument | None = None
) -> RunningPlanSummaryAnswer:
    """Say that the job runs by this approved plan; the one before is superseded, and its other GPUs are free.

    For a plan that a replan decided this is the same as completing the job there.
    """
    actor = actor_of(request, (document or StepDocument()).actor)
    with transaction(service.sessions) as session:
        record = replan_completion.apply_running_plan(session, running_plan_id=running_plan, actor=actor)
    return RunningPlanSummaryAnswer.from_value(record)


@router.post("/running-plans/{running_plan}/cancel")
def cancel_running_plan(running_plan: RunningPlanPath, service: ServiceDep) -> RunningPlanSummaryAnswer:
    """Call off a plan, or say that its job has ended: its GPUs are free, or go back to their holders."""
    with transaction(service.sessions) as session:
        record = running_plans.cancel_plan(session, running_plan_id=running_plan)
    return RunningPlanSummaryAnswer.from_value(record)


@router.get("/running-plans/{running_plan}/exports")
def list_running_plan_exports(running_plan: RunningPlanPath, service: ServiceDep) -> list[ExportAnswer]:
    """The formats that a job's plan can be launched by."""
    with service.read_sessions() as session:
        found = running_plans.get_content(session, running_plan_id=running_plan)
    return any_export_answers(found, "running-plans", running_plan)


@router.get("/running-plans/{running_plan}/exports/{format}", response_class=Response, responses=FILE_RESPONSES)
def get_running_plan_export(
    running_plan: RunningPlanPath,
    export_format: Annotated[str, Depends(known_format_of_any)],
    service: ServiceDep,
    given: SetOptions = None,
) -> Response:
    """A job's plan as its launcher reads it; a format of several files comes as a ZIP archive.

    422 where the target cannot do what the plan asks.
    """
    with service.read_sessions() as session:
        found = running_plans.get_content(session, running_plan_id=running_plan)
    return any_export_file(found, export_format, given, report=running_plan)
