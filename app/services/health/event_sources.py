"""Monitoring systems that report to an address of their own, and how they prove who they are."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.replan_tables import EventSourceRow
from app.events.signatures import NotVerified, verify
from app.services.clusters import clusters
from app.services.errors import NameTaken, NotAuthentic, NotFound
from app.services.rows import row_by_id
from app.services.webhooks import webhooks
from cluster_models.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class EventSource:
    """A source of reports; ``adapter`` names the format it speaks, ``options`` are the adapter's own.

    The secret is shown once, when it is made.
    """

    id: str
    cluster_id: str
    name: str
    adapter: str
    options: dict[str, Any]
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NewEventSource:
    """A source with the secret that its reports are to be signed with (or carry)."""

    source: EventSource
    secret: str


def create_source(
    session: Session,
    *,
    reference: str,
    name: str,
    adapter: str,
    options: dict[str, Any] | None = None,
    secret: str | None = None,
) -> NewEventSource:
    """Store a source of reports on a cluster; raises ``NotFound``, ``NameTaken``, ``InvalidInput``.

    The caller has checked ``adapter`` and ``options``.
    """
    cluster_id = clusters.find_cluster(session, reference=reference).id
    if not name or len(name) > 100 or "/" in name or not name.isprintable():
        raise InvalidInput("name", name, "must have 1 to 100 characters, none of them a slash")
    kept = webhooks.new_secret() if secret is None else webhooks.checked_secret(secret)
    values = {"adapter": adapter, "secret": kept, "options": options or {}, "created_at": datetime.now(UTC)}
    source_id = uuid.uuid4().hex
    if not insert_if_absent(session, EventSourceRow, id=source_id, cluster_id=cluster_id, name=name, **values):
        raise NameTaken("source", name, "delete it first, or use another name")
    return NewEventSource(get_source(session, source_id=source_id), kept)


def get_new_source(session: Session, *, source_id: str) -> NewEventSource:
    """The source of that id with its secret, for whoever made it; raises ``NotFound``."""
    row = _row(session, source_id)
    return NewEventSource(_source(row), row.secret)


def get_source(session: Session, *, source_id: str) -> EventSource:
    """The source of that id; raises ``NotFound``."""
    return _source(_row(session, source_id))


def list_sources(session: Session, *, reference: str) -> tuple[EventSource, ...]:
    """The sources of a cluster by name; raises ``NotFound``."""
    cluster_id = clusters.find_cluster(session, reference=reference).id
    query = select(EventSourceRow).where(EventSourceRow.cluster_id == cluster_id).order_by(EventSourceRow.name)
    return tuple(_source(row) for row in session.scalars(query))


def find_source(session: Session, *, reference: str, source: str) -> EventSource:
    """The source of that name or id on a cluster; raises ``NotFound``."""
    for each in list_sources(session, reference=reference):
        if source in (each.name, each.id):
            return each
    raise NotFound("event source", source)


def delete_source(session: Session, *, source_id: str) -> None:
    """Forget a source; what it reported stays.  Raises ``NotFound``."""
    _row(session, source_id)
    session.execute(delete(EventSourceRow).where(EventSourceRow.id == source_id))


def check_authentic(session: Session, *, source_id: str, body: bytes, headers: Mapping[str, str]) -> EventSource:
    """The source that sent a report; raises ``NotFound``, and ``NotAuthentic`` where it did not.

    ``app.events.signatures`` says how: signed, or with the secret for senders that cannot sign.
    """
    row = _row(session, source_id)
    try:
        verify(headers, body, row.secret, datetime.now(UTC))
    except NotVerified as wrong:
        raise NotAuthentic(row.name, str(wrong)) from wrong
    return _source(row)


def _row(session: Session, source_id: str) -> EventSourceRow:
    return row_by_id(session, EventSourceRow, source_id, "event source")


def _source(row: EventSourceRow) -> EventSource:
    return EventSource(row.id, row.cluster_id, row.name, row.adapter, row.options, row.created_at)
