"""The bandwidth between every two nodes as a heat map, with what was measured told from what was not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.web.views.drawing import Box, Drawing, Key, Line, Words
from app.web.views.figures import gbytes_per_s, plural

SHADES: Final = 7
"""Steps of the colour scale, from slow to fast."""
MOST_NODES: Final = 64
"""Nodes drawn at most: 4,096 cells."""

_MARGIN: Final = 90.0
_CELL_WIDTHS: Final = ((20, 26.0), (40, 16.0), (MOST_NODES, 11.0))
_SMALLEST_WITH_NAMES: Final = 11.0


class Known(StrEnum):
    """How a bandwidth is known."""

    MEASURED = "measured"
    ESTIMATED = "estimated"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Link:
    """The bandwidth from one node to another; ``bytes_per_s`` is ``None`` where nothing is known."""

    source: str
    destination: str
    bytes_per_s: float | None
    known: Known


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One line of the table beside the map."""

    source: str
    destination: str
    bandwidth: str
    known: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The drawing, its table, and counts in words."""

    drawing: Drawing
    rows: tuple[LinkRow, ...]
    counts: str
    left_out: str


def heat_map(nodes: Sequence[str], links: Mapping[tuple[str, str], Link]) -> HeatMap:
    """The map over ``nodes`` in their order; rows send, columns receive."""
    shown = tuple(nodes[:MOST_NODES])
    known = [link.bytes_per_s for link in links.values() if link.bytes_per_s is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    cell = next(width for most, width in _CELL_WIDTHS if len(shown) <= most)
    boxes: list[Box] = []
    lines: list[Line] = []
    for row, source in enumerate(shown):
        for column, destination in enumerate(shown):
            if source == destination:
                continue
            x, y = _MARGIN + column * cell, _MARGIN + row * cell
            link = links.get((source, destination), Link(source, destination, None, Known.UNKNOWN))
            boxes.append(Box(x, y, cell - 1, cell - 1, _shade(link, low, high), _tip(link)))
            if link.known is Known.ESTIMATED:
                lines.append(Line(x + 2, y + cell - 3, x + cell - 3, y + 2, "estimated-mark"))
    size = _MARGIN + cell * len(shown)
    slowest = f"from {gbytes_per_s(low)} to {gbytes_per_s(high)}" if known else "no bandwidth is known"
    return HeatMap(
        drawing=Drawing(
            width=size + 8,
            height=size + 8,
            name="Bandwidth between nodes",
            description=f"Rows send, columns receive; {slowest}.",
            boxes=tuple(boxes),
            lines=tuple(lines),
            words=_names(shown, cell),
            legend=_legend(low, high),
        ),
        rows=tuple(_row(link) for link in links.values() if link.source != link.destination),
        counts=_counts(links),
        left_out=f"The map shows the first {MOST_NODES} of {len(nodes)} nodes; the table lists all."
        if len(nodes) > MOST_NODES
        else "",
    )


def _shade(link: Link, low: float, high: float) -> str:
    if link.bytes_per_s is None:
        return "heat-unknown"
    share = (link.bytes_per_s - low) / (high - low) if high > low else 1.0
    return f"heat-{min(int(share * SHADES), SHADES - 1)}"


def _legend(low: float, high: float) -> tuple[Key, ...]:
    step = (high - low) / SHADES
    shades = tuple(
        Key(f"heat-{index}", f"up to {gbytes_per_s(low + (index + 1) * step)}") for index in range(SHADES)
    )
    return (*shades, Key("heat-unknown", "unknown"), Key("heat-estimated", "estimated (stroke)"))


def _names(shown: Sequence[str], cell: float) -> tuple[Words, ...]:
    if cell < _SMALLEST_WITH_NAMES:
        return ()
    rows = (
        Words(_MARGIN - 6, _MARGIN + index * cell + cell / 2 + 4, _short(name), anchor="end")
        for index, name in enumerate(shown)
    )
    columns = (
        Words(_MARGIN + index * cell + cell / 2 + 4, _MARGIN - 6, _short(name), style="tick turned")
        for index, name in enumerate(shown)
    )
    return (*rows, *columns)


def _short(name: str) -> str:
    return name if len(name) <= 12 else f"…{name[-11:]}"


def _tip(link: Link) -> str:
    return f"{link.source} → {link.destination}: {gbytes_per_s(link.bytes_per_s)}, {link.known}"


def _row(link: Link) -> LinkRow:
    return LinkRow(link.source, link.destination, gbytes_per_s(link.bytes_per_s), str(link.known))


def _counts(links: Mapping[tuple[str, str], Link]) -> str:
    numbers = dict.fromkeys(Known, 0)
    for link in links.values():
        if link.source != link.destination:
            numbers[link.known] += 1
    return ", ".join(f"{plural(number, 'link')} {known}" for known, number in numbers.items() if number)
