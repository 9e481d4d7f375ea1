"""Jobs that run on a stored cluster: what they are worth, what a failure costs them, and the GPUs they hold."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from sqlalchemy import Row, delete, func, select
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.running_tables import OccupiedGpuRow, RunningJobRow, RunningPlanRow
from app.db.status import JobStanding, PlanKind, RunningPlanStatus
from app.db.tables import ClusterRow
from app.serialization import jsonable, load
from app.services.clusters import clusters
from app.services.decisions import reports
from app.services.errors import NameTaken, WrongStatus
from app.services.health import job_troubles
from app.services.health.job_troubles import JobTrouble
from app.services.pagination import Page, decode_cursor, page_of
from app.services.running import occupancy, running_plans
from app.services.running.running_plans import PlanSource, RunningPlanRecord
from cluster_models.health.conditions import Condition
from cluster_models.health.events import HealthState
from cluster_models.jobs.running import InvalidRunningJob, RecoveryPolicy
from cluster_models.jobs.serving import ServingPolicy

_HELD = (
    select(func.count()).where(OccupiedGpuRow.job_id == RunningJobRow.id).correlate(RunningJobRow).scalar_subquery()
)
"""How many GPUs a job holds, those it is about to leave included."""
_JOBS = select(RunningJobRow, ClusterRow.name, _HELD).join(ClusterRow, ClusterRow.id == RunningJobRow.cluster_id)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job, and the plan it runs by (``None`` where none was applied, or it is paused).

    ``trouble``: what is reported of parts that it holds.  It is ``DOWN`` where one of them failed without which it
    cannot run, whatever was decided about it.  ``recovery`` is that of a training job, ``replica_start`` that of a
    deployment.
    """

    id: str
    cluster_id: str
    cluster_name: str
    name: str
    kind: PlanKind
    weight: float
    recovery: RecoveryPolicy | None
    replica_start: ServingPolicy | None
    standing: JobStanding
    gpus_held: int
    plan: RunningPlanRecord | None
    trouble: tuple[Condition, ...]
    created_at: datetime
    updated_at: datetime

    @property
    def tokens_per_s(self) -> float | None:
        """Throughput now, as planned: 0 unless it runs, ``None`` where a part that it uses is slow."""
        if self.standing is not JobStanding.RUNNING or self.plan is None:
            return 0.0
        slows = (HealthState.DEGRADED, HealthState.FAILED)
        return None if any(each.state in slows for each in self.trouble) else self.plan.summary.tokens_per_s


def register_job(
    session: Session,
    *,
    reference: str,
    name: str,
    source: PlanSource,
    weight: float = 1.0,
    recovery: RecoveryPolicy | None = None,
    replica_start: ServingPolicy | None = None,
    applied: bool = False,
) -> JobRecord:
    """Register a job on a stored cluster with its first plan, proposed or (``applied``) running already.

    The plan says whether it trains (``recovery``) or serves (``replica_start``).  Raises ``NotFound``,
    ``NameTaken``, ``InvalidInput`` where plan and cluster, or plan and policy, do not go together, ``GpusTaken``.
    """
    _check_name(name)
    _check_weight(weight)
    row = clusters.lock(session, reference=reference, expected_version=None)
    job_id, now = uuid.uuid4().hex, datetime.now(UTC)
    kind = running_plans.kind_of_source(session, source=source)
    policy = _policy(kind, recovery, replica_start) or (
        RecoveryPolicy() if kind is PlanKind.TRAINING else ServingPolicy()
    )
    values = {
        "kind": kind,
        "weight": weight,
        "recovery": jsonable(policy),
        "standing": JobStanding.IDLE,
        "created_at": now,
        "updated_at": now,
    }
    if not insert_if_absent(session, RunningJobRow, id=job_id, cluster_id=row.id, name=name, **values):
        raise NameTaken("job", name, "propose a plan for it, or use another name")
    proposed = running_plans.propose_plan(session, reference=row.id, job=job_id, source=source)
    if applied:
        running_plans.approve_plan(session, running_plan_id=proposed.id)
        running_plans.apply_plan(session, running_plan_id=proposed.id)
    return get_job(session, reference=row.id, job=job_id)


def change_job(
    session: Session,
    *,
    reference: str,
    job: str,
    weight: float | None = None,
    recovery: RecoveryPolicy | None = None,
    replica_start: ServingPolicy | None = None,
) -> JobRecord:
    """Store another weight or another policy; ``None`` leaves a value alone.

    A decision about the job that is open and not approved is made anew with them, unless they only say how old its
    checkpoints are, which changes all the time.  One that was approved keeps the old ones.
    """
    row = running_plans.job_row(session, reference=reference, job=job)
    clusters.lock(session, reference=row.cluster_id, expected_version=None)
    policy = _policy(PlanKind(row.kind), recovery, replica_start)
    before = (row.weight, _lasting(row))
    if weight is not None:
        _check_weight(weight)
        row.weight = weight
    if policy is not None:
        row.recovery = jsonable(policy)
    row.updated_at = datetime.now(UTC)
    session.flush()
    if before != (row.weight, _lasting(row)):
        reports.take_in_change(session, job=row)
    return get_job(session, reference=row.cluster_id, job=row.id)


def get_job(session: Session, *, reference: str, job: str) -> JobRecord:
    """The job of that name or id on a cluster; raises ``NotFound``."""
    row = running_plans.job_row(session, reference=reference, job=job)
    return _records(session, session.execute(_JOBS.where(RunningJobRow.id == row.id)).all())[0]


def list_jobs(session: Session, *, reference: str, limit: int, cursor: str | None = None) -> Page[JobRecord]:
    """The jobs of a cluster by name; raises ``NotFound``."""
    cluster_id = clusters.find_cluster(session, reference=reference).id
    query = _JOBS.where(RunningJobRow.cluster_id == cluster_id)
    if cursor is not None:
        (after,) = decode_cursor(cursor, str)
        query = query.where(RunningJobRow.name > after)
    rows = session.execute(query.order_by(RunningJobRow.name).limit(limit + 1)).all()
    return page_of(
        _records(session, rows), limit=limit, item=lambda record: record, keys=lambda record: (record.name,)
    )


def delete_job(session: Session, *, reference: str, job: str) -> None:
    """Forget a job and free its GPUs; raises ``WrongStatus`` while an approved plan or replan moves them."""
    row = running_plans.job_row(session, reference=reference, job=job)
    clusters.lock(session, reference=row.cluster_id, expected_version=None)
    if occupancy.claims_on(session, job_id=row.id):
        raise WrongStatus("job", row.name, "about to move", "cancel the plan or replan that was approved first")
    occupancy.release(session, job_id=row.id)
    session.execute(delete(RunningJobRow).where(RunningJobRow.id == row.id))


def _records(session: Session, rows: Sequence[Row[RunningJobRow, str, int]]) -> list[JobRecord]:
    applied = {
        plan.job_id: running_plans.record_of(plan)
        for plan in session.scalars(
            select(RunningPlanRow).where(
                RunningPlanRow.job_id.in_([row.id for row, *_ in rows]),
                RunningPlanRow.status == RunningPlanStatus.APPLIED,
            )
        )
    }
    troubles = job_troubles.troubles_of(session, jobs=[row for row, *_ in rows])
    return [
        JobRecord(
            id=row.id,
            cluster_id=row.cluster_id,
            cluster_name=cluster_name,
            name=row.name,
            kind=PlanKind(row.kind),
            weight=row.weight,
            recovery=load(RecoveryPolicy, row.recovery) if row.kind == PlanKind.TRAINING else None,
            replica_start=load(ServingPolicy, row.recovery) if row.kind == PlanKind.SERVING else None,
            standing=_standing(row, troubles[row.id]),
            gpus_held=held,
            plan=applied.get(row.id),
            trouble=troubles[row.id].conditions,
            created_at=row.created_at,
            updated_at=row.updated_at,
        )
        for row, cluster_name, held in rows
    ]


def _standing(row: RunningJobRow, trouble: JobTrouble) -> JobStanding:
    should_run = row.standing == JobStanding.RUNNING
    return JobStanding.DOWN if should_run and trouble.stops else JobStanding(row.standing)


def _policy(
    kind: PlanKind, recovery: RecoveryPolicy | None, replica_start: ServingPolicy | None
) -> RecoveryPolicy | ServingPolicy | None:
    """The policy of a job of that kind, ``None`` where none is given; raises ``InvalidRunningJob`` of the other."""
    if kind is PlanKind.TRAINING:
        if replica_start is not None:
            raise InvalidRunningJob(
                "replica_start", "", "is about deployments, and this job trains", "give recovery"
            )
        return recovery
    if recovery is not None:
        raise InvalidRunningJob("recovery", "", "is about training jobs, and this job serves", "give replica_start")
    return replica_start


def _lasting(row: RunningJobRow) -> RecoveryPolicy | ServingPolicy:
    """The policy of a job but for the age of checkpoints."""
    if row.kind == PlanKind.SERVING:
        return load(ServingPolicy, row.recovery)
    policy = load(RecoveryPolicy, row.recovery)
    return replace(policy, steps_since_checkpoint=None, steps_since_storage_checkpoint=None)


def _check_name(name: str) -> None:
    if not name or len(name) > 200 or "\x00" in name or "/" in name:
        raise InvalidRunningJob("name", name, "must have 1 to 200 characters, none of them a slash")


def _check_weight(weight: float) -> None:
    if not 0 < weight < float("inf"):
        raise InvalidRunningJob("weight", weight, "must be positive")
