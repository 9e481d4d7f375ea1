"""``ibstatus``: the InfiniBand ports of one host, in fewer words than ``ibstat``."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from readers.formats.infiniband.dead_ports import ShownPort, port_doubts
from readers.formats.infiniband.fabric import FABRIC, cards
from readers.frame.facts import HostFact, PortFact
from readers.frame.numbers import rate_of
from readers.frame.reading import Contents, Format
from readers.frame.sources import Line, Source, origin_of

_PORT: Final = re.compile(r"^Infiniband device '([^']{1,80})' port (\d{1,3}) status:")
_VALUE: Final = re.compile(r"^\s+(state|phys state|rate|link_layer):\s*(?:\d{1,2}: )?(\S.{0,80})$")


@dataclass(slots=True)
class _Block:
    device: str
    first: int
    last: int
    values: dict[str, str] = field(default_factory=dict)


def read(source: Source, lines: tuple[Line, ...]) -> Contents:
    """The ports, and the cards in service by rate; InfiniBand before Ethernet."""
    blocks: list[_Block] = []
    for line in lines:
        if (port := _PORT.match(line.text)) is not None:
            blocks.append(_Block(port[1], line.number, line.number))
        elif blocks and (value := _VALUE.match(line.text)) is not None:
            blocks[-1].values[value[1]] = value[2].strip()
            blocks[-1].last = line.number
    ports = tuple(_port_of(source, block) for block in blocks)
    nics = cards([port for port in ports if port.fabric == FABRIC] or ports)[:1]
    shown = [
        ShownPort(port, "", port.device, rate_of(block.values.get("rate", "")))
        for port, block in zip(ports, blocks, strict=True)
    ]
    doubts = tuple(port_doubts(shown))
    if not nics:
        return Contents(ports, doubts=doubts)
    origin = origin_of(source, ports[0].origin.first_line, ports[-1].origin.last_line)
    return Contents((*ports, HostFact(origin, source.names, nics=nics)), doubts=doubts)


def _port_of(source: Source, block: _Block) -> PortFact:
    state, physical = block.values.get("state", ""), block.values.get("phys state", "")
    layer = block.values.get("link_layer", "InfiniBand").lower()
    up = state.upper() == "ACTIVE"
    return PortFact(
        origin_of(source, block.first, block.last),
        source.host,
        block.device,
        "",
        up,
        rate_of(block.values.get("rate", "")) if up else None,
        FABRIC if layer == "infiniband" else layer,
        "",
        "/".join(word for word in (state, physical) if word),
    )


FORMAT: Final = Format("ibstatus", "ibstatus (InfiniBand ports of a host)", "fabric", read, (_PORT,))
