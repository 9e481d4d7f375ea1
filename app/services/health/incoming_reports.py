"""Reports on their way in: who sent them, what they say, and which parts of the cluster they are about."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from sqlalchemy.orm import Session

from app.documents.reading import close_name
from app.events.part_lookup import resolve
from app.events.reading import ReportedEvent
from app.services.clusters import aliases, clusters
from app.services.decisions import replan_settings, reports
from app.services.decisions.reports import ReportAnswer
from app.services.errors import NotAuthentic
from app.services.health import event_sources
from app.services.health.event_sources import EventSource
from cluster_models.errors import InvalidInput

_SIGNED_ONLY: Final = (
    "This cluster takes signed reports only: store the source, and send events/FORMAT?source=NAME."
)


def receive(
    session: Session, *, reference: str, reported: Sequence[tuple[str, ReportedEvent]], now: datetime
) -> ReportAnswer:
    """Look the names of reports up, each with its source, and do what follows from them; raises ``NotFound``."""
    cluster = clusters.get_cluster(session, reference=reference)
    table = aliases.read_aliases(session, cluster_id=cluster.id)
    events = [event for _source, event in reported]
    found = resolve(events, source="", cluster=cluster.cluster, aliases=table)
    told = [
        replace(each, event=replace(each.event, source=source))
        for (source, _event), each in zip(reported, found, strict=True)
    ]
    return reports.report(session, reference=cluster.id, told=told, now=now)


def check_unsigned(session: Session, *, reference: str, sources: Collection[str]) -> None:
    """Raise ``NotAuthentic`` where reports without a signature name a source that signs its own, or all must."""
    if sources and replan_settings.get_settings(session, reference=reference).signed_only:
        raise NotAuthentic(min(sources), _SIGNED_ONLY)
    for stored in event_sources.list_sources(session, reference=reference):
        if stored.name in sources:
            raise NotAuthentic(stored.name)


def sender_of(
    session: Session,
    *,
    reference: str,
    adapter: str,
    source: str | None,
    body: bytes,
    headers: Mapping[str, str],
) -> str:
    """The name that reports in a body are stored under: that of their source, else that of their format.

    Raises ``NotFound`` of the cluster, ``InvalidInput`` of the source, and ``NotAuthentic`` where the source did
    not send it, or none is named although the cluster has sources of that format.
    """
    stored = event_sources.list_sources(session, reference=reference)
    if source is None:
        for each in stored:
            if each.adapter == adapter:
                raise NotAuthentic(each.name)
        if replan_settings.get_settings(session, reference=reference).signed_only:
            raise NotAuthentic(adapter, _SIGNED_ONLY)
        return adapter
    found = _named(stored, source)
    if found.adapter != adapter:
        problem = f"speaks {found.adapter}, not {adapter}"
        raise InvalidInput("query.source", source, problem, f"send it to events/{found.adapter}")
    return event_sources.check_authentic(session, source_id=found.id, body=body, headers=headers).name


def _named(stored: Sequence[EventSource], source: str) -> EventSource:
    for each in stored:
        if source in (each.name, each.id):
            return each
    known = [each.name for each in stored]
    raise InvalidInput("query.source", source, "is not a source of this cluster", close_name(source, known))
