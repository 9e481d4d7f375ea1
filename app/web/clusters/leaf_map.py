"""The bandwidth between groups of nodes as a small heat map: median, slowest link, and how many stand out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final
from urllib.parse import quote_plus, urlencode

import numpy as np

from app.presentation.figures import gbytes_per_s, percent, plural
from app.presentation.links import shown_load
from app.web.clusters.bandwidth import COLOURS, Colour, MapChoice, map_scale, map_values, names_around
from app.web.clusters.node_groups import NodeGroup
from app.web.drawing import Box, Drawing, Words
from cluster_models.links.model import FloatArray, LinkModel
from cluster_models.links.slow_links import Rates

_MARGIN: Final = 96.0
_CELL_WIDTHS: Final = ((8, 52.0), (20, 34.0), (40, 20.0), (10_000, 12.0))
_ROOM_FOR_A_COUNT: Final = 20.0


def leaf_map(
    model: LinkModel,
    choice: MapChoice,
    groups: Sequence[NodeGroup],
    slow: Collection[tuple[str, str]],
    query: dict[str, str],
    measured: Rates,
) -> Drawing:
    """The map between ``groups``; a cell leads to the nodes of its two groups and holds its slow links' number."""
    rates, values = map_values(model, choice, measured)
    position = {name: index for index, name in enumerate(model.nodes)}
    group_of = np.zeros(len(model.nodes), dtype=np.int64)
    for index, group in enumerate(groups):
        group_of[list(group.members)] = index
    bad = np.zeros((len(groups), len(groups)), dtype=np.int64)
    for source, destination in slow:
        bad[group_of[position[source]], group_of[position[destination]]] += 1
    medians: dict[tuple[int, int], tuple[float, float, float]] = {}
    for row, first in enumerate(groups):
        for column, second in enumerate(groups):
            if row == column and len(first.members) < 2:
                continue
            slowest, middle = _least_and_median(rates, first.members, second.members)
            value = middle if values is rates else _least_and_median(values, first.members, second.members)[1]
            medians[row, column] = value, middle, slowest
    scale = map_scale(choice.colour, [value for value, _, _ in medians.values()])
    cell = next(width for most, width in _CELL_WIDTHS if len(groups) <= most)
    onward = [quote_plus(group.name) for group in groups]
    kept = urlencode({name: value for name, value in query.items() if name not in ("rows", "columns")})
    boxes, counts = [], []
    for (row, column), (value, middle, slowest) in medians.items():
        x, y = _MARGIN + column * cell, _MARGIN + row * cell
        ring = " ringed" if bad[row, column] else ""
        share = "" if choice.colour is Colour.RATE else f" ({percent(value, places=0)})"
        tip = (
            f"{groups[row].name} to {groups[column].name}: median {gbytes_per_s(middle)}{share}, "
            f"slowest {gbytes_per_s(slowest)}, {plural(int(bad[row, column]), 'link')} stand out"
        )
        address = f"?{kept}{'&' if kept else ''}rows={onward[row]}&columns={onward[column]}#bandwidth"
        boxes.append(Box(x, y, cell - 1, cell - 1, scale.style(value) + ring, tip, address))
        if bad[row, column] and cell >= _ROOM_FOR_A_COUNT:
            counts.append(Words(x + cell / 2, y + cell / 2 + 4, str(bad[row, column]), "on-heat", "middle"))
    names = [group.name for group in groups]
    size = _MARGIN + cell * len(groups) + 8
    return Drawing(
        width=size,
        height=size,
        name="Bandwidth between groups of nodes",
        description=(
            f"Median {COLOURS[choice.colour]} between {plural(len(groups), 'group')} of nodes, "
            f"{shown_load(choice.flows, choice.message_bytes)}. Numbers count links that stand out; a click shows "
            "the nodes."
        ),
        boxes=tuple(boxes),
        words=(*names_around(names, names, cell), *counts),
        legend=scale.legend,
    )


def _least_and_median(values: FloatArray, rows: Sequence[int], columns: Sequence[int]) -> tuple[float, float]:
    """Figures of the links between two groups that share no node or are the same; NumPy's median takes longer."""
    block = values[np.ix_(rows, columns)]
    ordered = np.sort(block[~np.eye(len(rows), dtype=np.bool_)] if rows == columns else block, axis=None)
    half = len(ordered) // 2
    return float(ordered[0]), float(ordered[half - 1 + len(ordered) % 2] + ordered[half]) / 2
