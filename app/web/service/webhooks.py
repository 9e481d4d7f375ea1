"""Connections in words: who reports to us, whom we tell, and how the last messages fared."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final
from urllib.parse import quote

from app.db.status import DeliveryStatus
from app.events.registry import ADAPTERS
from app.presentation.figures import duration, plural
from app.presentation.recovery import moment
from app.services.health.event_sources import EventSource
from app.services.webhooks.webhooks import Delivery, Endpoint, EventType

_TYPES: Final = {
    EventType.SAFE_ANSWER: "a safe answer to a failure is there",
    EventType.PROPOSED: "a decision waits for approval",
    EventType.APPROVED: "a decision was approved: it is to be carried out",
    EventType.STARTED: "a decision is being carried out",
    EventType.JOB_COMPLETED: "one job runs as decided",
    EventType.APPLIED: "a decision was carried out",
    EventType.FAILED: "a decision failed",
    EventType.CANCELLED: "a decision was called off",
    EventType.SUPERSEDED: "a later decision took over from one",
    EventType.UNKNOWN_NAME: "a report names something that no cluster has",
}
_STATUSES: Final = {
    DeliveryStatus.PENDING: ("on its way", "busy"),
    DeliveryStatus.DELIVERED: ("delivered", "good"),
    DeliveryStatus.FAILED: ("given up", "bad"),
}


@dataclass(frozen=True, slots=True)
class Secret:
    """A secret that is shown this once: of whom, the text, and what it is for."""

    of: str
    text: str
    means: str


@dataclass(frozen=True, slots=True)
class DeliveryRow:
    """One message and how it fared."""

    id: str
    about: str
    status: str
    mood: str
    history: str
    error: str
    can_retry: bool


@dataclass(frozen=True, slots=True)
class EndpointRow:
    """An address and its last messages; ``trouble`` says why it is off."""

    id: str
    url: str
    told: str
    enabled: bool
    trouble: str
    deliveries: tuple[DeliveryRow, ...]


@dataclass(frozen=True, slots=True)
class SourceRow:
    """A monitoring system that reports, and where it sends its reports to."""

    id: str
    name: str
    cluster: str
    speaks: str
    address: str


def event_types() -> tuple[tuple[str, str], ...]:
    """Types of events, in words."""
    return tuple(_TYPES.items())


def source_row(source: EventSource, cluster: str, base: str) -> SourceRow:
    """A source; ``base`` is the address of this service as the browser knows it."""
    known = ADAPTERS.get(source.adapter)
    place = f"clusters/{quote(cluster, safe='')}/events/{quote(source.adapter, safe='')}"
    return SourceRow(
        id=source.id,
        name=source.name,
        cluster=cluster,
        speaks=known.known_as if known else source.adapter,
        address=f"{base}/api/v1/{place}?source={quote(source.name, safe='')}",
    )


def endpoint_row(endpoint: Endpoint, deliveries: Sequence[Delivery], now: datetime) -> EndpointRow:
    """An endpoint with its last messages."""
    told = "; ".join(_TYPES[each] for each in endpoint.event_types) or "everything"
    return EndpointRow(
        id=endpoint.id,
        url=endpoint.url,
        told=told,
        enabled=endpoint.enabled,
        trouble=endpoint.disabled_because,
        deliveries=delivery_rows(deliveries, now),
    )


def delivery_rows(deliveries: Iterable[Delivery], now: datetime) -> tuple[DeliveryRow, ...]:
    """Messages in the order given."""
    return tuple(_delivery(each, now) for each in deliveries)


def _delivery(each: Delivery, now: datetime) -> DeliveryRow:
    status, mood = _STATUSES[each.status]
    history = [moment(each.created_at), plural(each.attempts, "attempt")]
    if each.last_status is not None:
        history.append(f"last answer {each.last_status}")
    if each.status is DeliveryStatus.PENDING and each.attempts:
        history.append(f"next in {duration((each.next_attempt_at - now).total_seconds())}")
        mood = "warn"
    known = {str(kind): words for kind, words in _TYPES.items()}
    return DeliveryRow(
        id=each.id,
        about=known.get(each.event_type, each.event_type),
        status=status,
        mood=mood,
        history=", ".join(history),
        error=each.last_error or "",
        can_retry=each.status is DeliveryStatus.FAILED,
    )
