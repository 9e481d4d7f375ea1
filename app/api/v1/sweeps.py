"""Sweeps of supposed failures: ask which failure hurts most, watch, read, call off."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from app.answers.sweeps import FailureImpactAnswer, SweepAnswer, SweepSummary
from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import (
    ClusterPath,
    Cursor,
    ExpectedTag,
    IdempotencyKey,
    Limit,
    ServiceDep,
    SweepPath,
    content_tag,
    tagged,
)
from app.api.v1.replan_bodies import SweepDocument
from app.db.engine import transaction
from app.services import idempotency
from app.services.clusters import clusters
from app.services.decisions import sweeps
from app.services.pagination import MAX_LIMIT
from app.services.preconditions import check_tag

router = APIRouter(tags=["failures"], route_class=BodyRoute)

Worst = Annotated[
    int, Query(ge=1, le=MAX_LIMIT, description="Answers to show at most, the worst first.", examples=[50])
]


@router.post("/clusters/{cluster}/what-if-sweeps", status_code=202)
def create_sweep(
    cluster: ClusterPath,
    document: SweepDocument,
    service: ServiceDep,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> SweepSummary:
    """Ask which failure hurts most: each is answered as by what-if, in a job of its own that comes after all plans.

    409 where no job runs there, or four sweeps of the tenant run.
    """
    now = datetime.now(UTC)
    with transaction(service.sessions) as session:
        found = clusters.find_cluster(session, reference=cluster)
        sweep_id = sweeps.create_sweep(
            session,
            reference=found.id,
            each=document.each,
            failures=document.to_failures(now),
            now=now,
            keyed=idempotency.keyed("what-if sweep", idempotency_key, found.id, document),
        )
        record = sweeps.get_sweep(session, sweep_id=sweep_id)
    response.headers["Location"] = address("what-if-sweeps", sweep_id)
    return SweepSummary.from_value(record)


@router.get("/what-if-sweeps")
def list_sweeps(
    request: Request,
    service: ServiceDep,
    cluster: Annotated[
        str | None, Query(max_length=200, description="Only sweeps of the cluster of this name or id.")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[SweepSummary]:
    """Sweeps, newest first, without their answers; the newest 20 are kept."""
    with service.read_sessions() as session:
        page = sweeps.list_sweeps(session, limit=limit, cursor=cursor, reference=cluster)
    return page_answer(request, page, SweepSummary.from_value)


@router.get("/what-if-sweeps/{sweep}")
def get_sweep(sweep: SweepPath, service: ServiceDep, response: Response, worst: Worst = 50) -> SweepAnswer:
    """A sweep with its answers so far, the failure that costs most first; the ETag is that of its progress."""
    with service.read_sessions() as session:
        record = sweeps.get_sweep(session, sweep_id=sweep)
        found = sweeps.worst_failures(session, sweep_id=sweep, limit=worst)
    tagged(response, SweepSummary.from_value(record))
    return SweepAnswer.from_value(record, worst=[FailureImpactAnswer.from_value(each) for each in found.items])


@router.get("/what-if-sweeps/{sweep}/answers")
def list_sweep_answers(
    request: Request, sweep: SweepPath, service: ServiceDep, limit: Limit = 50, cursor: Cursor = None
) -> PageAnswer[FailureImpactAnswer]:
    """All answers so far, the failure that costs most first, those without an answer last."""
    with service.read_sessions() as session:
        page = sweeps.worst_failures(session, sweep_id=sweep, limit=limit, cursor=cursor)
    return page_answer(request, page, FailureImpactAnswer.from_value)


@router.post("/what-if-sweeps/{sweep}/cancel")
def cancel_sweep(sweep: SweepPath, service: ServiceDep) -> SweepSummary:
    """Call off what is not answered yet; answers that are there stay."""
    with transaction(service.sessions) as session:
        return SweepSummary.from_value(sweeps.cancel_sweep(session, sweep_id=sweep))


@router.delete("/what-if-sweeps/{sweep}", status_code=204)
def delete_sweep(sweep: SweepPath, service: ServiceDep, expected: ExpectedTag) -> None:
    """Forget a sweep; one that runs is called off."""
    with transaction(service.sessions) as session:
        current = content_tag(SweepSummary.from_value(sweeps.get_sweep(session, sweep_id=sweep)))
        check_tag("sweep", sweep, expected=expected, current=current)
        sweeps.delete_sweep(session, sweep_id=sweep)
