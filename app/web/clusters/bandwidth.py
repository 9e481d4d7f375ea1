"""The bandwidth between every two nodes as a heat map, with what was measured told from what was estimated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from urllib.parse import urlencode

import numpy as np

from app.presentation.figures import capital, count, gbytes_per_s, percent
from app.presentation.links import SHOWN_MESSAGE_BYTES, shown_load
from app.web.drawing import Box, Drawing, Line, Words
from app.web.shades import DIRECTION_SCALE, SHARE_SCALE, Scale, rate_scale
from cluster_models.links.model import FloatArray, LinkModel
from cluster_models.links.slow_links import Rates

MOST_NODES: Final = 64
"""Nodes on a side of the map at most: 4,032 links."""
MOST_ROWS: Final = 600
"""Links that the table below the map lists at most."""

_NONE: Final[Rates] = {}
_MARGIN: Final = 96.0
_CELL_WIDTHS: Final = ((20, 26.0), (40, 16.0), (MOST_NODES, 13.0))
_LONGEST_NAME: Final = 13


class Colour(StrEnum):
    """Meaning of the colour of a link."""

    RATE = "rate"
    SHARE = "share"
    DIRECTION = "direction"


COLOURS: Final = {
    Colour.RATE: "bandwidth",
    Colour.SHARE: "share of the link's class",
    Colour.DIRECTION: "this direction over the other",
}


@dataclass(frozen=True, slots=True)
class MapChoice:
    """Load at which links are drawn, and what their colour means."""

    flows: int
    message_bytes: float = SHOWN_MESSAGE_BYTES
    colour: Colour = Colour.RATE


class Known(StrEnum):
    """How a bandwidth is known."""

    MEASURED = "measured"
    ADAPTED = "adapted from another measurement of the link"
    SMALL = "measured with small messages only, estimated from its class"
    ESTIMATED = "never measured, estimated from its class"


@dataclass(frozen=True, slots=True)
class Link:
    """The bandwidth of each flow from one node to another; ``value`` is what its colour shows."""

    source: str
    destination: str
    bytes_per_s: float
    value: float
    known: Known


@dataclass(frozen=True, slots=True)
class LinkRow:
    """One line of the table beside the map."""

    source: str
    destination: str
    bandwidth: str
    value: str
    known: str


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The drawing, its table, and in words what it counts; ``colour`` names the fourth column, if there is one."""

    drawing: Drawing
    rows: tuple[LinkRow, ...]
    caption: str
    counts: str
    colour: str
    more_rows: int


def map_values(model: LinkModel, choice: MapChoice, measured: Rates = _NONE) -> tuple[FloatArray, FloatArray]:
    """Bandwidth (N, N) of each flow, and what the colours show of it.

    As ``measured`` where that load was: the model takes a link that more flows made faster at the better figure.
    """
    rates = model.bytes_per_s(choice.message_bytes, choice.flows)
    position = {name: index for index, name in enumerate(model.nodes)}
    for (source, destination), rate in measured.get((choice.flows, choice.message_bytes), {}).items():
        rates[position[source], position[destination]] = rate
    if choice.colour is Colour.SHARE:
        usual = np.empty_like(rates)
        apart = ~np.eye(len(rates), dtype=np.bool_)
        for k in np.unique(model.link_classes):
            own = (model.link_classes == k) & apart
            usual[model.link_classes == k] = np.median(rates[own]) if own.any() else 1.0
        return rates, rates / usual
    return rates, rates / rates.T if choice.colour is Colour.DIRECTION else rates


def links_between(
    model: LinkModel, choice: MapChoice, rows: Sequence[int], columns: Sequence[int], measured: Rates = _NONE
) -> tuple[Link, ...]:
    """Every directed link from a node of ``rows`` to one of ``columns``, row by row."""
    rates, values = map_values(model, choice, measured)
    estimated, small = model.estimated(choice.flows), model.small_only
    return tuple(
        Link(model.nodes[row], model.nodes[column], float(rates[row, column]), float(values[row, column]), known)
        for row in rows
        for column in columns
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


def heat_map(
    model: LinkModel,
    choice: MapChoice,
    rows: Sequence[int],
    columns: Sequence[int],
    *,
    measured: Rates = _NONE,
    slow: Collection[tuple[str, str]] = (),
    address: str | None = None,
) -> HeatMap:
    """The map of ``choice``; ``rows`` send, ``columns`` receive.  Links in ``slow`` are ringed.

    ``address`` of the page: a link's cell leads to its curve there.
    """
    links = links_between(model, choice, rows, columns, measured)
    scale = map_scale(choice.colour, [link.value for link in links])
    cell = next(width for most, width in _CELL_WIDTHS if max(len(rows), len(columns)) <= most)
    left = {model.nodes[node]: _MARGIN + index * cell for index, node in enumerate(columns)}
    top = {model.nodes[node]: _MARGIN + index * cell for index, node in enumerate(rows)}
    load = shown_load(choice.flows, choice.message_bytes)
    caption = f"{capital(COLOURS[choice.colour])} from one node to another, {load}"
    rates = [link.bytes_per_s for link in links]
    spoken = f"from {gbytes_per_s(min(rates))} to {gbytes_per_s(max(rates))}" if rates else "no links"
    # where hardly anything was measured, strokes on all the rest would only hide the colours
    few_marks = sum(link.known is not Known.MEASURED for link in links) * 2 <= len(links)
    boxes = [
        Box(
            left[link.destination],
            top[link.source],
            cell - 1,
            cell - 1,
            scale.style(link.value) + (" ringed" if (link.source, link.destination) in slow else ""),
            _tip(link, choice.colour),
            f"{address}?{urlencode({'link': f'{link.source}>{link.destination}'})}#link"
            if address is not None
            else "",
        )
        for link in links
    ]
    return HeatMap(
        drawing=Drawing(
            width=_MARGIN + cell * len(columns) + 8,
            height=_MARGIN + cell * len(rows) + 8,
            name="Bandwidth between nodes",
            description=f"{caption}: {spoken}. Rows send, columns receive.",
            boxes=tuple(boxes),
            lines=tuple(line for link in links if few_marks for line in _marks(link.known, left, top, cell, link)),
            words=names_around(list(top), list(left), cell),
            legend=scale.legend,
        ),
        rows=tuple(
            LinkRow(
                link.source,
                link.destination,
                gbytes_per_s(link.bytes_per_s),
                "" if choice.colour is Colour.RATE else percent(link.value, places=0),
                link.known,
            )
            for link in links[:MOST_ROWS]
        ),
        caption=caption,
        counts=_counts(links, few_marks=few_marks),
        colour="" if choice.colour is Colour.RATE else COLOURS[choice.colour],
        more_rows=max(0, len(links) - MOST_ROWS),
    )


def map_scale(colour: Colour, values: Sequence[float]) -> Scale:
    """The scale that fits ``values``."""
    if colour is Colour.RATE:
        return rate_scale(values)
    return SHARE_SCALE if colour is Colour.SHARE else DIRECTION_SCALE


def names_around(rows: Sequence[str], columns: Sequence[str], cell: float) -> tuple[Words, ...]:
    """Names of the rows at the left and of the columns, turned, above."""
    middle = cell / 2 + 4
    beside = (
        Words(_MARGIN - 6, _MARGIN + index * cell + middle, _short(name), anchor="end")
        for index, name in enumerate(rows)
    )
    above = (
        Words(_MARGIN + index * cell + middle, _MARGIN - 6, _short(name), "tick turned")
        for index, name in enumerate(columns)
    )
    return (*beside, *above)


def _tip(link: Link, colour: Colour) -> str:
    extra = "" if colour is Colour.RATE else f" ({percent(link.value, places=0)})"
    return f"{link.source} to {link.destination}: {gbytes_per_s(link.bytes_per_s)}{extra}, {link.known}"


def _marks(
    known: Known, left: dict[str, float], top: dict[str, float], cell: float, link: Link
) -> tuple[Line, ...]:
    """One stroke through an adapted link, two through one that is estimated."""
    x, y = left[link.destination] + 2, top[link.source] + 2
    right, bottom = x + cell - 5, y + cell - 5
    rising = Line(x, bottom, right, y, "mark")
    falling = Line(x, y, right, bottom, "mark")
    return {Known.MEASURED: (), Known.ADAPTED: (rising,)}.get(known, (rising, falling))


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"…{name[1 - _LONGEST_NAME :]}"


def _counts(links: tuple[Link, ...], *, few_marks: bool) -> str:
    numbers = Counter(link.known for link in links)
    numbers[Known.ESTIMATED] += numbers[Known.SMALL]
    marks = (" (one stroke)", " (crossed)") if few_marks else ("", "")
    return (
        f"Directed links: {count(numbers[Known.MEASURED])} measured, {count(numbers[Known.ADAPTED])} "
        f"adapted{marks[0]}, {count(numbers[Known.ESTIMATED])} estimated{marks[1]}"
    )
