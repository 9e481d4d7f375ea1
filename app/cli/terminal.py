"""The consoles we print to, and the pieces that several commands print."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.presentation.figures import count

PIPE_WIDTH: Final = 100
"""Columns where the output is not a terminal and has no width of its own."""


def console() -> Console:
    """Standard output."""
    narrow = sys.stdout.isatty() or "COLUMNS" in os.environ
    return Console(file=sys.stdout, highlight=False, markup=False, width=None if narrow else PIPE_WIDTH)


def print_text(text: str) -> None:
    """Text for another program on standard output, as it is, with the end of its last line."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def error_console() -> Console:
    """Standard error, for what changes while a command runs."""
    return Console(file=sys.stderr, highlight=False, markup=False)


@contextmanager
def reading_shown(what: str) -> Iterator[None]:
    """Say on a terminal what takes its time; nothing elsewhere."""
    shown = error_console()
    if not shown.is_terminal:
        yield
        return
    with shown.status(what):
        yield


def section(title: str, body: RenderableType) -> RenderableType:
    """``body`` set in below its title."""
    return Group(Text(f"\n{title}", style="bold"), Padding(body, (0, 0, 0, 2)))


def report_section(title: str, parts: Iterable[RenderableType]) -> RenderableType:
    """Like ``section``, but lines to copy among ``parts`` keep their full length."""
    inside = [part if isinstance(part, Text) and part.no_wrap else Padding(part, (0, 0, 0, 2)) for part in parts]
    return Group(Text(f"\n{title}", style="bold"), *inside)


def bullets(lines: Iterable[str]) -> RenderableType:
    """A list whose long lines hang behind their bullets."""
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row(Text("•", style="yellow"), Text(line, overflow="fold"))
    return table


def pairs(rows: Iterable[tuple[str, str]]) -> RenderableType:
    """Names and what belongs to each, in two columns."""
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="dim"), Text(value))
    return table


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> RenderableType:
    """A table without frames, whose cells are folded where the terminal is narrow."""
    made = Table(box=box.SIMPLE, pad_edge=False)
    for name in columns:
        made.add_column(name, overflow="fold")
    for row in rows:
        made.add_row(*map(Text, row))
    return made


def command_line(text: str, *, indent: int = 2) -> Text:
    """A line to copy: never broken, whatever the width.  The console must not crop."""
    return Text(f"{' ' * indent}{text}", style="green", no_wrap=True, overflow="ignore")


def more_line(number: int, noun: str = "", nouns: str = "") -> Text:
    """How many of a list are not shown."""
    what = f"{count(number)} more" + (f" {noun if number == 1 else nouns or f'{noun}s'}" if noun else "")
    return Text(f"and {what}; --json for all", style="dim")
