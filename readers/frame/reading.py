"""Formats, and what a reader makes of a file.

A reader is a pure function.  It never raises on content: what it cannot use it refuses, line by line, with a reason
and a remedy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from re import Pattern
from typing import Any

from readers.frame.facts import Fact
from readers.frame.findings import Finding
from readers.frame.sources import Line, Source


@dataclass(frozen=True, slots=True)
class Contents:
    """Facts of one section, lines of it that were not taken, and what is worth telling about the facts."""

    facts: tuple[Fact, ...] = ()
    refusals: tuple[Finding, ...] = ()
    doubts: tuple[Finding, ...] = ()


Reader = Callable[[Source, tuple[Line, ...]], Contents]


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
    sections: tuple[tuple[Section, Contents], ...]
    refusals: tuple[Finding, ...] = ()
    """Refusals of the file itself: not text, nothing recognised (with the three nearest kinds and what their first
    lines look like).
    """
