"""Times when parts of a cluster were out, from reports of several sources that come twice and flap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from cluster_models.health.conditions import HYSTERESIS_S, OUT
from cluster_models.health.events import Entity, HealthEvent


@dataclass(frozen=True, slots=True)
class Outage:
    """A part was out from ``began`` to ``ended``, ``None`` where it still is."""

    entity: Entity
    began: datetime
    ended: datetime | None


def outages_of(events: Iterable[HealthEvent], *, hysteresis_s: float = HYSTERESIS_S) -> tuple[Outage, ...]:
    """Every outage, by part and time.

    A part that fails again within ``hysteresis_s`` of its recovery was out all the time; failures that several
    sources report at the same time are one outage, which ends with the last of them.
    """
    by_part: dict[Entity, dict[str, list[HealthEvent]]] = {}
    for event in events:
        by_part.setdefault(event.entity, {}).setdefault(event.source, []).append(event)
    hysteresis, found = timedelta(seconds=hysteresis_s), []
    for entity in sorted(by_part):
        spans = [span for told in by_part[entity].values() for span in _spans(entity, told, hysteresis)]
        found += _merged(sorted(spans, key=lambda each: each.began))
    return tuple(found)


def _spans(entity: Entity, told: Sequence[HealthEvent], hysteresis: timedelta) -> list[Outage]:
    """The outages that one source reports."""
    spans: list[Outage] = []
    for event in sorted(told, key=lambda each: (each.occurred_at, each.state in OUT)):
        last = spans[-1] if spans else None
        if event.state in OUT:
            if last is None or (last.ended is not None and event.occurred_at >= last.ended + hysteresis):
                spans.append(Outage(entity, event.occurred_at, None))
            elif last.ended is not None:
                spans[-1] = Outage(entity, last.began, None)
        elif last is not None and last.ended is None:
            spans[-1] = Outage(entity, last.began, event.occurred_at)
    return spans


def _merged(spans: Iterable[Outage]) -> list[Outage]:
    """Spans by their beginnings, those that overlap made one."""
    merged: list[Outage] = []
    for span in spans:
        last = merged[-1] if merged else None
        if last is None or (last.ended is not None and span.began > last.ended):
            merged.append(span)
        else:
            ends = (last.ended, span.ended)
            merged[-1] = Outage(span.entity, last.began, None if None in ends else max(filter(None, ends)))
    return merged
