"""What is read and what comes of it: sources, lines, refusals, doubts, and the kinds of file that are known.

A reader is a pure function.  It never raises on content: what it cannot use it refuses, line by line, with a reason
and a remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from re import Pattern
from typing import Any

from readers.frame.facts import Fact, Name, NameKind


@dataclass(frozen=True, slots=True)
class Source:
    """One file.  ``tree`` is its value where it is JSON or YAML; ``host`` the node the sender says it is from."""

    name: str
    text: str
    tree: Any = None
    host: str | None = None

    @property
    def names(self) -> tuple[Name, ...]:
        """The name of that node, where the sender says it."""
        return () if self.host is None else (Name(NameKind.HOST, self.host),)


@dataclass(frozen=True, slots=True)
class Line:
    """``number`` counts from 1 in the file as sent; ``text`` is without launcher prefix, colours and line end."""

    number: int
    text: str
    teller: str = ""
    """Who printed it, where a launcher said so: "0" of srun -l, "1,0" of mpirun, "pod/x" of kubectl."""
    stamp: str = ""
    """The moment that stood before it, in the form of RFC 3339, where most lines of the file carry one."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Lines that were not taken, why, and what to do; ``shown`` the first 120 characters."""

    first_line: int
    last_line: int
    reason: str
    remedy: str
    shown: str = ""


class Trust(StrEnum):
    """How far a doubt goes."""

    NOTE = "note"
    DOUBT = "doubt"
    REJECT = "reject"
    """REJECT: the facts on these lines make no samples unless an answer says so."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """``code`` is stable ("tcp-fallback", "one-rank", "warm-up"): tests and answers name it."""

    code: str
    trust: Trust
    first_line: int
    sentence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Understood:
    """What one reader made of one section."""

    facts: tuple[Fact, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    doubts: tuple[Doubt, ...] = ()


Reader = Callable[[Source, tuple[Line, ...]], Understood]


@dataclass(frozen=True, slots=True)
class Format:
    """``begins`` match a section's first line from its start (log formats); ``fits`` judges a tree (JSON, YAML).

    ``known_as`` for people.
    """

    name: str
    known_as: str
    family: str
    read: Reader
    begins: tuple[Pattern[str], ...] = ()
    fits: Callable[[Any], bool] | None = None
    refused_because: str = ""
    """A kind that is recognised in order to be refused well (perfquery, dmesg, mpi pattern)."""


@dataclass(frozen=True, slots=True)
class Section:
    """Lines of a file that one reader takes."""

    format: str
    first_line: int
    last_line: int


@dataclass(frozen=True, slots=True)
class Reading:
    """All of one file."""

    file: str
    lines: int
    sections: tuple[tuple[Section, Understood], ...]
    refusals: tuple[Refusal, ...] = ()
    """Of the file itself: not text, nothing recognised (with the three nearest kinds and what their first
    lines look like).
    """
