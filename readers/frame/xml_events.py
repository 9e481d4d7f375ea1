"""Elements of an XML text, one after the other, with their lines.

Document types and entities are refused before anything is expanded, and depth and number of elements are limited,
so that no text costs more than its length.  The parser is the one of Python's standard library (expat).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from xml.parsers import expat

from readers.frame.sources import Line

DEEPEST: Final = 64
MOST_ELEMENTS: Final = 200_000


class Listener(Protocol):
    """Receiver of the elements of one document."""

    def opened(self, name: str, attributes: Mapping[str, str], line: int) -> None:
        """An element begins."""

    def closed(self, name: str) -> None:
        """An element ends."""


L = TypeVar("L", bound=Listener)


class _Refused(Exception):
    """This text is not read further; the argument says why."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of the reading of one document; ``problem`` says what stopped it where that was not its end."""

    last_line: int
    rest: int
    """Index of the first line after it."""
    problem: str = ""


def documents(
    lines: tuple[Line, ...], begins: re.Pattern[str], listener: Callable[[], L]
) -> Iterator[tuple[int, L, Outcome]]:
    """For each document that ``begins`` somewhere: its first line, the listener that heard it, and how it ended."""
    index = 0
    while index < len(lines):
        found = begins.search(lines[index].text)
        if found is None:
            index += 1
            continue
        heard = listener()
        outcome = _read(lines, index, heard, found.start())
        yield lines[index].number, heard, outcome
        index = outcome.rest


def _read(lines: tuple[Line, ...], start: int, heard: Listener, offset: int) -> Outcome:
    """Reads from character ``offset`` of ``lines[start]`` to the end of the first element."""
    parser = expat.ParserCreate()
    depth = count = 0
    number = lines[start].number

    def on_open(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, count
        depth += 1
        count += 1
        if depth > DEEPEST or count > MOST_ELEMENTS:
            raise _Refused(f"more than {DEEPEST} elements in each other or {MOST_ELEMENTS:,} in all")
        heard.opened(name, attributes, number)

    def on_close(name: str) -> None:
        nonlocal depth
        depth -= 1
        heard.closed(name)

    def refuse(*_: object) -> None:
        raise _Refused("it declares a document type or entities, which no tool that describes hardware writes")

    parser.StartElementHandler = on_open
    parser.EndElementHandler = on_close
    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    try:
        for index in range(start, len(lines)):
            number = lines[index].number
            parser.Parse(lines[index].text[offset:] + "\n", False)
            offset = 0
            if count and not depth:
                return Outcome(number, index + 1)
    except expat.ExpatError as broken:
        return Outcome(number, len(lines), f"the XML is damaged here: {expat.errors.messages[broken.code]}")
    except (_Refused, ValueError) as refused:
        return Outcome(number, len(lines), str(refused))
    return Outcome(number, len(lines), "the XML ends before its last element is closed")
