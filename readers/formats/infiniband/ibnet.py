"""``ibnetdiscover``: the topology form, a block a device, and the port list of ``-p``, a line a port."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from readers.formats.infiniband.fabric import Cable, Fabric, guid_of, understood_fabric
from readers.frame.findings import Finding, note, refused, refused_runs
from readers.frame.numbers import rate_of
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source

_DEVICE: Final = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"[SHR]-([0-9a-fA-F]{1,16})"\s*#\s*"([^"]*)"')
_PORT: Final = re.compile(
    r"\[(\d{1,4})\](?:\[[^\]]{0,40}\])?\s*(?:\(([0-9a-fA-F]{1,16})\)\s*)?"
    r'"([SHR])-([0-9a-fA-F]{1,16})"\[(\d{1,4})\](?:\[[^\]]{0,40}\])?(?:\(([0-9a-fA-F]{1,16})\))?\s*#\s*(.*)'
)
_NOISE: Final = ("#", "vendid=", "devid=", "sysimgguid=", "switchguid=", "caguid=", "rtguid=", "DDR", "Chassis")
_SPEED: Final = re.compile(r"\b\d{1,2}x(?:[A-Z]{3}\d*|\?\?\?)")
_REMEDY: Final = "send the whole output of ibnetdiscover, as the tool printed it"
_NO_LINKS: Final = "ibnetdiscover saw only its own adapter and no link"

_ROW: Final = re.compile(
    r"(CA|SW|RT)\s+\d+\s+(\d+)\s+0x([0-9a-fA-F]{1,16})\s+(\d{1,2}x)\s+(\S+)"
    r"(?:\s+-\s+(CA|SW|RT)\s+\d+\s+(\d+)\s+0x([0-9a-fA-F]{1,16})\s+\((.*)\)|\s+'(.*)')\s*"
)


def read_topology(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Devices with their cables; both ends of a cable are known where either device is listed."""
    fabric, odd, doubts = Fabric(), list[Line](), list[Finding]()
    device = ""
    for line in lines:
        text = line.text.strip()
        if text[:1] == "[" and device:
            if not _read_port(fabric, device, line):
                odd.append(line)
        elif (found := _DEVICE.match(text)) is not None:
            device = guid_of(found[2])
            fabric.see(device, found[3], line.number, switch=found[1] == "Switch")
        elif text.startswith(("Switch", "Ca\t", "Ca ", "Rt", "[")):
            odd.append(line)
            device = ""
        elif text.startswith("#"):
            doubts.extend(_doubt_of(line))
        elif text and not text.startswith(_NOISE):
            odd.append(line)
    return _with_refusals(source, lines, fabric, odd, tuple(doubts))


def _doubt_of(line: Line) -> tuple[Finding, ...]:
    if not re.search(r"\b(?:faked|anonymi[sz]ed|simulated)\b", line.text, re.IGNORECASE):
        return ()
    sentence = "the file says of itself that it does not show a real fabric as it is"
    return (note("not-real", line.number, sentence, "send what the tool prints on your own fabric"),)


def _read_port(fabric: Fabric, device: str, line: Line) -> bool:
    """Note the cable of one row at both ends; ``False`` where the row cannot be read."""
    found = _PORT.match(line.text.strip())
    if found is None:
        return False
    port, own_guid, kind, peer_text, peer_port, peer_guid, tail = found.groups()
    peer = guid_of(peer_text)
    speed = _SPEED.findall(tail)
    rate = _rate(speed[-1]) if speed else None
    description = tail.partition('"')[2].partition('"')[0]
    up = rate is not None or not speed
    fabric.see(peer, description, line.number, switch=kind == "S")
    for end, at, other, guid in ((device, port, peer, own_guid), (peer, peer_port, device, peer_guid)):
        known = fabric.cables.get((end, at))
        shown = guid_of(guid) if guid else ""
        if known is None or (end == device and known.line > line.number):
            fabric.cables[end, at] = Cable(line.number, other, rate, up, port_guid=shown)
    return True


_rate: Final = lru_cache(maxsize=64)(rate_of)


def _with_refusals(
    source: Source, lines: tuple[Line, ...], fabric: Fabric, odd: list[Line], doubts: tuple[Finding, ...]
) -> Contents:
    refusals: tuple[Finding, ...] = refused_runs(odd, "the row is not ibnetdiscover output, or was cut", _REMEDY)
    if not fabric.cables:
        reason = _NO_LINKS if fabric.first_lines else "the file lists no device of a fabric"
        first, last = (lines[0], lines[-1]) if lines else (Line(1, ""), Line(1, ""))
        remedy = "run it on a node with an active port, as a user who may send fabric queries"
        return Contents((), (*refusals, refused(first, reason, remedy, last.number)), doubts)
    known = understood_fabric(source, fabric)
    return Contents(known.facts, (*refusals, *known.refusals), (*doubts, *known.doubts))


def read_ports(source: Source, lines: tuple[Line, ...]) -> Contents:
    """Rows of ``-p``: a port, its width and speed, and the port at the other end where there is one."""
    fabric, odd = Fabric(), list[Line]()
    for line in lines:
        text = line.text.strip()
        if not text or text.startswith("#"):
            continue
        found = _ROW.fullmatch(text)
        if found is None:
            odd.append(line)
        else:
            _read_row(fabric, found, line.number)
    return _with_refusals(source, lines, fabric, odd, ())


def _read_row(fabric: Fabric, found: re.Match[str], line: int) -> None:
    kind, port, guid, width, speed, peer_kind, peer_port, peer_guid, names, own_name = found.groups()
    own = guid_of(guid)
    if peer_kind is None:
        fabric.see(own, own_name.strip(), line, switch=kind == "SW")
        fabric.cables.setdefault((own, port), Cable(line, None, None, False, "no link", own))
        return
    peer = guid_of(peer_guid)
    here, _, there = names.strip().strip("'").partition("' - '")
    rate = rate_of(f"{width}{speed}")
    fabric.see(own, here, line, switch=kind == "SW")
    fabric.see(peer, there, line, switch=peer_kind == "SW")
    fabric.cables[own, port] = Cable(line, peer, rate, rate is not None, port_guid=own)
    fabric.cables.setdefault((peer, peer_port), Cable(line, own, rate, rate is not None, port_guid=peer))


FORMATS: Final = (
    Format(
        "ibnetdiscover",
        "ibnetdiscover (InfiniBand topology)",
        "fabric",
        read_topology,
        (
            re.compile(r"^# Topology file: generated on"),
            re.compile(r"^# Faked topology file"),
            re.compile(r"^vendid=0x[0-9a-f]+"),
            re.compile(r'^(?:Switch|Ca)\s+\d+\s+"[SH]-[0-9a-f]+"'),
        ),
    ),
    Format(
        "ibnetdiscover-ports",
        "ibnetdiscover -p (list of ports)",
        "fabric",
        read_ports,
        (re.compile(r"^(?:CA|SW|RT)\s+\d+\s+\d+\s+0x[0-9a-fA-F]+\s+\d{1,2}x\s"),),
    ),
)
