"""Loads of experts as heat maps: counts layer by layer, and tokens that go from node to node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from app.web.drawing import Box, Drawing, Words
from app.web.shades import LOAD_SCALE, share_scale
from cluster_models.routing.counts import RoutedWorkload

_LEFT, _TOP = 64.0, 22.0
_WIDTH: Final = 740.0
_MOST_COLUMNS: Final = 64
"""Cells of a row; of more experts, neighbours share one."""
MOST_NODES: Final = 32
"""Nodes between which traffic is drawn."""
_MOST_FIGURES: Final = 6
_ACROSS: Final = 340.0


def load_map(workload: RoutedWorkload) -> Drawing:
    """A row for each layer, a cell for each expert or the heaviest of a few neighbours, over the mean expert."""
    loads = workload.shares() * workload.experts
    together = -(-workload.experts // _MOST_COLUMNS)
    starts = range(0, workload.experts, together)
    cell = (_WIDTH - _LEFT) / len(starts)
    height = 14.0 if len(workload.layers) <= 32 else 9.0
    boxes, words = list[Box](), list[Words]()
    for row, layer in enumerate(workload.layers):
        y = _TOP + row * height
        if height > 10 or row % 4 == 0:
            words.append(Words(_LEFT - 6, y + height - 2, f"layer {layer}", anchor="end"))
        for column, start in enumerate(starts):
            group = loads[row, start : start + together]
            heaviest = start + int(np.argmax(group))
            value = float(group.max())
            tip = f"Layer {layer}, expert {heaviest}: {value:.2f}"
            width = max(cell - 1, cell * 0.8)
            boxes.append(Box(_LEFT + column * cell, y, width, height - 1, LOAD_SCALE.style(value), tip))
    every = max(1, len(starts) // 8)
    words += [
        Words(_LEFT + (column + 0.5) * cell, _TOP - 7, str(starts[column]), anchor="middle")
        for column in range(0, len(starts), every)
    ]
    hottest = np.unravel_index(int(np.argmax(loads)), loads.shape)
    each = f"the heaviest of {together} neighbouring experts" if together > 1 else "an expert"
    return Drawing(
        width=_WIDTH,
        height=_TOP + height * len(workload.layers) + 4,
        name=f"Load of experts by layer, {workload.name}",
        description=f"Each cell is {each}, over the mean expert. Hottest: expert {hottest[1]} of layer "
        f"{workload.layers[hottest[0]]} with {float(loads.max()):.2f} times the mean.",
        boxes=tuple(boxes),
        words=tuple(words),
        legend=LOAD_SCALE.legend,
        shrinks=True,
    )


def traffic_map(traffic: Sequence[Sequence[float]], highest: float, title: str) -> Drawing:
    """A row for each node that sends, a column for each that receives; ``highest``: share that is darkest."""
    scale = share_scale(highest)
    cell = (_ACROSS - _LEFT) / len(traffic)
    boxes, words = list[Box](), list[Words]()
    every = max(1, -(-len(traffic) // 8))
    for row, shares in enumerate(traffic):
        if row % every == 0:
            words.append(Words(_LEFT - 6, _TOP + row * cell + cell / 2 + 4, f"node {row}", anchor="end"))
            words.append(Words(_LEFT + (row + 0.5) * cell, _TOP - 7, str(row), anchor="middle"))
        for column, share in enumerate(shares):
            if row != column:
                tip = f"Node {row} to node {column}: {100 * share:.0f} % of its tokens"
                x, y = _LEFT + column * cell, _TOP + row * cell
                boxes.append(Box(x, y, cell - 1, cell - 1, scale.style(share), tip))
                if len(traffic) <= _MOST_FIGURES:
                    words.append(Words(x + cell / 2, y + cell / 2 + 4, f"{100 * share:.0f} %", "on-heat", "middle"))
    sent = [sum(row) for row in traffic]
    return Drawing(
        width=_ACROSS,
        height=_TOP + cell * len(traffic) + 4,
        name=f"Tokens from node to node, {title}",
        description=f"Rows send, columns receive. A token goes to {sum(sent) / len(sent):.2f} other nodes.",
        boxes=tuple(boxes),
        words=tuple(words),
        legend=scale.legend,
    )
