"""Balance under the rule by which an engine serves tokens: searched by exchanges of slots, and bounded.

Letters: W workloads, E experts, S slots, G ranks, N nodes, R ranks of a node, s slots of a rank.  Shares are scaled
so that balanced ranks all carry 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_serving import ServingCase, anneal_serving
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, rank_loads

HOT: Final = 0.01
"""First temperature of the search, in balancedness."""
COOLING: Final = 0.03
"""Its last temperature beside its first."""
FEW: Final = 64
"""Up to so many slots, where single exchanges weigh much, a search from ``LUMPY_HOT`` goes before."""
LUMPY_HOT: Final = 0.05
_HALVINGS: Final = 40
_ROUNDING: Final = 1e-9


def exchanged(
    shares: FloatArray,
    choices: Sequence[CopyChoice],
    held: IntArray,
    layout: ExpertLayout,
    weights: FloatArray,
    *,
    steps: int,
    seed: int,
    inside: bool = False,
) -> IntArray:
    """(G, s) the map found from ``held`` with the best weighted sum of balancedness, never less than it has.

    ``shares`` (W, E), each served by its own choice of copies; ``inside``: slots are exchanged inside nodes alone,
    so that the same tokens cross nodes.
    """
    near = np.array([choice is CopyChoice.NEAREST for choice in choices])
    case = ServingCase(np.ascontiguousarray(shares), near, weights, layout.relative_speeds(), layout.nodes)
    rows = np.ascontiguousarray(held).copy()
    for hot in (LUMPY_HOT, HOT) if layout.slots <= FEW and not inside else (HOT,):
        anneal_serving(case, rows, steps, seed, hot, hot * COOLING, inside)
    return rows


def slowest_load(shares: FloatArray, held: IntArray, layout: ExpertLayout, choice: CopyChoice) -> FloatArray:
    """(W,) the load of the slowest rank with (G, s) ``held`` under each of ``shares`` (W, E)."""
    rows = np.repeat(held.reshape(1, -1), len(shares), axis=0)
    return np.asarray(rank_loads(rows, shares, layout, choice).max(axis=1))


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
