"""The bandwidth between every two nodes as a heat map, with what was measured told from what was estimated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from app.presentation.figures import count, gbytes_per_s
from app.presentation.links import SHOWN_MESSAGE_BYTES, shown_load
from app.web.views.drawing import Box, Drawing, Key, Line, Words
from cluster_models.links import LinkModel

SHADES: Final = 7
"""Steps of the colour scale, from slow to fast."""
MOST_NODES: Final = 64
"""Nodes drawn at most: 4,032 links."""

_MARGIN: Final = 96.0
_CELL_WIDTHS: Final = ((20, 26.0), (40, 16.0), (MOST_NODES, 13.0))
_LONGEST_NAME: Final = 13


class Known(StrEnum):
    """How a bandwidth is known."""

    MEASURED = "measured"
    ADAPTED = "adapted from another measurement of the link"
    SMALL = "measured with small messages only, estimated from its class"
    ESTIMATED = "never measured, estimated from its class"


@dataclass(frozen=True, slots=True)
class Link:
    """The bandwidth of each flow from one node to another."""

    source: str
    destination: str
    bytes_per_s: float
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
    """The drawing, its table, and in words what it counts."""

    drawing: Drawing
    rows: tuple[LinkRow, ...]
    caption: str
    counts: str
    left_out: str


def links_between(model: LinkModel, flows: int, order: Sequence[int]) -> tuple[Link, ...]:
    """Every directed link between the first ``MOST_NODES`` nodes of ``order``, row by row."""
    rates = model.bytes_per_s(SHOWN_MESSAGE_BYTES, flows)
    estimated, small = model.estimated(flows), model.small_only
    shown = order[:MOST_NODES]
    return tuple(
        Link(model.nodes[row], model.nodes[column], float(rates[row, column]), known)
        for row in shown
        for column in shown
        if row != column
        for known in (
            Known.MEASURED
            if not estimated[row, column]
            else Known.SMALL
            if small[row, column]
            else Known.ADAPTED
            if model.row[row, column] >= 0
            else Known.ESTIMATED,
        )
    )


def heat_map(model: LinkModel, flows: int, order: Sequence[int]) -> HeatMap:
    """The map of the bandwidth that each of ``flows`` flows gets; rows send, columns receive, as in ``order``."""
    links = links_between(model, flows, order)
    shown = [model.nodes[position] for position in order[:MOST_NODES]]
    rates = [link.bytes_per_s for link in links]
    low, high = (min(rates), max(rates)) if rates else (0.0, 0.0)
    cell = next(width for most, width in _CELL_WIDTHS if len(shown) <= most)
    corner = {name: _MARGIN + index * cell for index, name in enumerate(shown)}
    size = _MARGIN + cell * len(shown) + 8
    caption = f"Bandwidth from one node to another, {shown_load(flows)}"
    return HeatMap(
        drawing=Drawing(
            width=size,
            height=size,
            name="Bandwidth between nodes",
            description=f"{caption}: from {gbytes_per_s(low)} to {gbytes_per_s(high)}. Rows send, columns receive.",
            boxes=tuple(_box(link, corner, cell, _shade(link.bytes_per_s, low, high)) for link in links),
            lines=tuple(line for link in links for line in _marks(link, corner, cell)),
            words=_names(corner, cell),
            legend=_legend(low, high),
        ),
        rows=tuple(
            LinkRow(link.source, link.destination, gbytes_per_s(link.bytes_per_s), link.known) for link in links
        ),
        caption=caption,
        counts=_counts(links),
        left_out=f"The first {MOST_NODES} of {count(len(model.nodes))} nodes are shown."
        if len(model.nodes) > MOST_NODES
        else "",
    )


def _box(link: Link, corner: dict[str, float], cell: float, shade: int) -> Box:
    tip = f"{link.source} to {link.destination}: {gbytes_per_s(link.bytes_per_s)}, {link.known}"
    return Box(corner[link.destination], corner[link.source], cell - 1, cell - 1, f"heat-{shade}", tip)


def _shade(rate: float, low: float, high: float) -> int:
    return min(int((rate - low) / (high - low) * SHADES), SHADES - 1) if high > low else SHADES - 1


def _marks(link: Link, corner: dict[str, float], cell: float) -> tuple[Line, ...]:
    """One stroke through an adapted link, two through one that is estimated."""
    left, top = corner[link.destination] + 2, corner[link.source] + 2
    right, bottom = left + cell - 5, top + cell - 5
    rising = Line(left, bottom, right, top, "mark")
    falling = Line(left, top, right, bottom, "mark")
    return {Known.MEASURED: (), Known.ADAPTED: (rising,)}.get(link.known, (rising, falling))


def _legend(low: float, high: float) -> tuple[Key, ...]:
    step = (high - low) / SHADES
    if not step:
        return (Key(f"heat-{SHADES - 1}", gbytes_per_s(high)),)
    return tuple(Key(f"heat-{index}", f"up to {gbytes_per_s(low + (index + 1) * step)}") for index in range(SHADES))


def _names(corner: dict[str, float], cell: float) -> tuple[Words, ...]:
    middle = cell / 2 + 4
    rows = tuple(Words(_MARGIN - 6, at + middle, _short(name), anchor="end") for name, at in corner.items())
    columns = tuple(Words(at + middle, _MARGIN - 6, _short(name), "tick turned") for name, at in corner.items())
    return (*rows, *columns)


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"


def _counts(links: tuple[Link, ...]) -> str:
    numbers = Counter(link.known for link in links)
    words = {
        Known.MEASURED: "measured",
        Known.ADAPTED: "adapted (one stroke)",
        Known.ESTIMATED: "estimated (crossed)",
    }
    numbers[Known.ESTIMATED] += numbers[Known.SMALL]
    return "Directed links: " + ", ".join(f"{count(numbers[known])} {text}" for known, text in words.items())
