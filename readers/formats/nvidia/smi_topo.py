"""``nvidia-smi topo -m``: how the GPUs and network cards of one host are joined.

The device columns hold one word each whatever separates them, so cells are counted and not measured off by column;
rows and header may be cut, and what a cut row would have said stands in the columns of the others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from typing import Final

from cluster_models.cluster.measurements import Direction
from cluster_models.wording import named
from readers.formats.nvidia.smi_joints import GPU, Drawn, cell_of, drawing_of
from readers.frame.facts import MatrixFact, Origin, Quantity, WiringFact
from readers.frame.findings import Finding, doubt, note, refused
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_PEERS: Final = {"OK": 1.0, "CNS": 0.0, "GNS": 0.0, "TNS": 0.0, "DR": 0.0, "NS": 0.0, "U": None}
"""Words of ``topo -p2p``; all but OK and U (unknown) name what does not support it."""
_MOST_DEVICES: Final = 256
"""Columns of a table; no host has more GPUs and cards."""
_COLOUR: Final = re.compile(r"^\s*\[[0-9;]{1,6}m|\[[0-9;]{1,6}m\s*$", re.ASCII)
"""Rest of an underlined header where the escape character itself was lost in copying."""
_NOT_BY_READING: Final = frozenset({"CNS", "GNS", "TNS", "DR"})
"""Why peers cannot read or write each other's memory; NS also stands where it is NVLink that is not there."""
_COMMAND: Final = re.compile(r"^(?:.{0,120}[\s$#>])?nvidia-smi\s+topo\s+-{1,2}(\w+)(?:\s+(\w+))?", re.ASCII)
_HEADER: Final = re.compile(r"(?:^|[\"'`(>\\])\s*(GPU0\s+(?:GPU\d|NIC\d|\w{1,40}_\d|CPU Aff).*)$", re.ASCII)
"""A quotation mark may stand in front, where the table was pasted into a program."""
_HEADER_ANCHOR: Final = re.compile(
    r"^(?:.{0,120}[\"'`(>\\])?\s*(?:\[[0-9;]{1,6}m)?GPU0\s(?=.*(?:CPU Aff|\sNIC0\b|\smlx\d_))", re.ASCII
)
"""Stricter than a header below a command: tables of rocm-smi begin with GPU0 and GPU1 too."""
_PEER_ROW: Final = re.compile(r"^\s*GPU0\s+X\s+(?:OK|[CGT]NS|DR|NS|U)(?:\s|$)", re.ASCII)
"""The first row of ``topo -p2p``, whose header is that of other tools' tables too; the command may not be there."""
_LEGEND_OF_CARDS: Final = re.compile(r"^\s*(NIC\d+):\s*(\S+)$", re.ASCII)


@dataclass(slots=True)
class _Table:
    """One table while its lines come in."""

    header: Line
    devices: dict[str, int]
    """Names in the order of the columns, and their places."""
    hidden: bool
    asked: str = ""
    """Words of ``topo -p2p``: "r" and "w" for the memory of peers, "n" for NVLink, ..."""
    cells: dict[str, list[str]] = field(default_factory=dict)
    """Words of each row below the columns of devices."""
    rows: dict[str, int] = field(default_factory=dict)
    """Names of the rows and the lines they stand on."""
    short: Line | None = None
    last: Line | None = None


def _header(line: Line, *, hidden: bool, asked: str) -> _Table | None:
    """The table whose header this line is."""
    text = _COLOUR.sub("", line.text)
    found = _HEADER.search(text)
    if found is None:
        return None
    devices: dict[str, int] = {}
    for word in found.group(1).split():
        if word in {"CPU", "NUMA", "GPU", "Affinity"} or "CPU".startswith(word):
            break
        if word in devices or len(devices) == _MOST_DEVICES:
            return None
        devices[word] = len(devices)
    return _Table(line, devices, hidden, asked)


def _row(table: _Table, line: Line, refusals: list[Finding]) -> None:
    name, *words = line.text.split()
    count = len(table.devices)
    place = table.devices.get(name, count)
    if place < min(len(words), count) and words[place] != "X":
        reason = f"the row of {name} has no X in its own column, so its cells cannot be told apart"
        refusals.append(refused(line, reason, "send the table as printed"))
        return
    table.rows[name] = line.number
    table.last = line
    if len(words) < count:
        table.short = line
    unknown = [
        word
        for word in dict.fromkeys(words[:count])
        if word not in _PEERS and word != "X" and cell_of(word) is None
    ]
    if unknown and not (line is table.short and unknown == words[-1:]):
        shown = ", ".join(repr(word[:20]) for word in unknown[:5])
        reason = f"cells in the row of {name} that nvidia-smi does not print: {shown}"
        refusals.append(refused(line, reason, "send the table as printed"))
    table.cells[name] = words[:count]


def _without_cut_end(table: _Table) -> None:
    """Drops the last cell of a table that ends within a row: NV1 may be the beginning of NV18."""
    if table.short is not None and table.short is table.last:
        del table.cells[table.short.text.split(maxsplit=1)[0]][-1:]


def _peer_access(source: Source, table: _Table) -> MatrixFact | None:
    """``topo -p2p``: which GPUs may read and write each other's memory; ``None`` where the table is another."""
    words = {word for row in table.cells.values() for word in row} - {"X"}
    if not words or not words <= _PEERS.keys():
        return None
    columns = tuple(table.devices)
    values = tuple(
        tuple(None if column == name else _PEERS.get(word) for column, word in zip(columns, row, strict=False))
        + (None,) * (len(columns) - len(row))
        for name, row in table.cells.items()
    )
    last = table.last or table.header
    return MatrixFact(
        Origin(source.name, table.header.number, last.number),
        "nvidia-smi topo -p2p",
        "gpus",
        source.host,
        tuple(table.cells),
        columns,
        {},
        Quantity.ACCESS,
        values,
        tuple(table.rows[name] for name in table.cells),
        Direction.FORWARD,
        cut=table.short is not None or not table.devices.keys() <= table.rows.keys(),
    )


def _unreached(table: _Table) -> list[Finding]:
    """A doubt where GPUs cannot read or write each other's memory."""
    closed = _NOT_BY_READING | ({"NS"} if {"r", "w"} & set(table.asked) else set())
    if table.asked and not {"r", "w"} & set(table.asked):
        return []
    pairs = [
        f"{row} to {column} ({word})"
        for row, words in table.cells.items()
        for column, word in zip(table.devices, words, strict=False)
        if word in closed
    ]
    if not pairs:
        return []
    sentence = f"GPUs cannot reach each other's memory: {named(pairs)}"
    remedy = "measure with p2pBandwidthLatencyTest what the way through the host gives"
    return [doubt("no-peer-access", table.header.number, sentence, remedy)]


def _fact(source: Source, table: _Table, drawn: Drawn) -> tuple[WiringFact, list[Finding]]:
    _without_cut_end(table)
    devices = tuple(dict.fromkeys([*table.devices, *table.rows]))
    drawing = drawn(devices, tuple(tuple(table.cells.get(name, ())) for name in devices))
    number = table.header.number
    doubts = [
        doubt(
            "asymmetric-matrix",
            number,
            f"{first} to {second} and back are drawn differently; the worse is taken",
            "run nvidia-smi topo -m again",
        )
        for first, second in drawing.differing[:8]
    ]
    hidden = table.hidden or drawing.shows_no_nvlink
    if hidden:
        sentence = "no NVLink is shown: right for PCIe cards, while topo -mp and guests hide those that there are"
        doubts.append(note("nvlink-hidden", number, sentence, "send nvidia-smi topo -m of the host itself"))
    doubts += [found.at_line(number) for found in drawing.doubts]
    last = table.last or table.header
    fact = WiringFact(
        Origin(source.name, number, last.number),
        source.host,
        drawing.gpus,
        tuple(name for name in devices if name not in drawing.gpus),
        drawing.joints,
        sum(GPU.fullmatch(name) is not None for name in table.devices),
        hides_nvlink=hidden,
        partial=table.short is not None or not table.devices.keys() <= table.rows.keys(),
    )
    return fact, doubts


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The wiring of every table in these lines; rows may be cut anywhere."""
    tables: list[_Table] = []
    refusals: list[Finding] = []
    hidden, asked = False, ""
    rows_go_on = False
    names: set[str] = set()
    for line in lines:
        command = _COMMAND.search(line.text) if "nvidia-smi" in line.text else None
        if command is not None:
            hidden = command.group(1) == "mp"
            asked = command.group(2) or "" if command.group(1) == "p2p" else ""
            continue
        table = _header(line, hidden=hidden, asked=asked) if "GPU0" in line.text else None
        if table is not None:
            tables.append(table)
            names, rows_go_on, hidden, asked = set(table.devices), True, False, ""
            continue
        if not tables:
            continue
        rows_go_on = _continued(tables[-1], line, names, refusals, rows_go_on=rows_go_on)
    facts: list[WiringFact] = []
    matrices: list[MatrixFact] = []
    doubts: list[Finding] = []
    drawn = cache(drawing_of)
    for table in tables:
        if not table.rows:
            reason = "the header of nvidia-smi topo -m stands here without its rows"
            refusals.append(refused(table.header, reason, "send the whole table"))
            continue
        peers = _peer_access(source, table)
        if peers is not None:
            matrices.append(peers)
            doubts += _unreached(table)
            continue
        fact, more = _fact(source, table, drawn)
        facts.append(fact)
        doubts += more
    if not tables and lines:
        reason = "no table of nvidia-smi topo -m is here, whose first line begins with GPU0"
        refusals.append(refused(lines[0], reason, "send the whole table", lines[-1].number))
    whole = [fact.joints for fact in facts if not fact.hides_nvlink]
    if any(joints != whole[0] for joints in whole):
        sentence = "tables of different hosts stand in one file, and none is named"
        number = facts[0].origin.first_line
        doubts.append(doubt("several-hosts", number, sentence, "send one file for each host"))
    return Contents((*facts, *matrices), tuple(refusals), tuple(doubts))


def _continued(table: _Table, line: Line, names: set[str], refusals: list[Finding], *, rows_go_on: bool) -> bool:
    """Takes a line below a header; whether rows may still follow."""
    text = line.text.strip()
    if not text:
        return rows_go_on and not table.rows
    name = text.split(maxsplit=1)[0]
    is_row = name in names or (GPU.fullmatch(name) and len(table.rows) < _MOST_DEVICES)
    if rows_go_on and is_row and name not in table.rows:
        _row(table, line, refusals)
        return True
    card = _LEGEND_OF_CARDS.match(line.text)
    if card is not None and card.group(1) in names:
        table.last = line
    return False


FORMAT: Final = Format(
    name="nvidia-smi-topo",
    known_as="nvidia-smi topo -m",
    family="inside a node",
    read=read,
    begins=(_COMMAND, _HEADER_ANCHOR, _PEER_ROW),
)
