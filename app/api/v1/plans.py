"""Plans: ask for one, watch it, read it, call it off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.orm import Session

from app.answers.plans import PlanAccepted, PlanAnswer, PlanEvent, PlanSummary, ResultDocument, plan_links
from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.kept_answers import kept_response
from app.api.v1.parameters import (
    Cursor,
    ExpectedTag,
    IdempotencyKey,
    Limit,
    PlanPath,
    ServiceDep,
    content_tag,
    tagged,
)
from app.api.v1.plan_exports import FILE_RESPONSES, ExportAnswer, SetOptions
from app.api.v1.serving_exports import any_export_answers, any_export_file, known_format_of_any
from app.api.v1.streams import changes
from app.db.engine import transaction
from app.db.status import PlanKind, PlanStatus
from app.documents.fleet import fleet_document
from app.documents.plan import result_document
from app.documents.plan_parts import TimelineEventDocument
from app.documents.reinforcement_plan import reinforcement_document
from app.documents.serving_plan import serving_document
from app.services.planning import fleet_plans, plans, reinforcement_plans, serving_plans
from app.services.planning.plans import PlanRecord
from app.services.planning.requests import AnyPlanRequest
from app.services.planning.submission import submit_plan
from app.services.preconditions import check_tag
from cluster_models.reinforcement.plan import ReinforcementPlan
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan

router = APIRouter(tags=["plans"], route_class=BodyRoute)


@router.post("/plans", status_code=202)
def create_plan(
    document: AnyPlanRequest,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> PlanAccepted:
    """Ask for a plan of training, of the kind that the workload says (serving, reinforcement), or of a fleet.

    Everything that can be refused at once is; then the solve waits for a free slot.
    """
    with transaction(service.sessions) as session:
        plan_id = submit_plan(session, request=document, settings=service.settings, idempotency_key=idempotency_key)
        record = plans.get_plan(session, plan_id=plan_id)
    service.queue_plan(plan_id)
    response.headers["Location"] = address("plans", plan_id)
    return PlanAccepted(id=plan_id, status=record.status, links=plan_links(plan_id, record.kind))


@router.get("/plans")
def list_plans(
    request: Request,
    service: ServiceDep,
    status: Annotated[PlanStatus | None, Query(description="Only plans in this status.")] = None,
    cluster: Annotated[
        str | None, Query(max_length=200, description="Only plans for the cluster of this name.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[PlanSummary]:
    """Plans, newest first, without their results."""
    with service.read_sessions() as session:
        page = plans.list_plans(session, limit=limit, cursor=cursor, status=status, cluster_name=cluster)
    return page_answer(request, page, PlanSummary.from_value)


@router.get("/plans/{plan}", response_model=PlanAnswer)
def get_plan(plan: PlanPath, service: ServiceDep, response: Response) -> PlanAnswer | Response:
    """A plan with its progress, and its result once it has ended; the ETag changes with both."""
    with service.read_sessions() as session:
        record = plans.get_plan(session, plan_id=plan)
        bare = PlanAnswer.from_value(record, result=None)
        if record.is_open:
            return tagged(response, bare)
        return kept_response(
            bare.model_dump_json(),
            lambda: PlanAnswer.from_value(record, result=_result(session, record)),
            tag=content_tag(bare),
        )


@router.delete("/plans/{plan}", status_code=204)
def delete_plan(plan: PlanPath, service: ServiceDep, expected: ExpectedTag) -> None:
    """Forget a plan; one that waits or runs is called off."""
    with transaction(service.sessions) as session:
        check_tag("plan", plan, expected=expected, current=_tag(plans.get_plan(session, plan_id=plan)))
        plans.delete_plan(session, plan_id=plan)


@router.post("/plans/{plan}/cancel")
def cancel_plan(plan: PlanPath, service: ServiceDep) -> PlanSummary:
    """Call off a plan that waits or runs; one that has ended stays as it is."""
    with transaction(service.sessions) as session:
        return PlanSummary.from_value(plans.cancel_plan(session, plan_id=plan))


@router.post("/plans/{plan}/stop")
def stop_plan(plan: PlanPath, service: ServiceDep) -> PlanSummary:
    """End a search with the best plan so far, which is proven as far as it came; one that has ended stays as it is.

    The plan succeeds within seconds and says that its search was stopped.  409 while none is known: wait, or
    cancel it.
    """
    with transaction(service.sessions) as session:
        return PlanSummary.from_value(plans.stop_plan(session, plan_id=plan))


@router.get("/plans/{plan}/timeline")
def get_timeline(plan: PlanPath, service: ServiceDep) -> list[TimelineEventDocument]:
    """The predicted schedule of one step; for viewers there is the export perfetto."""
    with service.read_sessions() as session:
        found = plans.get_finished_plan(session, plan_id=plan)
    return [TimelineEventDocument.from_value(event) for event in found.timeline]


@router.get("/plans/{plan}/exports")
def list_exports(plan: PlanPath, service: ServiceDep) -> list[ExportAnswer]:
    """The formats of a plan for other programs."""
    with service.read_sessions() as session:
        found = _finished(session, plan)
    return any_export_answers(found, "plans", plan)


@router.get("/plans/{plan}/exports/{format}", response_class=Response, responses=FILE_RESPONSES)
def get_export(
    plan: PlanPath,
    export_format: Annotated[str, Depends(known_format_of_any)],
    service: ServiceDep,
    given: SetOptions = None,
) -> Response:
    """A plan as another program reads it; the formats are listed under exports.

    A format of several files comes as a ZIP archive.  422 where the target cannot do what the plan asks.
    """
    with service.read_sessions() as session:
        found = _finished(session, plan)
    return any_export_file(found, export_format, given, report=plan)


def _finished(session: Session, plan_id: str) -> Plan | ServingPlan | ReinforcementPlan:
    """The plan of whatever kind that was found; raises ``NotReady``."""
    kind = plans.get_plan(session, plan_id=plan_id).kind
    if kind is PlanKind.SERVING:
        return serving_plans.get_finished_serving_plan(session, plan_id=plan_id)
    if kind is PlanKind.REINFORCEMENT:
        return reinforcement_plans.get_finished_reinforcement_plan(session, plan_id=plan_id)
    return plans.get_finished_plan(session, plan_id=plan_id)


def _result(session: Session, record: PlanRecord) -> ResultDocument | None:
    """The result of a plan of whatever kind, a training plan without its timeline."""
    if record.kind is PlanKind.SERVING:
        served = serving_plans.get_serving_result(session, plan_id=record.id)
        return None if served is None else serving_document(served)
    if record.kind is PlanKind.FLEET:
        shared = fleet_plans.get_fleet_result(session, plan_id=record.id)
        return None if shared is None else fleet_document(shared)
    if record.kind is PlanKind.REINFORCEMENT:
        joint = reinforcement_plans.get_reinforcement_result(session, plan_id=record.id)
        return None if joint is None else reinforcement_document(joint)
    found = plans.get_result(session, plan_id=record.id)
    return None if found is None else result_document(found, timeline=False)


def _tag(record: PlanRecord) -> str:
    """The ETag of a plan: a result that is there once never changes."""
    return content_tag(PlanAnswer.from_value(record, result=None))


def _known_plan(plan: PlanPath, service: ServiceDep) -> str:
    """The plan's id; raises ``NotFound`` before a stream begins."""
    with service.read_sessions() as session:
        return plans.get_plan(session, plan_id=plan).id


@router.get("/plans/{plan}/events", response_class=EventSourceResponse)
async def stream_plan(
    plan_id: Annotated[str, Depends(_known_plan)], service: ServiceDep
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: ``progress`` whenever something changed, and ``end`` once the plan has ended."""

    def read(session: Session) -> PlanRecord:
        return plans.get_plan(session, plan_id=plan_id)

    async for event in changes(service.read_sessions, read, PlanEvent.from_value):
        yield event
