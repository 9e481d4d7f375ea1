"""Sweeps of supposed failures: asked for, answered one by one by jobs, ranked by what each failure costs.

The status of a sweep follows from its failures, so nobody has to end it: whichever worker answers the last one.
Each answer says from which cluster, jobs, spares, settings and reports it starts; where these changed meanwhile the
sweep says so.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, func, insert, select, tuple_
from sqlalchemy.orm import Session, undefer

from app.db.locks import one_at_a_time
from app.db.sweep_tables import SweepRow, SweptFailureRow
from app.db.tables import ClusterRow
from app.events.reading import ReportedEvent
from app.serialization import jsonable, load
from app.services.clusters import aliases, clusters
from app.services.decisions import sweep_answers, what_if
from app.services.decisions.replan_answers import DecisionSummary, JobSummary, ServingSummary
from app.services.errors import Conflict, NotFound
from app.services.field_paths import errors_under
from app.services.idempotency import KeyedRequest, once
from app.services.pagination import Page, decode_cursor, newest_first, page_of
from app.services.rows import delete_where, row_by_id
from app.services.running.job_plans import job_plans
from cluster_models.cluster.topology import Cluster
from cluster_models.errors import InvalidInput
from cluster_models.health.events import EntityKind, HealthState
from cluster_models.jobs.recovery import RecoveryAction
from cluster_models.jobs.serving import ServingAction

MOST_OPEN: Final = 4
"""Sweeps of a tenant that may wait or run at once."""
MOST_KEPT: Final = 20
"""Sweeps of a tenant that are kept; older ones are forgotten when another is asked for."""
_NO_ANSWER: Final = -1.0
"""Loss by which failures without an answer come after all others."""
_STANDS: Final = (RecoveryAction.WAIT, RecoveryAction.PAUSE)


class SweepStatus(StrEnum):
    """How far a sweep is; the last two never change again."""

    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class SupposedFailure:
    """Parts that fail together."""

    name: str
    losses: tuple[ReportedEvent, ...]


@dataclass(frozen=True, slots=True)
class SweepRecord:
    """A sweep and how far it is.  ``refused``: failures without an answer; ``changed``: see the module."""

    id: str
    cluster_name: str
    each: str | None
    status: SweepStatus
    failures: int
    answered: int
    refused: int
    changed: bool
    created_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True, slots=True)
class FailureImpact:
    """Answer to one failure of a sweep, ranked by the losses; ``error`` where there is none."""

    number: int
    name: str
    lost_tokens_per_s: float
    lost_requests_per_s: float
    lost_gpu_hours: float
    summary: DecisionSummary | None
    error: str | None

    @property
    def losses(self) -> tuple[float, float, float]:
        """Tokens/s, requests/s and GPU-hours that are lost."""
        return self.lost_tokens_per_s, self.lost_requests_per_s, self.lost_gpu_hours

    @property
    def jobs(self) -> tuple[JobSummary, ...]:
        """Training jobs that it touches."""
        return () if self.summary is None else self.summary.jobs

    @property
    def serving(self) -> tuple[ServingSummary, ...]:
        """Deployments that it touches."""
        return () if self.summary is None else self.summary.serving

    @property
    def must_move(self) -> tuple[str, ...]:
        """Jobs of which ranks move, and deployments whose replicas start elsewhere."""
        return (
            *(each.job for each in self.jobs if each.moved_ranks),
            *(each.job for each in self.serving if each.started),
        )

    @property
    def not_covered(self) -> tuple[str, ...]:
        """Jobs that stand still, and deployments that answer nothing any more."""
        return (
            *(each.job for each in self.jobs if each.action in _STANDS),
            *(each.job for each in self.serving if each.action is ServingAction.STOP),
        )

    @property
    def spares_used(self) -> tuple[str, ...]:
        """Spare nodes that are taken."""
        return () if self.summary is None else self.summary.spares_used


def create_sweep(
    session: Session,
    *,
    reference: str,
    each: str | None,
    failures: Sequence[SupposedFailure],
    now: datetime,
    keyed: KeyedRequest | None = None,
    only_open: bool = False,
) -> str:
    """Store a sweep of every place of the label ``each``, or of ``failures``; returns its id.

    A request that comes again finds its sweep: with ``only_open`` while that runs, else as long as it is kept.
    Raises ``NotFound``, ``InvalidInput`` of parts and labels that the cluster has not, and ``Conflict`` where no
    job runs there or too many sweeps wait.
    """
    cluster = clusters.get_cluster(session, reference=reference)

    def make() -> str:
        if not job_plans(session, cluster_id=cluster.id):
            raise what_if.no_jobs(cluster.name)
        one_at_a_time(session, "sweeps")
        if _count_open(session) >= MOST_OPEN:
            raise Conflict(f"{MOST_OPEN} sweeps run: wait until one has ended, or cancel one.")
        found = failures if each is None else _places(cluster.cluster, each, now)
        table = aliases.read_aliases(session, cluster_id=cluster.id)
        for index, failure in enumerate(failures):
            with errors_under(f"failures[{index}]"):
                what_if.looked_up(cluster, failure.losses, table)
        return _add(session, cluster.id, each, found, now)

    def find(sweep_id: str) -> None:
        if get_sweep(session, sweep_id=sweep_id).status is not SweepStatus.RUNNING and only_open:
            raise NotFound("sweep", sweep_id)

    return once(session, keyed, make=make, find=find)


def get_sweep(session: Session, *, sweep_id: str) -> SweepRecord:
    """The sweep of that id; raises ``NotFound``."""
    for record in _records(session, [_row(session, sweep_id)]):
        return record
    raise NotFound("sweep", sweep_id)


def list_sweeps(
    session: Session, *, limit: int, cursor: str | None = None, reference: str | None = None
) -> Page[SweepRecord]:
    """Sweeps, newest first, of one cluster (raises ``NotFound``) or of all."""
    query = select(SweepRow)
    if reference is not None:
        query = query.where(SweepRow.cluster_id == clusters.find_cluster(session, reference=reference).id)
    page = newest_first(session, query, SweepRow.created_at, lambda row: row, limit, cursor)
    return Page(tuple(_records(session, page.items)), page.next_cursor)


def worst_failures(
    session: Session, *, sweep_id: str, limit: int, cursor: str | None = None
) -> Page[FailureImpact]:
    """Answers so far, the failure that costs most first, those without an answer last; raises ``NotFound``."""
    row = SweptFailureRow
    losses = row.lost_tokens_per_s, row.lost_requests_per_s, row.lost_gpu_hours
    order = *(-func.coalesce(loss, _NO_ANSWER) for loss in losses), row.number
    query = select(row).where(row.sweep_id == _row(session, sweep_id).id, row.answered_at.is_not(None))
    if cursor is not None:
        query = query.where(tuple_(*order) > tuple_(*decode_cursor(cursor, float, float, float, int)))
    query = query.options(undefer(row.summary)).order_by(*order).limit(limit + 1)
    return page_of(session.scalars(query).all(), limit=limit, item=_impact, keys=_place)


def _place(row: SweptFailureRow) -> tuple[float | int, ...]:
    """Keys of an answer in the order of ``worst_failures``."""
    losses = row.lost_tokens_per_s, row.lost_requests_per_s, row.lost_gpu_hours
    return *(-(_NO_ANSWER if loss is None else loss) for loss in losses), row.number


def cancel_sweep(session: Session, *, sweep_id: str) -> SweepRecord:
    """Call off what is not answered yet; a sweep that ended stays as it is."""
    record = get_sweep(session, sweep_id=sweep_id)
    if record.status is SweepStatus.RUNNING:
        _row(session, sweep_id).cancelled_at = datetime.now(UTC)
        session.flush()
    return get_sweep(session, sweep_id=sweep_id)


def delete_sweep(session: Session, *, sweep_id: str) -> None:
    """Forget a sweep with its answers; raises ``NotFound``."""
    delete_where(session, SweepRow, SweepRow.id == sweep_id, "sweep", sweep_id)


def labels_of(cluster: Cluster) -> list[str]:
    """Labels whose places may fail one after the other: nodes first."""
    return ["node", *sorted({"nvlink_domain", *(label for node in cluster.nodes for label in node.labels)})]


def _places(cluster: Cluster, label: str, now: datetime) -> list[SupposedFailure]:
    """The loss of all nodes of each place of a label."""
    places: dict[str, list[str]] = {}
    for node in cluster.nodes:
        if (place := node.place(label)) is not None:
            places.setdefault(place, []).append(node.name)
    if not places:
        raise InvalidInput("each", label, "is a label of no node", f"use one of {', '.join(labels_of(cluster))}")
    return [
        SupposedFailure(
            place,
            tuple(
                ReportedEvent(EntityKind.NODE, node, "", HealthState.FAILED, occurred_at=now, source_id=node)
                for node in nodes
            ),
        )
        for place, nodes in places.items()
    ]


def _add(
    session: Session, cluster_id: str, each: str | None, failures: Sequence[SupposedFailure], now: datetime
) -> str:
    sweep_id = uuid.uuid4().hex
    _forget_old(session)
    session.add(SweepRow(id=sweep_id, cluster_id=cluster_id, each=each, created_at=now))
    session.flush()
    session.execute(
        insert(SweptFailureRow),
        [
            {
                "sweep_id": sweep_id,
                "number": number,
                "name": failure.name,
                "losses": {"losses": jsonable(failure.losses)},
            }
            for number, failure in enumerate(failures)
        ],
    )
    return sweep_id


def _forget_old(session: Session) -> None:
    """Keep the newest sweeps, and those that still run."""
    query = select(SweepRow).order_by(SweepRow.created_at.desc(), SweepRow.id.desc()).offset(MOST_KEPT - 1)
    old = _records(session, session.scalars(query).all())
    ended = [record.id for record in old if record.status is not SweepStatus.RUNNING]
    session.execute(delete(SweepRow).where(SweepRow.id.in_(ended)))


def _count_open(session: Session) -> int:
    return len(session.scalars(sweep_answers.unanswered(SweptFailureRow.sweep_id).distinct()).all())


def _records(session: Session, rows: Sequence[SweepRow]) -> list[SweepRecord]:
    """The sweeps of rows, apart from those that another transaction forgets meanwhile."""

    def those(condition: ColumnElement[bool]) -> ColumnElement[int]:
        return func.count(SweptFailureRow.number).filter(condition)

    query = select(
        SweptFailureRow.sweep_id,
        func.count(SweptFailureRow.number).label("failures"),
        those(SweptFailureRow.answered_at.is_not(None)).label("answered"),
        those(SweptFailureRow.error.is_not(None)).label("refused"),
        func.count(SweptFailureRow.state.distinct()).label("states"),
        func.max(SweptFailureRow.answered_at).label("last"),
    ).group_by(SweptFailureRow.sweep_id)
    counts = {
        each.sweep_id: each
        for each in session.execute(query.where(SweptFailureRow.sweep_id.in_([row.id for row in rows])))
    }
    names = select(ClusterRow.id, ClusterRow.name).where(ClusterRow.id.in_({row.cluster_id for row in rows}))
    named = {each.id: each.name for each in session.execute(names)}
    return [
        _record(row, named[row.cluster_id], counts[row.id])
        for row in rows
        if row.id in counts and row.cluster_id in named
    ]


def _record(row: SweepRow, cluster_name: str, count: Any) -> SweepRecord:
    is_done = count.answered == count.failures
    status = SweepStatus.CANCELLED if row.cancelled_at else SweepStatus.FINISHED if is_done else SweepStatus.RUNNING
    return SweepRecord(
        id=row.id,
        cluster_name=cluster_name,
        each=row.each,
        status=status,
        failures=count.failures,
        answered=count.answered,
        refused=count.refused,
        changed=count.states > 1,
        created_at=row.created_at,
        finished_at=row.cancelled_at or (count.last if is_done else None),
    )


def _impact(row: SweptFailureRow) -> FailureImpact:
    return FailureImpact(
        number=row.number,
        name=row.name,
        lost_tokens_per_s=row.lost_tokens_per_s or 0.0,
        lost_requests_per_s=row.lost_requests_per_s or 0.0,
        lost_gpu_hours=row.lost_gpu_hours or 0.0,
        summary=None if row.summary is None else load(DecisionSummary, row.summary),
        error=row.error,
    )


def _row(session: Session, sweep_id: str) -> SweepRow:
    return row_by_id(session, SweepRow, sweep_id, "sweep")
