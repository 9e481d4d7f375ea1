"""Conditions and reports of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.presentation.figures import capital, duration
from app.presentation.recovery import STATES, condition_notes, entity_words, event_notes, moment, source_words
from app.services.health.health_events import EventRecord
from cluster_models.health.conditions import Condition
from cluster_models.health.events import HealthState

MOODS: Final = {
    HealthState.FAILED: "bad",
    HealthState.DEGRADED: "warn",
    HealthState.DRAINING: "warn",
    HealthState.SUSPECTED: "warn",
    HealthState.RECOVERED: "good",
}


@dataclass(frozen=True, slots=True)
class ConditionRow:
    """A part that is not well, since when, who says so, and in what words."""

    part: str
    state: str
    mood: str
    since: str
    source: str
    details: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """A report; ``unknown`` is the name that the cluster does not have, empty where it has."""

    id: str
    moment: str
    part: str
    state: str
    mood: str
    source: str
    details: str
    unknown: str
    replan_id: str | None


def condition_rows(conditions: Iterable[Condition], now: datetime) -> tuple[ConditionRow, ...]:
    """The parts that are not well, the worst first."""
    order = list(MOODS)
    ranked = sorted(conditions, key=lambda each: (order.index(each.state), each.entity))
    return tuple(_condition(each, now) for each in ranked)


def event_rows(events: Iterable[EventRecord]) -> tuple[EventRow, ...]:
    """Reports in the order given."""
    return tuple(_event(each) for each in events)


def _condition(each: Condition, now: datetime) -> ConditionRow:
    return ConditionRow(
        part=capital(entity_words(each.entity)),
        state=STATES[each.state],
        mood=MOODS[each.state],
        since=f"{moment(each.since)} ({duration((now - each.since).total_seconds())})",
        source=source_words(each.source),
        details=condition_notes(each, now),
    )


def _event(each: EventRecord) -> EventRow:
    event = each.event
    return EventRow(
        id=each.id,
        moment=moment(event.occurred_at),
        part=capital(entity_words(event.entity)),
        state=STATES[event.state],
        mood=MOODS[event.state],
        source=source_words(event.source),
        details=event_notes(each),
        unknown="" if each.known else each.told_name,
        replan_id=each.replan_id,
    )
