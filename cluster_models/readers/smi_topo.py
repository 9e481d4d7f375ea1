"""``nvidia-smi topo -m``: how the GPUs and network cards of one host are joined.

The device columns hold one word each whatever separates them, so cells are counted and not measured off by column;
rows and header may be cut, and what a cut row would have said stands in the columns of the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cluster_models.measurements import Direction
from cluster_models.readers.facts import Joint, JointKind, MatrixFact, Origin, Quantity, WiringFact
from cluster_models.readers.notices import refused
from cluster_models.readers.reading import Doubt, Format, Line, Refusal, Source, Trust, Understood

_CELLS: Final = {
    "PIX": JointKind.PIX,
    "PXB": JointKind.PXB,
    "PSB": JointKind.PXB,
    "PHB": JointKind.PHB,
    "NODE": JointKind.NODE,
    "SYS": JointKind.SYS,
    "SOC": JointKind.SYS,
    "C2C": JointKind.C2C,
}
"""SOC is what drivers before 2017 wrote for SYS."""
_PEERS: Final = {"OK": 1.0, "CNS": 0.0, "GNS": 0.0, "TNS": 0.0, "DR": 0.0, "NS": 0.0, "U": None}
"""Words of ``topo -p2p``; all but OK and U (unknown) name what does not support it."""
_MOST_DEVICES: Final = 256
"""Columns of a table; no host has more GPUs and cards."""
_NEARNESS: Final = {
    kind: place
    for place, kind in enumerate(
        (
            JointKind.NVLINK,
            JointKind.C2C,
            JointKind.PIX,
            JointKind.PXB,
            JointKind.PHB,
            JointKind.NODE,
            JointKind.SYS,
        )
    )
}
_NVLINKS: Final = re.compile(r"NV(\d{1,3})", re.ASCII)
_GPU: Final = re.compile(r"GPU\d+", re.ASCII)
_COLOUR: Final = re.compile(r"^\s*\[[0-9;]{1,6}m|\[[0-9;]{1,6}m\s*$", re.ASCII)
"""What is left of an underlined header where the escape character itself was lost in copying."""
_COMMAND: Final = re.compile(r"^(?:.{0,120}[\s$#>])?nvidia-smi\s+topo\s+-{1,2}(\w+)", re.ASCII)
_HEADER: Final = re.compile(r"(?:^|[\"'`(>\\])\s*(GPU0\s+(?:GPU\d|NIC\d|\w{1,40}_\d|CPU Aff).*)$", re.ASCII)
"""A quotation mark may stand in front, where the table was pasted into a program."""
_HEADER_ANCHOR: Final = re.compile(
    r"^(?:.{0,120}[\"'`(>\\])?\s*(?:\[[0-9;]{1,6}m)?GPU0\s(?=.*(?:CPU Aff|\sNIC0\b|\smlx\d_))", re.ASCII
)
"""Stricter than a header below a command: tables of rocm-smi begin with GPU0 and GPU1 too."""
_LEGEND_OF_CARDS: Final = re.compile(r"^\s*(NIC\d+):\s*(\S+)$", re.ASCII)


@dataclass(slots=True)
class _Table:
    """One table while its lines come in."""

    header: Line
    devices: dict[str, int]
    """Names in the order of the columns, and their places."""
    has_numa: bool
    hidden: bool
    cells: dict[str, list[str]] = field(default_factory=dict)
    """Words of each row below the columns of devices."""
    numa: dict[str, str] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    """Names of the rows and the lines they stand on."""
    short: Line | None = None
    last: Line | None = None


def _header(line: Line, *, hidden: bool) -> _Table | None:
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
    return _Table(line, devices, "NUMA Affinity" in " ".join(text.split()), hidden)


def _affinities(text: str, cells: int) -> list[str]:
    """What stands right of the device columns, empty fields kept where tabs show them."""
    if "\t" in text:
        return [word.strip() for word in text.strip(" ").lstrip("\t").split("\t")[cells + 1 :]]
    return re.sub(r",[ ]{1,8}", ",", text).split()[cells + 1 :]


def _row(table: _Table, line: Line, refusals: list[Refusal]) -> None:
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
        word for word in dict.fromkeys(words[:count]) if word not in _PEERS and word != "X" and _cell(word) is None
    ]
    if unknown and not (line is table.short and unknown == words[-1:]):
        shown = ", ".join(repr(word[:20]) for word in unknown[:5])
        reason = f"cells in the row of {name} that nvidia-smi does not print: {shown}"
        refusals.append(refused(line, reason, "send the table as printed"))
    table.cells[name] = words[:count]
    if table.has_numa and len(words) > count:
        right = _affinities(line.text, count)
        if len(right) > 1 and right[1][:1].isdigit():
            table.numa[name] = right[1]


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


@lru_cache(maxsize=1024)
def _cell(word: str) -> tuple[JointKind, int | None] | None:
    """What a word of the table says: the kind of a joint, and how many NVLinks."""
    links = _NVLINKS.fullmatch(word)
    if links is not None:
        return JointKind.NVLINK, int(links.group(1))
    kind = _CELLS.get(word)
    return None if kind is None else (kind, None)


_joint: Final = lru_cache(maxsize=1 << 16)(Joint)
"""Hosts of one cluster have the same joints: each is made once."""


def _joints(table: _Table) -> tuple[list[Joint], list[tuple[str, str]]]:
    """One joint a pair, in the order of the header; and the pairs whose two cells differ (the worse is taken)."""
    names = list(dict.fromkeys([*table.devices, *table.rows]))
    rows = [table.cells.get(name, []) for name in names]
    joints: list[Joint] = []
    differing: list[tuple[str, str]] = []
    for first, row in enumerate(rows):
        for second in range(first + 1, len(rows)):
            other = rows[second]
            there = _cell(row[second]) if second < len(row) else None
            back = _cell(other[first]) if first < len(other) else None
            taken = there or back
            if taken is None:
                continue
            if there is not None and back is not None and there != back:
                differing.append((names[first], names[second]))
                taken = max(there, back, key=lambda cell: (_NEARNESS[cell[0]], -(cell[1] or 0)))
            joints.append(_joint(names[first], names[second], *taken))
    return joints, differing


def _islands(gpus: list[str], joints: list[Joint]) -> list[list[str]]:
    """GPUs that NVLinks join, directly or over others; in the order of the header."""
    leader = {gpu: gpu for gpu in gpus}

    def found(gpu: str) -> str:
        while leader[gpu] != gpu:
            leader[gpu] = leader[leader[gpu]]
            gpu = leader[gpu]
        return gpu

    for joint in joints:
        if joint.kind is JointKind.NVLINK:
            leader[found(joint.second)] = found(joint.first)
    islands: dict[str, list[str]] = {}
    for gpu in gpus:
        islands.setdefault(found(gpu), []).append(gpu)
    return list(islands.values())


def _links(gpus: list[str], joints: list[Joint]) -> tuple[dict[str, int], bool]:
    """NVLinks of each GPU, and whether a switch joins all (each GPU then shows all its links to every other).

    Without a switch the links of a GPU are those to its neighbours added up: DGX-1 mixes NV1 and NV2 and has six
    at every GPU.
    """
    wired = [joint for joint in joints if joint.kind is JointKind.NVLINK]
    switched = len(gpus) > 2 and all(joint.kind is JointKind.NVLINK for joint in joints)
    links = dict.fromkeys(gpus, 0)
    for joint in wired:
        for gpu in (joint.first, joint.second):
            count = joint.links or 0
            links[gpu] = max(links[gpu], count) if switched else links[gpu] + count
    return links, switched


def _doubts(table: _Table, gpus: list[str], joints: list[Joint]) -> list[Doubt]:
    number = table.header.number
    known = Counter(gpu for joint in joints for gpu in (joint.first, joint.second))
    whole = [gpu for gpu in gpus if known[gpu] == len(gpus) - 1]
    doubts: list[Doubt] = []
    links, switched = _links(gpus, joints)
    counted = links if switched else {gpu: links[gpu] for gpu in whole}
    most = max(counted.values(), default=0)
    few = [gpu for gpu, count in counted.items() if count < most]
    if few:
        said = ", ".join(f"{gpu} has {counted[gpu]}" for gpu in few[:8])
        sentence = f"{said} of the {most} NVLinks that other GPUs of this host have"
        doubts.append(
            Doubt("links-missing", Trust.DOUBT, number, sentence, "look at nvidia-smi nvlink -s on this host")
        )
    islands = [island for island in _islands(gpus, joints) if len(island) > 1]
    if len(islands) > 1 or (islands and len(islands[0]) < sum(known[gpu] > 0 for gpu in gpus)):
        groups = "; ".join(" ".join(island) for island in islands[:16])
        sentence = f"NVLink joins these GPUs only among themselves: {groups}"
        doubts.append(
            Doubt("bridged-pairs", Trust.NOTE, number, sentence, "keep tensor parallel groups inside them")
        )
    return doubts


def _shows_no_nvlink(gpus: list[str], joints: list[Joint]) -> bool:
    return len(gpus) > 2 and bool(joints) and not any(joint.kind is JointKind.NVLINK for joint in joints)


def _fact(source: Source, table: _Table) -> tuple[WiringFact, list[Doubt]]:
    _without_cut_end(table)
    joints, differing = _joints(table)
    devices = list(dict.fromkeys([*table.devices, *table.rows]))
    gpus = [name for name in devices if _GPU.fullmatch(name)]
    shown = set(gpus)
    among = [joint for joint in joints if joint.first in shown and joint.second in shown]
    number = table.header.number
    doubts = [
        Doubt(
            "asymmetric-matrix",
            Trust.DOUBT,
            number,
            f"{first} to {second} and back are drawn differently; the worse is taken",
            "run nvidia-smi topo -m again",
        )
        for first, second in differing[:8]
    ]
    hidden = table.hidden or _shows_no_nvlink(gpus, among)
    if hidden:
        sentence = "no NVLink is shown: right for PCIe cards, while topo -mp and guests hide those that there are"
        doubts.append(
            Doubt("nvlink-hidden", Trust.NOTE, number, sentence, "send nvidia-smi topo -m of the host itself")
        )
    doubts += _doubts(table, gpus, among)
    last = table.last or table.header
    fact = WiringFact(
        Origin(source.name, number, last.number),
        source.host,
        tuple(gpus),
        tuple(name for name in devices if name not in shown),
        tuple(joints),
        sum(_GPU.fullmatch(name) is not None for name in table.devices),
        numa=table.numa,
        nic_names=_card_names(table, devices),
        hides_nvlink=hidden,
        partial=table.short is not None or not table.devices.keys() <= table.rows.keys(),
    )
    return fact, doubts


def _card_names(table: _Table, devices: list[str]) -> Mapping[str, str]:
    """Device name of each card, from the legend; a column that bears the device's name is its own."""
    return {
        name: table.names.get(name, name)
        for name in devices
        if not _GPU.fullmatch(name) and (name in table.names or not name.startswith("NIC"))
    }


def read(source: Source, lines: tuple[Line, ...]) -> Understood:
    """The wiring of every table in these lines; rows may be cut anywhere."""
    tables: list[_Table] = []
    refusals: list[Refusal] = []
    hidden = False
    rows_go_on = False
    names: set[str] = set()
    for line in lines:
        command = _COMMAND.search(line.text)
        if command is not None:
            hidden = command.group(1) == "mp"
            continue
        table = _header(line, hidden=hidden)
        if table is not None:
            tables.append(table)
            names, rows_go_on, hidden = set(table.devices), True, False
            continue
        if not tables:
            continue
        rows_go_on = _continued(tables[-1], line, names, refusals, rows_go_on=rows_go_on)
    facts: list[WiringFact] = []
    matrices: list[MatrixFact] = []
    doubts: list[Doubt] = []
    for table in tables:
        if not table.rows:
            reason = "the header of nvidia-smi topo -m stands here without its rows"
            refusals.append(refused(table.header, reason, "send the whole table"))
            continue
        peers = _peer_access(source, table)
        if peers is not None:
            matrices.append(peers)
            continue
        fact, more = _fact(source, table)
        facts.append(fact)
        doubts += more
    if not tables and lines:
        reason = "no table of nvidia-smi topo -m is here, whose first line begins with GPU0"
        refusals.append(refused(lines[0], reason, "send the whole table", lines[-1].number))
    whole = {fact.joints for fact in facts if not fact.hides_nvlink}
    if len(whole) > 1:
        sentence = "tables of different hosts stand in one file, and none is named"
        number = facts[0].origin.first_line
        doubts.append(Doubt("several-hosts", Trust.DOUBT, number, sentence, "send one file for each host"))
    return Understood((*facts, *matrices), tuple(refusals), tuple(doubts))


def _continued(table: _Table, line: Line, names: set[str], refusals: list[Refusal], *, rows_go_on: bool) -> bool:
    """Takes a line below a header; whether rows may still follow."""
    text = line.text.strip()
    if not text:
        return rows_go_on and not table.rows
    name = text.split(maxsplit=1)[0]
    is_row = name in names or (_GPU.fullmatch(name) and len(table.rows) < _MOST_DEVICES)
    if rows_go_on and is_row and name not in table.rows:
        _row(table, line, refusals)
        return True
    card = _LEGEND_OF_CARDS.match(line.text)
    if card is not None and card.group(1) in names:
        table.names[card.group(1)] = card.group(2)
        table.last = line
    return False


FORMAT: Final = Format(
    name="nvidia-smi-topo",
    known_as="nvidia-smi topo -m",
    family="inside a node",
    read=read,
    begins=(_COMMAND, _HEADER_ANCHOR),
)
