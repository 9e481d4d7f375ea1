"""Where facts stand and which lines were not taken, said the same way by all readers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from readers.frame.facts import Origin
from readers.frame.reading import Line, Refusal, Source

_SHOWN: Final = 120


def origin_of(source: Source, first: int, last: int | None = None, path: str = "") -> Origin:
    """The place of a fact on one line, or on the lines up to ``last``."""
    return Origin(source.name, first, first if last is None else last, path)


def refused(line: Line, reason: str, remedy: str, last: int | None = None) -> Refusal:
    """A line that was not taken, or the lines from it up to ``last``."""
    return Refusal(line.number, line.number if last is None else last, reason, remedy, line.text[:_SHOWN])


def refused_runs(lines: Iterable[Line], reason: str, remedy: str) -> tuple[Refusal, ...]:
    """One refusal for each run of lines that follow each other; the first line of a run is shown."""
    runs: list[list[Line]] = []
    for line in lines:
        if runs and runs[-1][-1].number + 1 == line.number:
            runs[-1].append(line)
        else:
            runs.append([line])
    return tuple(refused(run[0], reason, remedy, run[-1].number) for run in runs)
