"""Measured runs: reported, beside their predictions, what they say of drift and slow parts, and recalibration."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from app.answers.measured_runs import DriftAnswer, MeasuredRunAnswer, RecalibrationAnswer
from app.api.v1.answers import PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import (
    Cursor,
    ExpectedTag,
    IdempotencyKey,
    Limit,
    ServiceDep,
    content_tag,
    tagged,
)
from app.db.engine import transaction
from app.documents.moments import Moment
from app.documents.run_reports import RecalibrationRequest, RunReportDocument
from app.services import idempotency
from app.services.feedback import drifts, measured_runs, recalibration
from app.services.feedback.measured_runs import MeasuredRunRecord, RunFilter
from app.services.field_paths import errors_under
from app.services.planning.given_plans import given_plan
from app.services.preconditions import check_tag
from cluster_models.errors import InvalidInput

router = APIRouter(tags=["runs"], route_class=BodyRoute)

RunPath = Annotated[
    str, Path(alias="run", description="Id of the measured run.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
]
ClusterFilter = Annotated[
    str | None, Query(max_length=200, description="Only runs on the cluster of this name or id.")
]
FrameworkFilter = Annotated[str | None, Query(max_length=200, description="Only runs of this framework.")]
SinceFilter = Annotated[Moment | None, Query(description="Only runs that ended since then.")]


@router.post("/runs", status_code=201)
def create_run(
    document: RunReportDocument, service: ServiceDep, response: Response, idempotency_key: IdempotencyKey = None
) -> MeasuredRunAnswer:
    """Report what was measured of a finished run; it is kept beside what its plan had predicted."""
    now = datetime.now(UTC)
    if document.ended_at is not None and document.ended_at > now:
        raise InvalidInput("ended_at", document.ended_at.isoformat(), "lies in the future", "report finished runs")
    report = document.to_value()
    with errors_under("plan"):
        plan = document.plan if isinstance(document.plan, str) else given_plan(document.plan)
    keyed = idempotency.keyed("run", idempotency_key, document)
    with transaction(service.sessions) as session:

        def make() -> str:
            ended_at = document.ended_at or now
            return measured_runs.record_run(session, plan=plan, report=report, ended_at=ended_at, now=now).id

        def find(run_id: str) -> MeasuredRunRecord:
            return measured_runs.get_run(session, run_id=run_id)

        record = find(idempotency.once(session, keyed, make=make, find=find))
    response.headers["Location"] = address("runs", record.id)
    return MeasuredRunAnswer.from_value(record)


@router.get("/runs")
def list_runs(
    request: Request,
    service: ServiceDep,
    *,
    cluster: ClusterFilter = None,
    framework: FrameworkFilter = None,
    plan: Annotated[
        str | None, Query(max_length=200, description="Only runs by the plan or running plan of this id.")
    ] = None,
    since: SinceFilter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[MeasuredRunAnswer]:
    """Measured runs beside their predictions, the last that ended first."""
    wanted = RunFilter(cluster, framework, since)
    with service.read_sessions() as session:
        page = measured_runs.list_runs(session, limit=limit, cursor=cursor, wanted=wanted, plan=plan)
    return page_answer(request, page, MeasuredRunAnswer.from_value)


@router.get("/runs/{run}")
def get_run(run: RunPath, service: ServiceDep, response: Response) -> MeasuredRunAnswer:
    """A measured run; it never changes."""
    with service.read_sessions() as session:
        answer = MeasuredRunAnswer.from_value(measured_runs.get_run(session, run_id=run))
    return tagged(response, answer)


@router.delete("/runs/{run}", status_code=204)
def delete_run(run: RunPath, service: ServiceDep, expected: ExpectedTag) -> None:
    """Forget a run that was measured wrongly: nothing is fitted to it any more."""
    with transaction(service.sessions) as session:
        found = MeasuredRunAnswer.from_value(measured_runs.get_run(session, run_id=run))
        check_tag("measured run", run, expected=expected, current=content_tag(found))
        measured_runs.delete_run(session, run_id=run)


@router.get("/drift")
def get_drift(
    service: ServiceDep, cluster: ClusterFilter = None, framework: FrameworkFilter = None, since: SinceFilter = None
) -> DriftAnswer:
    """How far measured steps are from predictions by cluster, framework and node, and the parts they point to."""
    with service.read_sessions() as session:
        found = drifts.measure_drifts(session, wanted=RunFilter(cluster, framework, since))
    return DriftAnswer.from_value(found)


@router.post("/recalibrations")
def create_recalibration(document: RecalibrationRequest, service: ServiceDep) -> RecalibrationAnswer:
    """Fit a calibration to reported runs and say what it would change; takes seconds, and stores nothing."""
    wanted = RunFilter(document.cluster, document.framework, document.since)
    with service.read_sessions() as session:
        question = recalibration.ask(session, wanted=wanted)
    name = document.name or recalibration.default_name(wanted)
    return RecalibrationAnswer.make(recalibration.recalibrate(question, name=name))
