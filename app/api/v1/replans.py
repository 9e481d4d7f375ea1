"""Decisions on failures: ask for one, watch it, read it, approve it, say how it went."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy.orm import Session

from app.actors import actor_of
from app.answers.replans import (
    ReplanAccepted,
    ReplanAnswer,
    ReplanEvent,
    ReplanSummary,
    WhatIfAnswer,
    replan_links,
)
from app.answers.running_jobs import any_plan_document
from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import ClusterPath, Cursor, IdempotencyKey, JobPath, Limit, ReplanPath, ServiceDep
from app.api.v1.plan_exports import (
    FILE_RESPONSES,
    ExportAnswer,
    SetOptions,
)
from app.api.v1.replan_bodies import (
    ApprovalDocument,
    CancellationDocument,
    FailureDocument,
    ReplanRequestDocument,
    StepDocument,
    WhatIfDocument,
)
from app.api.v1.serving_exports import any_export_answers, any_export_file, known_format_of_any
from app.api.v1.streams import changes
from app.db.engine import transaction
from app.db.status import ReplanStatus
from app.documents.plan import PlanDocument
from app.documents.serving_plan import ServingPlanDocument
from app.services.decisions import replan_views, replans, reports, what_if
from app.services.decisions.replans import Answer, ReplanRecord
from app.services.running.plan_contents import AnyPlan

router = APIRouter(tags=["failures"], route_class=BodyRoute)

StatusFilter = Annotated[ReplanStatus | None, Query(description="Only replans in this status.")]
AnswerQuery = Annotated[
    Answer, Query(description="decision: what the solver found (the safe answer where it found none); or safe.")
]


@router.post("/clusters/{cluster}/replans", status_code=202)
def create_replan(
    cluster: ClusterPath,
    document: ReplanRequestDocument,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> ReplanAccepted:
    """Decide now on a cluster as it is, without a window; one that was proposed or approved is overtaken.

    A replan whose window is open decides at once instead.  409 where no job runs there.
    """
    with transaction(service.sessions) as session:
        replan_id = reports.request_replan(
            session, reference=cluster, reason=document.reason, idempotency_key=idempotency_key
        )
    service.answer_failures(replan_id)
    with service.read_sessions() as session:
        status = replans.get_replan(session, replan_id=replan_id).status
    response.headers["Location"] = address("replans", replan_id)
    return ReplanAccepted(id=replan_id, status=status, links=replan_links(replan_id))


@router.post("/clusters/{cluster}/what-if")
def answer_what_if(cluster: ClusterPath, document: WhatIfDocument, service: ServiceDep) -> WhatIfAnswer:
    """Decide at once as if these parts failed: the safe answer, in about a second; nothing is stored."""
    now = datetime.now(UTC)
    losses = document.to_losses(now)
    return WhatIfAnswer.of(what_if.answer_losses(service.sessions, reference=cluster, losses=losses, now=now))


@router.get("/clusters/{cluster}/replans")
def list_cluster_replans(
    request: Request,
    cluster: ClusterPath,
    service: ServiceDep,
    status: StatusFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[ReplanSummary]:
    """The replans of a cluster, newest first, without their answers."""
    with service.read_sessions() as session:
        page = replans.list_replans(session, limit=limit, cursor=cursor, reference=cluster, status=status)
    return page_answer(request, page, ReplanSummary.from_value)


@router.get("/replans")
def list_replans(
    request: Request,
    service: ServiceDep,
    status: StatusFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[ReplanSummary]:
    """The replans of all clusters, newest first, without their answers."""
    with service.read_sessions() as session:
        page = replans.list_replans(session, limit=limit, cursor=cursor, status=status)
    return page_answer(request, page, ReplanSummary.from_value)


@router.get("/replans/{replan}")
def get_replan(replan: ReplanPath, service: ServiceDep) -> ReplanAnswer:
    """A replan with its answers, as far as they are there."""
    with service.read_sessions() as session:
        record = replans.get_replan(session, replan_id=replan)
        safe = replan_views.view_answer(session, replan_id=replan, answer=Answer.SAFE)
        decision = None
        if record.has_decision:
            decision = replan_views.view_answer(session, replan_id=replan, answer=Answer.DECISION)
    return ReplanAnswer.make(record, safe, decision)


@router.post("/replans/{replan}/approve")
def approve_replan(
    request: Request, replan: ReplanPath, service: ServiceDep, document: ApprovalDocument | None = None
) -> ReplanSummary:
    """Take the GPUs that an answer needs, all or none; approving the same answer again changes nothing.

    The safe answer can be approved as soon as it is there.  409 where the replan is not at that point, another job
    holds a GPU, or a job runs by another plan by now.
    """
    told = document or ApprovalDocument()
    actor = actor_of(request, told.actor)
    with transaction(service.sessions) as session:
        record = replans.approve_replan(session, replan_id=replan, answer=told.answer, actor=actor)
    return ReplanSummary.from_value(record)


@router.post("/replans/{replan}/start")
def start_replan(
    request: Request, replan: ReplanPath, service: ServiceDep, document: StepDocument | None = None
) -> ReplanSummary:
    """Say that an approved replan is being carried out."""
    actor = actor_of(request, (document or StepDocument()).actor)
    with transaction(service.sessions) as session:
        return ReplanSummary.from_value(replans.begin_applying(session, replan_id=replan, actor=actor))


@router.post("/replans/{replan}/jobs/{job}/complete")
def complete_replan_job(
    request: Request,
    replan: ReplanPath,
    job: JobPath,
    service: ServiceDep,
    document: StepDocument | None = None,
) -> ReplanSummary:
    """Say that one job runs, or stands still, as decided: a later failure finds it so, whatever the others do.

    Jobs whose GPUs it took run no more; with the last job the replan is applied.  Also of a replan that a later
    failure overtook, until another answer is approved: the job was started before anybody knew, and the later
    replan takes that in.  409 where none was approved.
    """
    actor = actor_of(request, (document or StepDocument()).actor)
    with transaction(service.sessions) as session:
        return ReplanSummary.from_value(replans.complete_job(session, replan_id=replan, job=job, actor=actor))


@router.post("/replans/{replan}/complete")
def complete_replan(
    request: Request, replan: ReplanPath, service: ServiceDep, document: StepDocument | None = None
) -> ReplanSummary:
    """Say that all jobs run as decided: their new plans are applied, and the GPUs that they left are free."""
    actor = actor_of(request, (document or StepDocument()).actor)
    with transaction(service.sessions) as session:
        return ReplanSummary.from_value(replans.finish_applied(session, replan_id=replan, actor=actor))


@router.post("/replans/{replan}/fail")
def fail_replan(
    request: Request, replan: ReplanPath, document: FailureDocument, service: ServiceDep
) -> ReplanSummary:
    """Say that it could not be carried out: the GPUs of all jobs not completed go back to their holders.

    A new replan may be asked for.
    """
    actor = actor_of(request, document.actor)
    with transaction(service.sessions) as session:
        record = replans.fail_replan(session, replan_id=replan, problem=document.problem, actor=actor)
    return ReplanSummary.from_value(record)


@router.post("/replans/{replan}/cancel")
def cancel_replan(
    request: Request, replan: ReplanPath, service: ServiceDep, document: CancellationDocument | None = None
) -> ReplanSummary:
    """Call off a replan that is not applied yet; what it had taken for jobs not completed is given back."""
    told = document or CancellationDocument()
    actor = actor_of(request, told.actor)
    with transaction(service.sessions) as session:
        record = replans.cancel_replan(session, replan_id=replan, problem=told.problem, actor=actor)
    return ReplanSummary.from_value(record)


def _decided_plan(
    replan: ReplanPath,
    job: JobPath,
    service: ServiceDep,
    answer: AnswerQuery = Answer.DECISION,
) -> AnyPlan:
    """The plan that a job is to run by; raises ``NotFound``, ``NotReady``."""
    with service.read_sessions() as session:
        return replan_views.decided_plan(session, replan_id=replan, job=job, answer=answer)


@router.get("/replans/{replan}/jobs/{job}/plan")
def get_decided_plan(
    found: Annotated[AnyPlan, Depends(_decided_plan)],
) -> PlanDocument | ServingPlanDocument:
    """The whole plan that a job is to run by.  409 where there is no answer yet, or the job is to stand still."""
    return any_plan_document(found)


@router.get("/replans/{replan}/jobs/{job}/exports")
def list_decided_exports(
    replan: ReplanPath, job: JobPath, found: Annotated[AnyPlan, Depends(_decided_plan)]
) -> list[ExportAnswer]:
    """The formats that a job's new plan can be launched by."""
    return any_export_answers(found, "replans", replan, "jobs", job)


@router.get("/replans/{replan}/jobs/{job}/exports/{format}", response_class=Response, responses=FILE_RESPONSES)
def get_decided_export(
    found: Annotated[AnyPlan, Depends(_decided_plan)],
    export_format: Annotated[str, Depends(known_format_of_any)],
    given: SetOptions = None,
) -> Response:
    """A job's new plan as its launcher reads it; a format of several files comes as a ZIP archive.

    422 where the target cannot do what the plan asks.
    """
    return any_export_file(found, export_format, given)


def _known_replan(replan: ReplanPath, service: ServiceDep) -> str:
    """The replan's id; raises ``NotFound`` before a stream begins."""
    with service.read_sessions() as session:
        return replans.get_replan(session, replan_id=replan).id


@router.get("/replans/{replan}/events", response_class=EventSourceResponse)
async def stream_replan(
    replan_id: Annotated[str, Depends(_known_replan)], service: ServiceDep
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events: ``progress`` whenever something changed, and ``end`` once the replan has ended."""

    def read(session: Session) -> ReplanRecord:
        return replans.get_replan(session, replan_id=replan_id)

    async for event in changes(service.read_sessions, read, ReplanEvent.from_value):
        yield event
