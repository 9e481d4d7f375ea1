"""``ibstat`` of one host, lists of port GUIDs and of NVLink cluster UUIDs, and ``perfquery``, which is refused."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from cluster_models.cluster.topology import NodeState
from readers.formats.infiniband.dead_ports import ShownPort, port_doubts
from readers.formats.infiniband.fabric import FABRIC, cards, guid_of
from readers.frame.facts import Fact, HealthFact, HostFact, Name, NameKind, PortFact
from readers.frame.findings import Finding, note, refused, refused_runs
from readers.frame.numbers import finite
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source, origin_of

_ADAPTER: Final = re.compile(r"\s*CA '([^']+)'")
_PORT: Final = re.compile(r"\s*Port (\d{1,3}):\s*")
_VALUE: Final = re.compile(r"\s*([A-Za-z][A-Za-z ]{1,30}):\s*(.*)")
_PANIC: Final = re.compile(r"\s*ibpanic:|.*\bcan't (?:init|open) (?:UMAD|umad)")


@dataclass(slots=True)
class _Block:
    """One port of an adapter; ``values`` hold the adapter's keys and then the port's."""

    device: str
    first: int
    last: int
    values: dict[str, str] = field(default_factory=dict)


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Ports, and the cards of the host: the InfiniBand ports in service, by rate.

    Lines that a launcher labelled with who printed them are taken apart by that label: one host each.
    """
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        groups[line.teller].append(line)
    facts: list[Fact] = []
    refusals: list[Finding] = []
    doubts: list[Finding] = []
    for mine in groups.values():
        host = source.host if len(groups) == 1 else None
        odd: list[Line] = []
        blocks = _blocks(mine, odd)
        ports = tuple(_port_fact(source, host, block) for block in blocks)
        facts.extend((*ports, *_host_fact(source, host, ports), *_panics(source, host, odd)))
        refusals.extend(_odd(odd))
        doubts.extend(_doubts(blocks, ports))
    return Contents(tuple(facts), tuple(refusals), tuple(doubts))


def _blocks(lines: Sequence[Line], odd: list[Line]) -> list[_Block]:
    blocks: list[_Block] = []
    adapter: _Block | None = None
    current: _Block | None = None
    for line in lines:
        if (found := _ADAPTER.match(line.text)) is not None:
            current = adapter = _Block(found[1], line.number, line.number)
        elif adapter is not None and _PORT.fullmatch(line.text) is not None:
            current = _Block(adapter.device, line.number, line.number, dict(adapter.values))
            blocks.append(current)
        elif _PANIC.match(line.text) is not None:
            odd.append(line)
            current = None
        elif current is not None and (pair := _VALUE.fullmatch(line.text)) is not None:
            current.values[pair[1].lower()] = pair[2].strip()
            current.last = line.number
        elif line.text.strip():
            odd.append(line)
    return blocks


def _port_fact(source: Source, host: str | None, block: _Block) -> PortFact:
    values = block.values
    state, physical = values.get("state", ""), values.get("physical state", "")
    layer = values.get("link layer", "InfiniBand").lower()
    gbits = finite(values.get("rate", "").partition(" ")[0])
    up = state.lower() == "active"
    return PortFact(
        origin_of(source, block.first, block.last),
        host,
        block.device,
        guid_of(values["port guid"]) if values.get("port guid") else "",
        up,
        gbits * 1e9 / 8 if gbits and up else None,
        FABRIC if layer in {"infiniband", "ib"} else layer,
        "",
        "/".join(word for word in (state, physical) if word),
    )


def _host_fact(source: Source, host: str | None, ports: Sequence[PortFact]) -> Iterator[HostFact]:
    """The host with its fastest InfiniBand cards in service; Ethernet only where there is no InfiniBand."""
    fabrics = [port for port in ports if port.fabric == FABRIC] or list(ports)
    nics = cards(fabrics)[:1]
    if nics:
        origin = origin_of(source, ports[0].origin.first_line, ports[-1].origin.last_line)
        yield HostFact(origin, (Name(NameKind.HOST, host),) if host else (), nics=nics)


def _panics(source: Source, host: str | None, odd: Sequence[Line]) -> Iterator[HealthFact]:
    panic = next((line for line in odd if _PANIC.match(line.text)), None)
    if panic is not None:
        text = panic.text.strip()[:200]
        yield HealthFact(origin_of(source, panic.number), host, "node", NodeState.DEGRADED, text)


def _odd(odd: Sequence[Line]) -> Iterator[Finding]:
    for line in odd:
        if _PANIC.match(line.text):
            remedy = "look whether its InfiniBand driver is loaded, and run ibstat there again"
            yield refused(line, "ibstat failed on this node", remedy)
    rest = [line for line in odd if not _PANIC.match(line.text)]
    yield from refused_runs(rest, "the line is not ibstat output", "send what ibstat prints, as it prints it")


def _doubts(blocks: Sequence[_Block], ports: Sequence[PortFact]) -> Iterator[Finding]:
    """Ports that are down or slow while others like them run, and hosts without InfiniBand."""
    yield from port_doubts([_shown(block, port) for block, port in zip(blocks, ports, strict=True)])
    if ports and not any(port.up and port.fabric == FABRIC for port in ports) and any(port.up for port in ports):
        sentence = "no InfiniBand port is in service: the fastest Ethernet ports are taken as the cards"
        yield note("ethernet-cards", ports[0].origin.first_line, sentence, "say which cards jobs use")


def _shown(block: _Block, port: PortFact) -> ShownPort:
    values = block.values
    gbits = finite(values.get("rate", "").partition(" ")[0])
    card = values.get("system image guid") or block.device
    return ShownPort(port, values.get("ca type", ""), card, gbits * 1e9 / 8 if gbits else None)


_VM: Final = re.compile(r"VM_hostname\s+(\S+)", re.IGNORECASE)
_NAME: Final = r"(?!(?:guid|[a-z]{1,8}_key|subnet_prefix)\b)[A-Za-z0-9][\w.\-]*"
"""No setting of opensm, whose files hold keys and GUIDs as well."""
_BETWEEN: Final = r"(?:\s*[:,]\s*|\s+)"
_DIGITS: Final = r"(?:0x[0-9a-fA-F]{12,16}|[0-9a-fA-F]{16})"
_CLUSTER: Final = r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?:\.\d{1,10})?"
_GUID: Final = re.compile(_DIGITS)
_PAIR: Final = re.compile(rf"({_NAME}){_BETWEEN}({_DIGITS}(?:[\s,]+{_DIGITS})*)")
_TURNED: Final = re.compile(rf"({_DIGITS}){_BETWEEN}([A-Za-z][\w.\-]*)")
_ALONE: Final = re.compile(rf"(?!{_DIGITS}\b)({_NAME})\s*:?")
_UUID: Final = re.compile(rf"({_NAME}){_BETWEEN}({_CLUSTER})")


def read_guids(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Host names with the GUIDs of their ports: a heading above its GUIDs, or both on one line."""
    guids: dict[str, dict[str, None]] = defaultdict(dict)
    where: dict[str, tuple[int, int]] = {}
    odd: list[Line] = []
    host = ""
    headings: dict[str, Line] = {}
    for line in lines:
        text = line.text.strip()
        found: list[str] = []
        if (heading := _VM.fullmatch(text) or _ALONE.fullmatch(text)) is not None:
            host = heading[1]
            headings.setdefault(host, line)
        elif _GUID.fullmatch(text) is not None and host:
            found = [text]
        elif (turned := _TURNED.fullmatch(text)) is not None:
            host, found = turned[2], [turned[1]]
        elif (pair := _PAIR.fullmatch(text)) is not None:
            host, found = pair[1], _GUID.findall(pair[2])
        elif text and not text.startswith("#"):
            odd.append(line)
            continue
        if host and text:
            guids[host].update(dict.fromkeys(map(guid_of, found)))
            where[host] = (where.get(host, (line.number, 0))[0], line.number)
    facts = tuple(
        HostFact(
            origin_of(source, where[name][0], where[name][1]),
            (Name(NameKind.HOST, name), *(Name(NameKind.PORT_GUID, guid) for guid in mine)),
        )
        for name, mine in guids.items()
        if mine
    )
    odd = sorted(
        (*odd, *(line for name, line in headings.items() if not guids[name])), key=lambda line: line.number
    )
    remedy = "write a host name and its port GUIDs on a line, or VM_hostname and the GUIDs below it"
    return Contents(facts, refused_runs(odd, "the line is neither a host name nor a port GUID", remedy))


def read_uuids(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Host names with the UUID of their NVLink domain; a clique behind a dot is part of it."""
    facts: list[Fact] = []
    odd: list[Line] = []
    for line in lines:
        text = line.text.strip()
        found = _UUID.fullmatch(text)
        if found is not None:
            names = (Name(NameKind.HOST, found[1]),)
            facts.append(HostFact(origin_of(source, line.number), names, scale_up_domain=found[2].lower()))
        elif text and not text.startswith("#"):
            odd.append(line)
    remedy = "write a host name and the ClusterUUID that nvidia-smi -q shows, one host a line"
    return Contents(tuple(facts), refused_runs(odd, "the line is not a host name with a UUID", remedy))


_COUNTERS: Final = "port counters say what was sent and what went wrong, not what a link can carry"


def refuse_perfquery(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Nothing: counters are not a measurement of a link."""
    first, last = (lines[0], lines[-1].number) if lines else (Line(1, source.text[:120]), 1)
    return Contents((), (refused(first, _COUNTERS, "send ib_write_bw or nccl-tests between two hosts", last),))


FORMATS: Final = (
    Format(
        "ibstat",
        "ibstat (InfiniBand ports of a host)",
        "fabric",
        read,
        (re.compile(r"^\s*CA '[^']+'"), re.compile(r"^ibpanic:"), re.compile(r"^\s*CA type: MT\d")),
    ),
    Format(
        "port-guids",
        "list of host names and port GUIDs",
        "fabric",
        read_guids,
        (
            re.compile(r"^VM_hostname\s+\S"),
            re.compile(rf"^{_NAME}{_BETWEEN}{_DIGITS}(?:[\s,]+{_DIGITS})*$"),
            re.compile(rf"^\s{{0,8}}{_DIGITS}$"),
            re.compile(rf"^0x[0-9a-fA-F]{{14,16}}{_BETWEEN}[A-Za-z][\w.\-]*$"),
        ),
    ),
    Format(
        "nvlink-cluster-uuids",
        "list of host names and NVLink cluster UUIDs",
        "fabric",
        read_uuids,
        (re.compile(rf"^{_NAME}{_BETWEEN}{_CLUSTER}$"),),
    ),
    Format(
        "perfquery",
        "perfquery (InfiniBand port counters)",
        "fabric",
        refuse_perfquery,
        (re.compile(r"^# Port (?:extended )?counters: Lid"),),
        refused_because=_COUNTERS,
    ),
)
