"""Slurm's picture of the network: ``topology.conf``, ``scontrol show topology``, ``topology.yaml``.

Trees (``SwitchName``) give hosts a leaf and the switches above it; blocks (``BlockName``) give them a block, which
Slurm means for groups of nodes that NVLink joins, and which sites use for other groups too.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from readers.formats.infiniband.fabric import FABRIC, guid_of
from readers.frame.facts import Fact, HostFact, Name, NameKind, Origin, PortFact, SwitchFact
from readers.frame.findings import Finding, doubt, note, refusal, refused, refused_runs
from readers.frame.host_lists import expand
from readers.frame.lines import LONGEST_LINE
from readers.frame.numbers import whole
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source, origin_of
from readers.frame.trees import joined

_CATCH_ALL: Final = {"unknown", "default", "none", "n/a"}
_GUID: Final = re.compile(r"0x[0-9a-fA-F]{12,16}")
_COMMENTED: Final = re.compile(r"#+\s*((?:SwitchName|BlockName)=.*)", re.IGNORECASE)
_ALIAS: Final = re.compile(r"#\s*([\w.\-]+)=([^\s=]+)")
_UUID: Final = re.compile(r"#.*\bClusterUUID[^:]*:\s*([0-9a-fA-F\-]{36}(?:\.\d+)?)", re.IGNORECASE)
_NOISE: Final = re.compile(r"(?:BlockSizes|AggregatedBlock|TopologyParam|TopologyPlugin)=", re.IGNORECASE)
_NEXT: Final = re.compile(r"(?<=\S)\s+(?=(?:SwitchName|BlockName)=)", re.IGNORECASE)
"""Separator of records that were pasted onto one line."""
_STEM: Final = re.compile(r"([^\[\]\d,]+)[\[\d]")
MOST_LEVELS: Final = 9


@dataclass(frozen=True, slots=True)
class Record:
    """One switch or block as the file tells it; ``level`` counts from 0 at the leaves, as Slurm prints it."""

    line: Line
    name: str
    block: bool
    hosts: tuple[str, ...]
    switches: tuple[str, ...]
    level: int | None = None
    alias: str = ""
    domain: str | None = None
    path: str = ""


@dataclass(slots=True)
class _Records:
    """Records of the lines as they are read."""

    records: list[Record]
    refusals: list[Finding]
    doubts: list[Finding]


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Switches, blocks, and the labels of the hosts below them."""
    told = _Records([], [], [])
    odd: list[Line] = []
    aliases: dict[str, str] = {}
    domain: str | None = None
    for line in _joined(lines):
        text = line.text.strip()
        if len(text) >= LONGEST_LINE:
            text = text.rpartition(",")[0]  # the last name is cut
        if (commented := _COMMENTED.fullmatch(text)) is not None:
            told.refusals.append(_commented(line, commented[1]))
        elif text.startswith("#"):
            found = _UUID.match(text)
            domain = found[1] if found else domain
            if (alias := _ALIAS.match(text)) is not None:
                aliases[alias[1]] = alias[2]
            continue
        elif text.lower().startswith(("switchname=", "blockname=")):
            for record in _NEXT.split(text.partition(" #")[0]):
                _note(told, line, _fields(record), aliases, domain)
        elif text and _NOISE.match(text) is None:
            odd.append(line)
        domain = None
    remedy = "send topology.conf, topology.yaml or what scontrol show topology prints"
    told.refusals.extend(refused_runs(odd, "the line names neither a switch nor a block", remedy))
    return _understood(source, told)


def _joined(lines: Sequence[Line]) -> Iterator[Line]:
    """The lines, with those that end in a backslash joined to the next."""
    held: Line | None = None
    parts: list[str] = []
    for line in lines:
        parts.append(line.text.removesuffix("\\").strip() if held or line.text.endswith("\\") else line.text)
        if line.text.endswith("\\"):
            held = held or line
            continue
        yield line if held is None else Line(held.number, " ".join(parts), held.teller)
        held, parts = None, []
    if held is not None:
        yield Line(held.number, " ".join(parts), held.teller)


def _fields(text: str) -> dict[str, str]:
    """The keys of a record, in lower case; a comment behind it is cut."""
    pairs = (word.partition("=") for word in text.partition(" #")[0].split())
    return {key.lower(): value for key, sign, value in pairs if sign}


def _commented(line: Line, record: str) -> Finding:
    fields = _fields(record)
    name = fields.get("blockname") or fields.get("switchname", "")
    return refused(
        line,
        f"{name} is commented out, often because its generator found too few nodes for a block",
        "remove the # where the nodes do belong together, or send the file of cluster UUIDs",
    )


def _note(
    told: _Records, line: Line, fields: Mapping[str, str], aliases: Mapping[str, str], domain: str | None
) -> None:
    block = "blockname" in fields
    name = fields["blockname" if block else "switchname"]
    level = fields.get("level", "")
    given = (fields.get("nodes", ""), fields.get("switches", ""))
    made = _record(told, Record(line, name, block, (), (), None, aliases.get(name, ""), domain), given)
    if made is not None:
        told.records.append(replace(made, level=whole(level, 2)))


def _record(told: _Records, bare: Record, given: tuple[str, str]) -> Record | None:
    """The record with its lists expanded; ``None`` and a refusal where they cannot be."""
    nodes, lost = _with_prefix(given[0])
    try:
        hosts, switches = expand(nodes), expand(given[1])
    except ValueError as error:
        told.refusals.append(refused(bare.line, f"{bare.name}: {error}", "write lists as n[001-016],n019"))
        return None
    if lost:
        reason = f"{bare.name} lists {lost[:60]} without the prefix of the names before it"
        told.refusals.append(refused(bare.line, reason, "write the whole names; these were not taken"))
    return replace(bare, hosts=tuple(dict.fromkeys(hosts)), switches=tuple(dict.fromkeys(switches)))


def _with_prefix(nodes: str) -> tuple[str, str]:
    """The list without items such as the second of "circe-n[001-016],n[019-020]", and those items."""
    items = re.findall(r"[^,\[]+(?:\[[^\]]*\][^,\[]*)*|\[[^\]]*\]?", nodes)
    first = _STEM.match(items[0]) if items else None
    if first is None:
        return nodes, ""
    lost = [item for item in items if _is_shortened(item, first[1])]
    if not lost:
        return nodes, ""
    return ",".join(item for item in items if item not in lost), ",".join(lost)


def _is_shortened(item: str, stem: str) -> bool:
    found = _STEM.match(item)
    short = found[1] if found else "" if item[:1].isdigit() or item[:1] == "[" else stem
    return short != stem and stem.endswith(short) and not stem[: len(stem) - len(short)].isalnum()


def _understood(source: Source, told: _Records) -> Contents:
    if not told.records:
        if not told.refusals:
            told.refusals.append(_empty())
        return Contents((), tuple(told.refusals), tuple(told.doubts))
    trees = [record for record in told.records if not record.block]
    blocks = [record for record in told.records if record.block]
    known = _heights(trees)
    for record in trees:
        if record.name not in known:
            reason = f"{record.name} lies above itself, so its level is unknown; leaves below it are kept"
            told.refusals.append(refused(record.line, reason, "let each switch list only the switches below it"))
    trees = [record for record in trees if record.name in known]
    _doubt_catch_alls(told, trees)
    facts = [_switch(source, record, known.get(record.name, 1)) for record in (*trees, *blocks) if _is_one(record)]
    return Contents((*facts, *_hosts(source, told, trees, blocks)), tuple(told.refusals), tuple(told.doubts))


def _empty() -> Finding:
    return refusal(1, 1, "no switch and no block is named", "send the whole file")


def _is_one(record: Record) -> bool:
    """Whether the record is a switch, not a place for hosts of unknown switches."""
    return record.name.lower() not in _CATCH_ALL


def _heights(trees: Iterable[Record]) -> dict[str, int]:
    """Level of each switch, 1 at the leaves; those on or above a cycle are left out."""
    below: dict[str, set[str]] = defaultdict(set)
    for record in trees:
        below[record.name].update(record.switches)
    above: dict[str, list[str]] = defaultdict(list)
    for name, children in below.items():
        for child in children:
            above[child].append(name)
    waiting = {name: sum(child in below for child in children) for name, children in below.items()}
    levels = {name: 1 for name, children in below.items() if not children}
    levels |= {name: 2 for name, children in below.items() if children and not waiting[name]}
    ready = list(levels)
    while ready:
        name = ready.pop()
        for parent in above[name]:
            waiting[parent] -= 1
            levels[parent] = max(levels.get(parent, 2), levels[name] + 1)
            if not waiting[parent]:
                ready.append(parent)
    return {name: level for name, level in levels.items() if waiting[name] == 0}


def _doubt_catch_alls(told: _Records, trees: Iterable[Record]) -> None:
    for record in trees:
        if not _is_one(record):
            told.doubts.append(
                note(
                    "unknown-switch",
                    record.line.number,
                    f"{record.name} gathers {len(record.hosts)} hosts whose switch is not known; it is not a leaf",
                    "say which leaf these hosts are on, or leave them without one",
                )
            )


def _direct(record: Record) -> tuple[str, ...]:
    """Hosts on the switch itself: above level 0, ``scontrol`` lists those of the switches below again."""
    return () if record.level else record.hosts


def _switch(source: Source, record: Record, level: int) -> SwitchFact:
    return SwitchFact(
        origin_of(source, record.line.number, path=record.path),
        record.name,
        _direct(record),
        record.switches,
        level=0 if record.block else level if record.level is None else record.level + 1,
        domain=record.block,
        alias=record.alias,
    )


def _hosts(source: Source, told: _Records, trees: Sequence[Record], blocks: Sequence[Record]) -> Iterator[Fact]:
    """Hosts with their places, in the order of the file; port GUIDs in place of hosts become ports."""
    leaves = _places(told, (record for record in trees if _direct(record)), "two-leaves", "leaf")
    groups = _places(told, blocks, "two-blocks", "block")
    parents = _parents(trees)
    firsts: dict[str, Record] = {}
    for record in (*trees, *blocks):
        for host in record.hosts:
            firsts.setdefault(host, record)
    guids: list[Record] = []
    made: dict[tuple[int, int, int], tuple[Origin, dict[str, str]]] = {}
    """Origin and labels of all hosts of one leaf and block, by the identity of their records."""
    for host, first in firsts.items():
        leaf, group = leaves.get(host), groups.get(host)
        place = leaf or group
        if host.startswith("0x") and _GUID.fullmatch(host):
            if place is not None:
                guids.append(place)
                origin = origin_of(source, place.line.number, path=place.path)
                yield PortFact(origin, None, "", guid_of(host), True, None, FABRIC, place.name)
            continue
        key = id(first), id(leaf), id(group)
        if key not in made:
            lines = [record.line.number for record in (leaf or first, group or first)]
            labels = _labels(leaf, parents) if leaf and _is_one(leaf) else {}
            if group:
                labels["block"] = group.name
            made[key] = origin_of(source, min(lines), max(lines)), labels
        origin, labels = made[key]
        names = (Name(NameKind.SLURM, host),)
        yield HostFact(origin, names, labels=labels, scale_up_domain=group.domain if group else None)
    if guids:
        told.doubts.append(_doubt_guids(guids))


def _doubt_guids(records: Sequence[Record]) -> Finding:
    return doubt(
        "guid-names",
        records[0].line.number,
        f"{len(records)} names below the switches are port GUIDs, which name no host",
        "send the list of host names and port GUIDs with this file",
    )


def _places(told: _Records, records: Iterable[Record], code: str, what: str) -> dict[str, Record | None]:
    """The record that each host stands under; ``None`` where there are two, with a doubt."""
    places: dict[str, Record | None] = {}
    firsts: dict[str, Record] = {}
    for record in records:
        for host in record.hosts:
            first = firsts.setdefault(host, record)
            if first.name == record.name:
                places.setdefault(host, record)
                continue
            if places[host] is not None:
                told.doubts.append(
                    doubt(
                        code,
                        record.line.number,
                        f"{host} is under {first.name} (line {first.line.number}) and {record.name}: it gets none",
                        f"list the host under one {what}",
                    )
                )
            places[host] = None
    return places


def _parents(trees: Iterable[Record]) -> dict[str, str]:
    """The switch above each switch, where there is exactly one."""
    pairs = [(child, record.name) for record in trees for child in record.switches]
    times = Counter(child for child, _ in pairs)
    return {child: parent for child, parent in pairs if times[child] == 1}


def _labels(leaf: Record, parents: Mapping[str, str]) -> dict[str, str]:
    labels = {"leaf": leaf.name}
    name: str | None = leaf.name
    for level in range(1, MOST_LEVELS + 1):
        if name is None:
            break
        labels[f"level{level}"] = name
        name = parents.get(name)
    return labels


def is_topology_yaml(tree: Any) -> bool:
    """Whether a value is a ``topology.yaml``: a list of named topologies."""
    return (
        isinstance(tree, list)
        and bool(tree)
        and all(isinstance(item, dict) and "topology" in item for item in tree)
        and any(key in item for item in tree for key in ("tree", "block", "flat"))
    )


def read_yaml(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Trees and blocks of a ``topology.yaml``, the cluster's default first."""
    told = _Records([], [], [])
    if not is_topology_yaml(source.tree):
        told.refusals.append(_empty())
        return Contents((), tuple(told.refusals))
    where = _lines_of_names(lines)
    for at, item in enumerate(source.tree):
        for kind, members, key in (("tree", "switches", "switch"), ("block", "blocks", "block")):
            inner = item.get(kind)
            listed = inner.get(members) if isinstance(inner, dict) else None
            for number, entry in enumerate(listed if isinstance(listed, list) else ()):
                path = f"[{at}].{kind}.{members}[{number}]"
                name = str(entry.get(key, "")) if isinstance(entry, dict) else ""
                line = where.get((key, name), Line(1, str(entry)[:120]))
                if not name:
                    told.refusals.append(refused(line, f"{path} has no name", f"give it a field {key!r}"))
                    continue
                given = (joined(entry.get("nodes")), joined(entry.get("children")))
                made = _record(told, Record(line, name, key == "block", (), (), path=path), given)
                told.records.extend([made] if made else [])
    return _understood(source, told)


def _lines_of_names(lines: Iterable[Line]) -> dict[tuple[str, str], Line]:
    found: dict[tuple[str, str], Line] = {}
    for line in lines:
        key, colon, value = line.text.strip().removeprefix("-").strip().partition(":")
        if colon and key in {"switch", "block"}:
            found.setdefault((key, value.strip().strip("\"'")), line)
    return found


FORMATS: Final = (
    Format(
        "slurm-topology",
        "Slurm topology.conf or scontrol show topology",
        "slurm",
        read,
        (re.compile(r"^#*\s*(?:SwitchName|BlockName)=", re.IGNORECASE), re.compile(r"^# Number of Nodes in ")),
    ),
    Format("slurm-topology-yaml", "Slurm topology.yaml", "slurm", read_yaml, (), is_topology_yaml),
)
