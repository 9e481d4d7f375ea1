"""Effects of reports about a cluster's health: a replan is opened, joined, overtaken or called off.

A replan is opened by *fresh* trouble of a job: trouble that was decided on does not count again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.db.replan_tables import ReplanRow
from app.db.running_tables import RunningJobRow
from app.db.status import OPEN_REPLANS, ReplanStatus, ReplanStep
from app.events.reading import ToldEvent
from app.presentation.recovery import entity_words
from app.services import idempotency
from app.services.clusters import clusters
from app.services.clusters.clusters import StoredCluster
from app.services.decisions import replan_problems, replan_rows, replan_settings, replan_steps
from app.services.decisions.replan_steps import SERVICE
from app.services.errors import Conflict, IdempotencyKeyReused
from app.services.health import health_events
from app.services.health.affected_holders import fresh_trouble, standing_trouble, touched
from app.services.health.health_events import EventRecord
from app.services.running import occupancy
from app.services.running.job_plans import job_plans
from app.services.running.occupancy import Gpus
from app.services.webhooks import announcements
from cluster_models.cluster.topology import Cluster
from cluster_models.health.conditions import Condition
from cluster_models.health.events import HealthEvent
from cluster_models.wording import named

MOST_NAMED: Final = 5
_SPARES: Final = ""
"""Stands for nobody: the spares that a replan which is not approved yet may have given out."""


@dataclass(frozen=True, slots=True)
class ReportAnswer:
    """Outcome of reports.  ``replan_id``: the replan that decides on them, where they touch a job.

    ``wants_safe_answer``: ``app.services.decisions.safe_answers.answer_safely`` is to be called for it once the
    transaction is committed.
    """

    events: tuple[EventRecord, ...]
    repeated: int
    unknown: int
    replan_id: str | None
    wants_safe_answer: bool


def report(
    session: Session, *, reference: str, told: Sequence[ToldEvent], now: datetime | None = None
) -> ReportAnswer:
    """Store reports about a cluster's parts and do what follows from them; raises ``NotFound``."""
    now = now or datetime.now(UTC)
    cluster = clusters.lock(session, reference=reference, expected_version=None)
    stored = health_events.store(session, cluster_id=cluster.id, told=told, now=now)
    announcements.tell_of_unknown_names(session, cluster_id=cluster.id, events=stored.new)
    known = [each for each in stored.new if each.known]
    replan_id = _react(session, cluster.id, known, now) if known else None
    row = None if replan_id is None else replan_rows.row_of(session, replan_id)
    return ReportAnswer(
        events=stored.new,
        repeated=stored.repeated,
        unknown=len(stored.new) - len(known),
        replan_id=replan_id,
        wants_safe_answer=row is not None and row.status in OPEN_REPLANS and row.safe_revision < row.revision,
    )


def request_replan(
    session: Session,
    *,
    reference: str,
    window_s: float = 0.0,
    reason: str = "It was asked for.",
    idempotency_key: str | None = None,
    now: datetime | None = None,
) -> str:
    """Open a replan of a cluster as it is, whatever touched it; returns its id.

    Where one collects reports it is that one, and its window ends no later than wanted; one that was proposed or
    approved is overtaken.  Raises ``NotFound``, ``IdempotencyKeyReused``, and ``Conflict`` where no job runs
    there, nor waits to run again.
    """
    now = now or datetime.now(UTC)
    cluster = clusters.lock(session, reference=reference, expected_version=None)
    request_hash = idempotency.fingerprint(f"{cluster.id} {window_s!r} {reason}".encode())
    if idempotency_key is not None:
        row = session.scalar(select(ReplanRow).where(ReplanRow.idempotency_key == idempotency_key))
        if row is not None:
            if row.request_hash != request_hash:
                raise IdempotencyKeyReused(idempotency_key)
            return row.id
    if not job_plans(session, cluster_id=cluster.id):
        raise Conflict(f"No job runs on the cluster {cluster.name!r}: there is nothing to decide.")
    replan_id = open_or_join(session, cluster.id, reason=reason, window_s=window_s, now=now)
    row = replan_rows.row_of(session, replan_id)
    row.window_ends_at = min(row.window_ends_at, now + timedelta(seconds=window_s))
    row.idempotency_key, row.request_hash = idempotency_key, request_hash
    session.flush()
    return replan_id


def is_over(session: Session, *, row: ReplanRow, now: datetime) -> bool:
    """Whether all that opened a replan was taken back.

    Never of one that no report opened, nor of one that overtook another: what that had decided, or was to decide,
    is carried out by nobody else.
    """
    if session.scalar(select(exists().where(ReplanRow.superseded_by == row.id))):
        return False
    entities = {event.entity for event in health_events.read_of_replan(session, replan_id=row.id)}
    if not entities:
        return False
    conditions = cluster_conditions(session, row.cluster_id, now)
    theirs = [each for each in standing_trouble(conditions) if each.entity in entities]
    return not touched_jobs(session, row.cluster_id, theirs)


def call_off(session: Session, *, row: ReplanRow) -> None:
    """End a replan whose reports were all taken back."""
    told = "Every part that was reported has recovered within the window, and no job is touched any more."
    replan_rows.close(session, row, [ReplanStatus.COLLECTING], status=ReplanStatus.CANCELLED, problem=told)
    replan_steps.take(session, row=row, step=ReplanStep.CANCELLED, actor=SERVICE)


def decide_anew(session: Session, *, row: ReplanRow, reason: str, now: datetime | None = None) -> str:
    """Let an open replan start from what its cluster's jobs are now; returns the id of the one that decides.

    One that still collects takes the change in; any other is overtaken by a new one without a window.
    """
    return open_or_join(session, row.cluster_id, reason=reason, window_s=0.0, now=now or datetime.now(UTC))


def take_in_change(session: Session, *, job: RunningJobRow) -> None:
    """Decide anew where a job counts otherwise now than an open replan, not approved yet, takes it to."""
    current = replan_rows.open_row(session, job.cluster_id)
    if current is None or current.status in (ReplanStatus.APPROVED, ReplanStatus.APPLYING):
        return
    asked = None if current.request is None else set(replan_problems.base_of(current.request))
    if asked is None or job.id in asked:
        decide_anew(session, row=current, reason=f"The weight or recovery policy of {job.name} was changed.")


def _react(session: Session, cluster_id: str, new: Sequence[EventRecord], now: datetime) -> str | None:
    """Open, join, overtake or call off the cluster's replan for reports on parts that it has; returns its id."""
    current = replan_rows.open_row(session, cluster_id)
    fresh = _fresh(session, cluster_id, new, now)
    if current is None and not fresh:
        return None
    stored = clusters.get_cluster(session, reference=cluster_id)
    holders = _holders(session, stored, current)
    hit = touched(fresh, holders, stored.cluster)
    if not hit:
        return _take_note(session, current, new, now)
    troubled = {each.entity for each in fresh}
    event_ids = [each.id for each in new if each.event.entity in troubled]
    window_s = replan_settings.settings_of(session, cluster_id=cluster_id).window_s
    reason = reason_of(session, fresh, hit, holders, stored.cluster)
    replan_id = open_or_join(session, cluster_id, reason=reason, window_s=window_s, now=now)
    health_events.assign(session, event_ids=event_ids, replan_id=replan_id)
    return replan_id


def _take_note(
    session: Session, current: ReplanRow | None, new: Sequence[EventRecord], now: datetime
) -> str | None:
    """Let the open replan have what is told about its own parts; called off where nothing of it is left."""
    if current is None:
        return None
    own = {event.entity for event in health_events.read_of_replan(session, replan_id=current.id)}
    event_ids = [each.id for each in new if each.event.entity in own]
    if not event_ids:
        return None
    health_events.assign(session, event_ids=event_ids, replan_id=current.id)
    if current.status == ReplanStatus.COLLECTING and is_over(session, row=current, now=now):
        call_off(session, row=current)
    return current.id


def open_or_join(session: Session, cluster_id: str, *, reason: str, window_s: float, now: datetime) -> str:
    """The replan that takes in what is new: the one that still collects, or a new one that overtakes an older."""
    current = replan_rows.open_row(session, cluster_id)
    if current is not None:
        joined = replan_rows.change(session, current.id, [ReplanStatus.COLLECTING], revision=ReplanRow.revision + 1)
        if joined:
            return current.id
    replan_id = uuid.uuid4().hex
    if current is not None:
        overtaken = {"status": ReplanStatus.SUPERSEDED, "superseded_by": replan_id, "finished_at": now}
        replan_rows.change(session, current.id, OPEN_REPLANS, **overtaken)
    session.add(
        ReplanRow(
            id=replan_id,
            cluster_id=cluster_id,
            status=ReplanStatus.COLLECTING,
            window_ends_at=now + timedelta(seconds=window_s),
            reason=reason,
            created_at=now,
        )
    )
    session.flush()
    if current is not None:
        health_events.hand_over(session, old_replan=current.id, new_replan=replan_id)
        occupancy.hand_over(session, old_claim=current.id, new_claim=replan_id)
        replan_rows.cancel_plans(session, replan_id=current.id)
        replan_steps.take(session, row=current, step=ReplanStep.SUPERSEDED, actor=SERVICE)
    return replan_id


def _fresh(session: Session, cluster_id: str, new: Sequence[EventRecord], now: datetime) -> tuple[Condition, ...]:
    """The trouble that was not known before these reports."""
    settings = replan_settings.settings_of(session, cluster_id=cluster_id)
    nodes = {each.event.entity.node for each in new}
    events = health_events.read_known(session, cluster_id=cluster_id, nodes=nodes)
    latest = {_key(each.event) for each in new}
    earlier = [event for event in events if _key(event) not in latest]
    return fresh_trouble(settings.conditions(earlier, now=now), settings.conditions(events, now=now))


def _holders(session: Session, cluster: StoredCluster, current: ReplanRow | None) -> Mapping[str, Gpus]:
    """Holders that would have to act: jobs by their GPUs, and the spares that an open replan counts on."""
    holders: dict[str, Gpus] = dict(occupancy.staying_gpus(session, cluster_id=cluster.id))
    if current is None or current.status in (ReplanStatus.APPROVED, ReplanStatus.APPLYING):
        return holders
    counted_on = set(occupancy.spare_names(session, cluster_id=cluster.id))
    if current.request is not None:
        counted_on |= set(current.request["spares"])
    nodes = [node for node in cluster.cluster.nodes if node.name in counted_on]
    holders[_SPARES] = frozenset((node.name, gpu) for node in nodes for gpu in range(node.gpu_count))
    return holders


def cluster_conditions(session: Session, cluster_id: str, now: datetime) -> tuple[Condition, ...]:
    """The parts of a cluster that are not well."""
    settings = replan_settings.settings_of(session, cluster_id=cluster_id)
    return settings.conditions(health_events.read_known(session, cluster_id=cluster_id), now=now)


def touched_jobs(session: Session, cluster_id: str, conditions: Iterable[Condition]) -> tuple[str, ...]:
    """The ids of the jobs that hold, and keep, a part which one of these conditions is about."""
    cluster = clusters.get_cluster(session, reference=cluster_id).cluster
    return touched(conditions, occupancy.staying_gpus(session, cluster_id=cluster_id), cluster)


def _key(event: HealthEvent) -> tuple[str, str, str]:
    return event.source, event.source_id, event.state


def reason_of(
    session: Session, fresh: Sequence[Condition], hit: Sequence[str], holders: Mapping[str, Gpus], cluster: Cluster
) -> str:
    """The trouble of these holders in a sentence."""
    theirs = {holder: holders[holder] for holder in hit}
    parts = [f"{entity_words(each.entity)} {each.state}" for each in fresh if touched([each], theirs, cluster)]
    query = select(RunningJobRow.name).where(RunningJobRow.id.in_(hit)).order_by(RunningJobRow.name)
    names = list(session.scalars(query))
    whose = named(names, MOST_NAMED) if names else "spares that were counted on"
    return f"{named(parts, MOST_NAMED)}: touches {whose}."
