"""Findings: one type for all that a reader notes about a file beside its facts.

Format readers know lines only; ``readers.registry`` adds the file (``in_file``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from readers.frame.facts import Origin
from readers.frame.sources import Line

_SHOWN: Final = 120


class Severity(StrEnum):
    """Consequence of a finding for the facts on its lines."""

    NOTE = "note"
    """For information: the facts are used."""
    DOUBT = "doubt"
    """Something looks wrong: the facts are used all the same."""
    REJECT = "reject"
    """The facts make no samples unless an answer accepts them."""
    REFUSED = "refused"
    """There are no facts: the place was not taken."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth telling about a place in a file.

    ``code`` is stable ("tcp-fallback", "one-rank", "warm-up"): tests and answers name it.  ``place`` has line 0 in
    files without lines, such as arrays.  ``shown``: the first 120 characters of a line that was refused.
    """

    code: str
    severity: Severity
    place: Origin
    sentence: str
    remedy: str = ""
    shown: str = ""

    @property
    def first_line(self) -> int:
        """First line of the place."""
        return self.place.first_line

    @property
    def key(self) -> str:
        """Name by which an answer accepts the finding: "file:line:code"."""
        return f"{self.place.file}:{self.place.first_line}:{self.code}"

    @property
    def last_line(self) -> int:
        """Last line of the place."""
        return self.place.last_line

    def in_file(self, name: str) -> Finding:
        """The finding in the file of that name; one that has a file keeps it."""
        return self if self.place.file else replace(self, place=replace(self.place, file=name))

    def at_line(self, number: int) -> Finding:
        """The finding on another line."""
        return replace(self, place=replace(self.place, first_line=number, last_line=number))

    def up_to(self, last: int) -> Finding:
        """The finding on the lines from its first up to ``last``."""
        return replace(self, place=replace(self.place, last_line=last))


def _place(at: int | Origin) -> Origin:
    """A place, or a line of the file that is being read."""
    return at if isinstance(at, Origin) else Origin("", at, at)


def note(code: str, at: int | Origin, sentence: str, remedy: str = "") -> Finding:
    """A finding for information."""
    return Finding(code, Severity.NOTE, _place(at), sentence, remedy)


def doubt(code: str, at: int | Origin, sentence: str, remedy: str = "") -> Finding:
    """A finding about facts that look wrong."""
    return Finding(code, Severity.DOUBT, _place(at), sentence, remedy)


def reject(code: str, at: int | Origin, sentence: str, remedy: str = "") -> Finding:
    """A finding that keeps the facts from making samples."""
    return Finding(code, Severity.REJECT, _place(at), sentence, remedy)


def note_in(code: str, file: str, path: str, sentence: str, remedy: str = "") -> Finding:
    """A note on a part of a file without lines: ``path`` names it."""
    return Finding(code, Severity.NOTE, Origin(file, 0, 0, path), sentence, remedy)


def refusal(first: int, last: int, sentence: str, remedy: str, shown: str = "") -> Finding:
    """Lines that were not taken."""
    return Finding("refused", Severity.REFUSED, Origin("", first, last), sentence, remedy, shown)


def refused(line: Line, sentence: str, remedy: str, last: int | None = None) -> Finding:
    """A line that was not taken, or the lines from it up to ``last``."""
    return refusal(line.number, line.number if last is None else last, sentence, remedy, line.text[:_SHOWN])


def refused_runs(lines: Iterable[Line], sentence: str, remedy: str) -> tuple[Finding, ...]:
    """One refusal for each run of lines that follow each other; the first line of a run is shown."""
    runs: list[list[Line]] = []
    for line in lines:
        if runs and runs[-1][-1].number + 1 == line.number:
            runs[-1].append(line)
        else:
            runs.append([line])
    return tuple(refused(run[0], sentence, remedy, run[-1].number) for run in runs)
