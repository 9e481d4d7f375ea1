"""The plans of a running job: proposed, approved (their GPUs are held), applied, superseded, cancelled."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.db.running_tables import RunningJobRow, RunningPlanRow
from app.db.status import JobStanding, RunningPlanStatus
from app.serialization import jsonable, load
from app.services.calibration import calibrations
from app.services.clusters import clusters
from app.services.errors import NotFound, WrongStatus
from app.services.pagination import Page, newest_first
from app.services.planning import plans
from app.services.running import occupancy
from app.services.running.occupancy import gpus_of
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.topology import Cluster
from cluster_models.jobs.running import InvalidRunningJob
from cluster_models.training.plan import Plan


@dataclass(frozen=True, slots=True)
class PlanSource:
    """Where a running plan comes from: a finished plan of this service, by its id, or a plan in full."""

    plan_id: str | None = None
    plan: Plan | None = None

    def __post_init__(self) -> None:
        if (self.plan_id is None) == (self.plan is None):
            problem = "is missing" if self.plan is None else "stands beside plan_id"
            raise InvalidRunningJob("plan", "", problem, "give the id of a finished plan, or a plan in full")


@dataclass(frozen=True, slots=True)
class RunningPlanSummary:
    """A running plan as lists show it; ``degrees`` as text (``tp8 pp2 dp4``)."""

    model: str
    degrees: str
    gpus: int
    hosts: int
    tokens_per_s: float
    step_s: float
    global_batch: int | None = None


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
    plan = load(Plan, row.plan)
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
    """Call off a plan, or say that the job which ran by it has ended: its GPUs are free (or whose they were)."""
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


def get_content(session: Session, *, running_plan_id: str) -> Plan:
    """The plan itself; raises ``NotFound``."""
    return load(Plan, _row(session, running_plan_id).plan)


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


def check_fits(plan: Plan, cluster: Cluster) -> None:
    """Raise ``InvalidRunningJob`` where a plan cannot be told what it is for, or names what the cluster has not."""
    if plan.architecture is None or plan.workload is None:
        raise InvalidRunningJob(
            "plan", plan.model, "does not say which model and workload it is for", "plan it anew, or give both"
        )
    counts = {node.name: node.gpu_count for node in cluster.nodes}
    seen = set()
    for place in plan.placement.ranks:
        if not 0 <= place.gpu < counts.get(place.node, 0):
            problem = f"is no GPU of the cluster {cluster.name!r}"
            raise InvalidRunningJob(f"plan.ranks[{place.rank}]", f"{place.node}:{place.gpu}", problem)
        if (place.node, place.gpu) in seen:
            raise InvalidRunningJob(f"plan.ranks[{place.rank}]", f"{place.node}:{place.gpu}", "serves two ranks")
        seen.add((place.node, place.gpu))


def add_row(
    session: Session,
    *,
    job_id: str,
    plan: Plan,
    fitted: dict[str, Any] | None,
    plan_id: str | None = None,
    replan_id: str | None = None,
    status: RunningPlanStatus = RunningPlanStatus.PROPOSED,
) -> RunningPlanRow:
    """A new running plan's row."""
    now = datetime.now(UTC)
    degrees = plan.configuration.degrees
    row = RunningPlanRow(
        id=uuid.uuid4().hex,
        job_id=job_id,
        plan_id=plan_id,
        replan_id=replan_id,
        status=status,
        plan=_stored(plan),
        fitted=fitted,
        summary=jsonable(
            RunningPlanSummary(
                model=plan.model,
                degrees=str(degrees),
                gpus=len(plan.placement.ranks),
                hosts=len(plan.placement.hosts),
                tokens_per_s=plan.tokens_per_s,
                step_s=plan.time.step_s,
                global_batch=None if plan.workload is None else plan.workload.global_batch,
            )
        ),
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


def fitted_of(session: Session, *, source: PlanSource) -> FittedParameters | None:
    """The user's own parameters that a plan was priced with; raises ``NotFound`` and ``InvalidInput``."""
    if source.plan is not None:
        return calibrations.calibration_of_plan(session, plan=source.plan)
    assert source.plan_id is not None, "one of the two is given"
    return plans.get_problem(session, plan_id=source.plan_id).fitted


def _content(session: Session, source: PlanSource) -> tuple[Plan, dict[str, Any] | None]:
    """The plan, and the user's own parameters that it was priced with."""
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
    row = session.get(RunningPlanRow, running_plan_id)
    if row is None:
        raise NotFound("running plan", running_plan_id)
    return row


def _stored(plan: Plan) -> dict[str, Any]:
    """A plan as rows keep it: without timeline and trade-offs, most of its bytes, which only its own page shows."""
    document: dict[str, Any] = jsonable(replace(plan, timeline=(), trade_offs=()))
    return document
