"""Traces of spot nodes that come and go: read, made up, and cut into batches."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from cluster_models.errors import InvalidInput

MILLISECOND: Final = 1e-3
MINUTE_S: Final = 60.0
KINDS: Final = ("add", "remove")
COLUMNS: Final = 3
FILLING_S: Final = 240.0
"""Mean seconds until a node that was taken is replaced, in made-up traces."""


@dataclass(frozen=True, slots=True, order=True)
class SpotEvent:
    """A node that came (``added``) or was taken away, seconds after the start."""

    at_s: float
    added: bool
    node: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Events within one window; it is decided on at ``ends_s``."""

    ends_s: float
    events: tuple[SpotEvent, ...]

    @property
    def removed(self) -> dict[str, float]:
        """When each node that is gone at the end was taken."""
        last = {event.node: event for event in self.events}
        return {node: event.at_s for node, event in last.items() if not event.added}


def read_trace(path: Path) -> tuple[SpotEvent, ...]:
    """The lines ``milliseconds,add|remove,node`` of a file; raises ``InvalidInput``."""
    found = []
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError) as broken:
        raise InvalidInput("trace", str(path), f"cannot be read: {broken}", "name a CSV file") from broken
    for number, row in enumerate(rows, 1):
        if len(row) != COLUMNS or not row[0].isdecimal() or row[1] not in KINDS or not row[2]:
            problem = "is not milliseconds, add or remove, and a node"
            raise InvalidInput(f"trace line {number}", ",".join(row), problem, "300000,add,node1 is one")
        found.append(SpotEvent(int(row[0]) * MILLISECOND, row[1] == "add", row[2]))
    return ordered(found)


def made_trace(seed: int, *, nodes: int = 32, hours: float = 4.0, waves_per_hour: float = 7.0) -> list[SpotEvent]:
    """A trace that looks like the published ones: waves of removals, refilled a few minutes later.

    On whole minutes; waves take 1 to 6 nodes, mean 2; gaps between waves and until a node is replaced are
    exponential.
    """
    random = np.random.default_rng(seed)
    alive = [f"node{index + 1}" for index in range(nodes)]
    events = [SpotEvent(0.0, added=True, node=name) for name in alive]
    waiting: list[float] = []
    born, now = nodes, 10 * MINUTE_S
    while (now := now + random.exponential(3600 / waves_per_hour)) < hours * 3600:
        for due in sorted(each for each in waiting if each <= now):
            born += 1
            alive.append(f"node{born}")
            events.append(SpotEvent(_minute(due), added=True, node=alive[-1]))
        waiting = [each for each in waiting if each > now]
        for _ in range(min(int(random.geometric(0.5)), 6, len(alive) - 1)):
            gone = alive.pop(int(random.integers(len(alive))))
            moment = max(_minute(now), *(event.at_s for event in events if event.node == gone))
            events.append(SpotEvent(moment, added=False, node=gone))
            waiting.append(now + MINUTE_S + random.exponential(FILLING_S))
    return list(ordered(events))


def write_trace(path: Path, events: Sequence[SpotEvent]) -> None:
    """The file that ``read_trace`` reads."""
    lines = (f"{event.at_s / MILLISECOND:.0f},{KINDS[not event.added]},{event.node}\n" for event in events)
    path.write_text("".join(lines), encoding="utf-8")


def ordered(events: Sequence[SpotEvent]) -> tuple[SpotEvent, ...]:
    """By time; at one moment in the order in which they stand."""
    return tuple(sorted(events, key=lambda event: event.at_s))


def batches(events: Sequence[SpotEvent], window_s: float) -> Iterator[Batch]:
    """The events in windows that each begin with the first event after the last."""
    index = 0
    while index < len(events):
        ends_s = events[index].at_s + window_s
        inside = [event for event in events[index:] if event.at_s < ends_s]
        index += len(inside)
        yield Batch(ends_s, tuple(inside))


def most_at_once(events: Sequence[SpotEvent]) -> int:
    """Nodes that are there at the best of times."""
    alive: set[str] = set()
    most = 0
    for event in events:
        (alive.add if event.added else alive.discard)(event.node)
        most = max(most, len(alive))
    return most


def _minute(at_s: float) -> float:
    return round(at_s / MINUTE_S) * MINUTE_S
