"""Bounds on balance where the nearest copy serves a token (docs/experts.md, "Bounds").

Letters: E experts, G ranks, N nodes, R ranks of a node.  Shares are scaled so that balanced ranks all carry 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray
from solver.experts.layout import ExpertLayout

_HALVINGS: Final = 40
_ROUNDING: Final = 1e-9


def least_near_load(shares: FloatArray, layout: ExpertLayout) -> float:
    """A load that the slowest rank has at least where the nearest copy serves, (E,) ``shares``.

    The mean; and the least load to which all copies can be kept with the slots that there are, each expert with as
    many as it needs for that (``least_busiest_parts``).
    """
    parts = least_busiest_parts(layout)
    fastest = float(layout.relative_speeds().max())
    low, high = 0.0, float(shares.max())
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # the first count of copies whose busiest part is small enough
        needed = np.searchsorted(-parts, -middle / np.maximum(shares, _ROUNDING)) + 1
        if (needed > layout.ranks).any() or needed.sum() > layout.slots:
            low = middle
        else:
            high = middle
    return max(1.0, low / fastest) * (1 - _ROUNDING)


def least_busiest_parts(layout: ExpertLayout) -> FloatArray:
    """(G,) the share of an expert's selections that the busiest of 1, 2, .. copies serves at least.

    With r copies in n nodes, some node holds at most r / n of them.  Its first copy serves R - r / n + 1 ranks of
    its own, and of the R (N - n) ranks without a copy in their node the r-th part.  A bound for fewer copies holds
    for more.
    """
    ranks, nodes, width = layout.ranks, layout.nodes, layout.ranks_per_node
    copies = np.arange(1, ranks + 1)[:, None]
    holding = np.arange(1, nodes + 1)[None, :]
    fewest = copies // holding
    part = (width - fewest + 1 + (nodes - holding) * width / copies) / ranks
    possible = (holding <= copies) & (copies <= holding * width)
    return np.asarray(np.minimum.accumulate(np.where(possible, part, np.inf).min(axis=1)))
