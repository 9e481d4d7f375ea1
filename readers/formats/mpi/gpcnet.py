"""GPCNeT: latency and bandwidth of random rings and collectives over a whole machine, with no pair named.

Only the tests without congestion are read.  Placeholders, the same figure in every column, are refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.frame.facts import Memory, Operation, Origin, Point, RunFact
from readers.frame.figures import figure as figure_of
from readers.frame.findings import Finding, refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_TITLE: Final = re.compile(r"^\s*(Network Tests|NetworkLoad Tests) v(\S{1,20})\s*$")
_RANKS: Final = re.compile(r"^\s*Test with (\d{1,8}) MPI ranks \((\d{1,7}) nodes\)")
_TABLE: Final = re.compile(
    r"^\|\s{1,200}(Isolated Network Tests|Isolated Congestion Tests|Network Tests running with .{1,80})"
)
_NAME: Final = re.compile(r"(\S.{1,40}?) \((\d{1,12}) B\)")
_ERROR: Final = re.compile(r"^\s*ERROR: (this application (?:must|requires|needs) .{1,200})$")
_FAILED: Final = re.compile(r"^\s*(?:ERROR|FATAL)[: ]\s*(\S.{1,200})$", re.IGNORECASE)
_UNITS: Final = {"usec": 1e-6, "mib/s/rank": 2.0**20, "mb/s/rank": 1e6}


def read_gpcnet(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The isolated tests, one run each; none of them says anything of a pair of nodes."""
    reader = _Reader()
    for line in lines:
        reader.take(line)
    reader.close(source)
    if lines and not (reader.facts or reader.refusals):
        reason, remedy = "the output has no table of isolated tests", "let the test run to its end"
        reader.refusals.append(refused(lines[0], reason, remedy, lines[-1].number))
    return Contents(tuple(reader.facts), tuple(reader.refusals), ())


@dataclass(frozen=True, slots=True)
class _Row:
    line: Line
    name: str
    size: float
    figures: tuple[float, ...]
    average: float
    unit: str


@dataclass(slots=True)
class _Reader:
    tool: str = "GPCNeT"
    ranks: int | None = None
    nodes: int | None = None
    isolated: bool = False
    columns: tuple[str, ...] = ()
    rows: list[_Row] = field(default_factory=list)
    facts: list[RunFact] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)

    def take(self, line: Line) -> None:
        """Takes one line."""
        text = line.text
        if (title := _TITLE.match(text)) is not None:
            self.tool = f"GPCNeT {title[1].split()[0]} {title[2]}"
        elif (ranks := _RANKS.match(text)) is not None:
            self.ranks, self.nodes = int(ranks[1]) or None, int(ranks[2]) or None
        elif (error := _ERROR.match(text) or _FAILED.match(text)) is not None:
            remedy = "run it on as many nodes as it asks for"
            self.refusals.append(refused(line, f"GPCNeT did not run: {error[1]}", remedy))
        elif text.startswith("|"):
            self._cells(line)

    def _cells(self, line: Line) -> None:
        table = _TABLE.match(line.text)
        if table is not None:
            self.isolated, self.columns = table[1] == "Isolated Network Tests", ()
            return
        cells = [cell.strip() for cell in line.text.strip("| ").split("|")]
        if cells[0] == "Name":
            self.columns = tuple(cells)
        elif self.isolated and len(cells) == len(self.columns) > 2:
            self._row(line, cells)

    def _row(self, line: Line, cells: Sequence[str]) -> None:
        name = _NAME.fullmatch(cells[0])
        figures = [figure_of(cell) for cell in cells[1:-1]]
        known = [figure for figure in figures if figure is not None and figure > 0]
        average = figure_of(cells[self.columns.index("Avg")]) if "Avg" in self.columns else None
        if name is None or len(known) < len(figures) or average is None or cells[-1].lower() not in _UNITS:
            remedy = "send the table as the tool printed it"
            reason = "a row without a name, a size, figures above 0 and a known unit"
            self.refusals.append(refused(line, reason, remedy))
            return
        self.rows.append(_Row(line, name[1], float(name[2]), tuple(known), average, cells[-1].lower()))

    def close(self, source: Source) -> None:
        """Makes the runs, unless all figures are one and the same."""
        figures = {figure for row in self.rows for figure in row.figures}
        if len(figures) == 1 and sum(len(row.figures) for row in self.rows) > 2:
            reason = f"placeholder values ({figures.pop():.1f} in every column)"
            remedy = "repeat the test: latencies and bandwidths cannot all be one number"
            self.refusals.append(refused(self.rows[0].line, reason, remedy, self.rows[-1].line.number))
            return
        self.facts.extend(self._run(source, row) for row in self.rows)

    def _run(self, source: Source, row: _Row) -> RunFact:
        rate = row.unit != "usec"
        value = row.average * _UNITS[row.unit]
        name = row.name.lower()
        operation = Operation.POINT_TO_POINT
        if "allreduce" in name:
            operation = Operation.ALL_REDUCE
        elif "alltoall" in name:
            operation = Operation.ALL_TO_ALL
        ranks, nodes = self.ranks, self.nodes
        return RunFact(
            Origin(source.name, row.line.number, row.line.number),
            f"{self.tool}: {row.name}",
            operation,
            (),
            ranks,
            (),
            (Point(row.line.number, row.size, value if rate else None, None if rate else value),),
            direction=Direction.BOTH,
            memory=Memory.HOST,
            nodes=nodes,
            ranks_per_node=ranks // nodes if ranks and nodes and ranks % nodes == 0 else None,
            pairs_active=max(1, (ranks or 2) // 2),
        )


FORMAT: Final = Format(
    name="gpcnet",
    known_as="GPCNeT network_test and network_load_test",
    family="network",
    read=read_gpcnet,
    begins=(_TITLE, _ERROR),
)
