"""Reports about the health of a cluster's parts: each kept once, whatever it names, and what follows from all."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import Row, bindparam, delete, exists, select, update
from sqlalchemy.orm import Session, aliased

from app.db.insert import insert_all_absent
from app.db.replan_tables import HealthEventRow
from app.events.news import news
from app.events.reading import ToldEvent
from app.services.clusters import clusters
from app.services.decisions import replan_settings
from app.services.pagination import Page, newest_first
from cluster_models.health.conditions import REPEATED_WITHIN_S, Condition
from cluster_models.health.events import Entity, EntityKind, HealthEvent, HealthState
from cluster_models.jobs.recovery import Quarantine

KEPT_FOR: Final = timedelta(seconds=3 * REPEATED_WITHIN_S)
"""Reports that later ones follow are forgotten after this: long past the count of repeat offenders."""
_MOST_NODES_ASKED: Final = 500
"""Nodes that one query names; for more, it asks for all."""
_COLUMNS: Final = (
    HealthEventRow.kind,
    HealthEventRow.node,
    HealthEventRow.part,
    HealthEventRow.state,
    HealthEventRow.occurred_at,
    HealthEventRow.source,
    HealthEventRow.source_id,
    HealthEventRow.text,
    HealthEventRow.code,
    HealthEventRow.compute_slowdown,
    HealthEventRow.bandwidth_share,
    HealthEventRow.leave_by,
    HealthEventRow.device,
)
"""Columns of ``HealthEvent``: plain rows of them are read four times as fast as objects."""


@dataclass(frozen=True, slots=True)
class EventRecord:
    """A stored report; ``repeats`` counts how often it came again."""

    id: str
    event: HealthEvent
    told_name: str
    known: bool
    received_at: datetime
    repeats: int
    replan_id: str | None


@dataclass(frozen=True, slots=True)
class StoredEvents:
    """Outcome of a batch of reports."""

    new: tuple[EventRecord, ...]
    repeated: int


def store(session: Session, *, cluster_id: str, told: Sequence[ToldEvent], now: datetime) -> StoredEvents:
    """Keep the reports that are new; those known already are counted.  The cluster's row must be locked.

    A sighting is new where it differs from what its source said last of the part.
    """
    fresh = news(told, _said(session, cluster_id, told), now=now)
    rows = {uuid.uuid4().hex: each for each in fresh}
    values = [_values(event_id, cluster_id, each, now) for event_id, each in rows.items()]
    added = insert_all_absent(session, HealthEventRow, values)
    _count_again(session, cluster_id, [each.event for event_id, each in rows.items() if event_id not in added])
    new = tuple(
        EventRecord(event_id, each.event, each.told_name, each.known, now, 0, None)
        for event_id, each in rows.items()
        if event_id in added
    )
    return StoredEvents(new, len(told) - len(new))


def list_events(
    session: Session,
    *,
    reference: str,
    limit: int,
    cursor: str | None = None,
    known: bool | None = None,
    replan_id: str | None = None,
    device: str | None = None,
) -> Page[EventRecord]:
    """The reports on a cluster, the newest received first; raises ``NotFound``."""
    cluster_id = clusters.find_cluster(session, reference=reference).id
    query = select(HealthEventRow).where(HealthEventRow.cluster_id == cluster_id)
    if known is not None:
        query = query.where(HealthEventRow.known.is_(known))
    if replan_id is not None:
        query = query.where(HealthEventRow.replan_id == replan_id)
    if device is not None:
        query = query.where(HealthEventRow.device == device)
    return newest_first(session, query, HealthEventRow.received_at, _record, limit, cursor)


def conditions_now(session: Session, *, reference: str, now: datetime | None = None) -> tuple[Condition, ...]:
    """The parts of a cluster that are not well; raises ``NotFound``."""
    cluster_id = clusters.find_cluster(session, reference=reference).id
    settings = replan_settings.settings_of(session, cluster_id=cluster_id)
    events = read_known(session, cluster_id=cluster_id)
    return settings.conditions(events, now=now or datetime.now(UTC))


def quarantine_now(session: Session, *, reference: str, now: datetime | None = None) -> tuple[Quarantine, ...]:
    """Nodes that failed too often and should stay out; raises ``NotFound``."""
    cluster_id = clusters.find_cluster(session, reference=reference).id
    settings = replan_settings.settings_of(session, cluster_id=cluster_id)
    return settings.keep_out(read_known(session, cluster_id=cluster_id), now=now or datetime.now(UTC))


def read_known(
    session: Session, *, cluster_id: str, nodes: Collection[str] | None = None
) -> tuple[HealthEvent, ...]:
    """Every kept report on a part that the cluster has, by the time it happened.

    ``nodes`` limits them to parts of these, where they are few; the node of a switch is empty.
    """
    query = select(*_COLUMNS).where(HealthEventRow.cluster_id == cluster_id, HealthEventRow.known.is_(True))
    if nodes is not None and len(nodes) <= _MOST_NODES_ASKED:
        query = query.where(HealthEventRow.node.in_(nodes))
    rows = session.execute(query.order_by(HealthEventRow.occurred_at, HealthEventRow.id))
    return tuple(_event(row) for row in rows)


def read_of_replan(session: Session, *, replan_id: str) -> tuple[HealthEvent, ...]:
    """The reports that a replan decides on, by the time they happened."""
    query = (
        select(*_COLUMNS)
        .where(HealthEventRow.replan_id == replan_id)
        .order_by(HealthEventRow.occurred_at, HealthEventRow.id)
    )
    return tuple(_event(row) for row in session.execute(query))


def assign(session: Session, *, event_ids: Iterable[str], replan_id: str) -> None:
    """Let a replan decide on these reports."""
    session.execute(
        update(HealthEventRow).where(HealthEventRow.id.in_(list(event_ids))).values(replan_id=replan_id)
    )


def hand_over(session: Session, *, old_replan: str, new_replan: str) -> None:
    """Let another replan decide on all reports that one had."""
    session.execute(
        update(HealthEventRow).where(HealthEventRow.replan_id == old_replan).values(replan_id=new_replan)
    )


def forget_old(session: Session, *, now: datetime) -> None:
    """Drop reports that happened long ago and that the same source has followed up since."""
    newer = aliased(HealthEventRow)
    same = [
        getattr(newer, name) == getattr(HealthEventRow, name)
        for name in ("cluster_id", "source", "kind", "node", "part")
    ]
    followed = exists().where(*same, newer.occurred_at > HealthEventRow.occurred_at)
    session.execute(
        delete(HealthEventRow)
        .where(HealthEventRow.occurred_at < now - KEPT_FOR, followed)
        .execution_options(synchronize_session=False)
    )


def _said(session: Session, cluster_id: str, told: Sequence[ToldEvent]) -> Iterable[HealthEvent]:
    """Earlier reports by the sources of sightings on the nodes that they speak of."""
    seen = [each.event for each in told if each.is_sighting]
    if not seen:
        return ()
    query = select(*_COLUMNS).where(
        HealthEventRow.cluster_id == cluster_id, HealthEventRow.source.in_({event.source for event in seen})
    )
    nodes = {event.entity.node for event in seen}
    if len(nodes) <= _MOST_NODES_ASKED:
        query = query.where(HealthEventRow.node.in_(nodes))
    return [_event(row) for row in session.execute(query)]


def _values(event_id: str, cluster_id: str, told: ToldEvent, now: datetime) -> dict[str, Any]:
    event = told.event
    return {
        "id": event_id,
        "cluster_id": cluster_id,
        "source": event.source,
        "source_id": event.source_id,
        "kind": event.entity.kind,
        "node": event.entity.node,
        "part": event.entity.part,
        "told_name": told.told_name,
        "known": told.known,
        "state": event.state,
        "occurred_at": event.occurred_at,
        "received_at": now,
        "text": event.text,
        "code": event.code,
        "compute_slowdown": event.compute_slowdown,
        "bandwidth_share": event.bandwidth_share,
        "leave_by": event.leave_by,
        "device": event.device,
        "repeats": 0,
    }


def _count_again(session: Session, cluster_id: str, events: Sequence[HealthEvent]) -> None:
    if not events:
        return
    same = (
        HealthEventRow.cluster_id == cluster_id,
        HealthEventRow.source == bindparam("its_source"),
        HealthEventRow.source_id == bindparam("its_id"),
        HealthEventRow.state == bindparam("its_state"),
    )
    session.connection().execute(
        update(HealthEventRow).where(*same).values(repeats=HealthEventRow.repeats + 1),
        [
            {"its_source": event.source, "its_id": event.source_id, "its_state": str(event.state)}
            for event in events
        ],
    )
    session.expire_all()


def _event(row: HealthEventRow | Row[*tuple[Any, ...]]) -> HealthEvent:
    return HealthEvent(
        entity=Entity(EntityKind(row.kind), row.node, row.part),
        state=HealthState(row.state),
        occurred_at=row.occurred_at,
        source=row.source,
        source_id=row.source_id,
        text=row.text,
        code=row.code,
        compute_slowdown=row.compute_slowdown,
        bandwidth_share=row.bandwidth_share,
        leave_by=row.leave_by,
        device=row.device,
    )


def _record(row: HealthEventRow) -> EventRecord:
    return EventRecord(
        id=row.id,
        event=_event(row),
        told_name=row.told_name,
        known=row.known,
        received_at=row.received_at,
        repeats=row.repeats,
        replan_id=row.replan_id,
    )
