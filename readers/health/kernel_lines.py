"""Lines of the kernel log about GPUs: Xids, and GPUs that fell off the bus."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

_XID: Final = re.compile(
    r"NVRM: (?:GPU\d{1,3} )?Xid \(PCI:([0-9a-fA-F:.]{4,20})[^)]{0,60}\): (\d{1,4})\b,?(.{0,600})"
)
_FELL: Final = re.compile(
    r"NVRM: GPU (?:at )?(?:PCI:)?([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}).{0,100} has fallen off the bus"
)
_ISO: Final = re.compile(
    r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?) ([A-Za-z0-9][\w.\-]{0,199}) \S"
)
_SYSLOG: Final = re.compile(r"([A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d) ([A-Za-z0-9][\w.\-]{0,199}) \S")
_NAMED: Final = re.compile(r"([A-Za-z0-9][\w.\-]{0,199}):? kernel:")
_OFF_THE_BUS: Final = 79
_UPTIME: Final = re.compile(r"\[ {0,7}(\d{1,10}\.\d{1,9})\]")
_PRIORITY: Final = re.compile(r"<\d{1,3}>(?:1 )?")
_BUS: Final = re.compile(r"(?:pci:)?([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?")


@dataclass(frozen=True, slots=True)
class KernelLine:
    """A line about a GPU.  ``stamp`` is whatever time it carries, ``iso`` one with date and zone, else empty."""

    host: str
    bus: str
    xid: int
    text: str
    iso: str
    stamp: str


def bus_of(text: str) -> str:
    """A PCI address as all tools mean it: domain of four digits, small letters, no function (``0000:4e:00``)."""
    plain = text.strip().lower()
    found = _BUS.fullmatch(plain)
    return f"{found[1][-4:]}:{found[2]}:{found[3]}" if found else plain.removeprefix("pci:")


def kernel_line(line: str) -> KernelLine | None:
    """The line's GPU and Xid; ``None`` for other lines."""
    if "NVRM" not in line:
        return None
    xid, fell = _XID.search(line), None
    if xid is None and (fell := _FELL.search(line)) is None:
        return None
    begun = _PRIORITY.match(line)
    head = line[begun.end() if begun else 0 :][:300]
    iso, syslog = _ISO.match(head), _SYSLOG.match(head)
    uptime = _UPTIME.search(head)
    told = iso or syslog
    named = told[2] if told else found[1] if (found := _NAMED.match(head)) else ""
    at = iso[1].replace(" ", "T").replace(",", ".") if iso else ""
    stamp = " ".join(each[1] for each in (told, uptime) if each)
    if xid is not None:
        return KernelLine(named, bus_of(xid[1]), int(xid[2]), xid[3].strip(" ,"), at, stamp)
    assert fell is not None
    return KernelLine(named, bus_of(fell[1]), _OFF_THE_BUS, "GPU has fallen off the bus", at, stamp)
