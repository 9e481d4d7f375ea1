"""``iblinkinfo``: a block a device, or a line a port (``--line``); it prints the width and the rate of one lane.

"4X 106.25 Gbps" is a link of 400 Gb/s (NDR), not of 106 Gb/s.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Final

from readers.formats.infiniband.fabric import (
    FABRIC,
    Cable,
    Fabric,
    cards,
    guid_of,
    split_description,
    understood_fabric,
)
from readers.frame.facts import HostFact, Name, NameKind, PortFact
from readers.frame.findings import Finding, doubt, refused_runs
from readers.frame.numbers import rate_of
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source, origin_of

_HEADER: Final = re.compile(r"(CA|Switch|RT|Router):\s+(?:0x([0-9a-fA-F]{1,16})\b)?(.*)", re.IGNORECASE)
_ARROW: Final = re.compile(r"==\(([^()]*)\)==>")
_HERE: Final = re.compile(
    r'(?:0x([0-9a-fA-F]{1,16})\s+)?(?:"([^"]*)"\s+)?(?:(\d{1,6})\s+)?(\d{1,4})\[[^\]]{0,40}\]', re.ASCII
)
_THERE: Final = re.compile(
    r'(?:0x([0-9a-fA-F]{1,16})\s+)?(?:(\d{1,6})\s+(\d{1,4})\s*)?\[[^\]]{0,40}\]\s*"([^"]*)"(.*)', re.ASCII
)
_STATE: Final = re.compile(r"(Active|Armed|Init(?:ialize)?|Down)\s*/\s*(\w+)", re.IGNORECASE)
_SPEED: Final = re.compile(r"\b\d{1,2}X\s+(?:[\d.]{1,12}\s?Gbps|[A-Z]{3}\d*\b)", re.IGNORECASE)
_COULD: Final = re.compile(r"could be", re.IGNORECASE)
_LOOSE: Final = re.compile(
    r"\b\d{1,2}X\s+[\d.]{1,12}\s?Gbps[^/]{0,20}\b(?:Active|Armed|Init\w*|Down)\s*/", re.IGNORECASE
)
"""Columns that even a line copied without its ends has: width, rate of a lane, state."""
_QUOTED: Final = re.compile(r'"\s*([^"]{1,200}?)\s*"')
_REMEDY: Final = "send whole lines of iblinkinfo, with the device lines above them or with --line"


@dataclass(slots=True)
class _Rows:
    """The rows of a file as they are read, and the device whose block they stand in."""

    fabric: Fabric = field(default_factory=Fabric)
    odd: list[Line] = field(default_factory=list)
    doubts: list[Finding] = field(default_factory=list)
    alone: list[PortFact] = field(default_factory=list)
    """Ports of hosts at the far end of rows whose near end nobody names."""
    kind: str = ""
    guid: str = ""
    name: str = ""


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Ports, switches and hosts; a row without the device above it tells its far end only."""
    rows = _Rows()
    for line in lines:
        text = line.text.strip()
        arrow = _ARROW.search(text)
        if arrow is not None:
            if not _read_row(source, rows, line, arrow) and not _read_rate(source, rows, line):
                rows.odd.append(line)
        elif (header := _HEADER.fullmatch(text)) is not None:
            rows.kind, rows.guid, rows.name = header[1].lower(), header[2] or "", header[3].strip(' ":')
        elif text and not text.startswith("#") and not _read_rate(source, rows, line):
            rows.odd.append(line)
    _sort_out_switches(rows.fabric)
    known = understood_fabric(source, rows.fabric) if rows.fabric.cables else Contents()
    return Contents(
        (*known.facts, *(fact for port in rows.alone for fact in _with_host(port))),
        (*refused_runs(rows.odd, "the line is not iblinkinfo output, or was cut", _REMEDY), *known.refusals),
        (*rows.doubts, *known.doubts),
    )


def _read_row(source: Source, rows: _Rows, line: Line, arrow: re.Match[str]) -> bool:
    """Note what one row says of its two ends; ``False`` where it cannot be read."""
    text = line.text.strip()
    here, there = _HERE.fullmatch(text[: arrow.start()].strip()), _THERE.fullmatch(text[arrow.end() :].strip())
    if here is None or there is None:
        return False
    cable = _cable(line, arrow[1])
    if _COULD.search(there[5]):
        rows.doubts.append(_slow(line))
    guid, name, lid, port = here[1] or rows.guid, here[2].strip() if here[2] else rows.name, here[3], here[4]
    if not guid and not name:
        return _note_far_end(source, rows, there, cable)
    own, peer = _key(lid, guid) or name, _key(there[2], there[1])
    switch = rows.kind == "switch" if rows.kind and here[2] is None else _is_switch(name)
    _note(rows.fabric, own, port, name, replace(cable, peer=peer, port_guid=_port_guid(guid, switch)), switch)
    if peer is not None and (peer, there[3] or "1") not in rows.fabric.cables:
        switch = _is_switch(there[4])
        far = replace(cable, peer=own, port_guid=_port_guid(there[1], switch))
        _note(rows.fabric, peer, there[3] or "1", there[4], far, switch)
    return True


def _read_rate(source: Source, rows: _Rows, line: Line) -> bool:
    """Note the port of a line whose ends cannot be told apart; the last quoted name is that of the far end."""
    if _LOOSE.search(line.text) is None:
        return False
    cable = _cable(line, line.text)
    names = _QUOTED.findall(line.text)
    host, device = split_description(names[-1]) if names and not _is_switch(names[-1]) else (None, "")
    switch = names[0] if len(names) > 1 else rows.name if rows.kind == "switch" else ""
    origin = origin_of(source, line.number)
    rows.alone.append(PortFact(origin, host, device or "", "", cable.up, cable.rate, FABRIC, switch, cable.state))
    return True


def _cable(line: Line, arrow: str) -> Cable:
    state, speed = _STATE.search(arrow), _SPEED.search(arrow)
    up = state is not None and state[1].lower() == "active"
    rate = rate_of(" ".join(speed[0].split())) if speed is not None and up else None
    return Cable(line.number, None, rate, up, f"{state[1]}/{state[2]}" if state else arrow.strip())


def _slow(line: Line) -> Finding:
    return doubt(
        "slow-link",
        line.number,
        "the tool says that this link could be faster than it runs; the rate in force was taken",
        "reseat or replace the cable",
    )


def _key(lid: str | None, guid: str | None) -> str | None:
    """Key of a device: its local identifier, which every row has for both ends, else its GUID."""
    if lid and int(lid):
        return f"lid {int(lid)}"
    return guid_of(guid) if guid else None


def _port_guid(guid: str | None, switch: bool) -> str:
    return guid_of(guid) if guid and not switch else ""


def _note(fabric: Fabric, device: str, port: str, name: str, cable: Cable, switch: bool) -> None:
    fabric.see(device, name, cable.line, switch=switch)
    fabric.cables[device, port] = cable


def _is_switch(description: str) -> bool:
    """Whether a name without a device line is surely a switch's: so managed switches name themselves."""
    return description.startswith("MF0;") or "quantum" in description.lower()


def _sort_out_switches(fabric: Fabric) -> None:
    """Adapters have two ports at most: what has a third is a switch, and what was told to be one stays one."""
    for device, port in fabric.cables:
        if device in fabric.adapters and port.isdigit() and int(port) > 2:
            fabric.switches.setdefault(device, fabric.adapters[device])
    for device in fabric.switches:
        fabric.adapters.pop(device, None)


def _note_far_end(source: Source, rows: _Rows, there: re.Match[str], cable: Cable) -> bool:
    """The near device is unknown: keep the far one where it is a host's port."""
    host, device = split_description(there[4])
    if host is None or _is_switch(there[4]) or int(there[3] or "1") > 2:
        return False
    guid = guid_of(there[1]) if there[1] else ""
    origin = origin_of(source, cable.line)
    rows.alone.append(PortFact(origin, host, device, guid, cable.up, cable.rate, FABRIC, "", cable.state))
    return True


def _with_host(port: PortFact) -> tuple[PortFact | HostFact, ...]:
    nics = cards((port,))
    return (
        (port, HostFact(port.origin, (Name(NameKind.HOST, port.host),), nics=nics))
        if port.host and nics
        else (port,)
    )


FORMAT: Final = Format(
    "iblinkinfo",
    "iblinkinfo (InfiniBand links)",
    "fabric",
    read,
    (
        re.compile(r"^(?:CA|Switch|RT): "),
        re.compile(r'^\s*(?:0x[0-9a-fA-F]+ "[^"]*"\s+)?\d+\s+\d+\[[^\]]*\] ==\('),
        re.compile(r"^.{0,200}==\(\s{0,9}\d{1,2}X\s.{0,40}Gbps"),
        re.compile(r"^.{0,200}\b\d{1,2}X\s{1,20}[\d.]{1,12} Gbps\s{1,20}(?:Active|Down|Init\w*)\s{0,3}/"),
    ),
)
