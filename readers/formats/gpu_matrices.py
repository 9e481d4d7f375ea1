"""Square and oblong tables of figures between devices, as p2pBandwidthLatencyTest and nvbandwidth print them.

A header row of device numbers, then a row of figures a device.  Figures have two decimals, so that numbers which
touch can be told apart, and a number that was cut in the middle is seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.frame.facts import MatrixFact
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, doubt, note, refused
from readers.frame.sources import Line

GIGA: Final = 1e9
MOST_DEVICES: Final = 1_024
"""Columns of a table that are believed: no tool tries more devices of one machine or NVLink domain."""
_TWO_DECIMALS: Final = re.compile(r"-?\d+\.\d\d")
_CORNERS: Final = frozenset({"D\\D", "GPU", "CPU"})
_UNKNOWN: Final = frozenset({"N/A", "n/a", "-", "nan"})
_WARM: Final = 0.98
_FEWEST: Final = 4

Values = tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, slots=True)
class Table:
    """One table as printed: ``lines`` of its rows, ``after`` the index of the line behind it."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: Values
    lines: tuple[int, ...]
    header: int
    after: int
    cut: bool
    refusals: tuple[Finding, ...]


def header_of(text: str) -> tuple[str, ...] | None:
    """The device numbers of a header row, 0, 1, 2 and so on behind an optional corner; ``None`` for other rows."""
    words = text.split(None, MOST_DEVICES + 1)
    if words and words[0] in _CORNERS:
        words = words[1:]
    if not words or len(words) > MOST_DEVICES:
        return None
    if any(word != str(number) for number, word in enumerate(words)):
        return None
    return tuple(words)


def read_table(lines: Sequence[Line], start: int, *, square: bool = True) -> Table | None:
    """The table whose header is the line at index ``start``; ``None`` where that line is not a header.

    A square table that has fewer rows than columns was cut short.
    """
    columns = header_of(lines[start].text) if start < len(lines) else None
    if columns is None:
        return None
    table = _Rows(columns)
    after = start + 1
    while after < len(lines) and table.take(lines[after], is_last=after == len(lines) - 1):
        after += 1
    return Table(
        tuple(table.labels),
        columns,
        tuple(table.values),
        tuple(table.numbers),
        lines[start].number,
        after,
        table.cut or len(table.labels) + table.refused < (len(columns) if square else 1),
        tuple(table.refusals),
    )


class _Rows:
    """The rows of a table as they come."""

    def __init__(self, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.labels: list[str] = []
        self.values: list[tuple[float | None, ...]] = []
        self.numbers: list[int] = []
        self.refusals: list[Finding] = []
        self.refused = 0
        self.cut = False

    def take(self, line: Line, *, is_last: bool) -> bool:
        """Takes a line if it is the next row; says whether it was a row."""
        label, _, rest = " ".join(line.text.split(None, 1)).partition(" ")
        if label != str(len(self.labels) + self.refused) or not rest:
            return False
        words = _apart(rest)
        if is_last and self._ends_in_a_number_cut(words):
            words = words[:-1]
            self.cut = True
        figures = [_figure(word) for word in words]
        if any(figure is _BAD for figure in figures) or len(figures) > len(self.columns):
            self._refuse(line, f"row {label} does not hold {len(self.columns)} figures")
        elif len(figures) < len(self.columns) and not is_last:
            self._refuse(line, f"row {label} holds {len(figures)} figures for {len(self.columns)} columns")
        else:
            self.cut = self.cut or len(figures) < len(self.columns)
            missing = len(self.columns) - len(figures)
            self.labels.append(label)
            self.values.append((*(None if figure is _BAD else figure for figure in figures), *(None,) * missing))
            self.numbers.append(line.number)
        return True

    def _ends_in_a_number_cut(self, words: list[str]) -> bool:
        if not words or words[-1] in _UNKNOWN or _TWO_DECIMALS.fullmatch(words[-1]):
            return False
        earlier = [figure for row in self.values for figure in row if figure is not None]
        whole = all(word.lstrip("-").isdigit() for word in words) and all(f == int(f) for f in earlier)
        return not (whole and len(words) == len(self.columns))

    def _refuse(self, line: Line, reason: str) -> None:
        self.refused += 1
        self.refusals.append(refused(line, reason, "send the table as the tool printed it"))


def both_directions(facts: Sequence[MatrixFact]) -> tuple[Finding, ...]:
    """One note where figures are sums of both ways."""
    both = [fact for fact in facts if fact.direction is Direction.BOTH]
    if not both:
        return ()
    sentence = "bidirectional figures are the sum of both ways: one way has half"
    return (note("both-directions", both[0].origin.first_line, sentence),)


_BAD: Final = float("nan")


def _apart(text: str) -> list[str]:
    """The words of a row, figures that touch taken apart."""
    words: list[str] = []
    for word in text.split():
        words.extend(_TWO_DECIMALS.findall(word) if word.count(".") > 1 else [word])
    return words


def _figure(word: str) -> float | None:
    """A figure, ``None`` where the tool has none, ``_BAD`` for anything else."""
    if word in _UNKNOWN:
        return None
    value = figure_of(word)
    return _BAD if value is None else value


def scaled(values: Values, unit: float) -> Values:
    """The figures times a unit; zero is what tools print for a pair that they did not measure."""
    return tuple(tuple(None if value is None or value == 0 else value * unit for value in row) for row in values)


def without_diagonal(values: Values) -> Values:
    """A table without what a device does with itself: that is its own memory, not a link."""
    return tuple(
        tuple(None if column == row else value for column, value in enumerate(figures))
        for row, figures in enumerate(values)
    )


def turned(table: Table) -> Table:
    """Rows for columns.  The ``lines`` of a square table stay those of the rows as printed, now of the columns.

    A table whose every figure stands on one line keeps that line for each row.
    """
    values = tuple(zip(*table.values, strict=True)) if table.values else tuple(() for _ in table.columns)
    square = len(table.rows) == len(table.columns)
    lines = table.lines if square else (table.lines[0] if table.lines else table.header,) * len(table.columns)
    return replace(table, rows=table.columns, columns=table.rows, values=values, lines=lines)


def warm_up(values: Values, line: int) -> tuple[Finding, ...]:
    """A doubt where the pairs that were measured first are slow one way only: the GPUs were not yet at full clock.

    Pairs are measured row by row.  A slow GPU 0 would be slow both ways.
    """
    count = len(values)
    if count < _FEWEST or any(len(row) != count for row in values):
        return ()
    for other in range(count // 2, count):
        first, later = values[0][other], values[other][0]
        if first is None or later is None or first >= _WARM * later:
            return ()
    return (
        doubt(
            "warm-up",
            line,
            "the pairs measured first are slower than the same pairs the other way: the GPUs were warming up",
            "take the better way of each pair, or repeat the test",
        ),
    )


def cut_short(table: Table, what: str) -> tuple[Finding, ...]:
    """A doubt where a table lacks rows or figures."""
    if not table.cut:
        return ()
    sentence = f"{what} is cut after row {table.rows[-1]}" if table.rows else f"{what} has no rows"
    return (note("cut", table.header, sentence, "send the whole output for the missing pairs"),)
