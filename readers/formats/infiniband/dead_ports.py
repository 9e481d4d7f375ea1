"""Ports of a host that are out of service, or slow, while others like them run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from readers.formats.infiniband.fabric import FABRIC
from readers.frame.facts import PortFact
from readers.frame.findings import Finding, doubt

_ETHERNET: Final = "ethernet"
_REMEDY: Final = "check its cable and transceiver"


@dataclass(frozen=True, slots=True)
class ShownPort:
    """A port as a tool shows it: the kind and the name of its card, and the rate printed though it is down."""

    port: PortFact
    kind: str
    card: str
    shown_bytes_per_s: float | None


def port_doubts(shown: Sequence[ShownPort]) -> Iterator[Finding]:
    """Dead rails, and InfiniBand ports below the rate of others of their kind.

    Rails are the InfiniBand ports where there are any in service, else the Ethernet ports of the fastest kind.  A
    port that is down is not a dead rail where its card has as many ports up as other cards of its kind.
    """
    fabric = FABRIC if any(each.port.up and each.port.fabric == FABRIC for each in shown) else _ETHERNET
    rails = [each for each in shown if each.port.fabric == fabric]
    best: dict[str, float] = {}
    for each in rails:
        best[each.kind] = max(best.get(each.kind, 0.0), each.port.bytes_per_s or 0.0)
    if fabric == _ETHERNET:
        fastest = max(best.values(), default=0.0)
        rails = [each for each in rails if best[each.kind] == fastest and _is_rail(each, fastest)]
    up = Counter(each.card for each in rails if each.port.up)
    usual: dict[str, int] = {}
    for each in rails:
        usual[each.kind] = max(usual.get(each.kind, 0), up[each.card])
    for each in rails:
        port, top, rate = each.port, best[each.kind], each.port.bytes_per_s or 0.0
        like = f"while cards of its type run at {top * 8e-9:g} Gb/s"
        if not port.up and up[each.card] < usual[each.kind]:
            sentence = f"{port.device} is {port.state or 'down'} {like}"
            yield doubt("port-down", port.origin.first_line, sentence, _REMEDY)
        elif port.up and rate < top:
            sentence = f"{port.device} runs at {rate * 8e-9:g} Gb/s {like}"
            yield doubt("slow-port", port.origin.first_line, sentence, _REMEDY)


def _is_rail(each: ShownPort, fastest: float) -> bool:
    """Whether an Ethernet port of the fastest kind is one; a slow one that is up serves something else."""
    return (
        each.port.bytes_per_s == fastest if each.port.up else each.kind != "" or each.shown_bytes_per_s == fastest
    )
