"""Filter of sightings that say nothing new: systems that are polled mostly repeat themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from app.events.reading import ToldEvent
from cluster_models.health.events import Entity, HealthEvent, HealthState


def news(told: Sequence[ToldEvent], said: Iterable[HealthEvent], *, now: datetime) -> tuple[ToldEvent, ...]:
    """``told`` without the sightings that repeat what their source ``said`` last of the part.

    A sighting that differs from the last word and claims to be older counts as of ``now``: it is how the part is.
    One without a code speaks of the whole part; one with a code, of that finding.
    """
    standing = _Standing()
    for event in sorted(said, key=lambda event: (event.occurred_at, event.source_id)):
        standing.take(event)
    kept = []
    for each in told:
        event = each.event
        if each.is_sighting:
            if standing.has(event):
                continue
            if (last := standing.last_word(event)) is not None and event.occurred_at <= last:
                source_id = f"{event.source_id[:250]}@{now.isoformat()}"
                event = replace(event, occurred_at=max(now, last), source_id=source_id)
        standing.take(event)
        kept.append(replace(each, event=event))
    return tuple(kept)


class _Standing:
    """Last report of each source on each part, by finding."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, Entity], dict[str, HealthEvent]] = {}

    def take(self, event: HealthEvent) -> None:
        findings = self._findings.setdefault((event.source, event.entity), {})
        if not event.code:
            findings.clear()
        findings[event.code] = event

    def has(self, event: HealthEvent) -> bool:
        """Whether nothing changes with the event."""
        findings = self._findings.get((event.source, event.entity), {})
        known = findings.get(event.code) or findings.get("")
        if event.state is HealthState.RECOVERED:
            if event.code:
                return known is None or known.state is HealthState.RECOVERED
            return all(each.state is HealthState.RECOVERED for each in findings.values())
        return known is not None and _figures(known) == _figures(event)

    def last_word(self, event: HealthEvent) -> datetime | None:
        """Moment when the source last reported on the part."""
        findings = self._findings.get((event.source, event.entity), {})
        return max((each.occurred_at for each in findings.values()), default=None)


def _figures(event: HealthEvent) -> tuple[HealthState, float, float]:
    return event.state, event.compute_slowdown, event.bandwidth_share
