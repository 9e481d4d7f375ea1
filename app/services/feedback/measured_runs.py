"""Runs of plans that were measured, kept beside what the plans had predicted."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, undefer

from app.db.feedback_tables import MeasuredRunRow
from app.db.running_tables import RunningJobRow, RunningPlanRow
from app.db.status import PlanKind
from app.db.tables import PlanRow, SnapshotRow
from app.serialization import jsonable, load
from app.services.calibration import calibrations
from app.services.clusters import clusters
from app.services.errors import NotFound
from app.services.pagination import Page, newest_first
from app.services.planning import plans
from app.services.rows import delete_where, row_by_id
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.calibration.run_report import PredictedRun, RunReport
from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan
from solver.fitting.plan_runs import node_pairs, run_of_plan
from solver.run_memory import predict_counted_memory

FAR_OFF: Final = 100.0
"""A step so many times as long as predicted, or as short, was measured of something else."""


@dataclass(frozen=True, slots=True)
class MeasuredRunRecord:
    """A measured run and its prediction; ``plan_id`` and ``running_plan_id``: the plan it ran by, if known."""

    id: str
    cluster_id: str | None
    cluster_name: str
    plan_id: str | None
    running_plan_id: str | None
    framework: str
    model: str
    report: RunReport
    predicted: PredictedRun
    ended_at: datetime
    received_at: datetime

    @property
    def ratio(self) -> float:
        """Measured step over predicted."""
        return self.report.step_s / self.predicted.step_s

    @property
    def memory_ratio(self) -> float | None:
        """Measured peak memory over predicted, where it was measured."""
        measured = self.report.peak_memory_bytes
        return None if measured is None else measured / self.predicted.peak_memory_bytes

    @property
    def is_within(self) -> bool | None:
        """Whether the step lies in the plan's prediction interval; ``None`` where the plan has none."""
        low, high = self.predicted.low_s, self.predicted.high_s
        return None if low is None or high is None else low <= self.report.step_s <= high


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Filter of runs: of a cluster by name or id, of a framework, that ended since a moment."""

    cluster: str | None = None
    framework: str | None = None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    """The plan of a run, the cluster it ran on, and the parameters it was priced with."""

    plan: Plan
    cluster: Cluster
    cluster_id: str | None
    fitted: FittedParameters | None
    plan_id: str | None = None
    running_plan_id: str | None = None


def record_run(
    session: Session, *, plan: str | Plan, report: RunReport, ended_at: datetime, now: datetime
) -> MeasuredRunRecord:
    """Store what was measured of a run of ``plan``: a plan in full, or the id of a plan or a running plan.

    Raises ``NotFound``, ``NotReady``, and ``InvalidInput`` where report and plan cannot be of one run.
    """
    source = _source_in_full(session, plan) if isinstance(plan, Plan) else _source_by_id(session, plan)
    run_id = uuid.uuid4().hex
    run = run_of_plan(
        source.plan,
        source.cluster,
        name=run_id[:12],
        step_s=report.step_s,
        peak_memory_bytes=report.peak_memory_bytes,
        memory_counter=report.memory_counter,
        fitted=source.fitted,
    )
    predicted = _predicted(source, run)
    _check(report, predicted)
    row = MeasuredRunRow(
        id=run_id,
        cluster_id=source.cluster_id,
        cluster_name=source.cluster.name,
        plan_id=source.plan_id,
        running_plan_id=source.running_plan_id,
        framework=run.workload.framework.name,
        model=source.plan.model,
        report=jsonable(report),
        predicted=jsonable(predicted),
        run=jsonable(run),
        ended_at=ended_at,
        received_at=now,
    )
    session.add(row)
    session.flush()
    return _record(row)


def get_run(session: Session, *, run_id: str) -> MeasuredRunRecord:
    """The measured run of that id; raises ``NotFound``."""
    return _record(row_by_id(session, MeasuredRunRow, run_id, "measured run"))


def list_runs(
    session: Session,
    *,
    limit: int,
    cursor: str | None = None,
    wanted: RunFilter | None = None,
    plan: str | None = None,
) -> Page[MeasuredRunRecord]:
    """Measured runs, the last that ended first; ``plan``: those by this plan or running plan."""
    query = _query(wanted or RunFilter())
    if plan is not None:
        query = query.where((MeasuredRunRow.plan_id == plan) | (MeasuredRunRow.running_plan_id == plan))
    return newest_first(session, query, MeasuredRunRow.ended_at, _record, limit, cursor)


def newest_runs(session: Session, *, wanted: RunFilter, most: int) -> tuple[MeasuredRunRecord, ...]:
    """The ``most`` runs that ended last, in the order of time."""
    return tuple(map(_record, _newest(session, wanted, most)))


def runs_to_fit(session: Session, *, wanted: RunFilter, most: int) -> tuple[TrainingRun, ...]:
    """The ``most`` runs that ended last as parameters are fitted to them, in the order of time."""
    return tuple(load(TrainingRun, row.run) for row in _newest(session, wanted, most, undefer(MeasuredRunRow.run)))


def delete_run(session: Session, *, run_id: str) -> None:
    """Forget a run that was measured wrongly; raises ``NotFound``."""
    delete_where(session, MeasuredRunRow, MeasuredRunRow.id == run_id, "measured run", run_id)


def _newest(session: Session, wanted: RunFilter, most: int, *options: Any) -> Sequence[MeasuredRunRow]:
    query = _query(wanted).order_by(MeasuredRunRow.ended_at.desc(), MeasuredRunRow.id.desc())
    return session.scalars(query.limit(most).options(*options)).all()[::-1]


def _query(wanted: RunFilter) -> Select[MeasuredRunRow]:
    query = select(MeasuredRunRow)
    if wanted.cluster is not None:
        named = (MeasuredRunRow.cluster_id == wanted.cluster) | (MeasuredRunRow.cluster_name == wanted.cluster)
        query = query.where(named)
    if wanted.framework is not None:
        query = query.where(MeasuredRunRow.framework == wanted.framework)
    if wanted.since is not None:
        query = query.where(MeasuredRunRow.ended_at >= wanted.since)
    return query


def _source_in_full(session: Session, plan: Plan) -> _Source:
    """The source of a plan that was sent: its cluster must be stored here under its name."""
    name = plan.provenance.cluster_name
    try:
        stored = clusters.get_cluster(session, reference=name)
    except NotFound as error:
        remedy = "store the cluster, or name a plan of this service"
        raise InvalidInput("plan.provenance.cluster", name, "is not a stored cluster", remedy) from error
    return _Source(plan, stored.cluster, stored.id, calibrations.calibration_of_plan(session, plan=plan))


def _source_by_id(session: Session, plan_id: str) -> _Source:
    """The source of a run by the id of a running plan or of a plan."""
    if (running := session.get(RunningPlanRow, plan_id)) is not None:
        job = session.get_one(RunningJobRow, running.job_id)
        if job.kind != PlanKind.TRAINING:
            raise InvalidInput("plan", plan_id, "is a plan of serving", "runs of training are measured here")
        stored = clusters.get_cluster(session, reference=job.cluster_id)
        fitted = None if running.fitted is None else load(FittedParameters, running.fitted)
        plan = load(Plan, running.plan)
        return _Source(plan, stored.cluster, stored.id, fitted, running.plan_id, running.id)
    found = plans.get_finished_plan(session, plan_id=plan_id)
    problem = plans.get_problem(session, plan_id=plan_id)
    snapshot = session.get_one(PlanRow, plan_id).snapshot_id
    cluster_id = session.scalar(select(SnapshotRow.cluster_id).where(SnapshotRow.id == snapshot))
    return _Source(found, problem.snapshot.cluster, cluster_id, problem.fitted, plan_id)


def _predicted(source: _Source, run: TrainingRun) -> PredictedRun:
    plan, sure = source.plan, source.plan.confidence
    degrees = plan.configuration.degrees
    return PredictedRun(
        step_s=plan.time.step_s,
        low_s=None if sure is None else sure.step_low_s,
        high_s=None if sure is None else sure.step_high_s,
        peak_memory_bytes=predict_counted_memory(run, source.fitted),
        degrees=str(degrees),
        gpus=degrees.gpus,
        gpu_kinds=tuple(sorted({kind.name for kinds in run.replica_kinds() for each in kinds for kind in each})),
        hosts=plan.placement.hosts,
        pairs=tuple(sorted(node_pairs(plan))),
        calibration=plan.provenance.calibration or "",
    )


def _check(report: RunReport, predicted: PredictedRun) -> None:
    """Raise ``InvalidInput`` where what was measured cannot be of a run of this plan."""
    ratio = report.step_s / predicted.step_s
    if not 1.0 / FAR_OFF < ratio < FAR_OFF:
        problem = f"is {ratio:.3g} times the {predicted.step_s:.4g} s that the plan predicts"
        raise InvalidInput("step_time_s", report.step_s, problem, "give the seconds of one optimizer step")
    hosts = set(predicted.hosts)
    if foreign := [each.node for each in report.nodes if each.node not in hosts]:
        raise InvalidInput(
            "nodes", foreign[0], "is not a node of the plan", f"name those of {', '.join(sorted(hosts)[:4])}"
        )


def _record(row: MeasuredRunRow) -> MeasuredRunRecord:
    return MeasuredRunRecord(
        id=row.id,
        cluster_id=row.cluster_id,
        cluster_name=row.cluster_name,
        plan_id=row.plan_id,
        running_plan_id=row.running_plan_id,
        framework=row.framework,
        model=row.model,
        report=load(RunReport, row.report),
        predicted=load(PredictedRun, row.predicted),
        ended_at=row.ended_at,
        received_at=row.received_at,
    )
