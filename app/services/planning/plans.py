"""Plans: asked for, looked at, called off."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session, undefer

from app.db.status import OPEN_STATUSES, PlanKind, PlanStatus
from app.db.tables import PlanRow
from app.serialization import jsonable, load
from app.services.clusters import snapshots
from app.services.errors import NotReady
from app.services.pagination import Page, newest_first
from app.services.planning import solves, turns
from app.services.planning.course import CoursePoint, course_of
from app.services.rows import row_by_id
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster
from cluster_models.training.plan import NoPlan, Plan
from cluster_models.training.workload import TrainingWorkload
from solver.problem import PlanningProblem, Progress, SearchOptions
from solver.reinforcement.problem import ReinforcementProblem
from solver.serving.problem import ServingProblem

Found = TypeVar("Found")
Refused = TypeVar("Refused")


@dataclass(frozen=True, slots=True)
class PlanError:
    """Why a plan failed, and what to do about it."""

    problem: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A plan as asked for and how far it is, without its result."""

    id: str
    kind: PlanKind
    status: PlanStatus
    snapshot_id: str
    cluster_name: str
    model_name: str
    options: SearchOptions
    progress: Progress | None
    course: tuple[CoursePoint, ...]
    """Best plan and bound over the search so far, kept when it has ended."""
    error: PlanError | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: int
    rescues: int
    is_stopping: bool

    @property
    def is_open(self) -> bool:
        """Whether it waits or runs."""
        return self.status in OPEN_STATUSES


def create_plan(session: Session, *, problem: PlanningProblem, options: SearchOptions) -> str:
    """Store a plan to be made; returns its id.  The caller queues it once the transaction is committed."""
    name = problem.architecture.name
    content = content_of(problem)
    return add_row(session, PlanKind.TRAINING, problem.snapshot, name, content=content, options=options)


def content_of(problem: PlanningProblem | ServingProblem | ReinforcementProblem) -> dict[str, Any]:
    """The fields of a problem as a row has them: all but the snapshot, which has a row of its own."""
    return {each.name: jsonable(getattr(problem, each.name)) for each in fields(problem) if each.name != "snapshot"}


def add_row(
    session: Session,
    kind: PlanKind,
    snapshot: ClusterSnapshot,
    model_name: str,
    *,
    content: dict[str, Any],
    options: SearchOptions,
) -> str:
    """Store a plan of any kind to be made, its problem without the snapshot as ``content``; returns its id."""
    plan_id = uuid.uuid4().hex
    session.add(
        PlanRow(
            id=plan_id,
            kind=kind,
            snapshot_id=snapshot.id,
            cluster_name=snapshot.cluster.name,
            model_name=model_name,
            problem=content,
            options=jsonable(options),
            created_at=datetime.now(UTC),
        )
    )
    session.flush()
    return plan_id


def get_plan(session: Session, *, plan_id: str) -> PlanRecord:
    """The plan of that id; raises ``NotFound``."""
    return _record(_row(session, plan_id))


def list_plans(
    session: Session,
    *,
    limit: int,
    cursor: str | None = None,
    status: PlanStatus | None = None,
    cluster_name: str | None = None,
) -> Page[PlanRecord]:
    """Plans, newest first."""
    query = select(PlanRow)
    if status is not None:
        query = query.where(PlanRow.status == status)
    if cluster_name is not None:
        query = query.where(PlanRow.cluster_name == cluster_name)
    return newest_first(session, query, PlanRow.created_at, _record, limit, cursor)


def list_plans_with_experts(session: Session, *, newest: int) -> list[PlanRecord]:
    """Plans that say where experts lie, among the ``newest`` that succeeded."""
    query = select(PlanRow).where(PlanRow.status == PlanStatus.SUCCEEDED).options(undefer(PlanRow.result))
    rows = session.scalars(query.order_by(PlanRow.created_at.desc(), PlanRow.id.desc()).limit(newest)).all()
    return [_record(row) for row in rows if row.result and row.result.get("expert_slots")]


def get_problem(session: Session, *, plan_id: str) -> PlanningProblem:
    """Problem of a plan of training: the snapshot, the model and the workload; raises ``NotReady``."""
    row = row_of_kind(session, plan_id, PlanKind.TRAINING)
    snapshot = snapshots.get_snapshot(session, snapshot_id=row.snapshot_id)
    return load(PlanningProblem, row.problem | {"snapshot": snapshot})


def get_subject(session: Session, *, plan_id: str) -> tuple[TrainingWorkload, Cluster]:
    """Workload and cluster of a plan of training, without measurements; raises ``NotReady``."""
    row = row_of_kind(session, plan_id, PlanKind.TRAINING)
    cluster = snapshots.get_snapshot_cluster(session, snapshot_id=row.snapshot_id)
    return load(TrainingWorkload, row.problem["workload"]), cluster


def get_result(session: Session, *, plan_id: str) -> Plan | NoPlan | None:
    """Result of a plan of training, or ``None`` while (or because) there is none; raises ``NotReady``."""
    return result_of(session, plan_id, PlanKind.TRAINING, Plan, NoPlan)


def get_finished_plan(session: Session, *, plan_id: str) -> Plan:
    """The plan that was found; raises ``NotReady`` when there is none (yet)."""
    return finished(session, plan_id, get_result(session, plan_id=plan_id), Plan)


def result_of(
    session: Session, plan_id: str, kind: PlanKind, plan: type[Found], refusal: type[Refused]
) -> Found | Refused | None:
    """Result of a plan of that kind, or ``None`` while (or because) there is none; ``NotReady`` for others."""
    row = row_of_kind(session, plan_id, kind)
    if row.status == PlanStatus.SUCCEEDED:
        return load(plan, row.result)
    return load(refusal, row.result) if row.status == PlanStatus.INFEASIBLE else None


def finished(session: Session, plan_id: str, result: object, plan: type[Found]) -> Found:
    """``result`` where it is a plan; raises ``NotReady`` where none was found (yet)."""
    if isinstance(result, plan):
        return result
    row = _row(session, plan_id)
    raise NotReady(f"The plan {row.id} is {row.status}: only a plan that succeeded has this.")


def count_ahead(session: Session, *, plan: PlanRecord) -> int:
    """Plans of the same tenant that run, or wait and are before ``plan``; 0 for one that waits no more."""
    if plan.status is not PlanStatus.QUEUED:
        return 0
    turn = turns.turn_of(session, plan_id=plan.id)
    is_sooner = (PlanRow.turn < turn) | ((PlanRow.turn == turn) & (PlanRow.created_at < plan.created_at))
    is_before = (PlanRow.status == PlanStatus.RUNNING) | ((PlanRow.status == PlanStatus.QUEUED) & is_sooner)
    return session.scalar(select(func.count()).select_from(PlanRow).where(is_before)) or 0


def cancel_plan(session: Session, *, plan_id: str) -> PlanRecord:
    """Call off a plan that waits or runs; one that ended stays as it is.  Its solver ends within a second."""
    _row(session, plan_id)
    solves.finish(session, plan_id=plan_id, status=PlanStatus.CANCELLED)
    session.expire_all()
    return get_plan(session, plan_id=plan_id)


def stop_plan(session: Session, *, plan_id: str) -> PlanRecord:
    """End a search with the best plan so far; one that ended stays as it is.

    Raises ``NotReady`` before a plan is known.
    """
    record = get_plan(session, plan_id=plan_id)
    if not record.is_open:
        return record
    if record.progress is None or not record.progress.incumbent:
        raise NotReady(f"No plan is known yet of {plan_id}: wait until its progress names one, or cancel it.")
    solves.ask_to_stop(session, plan_id=plan_id)
    session.expire_all()
    return get_plan(session, plan_id=plan_id)


def delete_plan(session: Session, *, plan_id: str) -> None:
    """Forget a plan, called off first if need be."""
    _row(session, plan_id)
    session.execute(delete(PlanRow).where(PlanRow.id == plan_id))


def count_by_status(session: Session) -> dict[str, int]:
    """How many plans are in each status."""
    counts = dict.fromkeys(map(str, PlanStatus), 0)
    for status, count in session.execute(select(PlanRow.status, func.count()).group_by(PlanRow.status)):
        counts[status] = count
    return counts


def row_of_kind(session: Session, plan_id: str, kind: PlanKind) -> PlanRow:
    """The row of a plan; raises ``NotFound``, or ``NotReady`` where it is of another kind."""
    row = _row(session, plan_id)
    if row.kind != kind:
        raise NotReady(f"The plan {plan_id} is of {row.kind}: only a plan of {kind} has this.")
    return row


def _row(session: Session, plan_id: str) -> PlanRow:
    return row_by_id(session, PlanRow, plan_id, "plan")


def _record(row: PlanRow) -> PlanRecord:
    return PlanRecord(
        id=row.id,
        kind=PlanKind(row.kind),
        status=PlanStatus(row.status),
        snapshot_id=row.snapshot_id,
        cluster_name=row.cluster_name,
        model_name=row.model_name,
        options=load(SearchOptions, row.options),
        progress=_load_progress(row.progress),
        course=course_of(row.progress),
        error=None if row.error is None else PlanError(**row.error),
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        attempts=row.attempts,
        rescues=row.rescues,
        is_stopping=row.stop_asked and row.status in OPEN_STATUSES,
    )


def _load_progress(progress: dict[str, Any] | None) -> Progress | None:
    return None if progress is None else load(Progress, progress)
