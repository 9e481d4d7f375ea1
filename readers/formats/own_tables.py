"""Tables of our own: CSV of bandwidth or latency between nodes or GPUs, in long form or as a square matrix.

Long form: a row for each figure, with the columns ``node_a,node_b`` and a figure whose name ends in its unit, as
``busbw_GBps``; ``gpus_per_node``, ``collective``, ``size_bytes``, ``pairs_active``, ``measured_at``, ``tool``,
``status`` and ``error`` where known.

Square form: the first row and the first column name the same nodes ("node" in the corner) or GPUs ("gpu"); the unit
stands in the corner ("node_GBps"), in a line "# unit: GB/s" or in the name of the file.  Lines "# host: ..",
"# collective: ..", "# gpus_per_node: .." and "# size_bytes: .." above say the rest.

An empty cell is unknown; a 0 is refused, since nothing that was measured took no time or had no bandwidth.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, lru_cache
from operator import itemgetter
from typing import Final

from cluster_models.cluster.measurements import Direction
from readers.formats.nccl.verdicts import PROGRAMS, named_operation
from readers.frame.facts import MatrixFact, Operation, Origin, Point, Quantity, RunEnd, RunFact
from readers.frame.findings import Finding, note, refused
from readers.frame.numbers import bytes_of, finite, moment_of, whole
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_CORNER: Final = r"\"?(node|gpu|host|region)(?:[ _]\(?[\w/]{1,12}\)?)?\"?"
_SQUARE: Final = re.compile(_CORNER + r"[,;\t][^,;\t]{1,300}[,;\t][^,;\t]")
_LONG: Final = re.compile(
    r"\"?(?:node_a\"?[,;\t]\"?node_b|source\"?[,;\t]\"?destination|src\"?[,;\t]\"?dst)\"?[,;\t]"
)
_HEADER: Final = re.compile(f"{_SQUARE.pattern}|{_LONG.pattern}")
_NOTE: Final = re.compile(r"# *(unit|host|collective|gpus_per_node|size_bytes|measured_at|tool) *[:=] *(.{1,200})$")
_UNKNOWN: Final = frozenset({"", "-", "n/a", "na", "nan", "null", "none"})
_RATES: Final = {"G": 1e9, "M": 1e6, "K": 1e3, "k": 1e3, "T": 1e12, "": 1.0}
_RATE: Final = re.compile(r"(?:^|[_ (])([GMTKk]?)(Bps|B/s|Bs|bps|b/s|bit/s|bitps)(?![A-Za-z/])")
_SMALL_RATE: Final = re.compile(r"(?:^|[_ (])([gmtk])(bs|bps)(?![A-Za-z/])")
_TIME: Final = re.compile(r"(?:^|[_ (])(ns|us|ms|s)(?![A-Za-z/])")
_TIMES: Final = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
_FLOWS: Final = re.compile(r"(?:^|[_\W])G(\d{1,3})(?=[_\W]|$)")
_NO_UNIT: Final = "name the unit in the corner or the name of the file: node_GBps, node_Gbps, node_MBps, gpu_us"
_KINDS: Final = ("gpus_per_node", "collective", "pairs_active", "measured_at", "tool")
"""Columns that tell runs apart."""
_NEVER_ZERO: Final = "leave the cell empty: what was not measured is unknown, never 0"


@dataclass(frozen=True, slots=True)
class _Unit:
    """One of the unit in bytes per second or in seconds."""

    quantity: Quantity
    factor: float


@dataclass(slots=True)
class _Table:
    """A header with the rows below it and the notes above."""

    header: Line
    names: list[str]
    rows: list[tuple[Line, list[str]]] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """The number of its last line."""
        return self.rows[-1][0].number if self.rows else self.header.number


def read_own_tables(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The matrices and runs of all tables in the lines."""
    parts = [_square(source, table) if _is_square(table) else _long(source, table) for table in _tables(lines)]
    if not parts and lines:
        reason = "no header of a table: node,.. gpu,.. or node_a,node_b,.."
        return Contents((), (refused(lines[0], reason, "write the names of the columns first"),))
    return Contents(
        tuple(fact for part in parts for fact in part.facts),
        tuple(refusal for part in parts for refusal in part.refusals),
        tuple(doubt for part in parts for doubt in part.doubts),
    )


@lru_cache(maxsize=256)
def unit_of(text: str) -> _Unit | None:
    """The unit that a name ends in or holds: "busbw_GBps", "delay_ms", "GB/s"; bits have a small b, bytes a large.

    In small letters throughout "gbps" is gigabits and "gbs" gigabytes per second, as tools write them.
    """
    if (found := _RATE.search(text)) is not None:
        bits = 8.0 if found[2].startswith("b") else 1.0
        return _Unit(Quantity.BANDWIDTH, _RATES[found[1]] / bits)
    if (found := _SMALL_RATE.search(text)) is not None:
        bits = 8.0 if found[2] == "bps" else 1.0
        return _Unit(Quantity.BANDWIDTH, _RATES[found[1].upper()] / bits)
    if (found := _TIME.search(text)) is not None:
        return _Unit(Quantity.LATENCY, _TIMES[found[1]])
    return None


def _tables(lines: Sequence[Line]) -> list[_Table]:
    tables: list[_Table] = []
    notes: dict[str, str] = {}
    separator = ","
    for line in lines:
        text = line.text
        if text.startswith("#"):
            if (note := _NOTE.match(text)) is not None:
                notes[note[1]] = note[2].strip()
        elif _HEADER.match(text) is not None:
            separator = max(",;\t", key=text.count)
            tables.append(_Table(line, _cells(text, separator), notes=notes))
            notes = {}
        elif tables and text.strip():
            tables[-1].rows.append((line, _cells(text, separator)))
    return tables


def _cells(text: str, separator: str) -> list[str]:
    if '"' not in text:
        return list(map(str.strip, text.split(separator)))
    try:
        return [cell.strip() for cell in next(csv.reader([text], delimiter=separator), [])]
    except csv.Error:
        return []


def _is_square(table: _Table) -> bool:
    return _SQUARE.match(table.header.text) is not None and _LONG.match(table.header.text) is None


def _square(source: Source, table: _Table) -> Contents:
    corner, columns = table.names[0], tuple(name for name in table.names[1:] if name)
    said = f"{corner} {table.notes.get('unit', '')}"
    unit = unit_of(f" {said}") or unit_of(source.name.rpartition(".")[0])
    doubts: list[Finding] = []
    if unit is None and "busbw" in source.name:
        unit = _Unit(Quantity.BANDWIDTH, 1e9)
        sentence = "no unit is given: bus bandwidths are taken as GB/s, as nccl-tests prints them"
        doubts.append(note("unit-assumed", table.header.number, sentence, _NO_UNIT))
    if unit is None:
        return Contents((), (refused(table.header, "the unit of the figures is not given", _NO_UNIT, table.last),))
    if len(set(columns)) != len(columns):
        return Contents((), (refused(table.header, "two columns have one name", "name each once", table.last),))
    refusals: list[Finding] = []
    gpus = corner.lower().startswith("gpu")
    values: dict[str, tuple[float | None, ...]] = {}
    numbers: list[int] = []
    for line, cells in table.rows:
        name = cells[0] if cells else ""
        if name not in columns or name in values or len(cells) > len(columns) + 1:
            reason = f"{name[:40]!r} is not one of the {len(columns)} columns, or has a row already"
            refusals.append(refused(line, reason, "name the rows as the columns, in any order"))
            continue
        figures = [
            None if gpus and column == name else _figure(line, cell, unit, f"{name} to {column}", refusals)
            for column, cell in zip(columns, cells[1:], strict=False)
        ]
        values[name] = tuple(figures) + (None,) * (len(columns) - len(figures))
        numbers.append(line.number)
    if not values:
        return Contents((), (*refusals, refused(table.header, "the table has no rows", "send the whole table")))
    words = f"{source.name} {table.notes.get('collective', '')}"
    fact = MatrixFact(
        origin=Origin(source.name, table.header.number, table.last),
        tool=table.notes.get("tool", "table"),
        between="gpus" if gpus else "nodes",
        host=(table.notes.get("host") or source.host) if gpus else None,
        rows=tuple(values),
        columns=columns,
        hosts={},
        quantity=unit.quantity,
        values=tuple(values.values()),
        lines=tuple(numbers),
        direction=_direction(words),
        operation=named_operation(words) or Operation.POINT_TO_POINT,
        ranks_per_node=whole(table.notes.get("gpus_per_node", ""), 6) or _flows(source.name),
        message_bytes=bytes_of(table.notes.get("size_bytes", "")),
        cut=len(values) < len(columns),
    )
    if fact.cut:
        sentence = f"{len(values)} of {len(columns)} rows are there"
        doubts.append(note("partial", table.header.number, sentence))
    if "bidir" in words.lower() and gpus:
        sentence = "the figures are sums of both directions"
        doubts.append(note("both-directions", table.header.number, sentence))
    return Contents((fact,), tuple(refusals), tuple(doubts))


def _direction(words: str) -> Direction:
    """Collectives cannot tell the directions apart, nor can sums of both."""
    if "bidir" in words.lower() or named_operation(words) is not None:
        return Direction.BOTH
    return Direction.FORWARD


def _flows(name: str) -> int | None:
    found = _FLOWS.search(name)
    return int(found[1]) or None if found else None


def _figure(line: Line, cell: str, unit: _Unit, where: str, refusals: list[Finding]) -> float | None:
    """The figure of a cell in SI units; what is none is refused."""
    value = finite(cell)
    if value is None and cell.lower() in _UNKNOWN:
        return None
    scaled = None if value is None else value * unit.factor
    if scaled is None or not 0 < scaled < float("inf"):
        remedy = _NEVER_ZERO if value == 0 else "write a positive number, or leave the cell empty"
        refusals.append(refused(line, f"{cell[:40]!r} from {where[:120]} is not a positive number", remedy))
        return None
    return scaled


def _long(source: Source, table: _Table) -> Contents:
    """Rows with the same ends, GPUs and collective are one run, whose points are their rows."""
    names = table.names
    figure = _column(names, ("busbw", "bandwidth", "bw", "received", "value", "sent"))
    latency = _column(names, ("latency", "delay", "rtt"))
    unit = None if figure is None else unit_of(names[figure]) or unit_of(f" {table.notes.get('unit', '')}")
    time_unit = None if latency is None else unit_of(names[latency])
    if time_unit is None or time_unit.quantity is not Quantity.LATENCY:
        latency = None
    if (unit is None or unit.quantity is not Quantity.BANDWIDTH) and latency is None:
        reason = "no column has a figure with its unit"
        remedy = "name the column with its unit: busbw_GBps, bandwidth_Gbps, latency_us"
        return Contents((), (refused(table.header, reason, remedy, table.last),))
    refusals: list[Finding] = []
    groups = _grouped(table, refusals)
    status, error, size = (
        names.index(name) if name in names else None for name in ("status", "error", "size_bytes")
    )
    size_of = cache(bytes_of)  # a sweep has few sizes
    facts = []
    for key, rows in groups.items():
        points: list[Point] = []
        failures: list[str] = []
        where = f"{key[0]} to {key[1]}"
        for line, cells in rows:
            if status is not None and cells[status].lower() not in {"", "ok"}:
                failures.append((cells[error] if error is not None else "") or cells[status])
                points.append(Point(line.number, None if size is None else size_of(cells[size]), None))
                continue
            rate = _figure(line, cells[figure], unit, where, refusals) if figure is not None and unit else None
            time = _figure(line, cells[latency], time_unit, where, refusals) if latency and time_unit else None
            if rate is not None or time is not None:
                bytes_sent = None if size is None else size_of(cells[size])
                points.append(Point(line.number, bytes_sent, rate, time))
        if points or failures:
            facts.append(_run(source, key, (rows[0][0].number, rows[-1][0].number), points, failures))
    return Contents(tuple(facts), tuple(refusals))


def _grouped(table: _Table, refusals: list[Finding]) -> dict[tuple[str, ...], list[tuple[Line, list[str]]]]:
    """The rows by ends and kinds, in the order of ``_run``; others are refused."""
    names = table.names
    groups: dict[tuple[str, ...], list[tuple[Line, list[str]]]] = {}
    notes = [table.notes.get(kind, "") for kind in _KINDS]
    columns = [*names, *_KINDS]
    key_of = itemgetter(0, 1, *map(columns.index, _KINDS))  # a column, else the note behind all columns
    for line, cells in table.rows:
        if len(cells) != len(names):
            reason = f"the row has {len(cells)} cells where the header names {len(names)}"
            refusals.append(refused(line, reason, "write one cell for each column, empty where unknown"))
            continue
        key = key_of(cells + notes)
        if (group := groups.get(key)) is not None:
            group.append((line, cells))
        elif _operation(key[3]) is not None:
            groups[key] = [(line, cells)]
        else:
            remedy = f"leave it empty for plain transfers, or write one of {', '.join(PROGRAMS)}"
            refusals.append(refused(line, f"the collective {key[3][:40]!r} is not known", remedy))
    return groups


def _run(
    source: Source,
    key: tuple[str, ...],
    span: tuple[int, int],
    points: Sequence[Point],
    failures: Sequence[str],
) -> RunFact:
    first, second, flows, collective, active, measured_at, tool = key
    operation = _operation(collective) or Operation.POINT_TO_POINT
    per_node = whole(flows, 6) or None
    hosts = tuple(dict.fromkeys((first, second)))
    moment = moment_of(measured_at) if measured_at else None
    return RunFact(
        origin=Origin(source.name, *span),
        tool=tool or "table",
        operation=operation,
        members=(),
        ranks=None if per_node is None else per_node * len(hosts),
        hosts=hosts,
        points=tuple(points),
        end=RunEnd.FAILED if failures else RunEnd.COMPLETE,
        end_reason=failures[0][:200] if failures else "",
        direction=Direction.FORWARD if operation is Operation.POINT_TO_POINT else Direction.BOTH,
        nodes=len(hosts),
        ranks_per_node=per_node,
        pairs_active=whole(active, 6) or 1,
        measured_at=moment if moment is not None and moment.tzinfo is not None else None,
    )


@lru_cache(maxsize=256)
def _operation(collective: str) -> Operation | None:
    """The operation of a cell or a note; plain transfers where it is empty, ``None`` where it is unknown."""
    if collective.lower() in _UNKNOWN | {"point_to_point", "p2p"}:
        return Operation.POINT_TO_POINT
    return PROGRAMS.get(collective.lower().removesuffix("_perf")) or named_operation(collective)


def _column(names: Sequence[str], words: Sequence[str]) -> int | None:
    """The first column, by the order of the words, whose name begins with one of them."""
    for word in words:
        for index, name in enumerate(names[2:], start=2):
            if name.lower().startswith(word):
                return index
    return None


FORMAT: Final = Format(
    name="own-table",
    known_as="CSV table of bandwidths or latencies between nodes or GPUs",
    family="bandwidth",
    read=read_own_tables,
    begins=(_LONG, _SQUARE, _NOTE),
)
