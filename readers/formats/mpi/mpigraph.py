"""mpiGraph: bandwidth from each rank to each other, once as senders saw it and once as receivers did.

The tool divides by 2^20 (its source: size x 10^6 / 1,024^2 per microsecond).  In each of its steps every rank sends
to the one at some distance and receives from the one at that distance the other way, so that a figure is one way of
a link that is busy both ways.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.frame.facts import MatrixFact, Memory, Origin, Quantity
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, note, refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_START: Final = re.compile(r"^\s*START mpiGraph(?: v(\S{1,20}))?")
_SETTING: Final = re.compile(r"^\s*(MsgSize|Times|Window|Procs)\s{1,8}(\d{1,15})\s*$")
_HEADER: Final = re.compile(r"^\s*(Send|Recv)\s{1,8}(\S{1,253}:\d{1,6}(?:\s.*)?)$")
_MEBI: Final = 2.0**20
MOST_RANKS: Final = 4_096
_ROW_ENDS: Final = {"Send": "to", "Recv": "from"}


def read_mpigraph(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The send table and the receive table, both from row to column."""
    reader = _Reader(source)
    for line in lines:
        reader.take(line)
    reader.close()
    if not reader.facts and not reader.refusals and lines:
        reason, remedy = "mpiGraph printed no table", "let it run to END mpiGraph"
        reader.refusals.append(refused(lines[0], reason, remedy, lines[-1].number))
    doubts = list(reader.doubts)
    if reader.facts:
        sentence = (
            "pairs are measured in the order of their distance, all at once, and a part of the spread comes from"
            " that order"
        )
        remedy = "do not read differences of a few per cent as differences of links"
        doubts.append(note("shift-order", reader.facts[0].origin.first_line, sentence, remedy))
    return Contents(tuple(reader.facts), tuple(reader.refusals), tuple(doubts))


@dataclass(slots=True)
class _Table:
    kind: str
    title: Line
    labels: tuple[str, ...]
    rows: list[tuple[float | None, ...]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)


@dataclass(slots=True)
class _Reader:
    source: Source
    version: str = ""
    size: float | None = None
    table: _Table | None = None
    facts: list[MatrixFact] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)

    def take(self, line: Line) -> None:
        """Takes one line; progress and noise are passed over."""
        text = line.text
        start = _START.match(text)
        if start is not None:
            self.close()
            self.version, self.size = start[1] or "", None
            return
        setting = _SETTING.match(text)
        if setting is not None:
            self.size = float(setting[2]) if setting[1] == "MsgSize" else self.size
            return
        header = _HEADER.match(text)
        if header is not None and text.split(None, 3)[2:3] not in (["to"], ["from"]):
            self.close()
            self._open(line, header)
        elif self.table is not None:
            self._row(self.table, line)

    def _open(self, line: Line, header: re.Match[str]) -> None:
        labels = tuple(header[2].split(None, MOST_RANKS))
        if len(labels) > MOST_RANKS or len(set(labels)) < len(labels):
            reason = f"a header with a rank twice or more than {MOST_RANKS:,} ranks"
            self.refusals.append(refused(line, reason, "run one rank a node"))
            return
        self.table = _Table(header[1], line, labels)

    def _row(self, table: _Table, line: Line) -> None:
        words = line.text.split()
        if len(words) < 2 or words[1] != _ROW_ENDS[table.kind]:
            if words[:1] == ["END"] or words[:1] in (["Send"], ["Recv"]):
                self.close()
            return
        figures = [figure_of(word) for word in words[2:]]
        wrong = len(figures) != len(table.labels) or None in figures
        if words[0] not in table.labels or words[0] in table.names or wrong:
            reason = f"the row of {words[0][:60]} does not hold {len(table.labels)} figures, or stands twice"
            self.refusals.append(refused(line, reason, "send the table as the tool printed it"))
            return
        own = table.labels.index(words[0])
        rates = [
            None if figure in {None, 0.0} or at == own else (figure or 0.0) * _MEBI
            for at, figure in enumerate(figures)
        ]
        table.rows.append(tuple(rates))
        table.names.append(words[0])
        table.numbers.append(line.number)

    def close(self) -> None:
        """Makes a fact of the table in progress."""
        table, self.table = self.table, None
        if table is None:
            return
        if not table.rows:
            self.refusals.append(refused(table.title, "a header without rows", "let mpiGraph run to its end"))
            return
        cut = len(table.rows) < len(table.labels)
        if cut:
            sentence = f"{len(table.labels) - len(table.rows)} rows of the {table.kind} table are missing"
            self.doubts.append(note("cut", table.title.number, sentence, "send the whole output"))
        rows, columns, values, numbers = tuple(table.names), table.labels, tuple(table.rows), tuple(table.numbers)
        if table.kind == "Recv":
            rows, columns, values = columns, rows, tuple(zip(*values, strict=True))
            numbers = numbers if len(numbers) == len(rows) else (table.title.number,) * len(rows)
        places = {label: label.rpartition(":")[0] for label in table.labels}
        alone = len(set(places.values())) == len(places)
        self.facts.append(
            MatrixFact(
                Origin(self.source.name, table.title.number, table.numbers[-1]),
                f"mpiGraph {self.version}".rstrip(),
                "nodes",
                None,
                _names(rows, places, alone=alone),
                _names(columns, places, alone=alone),
                {} if alone else places,
                Quantity.BANDWIDTH,
                values,
                numbers,
                Direction.FORWARD,
                ranks_per_node=1 if alone else None,
                memory=Memory.UNKNOWN,
                method="send" if table.kind == "Send" else "receive",
                message_bytes=self.size,
                cut=cut,
            )
        )


def _names(labels: Sequence[str], places: dict[str, str], *, alone: bool) -> tuple[str, ...]:
    """Hosts where each has one rank, else "host:rank" as printed."""
    return tuple(places[label] for label in labels) if alone else tuple(labels)


FORMAT: Final = Format(
    name="mpigraph",
    known_as="mpiGraph",
    family="mpi",
    read=read_mpigraph,
    begins=(_START, _HEADER),
)
