"""The plans of a running job: proposed, approved (their GPUs are held), applied, superseded, cancelled."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.db.running_tables import RunningJobRow, RunningPlanRow
from app.db.status import JobStanding, PlanKind, RunningPlanStatus
from app.serialization import jsonable, load
from app.services.calibration import calibrations
from app.services.clusters import clusters
from app.services.errors import NotFound, WrongStatus
from app.services.pagination import Page, newest_first
from app.services.planning import plans, serving_plans
from app.services.rows import row_by_id
from app.services.running import occupancy
from app.services.running.plan_contents import (
    AnyPlan,
    RunningPlanSummary,
    check_fits,
    gpus_of,
    kind_of,
    load_plan,
    stored_plan,
    summary_of,
)
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.jobs.running import InvalidRunningJob
from cluster_models.training.plan import Plan


@dataclass(frozen=True, slots=True)
class PlanSource:
    """Where a running plan comes from: a finished plan of this service, by its id, or a plan in full."""

    plan_id: str | None = None
    plan: AnyPlan | None = None

    def __post_init__(self) -> None:
        if (self.plan_id is None) == (self.plan is None):
            problem = "is missing" if self.plan is None else "conflicts with plan_id"
            raise InvalidRunningJob("plan", "", problem, "give the id of a finished plan, or a plan in full")


@dataclass(frozen=True, slots=True)
class RunningPlanRecord:
    """A plan of a job without its content.  ``plan_id``: the plan of this service it was taken from, if any."""

    id: str
    job_id: str
    plan_id: str | None
    replan_id: str | None
    status: RunningPlanStatus
    summary: RunningPlanSummary
    created_at: datetime
    approved_at: datetime | None
    applied_at: datetime | None
    ended_at: datetime | None


def propose_plan(session: Session, *, reference: str, job: str, source: PlanSource) -> RunningPlanRecord:
    """Store a plan for a job.

    Raises ``NotFound``, ``NotReady``, and ``InvalidInput`` where it does not fit.
    """
    row = job_row(session, reference=reference, job=job)
    plan, fitted = _content(session, source)
    if (kind := kind_of(plan)) != row.kind:
        problem = f"is of {kind}, and the job {row.name} is one of {row.kind}"
        raise InvalidRunningJob("plan", source.plan_id or "", problem, "register a job of its own for it")
    check_fits(plan, clusters.get_cluster(session, reference=row.cluster_id).cluster)
    added = add_row(
        session,
        job_id=row.id,
        plan=plan,
        fitted=fitted,
        plan_id=source.plan_id,
    )
    session.flush()
    return record_of(added)


def approve_plan(session: Session, *, running_plan_id: str) -> RunningPlanRecord:
    """Take the GPUs for a proposed plan; nothing happens to one that is approved or applied already.

    Raises ``GpusTaken`` where another job holds one, ``WrongStatus`` where the plan has ended.
    """
    row, job = _locked(session, running_plan_id)
    if row.status in (RunningPlanStatus.APPROVED, RunningPlanStatus.APPLIED):
        return record_of(row)
    _demand(row, RunningPlanStatus.PROPOSED)
    plan = load_plan(job.kind, row.plan)
    check_fits(plan, clusters.get_cluster(session, reference=job.cluster_id).cluster)
    holdings = {job.id: gpus_of(plan)}
    occupancy.claim(session, cluster_id=job.cluster_id, claim_id=row.id, holdings=holdings)
    row.status, row.approved_at = RunningPlanStatus.APPROVED, datetime.now(UTC)
    session.flush()
    return record_of(row)


def apply_plan(session: Session, *, running_plan_id: str) -> RunningPlanRecord:
    """The job runs by this approved plan now; the one it ran by is superseded and its other GPUs are free."""
    row, job = _locked(session, running_plan_id)
    if row.status == RunningPlanStatus.APPLIED:
        return record_of(row)
    _demand(row, RunningPlanStatus.APPROVED)
    if row.replan_id is not None:
        raise WrongStatus("plan", row.id, "part of a replan", f"report the replan {row.replan_id} as applied")
    occupancy.settle(session, claim_id=row.id)
    set_applied(session, running_plan_id=row.id, job_id=job.id)
    return get_running_plan(session, running_plan_id=running_plan_id)


def cancel_plan(session: Session, *, running_plan_id: str) -> RunningPlanRecord:
    """Call off a plan, or say that its job has ended: its GPUs are free, or go back to their holders."""
    row, job = _locked(session, running_plan_id)
    if row.status in (RunningPlanStatus.CANCELLED, RunningPlanStatus.SUPERSEDED):
        return record_of(row)
    if row.replan_id is not None and row.status == RunningPlanStatus.APPROVED:
        raise WrongStatus("plan", row.id, "part of a replan", f"cancel the replan {row.replan_id}")
    if row.status == RunningPlanStatus.APPLIED:
        if occupancy.claims_on(session, job_id=job.id):
            raise WrongStatus("job", job.name, "about to move", "cancel the plan or replan that was approved first")
        occupancy.release(session, job_id=job.id)
        job.standing, job.updated_at = JobStanding.IDLE, datetime.now(UTC)
    occupancy.give_back(session, claim_id=row.id)
    row.status, row.ended_at = RunningPlanStatus.CANCELLED, datetime.now(UTC)
    session.flush()
    return record_of(row)


def get_running_plan(session: Session, *, running_plan_id: str) -> RunningPlanRecord:
    """The running plan of that id; raises ``NotFound``."""
    return record_of(_row(session, running_plan_id))


def get_content(session: Session, *, running_plan_id: str) -> AnyPlan:
    """The plan itself; raises ``NotFound``."""
    row = _row(session, running_plan_id)
    return load_plan(session.get_one(RunningJobRow, row.job_id).kind, row.plan)


def list_running_plans(
    session: Session, *, reference: str, job: str, limit: int, cursor: str | None = None
) -> Page[RunningPlanRecord]:
    """The plans of a job, newest first; raises ``NotFound``."""
    query = select(RunningPlanRow).where(RunningPlanRow.job_id == job_row(session, reference=reference, job=job).id)
    return newest_first(session, query, RunningPlanRow.created_at, record_of, limit, cursor)


def job_row(session: Session, *, reference: str, job: str) -> RunningJobRow:
    """The row of the job of that name or id on a cluster; raises ``NotFound``."""
    cluster_id = clusters.find_cluster(session, reference=reference).id
    for column in (RunningJobRow.name, RunningJobRow.id):
        query = select(RunningJobRow).where(RunningJobRow.cluster_id == cluster_id, column == job)
        if (row := session.scalar(query)) is not None:
            return row
    raise NotFound("job", job)


def add_row(
    session: Session,
    *,
    job_id: str,
    plan: AnyPlan,
    fitted: dict[str, Any] | None,
    plan_id: str | None = None,
    replan_id: str | None = None,
    status: RunningPlanStatus = RunningPlanStatus.PROPOSED,
) -> RunningPlanRow:
    """A new running plan's row."""
    now = datetime.now(UTC)
    row = RunningPlanRow(
        id=uuid.uuid4().hex,
        job_id=job_id,
        plan_id=plan_id,
        replan_id=replan_id,
        status=status,
        plan=stored_plan(plan),
        fitted=fitted,
        summary=jsonable(summary_of(plan)),
        created_at=now,
        approved_at=now if status == RunningPlanStatus.APPROVED else None,
    )
    session.add(row)
    return row


def set_applied(session: Session, *, running_plan_id: str, job_id: str) -> None:
    """Make a plan the one that its job runs by."""
    now = datetime.now(UTC)
    end_applied(session, job_ids=[job_id])
    session.execute(
        update(RunningPlanRow)
        .where(RunningPlanRow.id == running_plan_id)
        .values(status=RunningPlanStatus.APPLIED, applied_at=now, ended_at=None)
    )
    set_standing(session, job_id=job_id, standing=JobStanding.RUNNING)


def end_applied(session: Session, *, job_ids: Iterable[str]) -> None:
    """The plans that these jobs run by are superseded."""
    session.execute(
        update(RunningPlanRow)
        .where(RunningPlanRow.job_id.in_(list(job_ids)), RunningPlanRow.status == RunningPlanStatus.APPLIED)
        .values(status=RunningPlanStatus.SUPERSEDED, ended_at=datetime.now(UTC))
    )


def set_standing(session: Session, *, job_id: str, standing: JobStanding) -> None:
    """Note whether a job works."""
    session.execute(
        update(RunningJobRow)
        .where(RunningJobRow.id == job_id)
        .values(standing=standing, updated_at=datetime.now(UTC))
    )
    session.expire_all()


def record_of(row: RunningPlanRow) -> RunningPlanRecord:
    """Record of a row, without the plan."""
    return RunningPlanRecord(
        id=row.id,
        job_id=row.job_id,
        plan_id=row.plan_id,
        replan_id=row.replan_id,
        status=RunningPlanStatus(row.status),
        summary=load(RunningPlanSummary, row.summary),
        created_at=row.created_at,
        approved_at=row.approved_at,
        applied_at=row.applied_at,
        ended_at=row.ended_at,
    )


def kind_of_source(session: Session, *, source: PlanSource) -> PlanKind:
    """Whether a plan trains or serves; raises ``NotFound``."""
    if source.plan is not None:
        return kind_of(source.plan)
    assert source.plan_id is not None, "one of the two is given"
    return plans.get_plan(session, plan_id=source.plan_id).kind


def fitted_of(session: Session, *, source: PlanSource) -> FittedParameters | None:
    """The user's own parameters that a plan of training was priced with.

    Raises ``NotFound``, ``NotReady`` and ``InvalidInput``.
    """
    if source.plan is not None:
        assert isinstance(source.plan, Plan), "plans of serving have none"
        return calibrations.calibration_of_plan(session, plan=source.plan)
    assert source.plan_id is not None, "one of the two is given"
    return plans.get_problem(session, plan_id=source.plan_id).fitted


def _content(session: Session, source: PlanSource) -> tuple[AnyPlan, dict[str, Any] | None]:
    """The plan, and the user's own parameters that it was priced with."""
    if kind_of_source(session, source=source) is PlanKind.SERVING:
        if source.plan is not None:
            return source.plan, None
        assert source.plan_id is not None, "one of the two is given"
        return serving_plans.get_finished_serving_plan(session, plan_id=source.plan_id), None
    fitted = fitted_of(session, source=source)
    plan = source.plan
    if plan is None:
        assert source.plan_id is not None, "one of the two is given"
        plan = plans.get_finished_plan(session, plan_id=source.plan_id)
    return plan, None if fitted is None else jsonable(fitted)


def _locked(session: Session, running_plan_id: str) -> tuple[RunningPlanRow, RunningJobRow]:
    """The row and its job, the cluster held against other changes until the transaction ends."""
    row = _row(session, running_plan_id)
    job = session.get_one(RunningJobRow, row.job_id)
    clusters.lock(session, reference=job.cluster_id, expected_version=None)
    session.refresh(row)
    session.refresh(job)
    return row, job


def _demand(row: RunningPlanRow, status: RunningPlanStatus) -> None:
    if row.status != status:
        raise WrongStatus("plan", row.id, row.status, f"this needs one that is {status}")


def _row(session: Session, running_plan_id: str) -> RunningPlanRow:
    return row_by_id(session, RunningPlanRow, running_plan_id, "running plan")
