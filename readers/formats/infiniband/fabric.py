"""An InfiniBand fabric as tools list it, row by row, and what follows for ports, switches and hosts.

Levels count from the hosts: a switch with hosts on at least an eighth of its cables is a leaf (one management host
on a spine makes no leaf of it), and every other switch stands one above the lowest switch it is joined to.  Hosts
that share leaves belong together: with one leaf a rail, all leaves of a rail group form one set, and its name is
the ``leaf`` label of its hosts.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from readers.frame.facts import HostFact, Name, NameKind, Nics, PortFact, SwitchFact
from readers.frame.findings import Finding, doubt, refusal
from readers.frame.reading import Contents
from readers.frame.sources import Source, origin_of

FABRIC: Final = "infiniband"
_DEFAULT_NAME: Final = re.compile(
    r"(?:Mellanox|NVIDIA) Technologies|^(?:ConnectX|Infiniscale|localhost\b|\(none\)|mlx[45]_\d+$|HCA-\d+$)",
    re.IGNORECASE,
)
_LEAF_SHARE: Final = 8


@dataclass(frozen=True, slots=True)
class Cable:
    """One row about a port: the other end, the rate in bytes per second, the GUID of an adapter's port."""

    line: int
    peer: str | None
    rate: float | None
    up: bool
    state: str = ""
    port_guid: str = ""


@dataclass(slots=True)
class Fabric:
    """Devices by GUID, or "lid 7" where rows print no GUIDs, and cables by device and port, as rows are read."""

    switches: dict[str, str] = field(default_factory=dict)
    adapters: dict[str, str] = field(default_factory=dict)
    first_lines: dict[str, int] = field(default_factory=dict)
    cables: dict[tuple[str, str], Cable] = field(default_factory=dict)

    def see(self, guid: str, description: str, line: int, *, switch: bool) -> None:
        """Note a device; the first description that is not empty stays."""
        names = self.switches if switch else self.adapters
        if not names.get(guid):
            names[guid] = description
        self.first_lines.setdefault(guid, line)


def guid_of(text: str) -> str:
    """A GUID as 16 lower-case digits, whatever zeros and prefix it is written with."""
    return text.lower().removeprefix("0x").zfill(16)


@lru_cache(maxsize=65_536)
def split_description(description: str) -> tuple[str | None, str]:
    """Host and device of a node description: "dgx-1 mlx5_0"; no host where it is the maker's default."""
    if not description.strip() or _DEFAULT_NAME.search(description):
        return None, ""
    host, _, device = description.strip().partition(" ")
    return host, device.strip()


def switch_name(description: str, guid: str) -> str:
    """The system name of "MF0;leaf-1:MQM9700/U1", with the board of a director; the GUID of an unnamed switch."""
    if not description.strip() or _DEFAULT_NAME.search(description):
        return guid
    system, _, model = description.strip().removeprefix("MF0;").partition(":")
    board = model.split("/")[1:-1]
    return "/".join((system or guid, *board))


def _is_aggregation(description: str) -> bool:
    """Whether an adapter is the reduction engine inside a switch (SHARP), not a host's card."""
    return "aggregation node" in description.lower()


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The fabric with names in place of GUIDs."""

    names: Mapping[str, str]
    levels: Mapping[str, int]
    hosts: Mapping[str, str | None]
    joined: Mapping[str, list[tuple[str, Cable]]]
    """Ends of the live cables of each switch."""


def understood_fabric(source: Source, fabric: Fabric) -> Contents:
    """Ports, switches and hosts; ports without a host's name are refused and kept without host."""
    for guid in [guid for guid, text in fabric.adapters.items() if _is_aggregation(text)]:
        del fabric.adapters[guid]
    drawing = _drawn(fabric)
    ports, refusals = _ports(source, fabric, drawing)
    sets = _leaf_sets(ports, {drawing.names[guid] for guid, level in drawing.levels.items() if level == 1})
    return Contents(
        (*_switches(source, fabric, drawing), *ports, *_host_facts(source, ports, sets)),
        refusals,
        _missing_rails(ports, sets),
    )


def _drawn(fabric: Fabric) -> _Drawing:
    names = _unique({guid: switch_name(text, guid) for guid, text in fabric.switches.items()})
    hosts = {guid: split_description(text)[0] for guid, text in fabric.adapters.items()}
    joined: dict[str, list[tuple[str, Cable]]] = defaultdict(list)
    for (guid, _), cable in fabric.cables.items():
        if guid in names and cable.up and (cable.peer in names or cable.peer in hosts):
            joined[guid].append((str(cable.peer), cable))
    return _Drawing(names, _levels(joined, hosts), hosts, joined)


def _unique(names: Mapping[str, str]) -> dict[str, str]:
    """The names, with the GUID behind those that several switches bear."""
    borne = Counter(names.values())
    return {guid: name if borne[name] == 1 else f"{name}/{guid}" for guid, name in names.items()}


def _levels(joined: Mapping[str, list[tuple[str, Cable]]], hosts: Collection[str]) -> dict[str, int]:
    levels: dict[str, int] = {}
    for guid, ends in joined.items():
        down = sum(peer in hosts for peer, _ in ends)
        if down * _LEAF_SHARE >= len(ends):
            levels[guid] = 1
    waiting = deque(levels)
    while waiting:
        guid = waiting.popleft()
        for peer, _ in joined.get(guid, ()):
            if peer not in hosts and peer not in levels:
                levels[peer] = levels[guid] + 1
                waiting.append(peer)
    return levels


def _switches(source: Source, fabric: Fabric, drawing: _Drawing) -> tuple[SwitchFact, ...]:
    return tuple(_switch(source, fabric, drawing, guid) for guid in drawing.names)


def _switch(source: Source, fabric: Fabric, drawing: _Drawing, guid: str) -> SwitchFact:
    level = drawing.levels.get(guid, 0)
    ends = drawing.joined.get(guid, [])
    below = [peer for peer, _ in ends if peer in drawing.names and 0 < drawing.levels.get(peer, 0) < level]
    above = [peer for peer, _ in ends if drawing.levels.get(peer, 0) > level]
    adapters = [peer for peer, _ in ends if peer in drawing.hosts]
    first = fabric.first_lines[guid]
    return SwitchFact(
        origin_of(source, first, max([first, *(cable.line for _, cable in ends)])),
        drawing.names[guid],
        hosts=tuple(dict.fromkeys(host for peer in adapters if (host := drawing.hosts[peer]))),
        switches=tuple(dict.fromkeys(drawing.names[peer] for peer in below)),
        level=level,
        up_ports=len(above) if level else None,
        down_ports=len(below) + len(adapters) if level else None,
        alias=fabric.switches[guid],
    )


def _ports(source: Source, fabric: Fabric, drawing: _Drawing) -> tuple[tuple[PortFact, ...], tuple[Finding, ...]]:
    ports: list[PortFact] = []
    refusals: list[Finding] = []
    for (guid, _), cable in fabric.cables.items():
        if guid not in fabric.adapters:
            continue
        host, device = split_description(fabric.adapters[guid])
        shown = cable.port_guid or ("" if " " in guid else guid)
        ports.append(
            PortFact(
                origin_of(source, cable.line),
                host,
                device,
                shown,
                cable.up,
                cable.rate if cable.up else None,
                FABRIC,
                drawing.names.get(cable.peer or "", ""),
                cable.state,
            )
        )
        if host is None:
            refusals.append(
                refusal(
                    cable.line,
                    cable.line,
                    f"the port with GUID {shown or guid} has no host name, only {fabric.adapters[guid]!r}",
                    "set the node description on that host, or send a list of host names and port GUIDs",
                )
            )
    return tuple(ports), tuple(refusals)


def _leaf_sets(ports: Iterable[PortFact], leaves: Collection[str]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name of each host's set of leaves, and those of them that it is on itself."""
    on: dict[str, dict[str, None]] = defaultdict(dict)
    for port in ports:
        if port.host is not None and port.up and port.switch in leaves:
            on[port.host][port.switch] = None
    from networkx.utils import UnionFind  # noqa: PLC0415 - a service starts sooner without

    together: UnionFind[str] = UnionFind()
    for mine in on.values():
        together.union(*mine)
    members: dict[str, list[str]] = defaultdict(list)
    for leaf in dict.fromkeys(leaf for mine in on.values() for leaf in mine):
        members[together[leaf]].append(leaf)
    patterns = {root: _pattern(names) for root, names in members.items()}
    borne = Counter(patterns.values())
    labels = {
        root: text if borne[text] == 1 else f"{text} ({min(members[root])})" for root, text in patterns.items()
    }
    return {host: (labels[together[next(iter(mine))]], tuple(mine)) for host, mine in on.items()}


def _pattern(names: list[str]) -> str:
    """Common name of the leaves of one set: "B09-*-05"; a star stands where they differ."""
    if len(names) == 1:
        return names[0]
    fields = [name.split("-") for name in names]
    if len({len(parts) for parts in fields}) > 1:
        return f"{min(names)} and {len(names) - 1} more"
    columns = [set(column) for column in zip(*fields, strict=True)]
    return "-".join(min(column) if len(column) == 1 else "*" for column in columns)


def _host_facts(
    source: Source, ports: Iterable[PortFact], sets: Mapping[str, tuple[str, tuple[str, ...]]]
) -> tuple[HostFact, ...]:
    by_host: dict[str, list[PortFact]] = defaultdict(list)
    for port in ports:
        if port.host is not None:
            by_host[port.host].append(port)
    return tuple(
        HostFact(
            origin_of(source, min(port.origin.first_line for port in mine), max(p.origin.last_line for p in mine)),
            (Name(NameKind.HOST, host),),
            nics=cards(mine),
            labels={"leaf": sets[host][0]} if host in sets else {},
        )
        for host, mine in by_host.items()
    )


def cards(ports: Iterable[PortFact]) -> tuple[Nics, ...]:
    """Ports in service, grouped by rate, fastest first."""
    groups: dict[tuple[float, str], list[str]] = defaultdict(list)
    for port in ports:
        if port.up and port.bytes_per_s:
            groups[port.bytes_per_s, port.fabric].append(port.device)
    return tuple(
        Nics(len(devices), rate, fabric, tuple(device for device in devices if device))
        for (rate, fabric), devices in sorted(groups.items(), key=lambda item: (-item[0][0], item[0][1]))
    )


def _missing_rails(
    ports: Iterable[PortFact], sets: Mapping[str, tuple[str, tuple[str, ...]]]
) -> tuple[Finding, ...]:
    """A doubt for each host on fewer leaves than most hosts of its set."""
    lines: dict[str, int] = {}
    for port in ports:
        if port.host is not None:
            lines.setdefault(port.host, port.origin.first_line)
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for label, leaves in sets.values():
        counts[label][len(leaves)] += 1
    usual = {label: max(counter, key=lambda n: (counter[n], n)) for label, counter in counts.items()}
    return tuple(
        doubt(
            "rails-missing",
            lines[host],
            f"{host} is on {len(leaves)} of {usual[label]} leaves: {', '.join(leaves)}",
            "look for ports that are down, or leave the host out of jobs that use every rail",
        )
        for host, (label, leaves) in sets.items()
        if len(leaves) < usual[label]
    )
