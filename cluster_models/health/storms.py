"""Storms of reports: a source with trouble on so many nodes at once is likelier wrong than they are broken."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from cluster_models.health.events import HealthEvent, HealthState

_ILL: Final = frozenset({HealthState.FAILED, HealthState.DEGRADED, HealthState.DRAINING})


@dataclass(frozen=True, slots=True)
class Storm:
    """The most nodes on which, or on parts of which, one source reported trouble within the seconds looked at."""

    source: str
    nodes: int


def storms_of(events: Iterable[HealthEvent], *, least_nodes: int, within_s: float) -> tuple[Storm, ...]:
    """Sources that reported trouble on ``least_nodes`` or more within ``within_s`` seconds.

    A report on a switch is about no node: a rack that goes with its switch is one report.
    """
    by_source: dict[str, list[HealthEvent]] = {}
    for event in events:
        if event.state in _ILL and event.entity.node:
            by_source.setdefault(event.source, []).append(event)
    storms = []
    for source in sorted(by_source):
        ordered = sorted(by_source[source], key=lambda event: event.occurred_at)
        recent, counts, most = deque[HealthEvent](), Counter[str](), 0
        for event in ordered:
            recent.append(event)
            counts[event.entity.node] += 1
            while recent[0].occurred_at < event.occurred_at - timedelta(seconds=within_s):
                gone = recent.popleft().entity.node
                counts[gone] -= 1
                if not counts[gone]:
                    del counts[gone]
            most = max(most, len(counts))
        if most >= least_nodes:
            storms.append(Storm(source, most))
    return tuple(storms)
