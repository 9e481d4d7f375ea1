"""Seconds that every map of a layer over nodes takes at least (docs/experts.md, "Over nodes").

Letters: L layers, E experts, S slots, N nodes.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.bounds import least_slowest_load
from solver.experts.dispatch import LayerRates, Routing
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, rank_loads
from solver.experts.near_bounds import least_near_load


def least_loads(routed: Routing, layout: ExpertLayout, reached: IntArray, choice: CopyChoice) -> FloatArray:
    """(L,) the load of the slowest rank under every map at least, balanced ranks carrying 1."""
    scaled = routed.shares * layout.ranks
    if choice is CopyChoice.NEAREST and layout.slots > routed.shares.shape[1]:
        return np.array([least_near_load(row, layout) for row in scaled])
    slowest = rank_loads(reached, scaled, layout).max(axis=1)
    least = (
        least_slowest_load(row, layout, float(load), close=False) for row, load in zip(scaled, slowest, strict=True)
    )
    return np.fromiter(least, dtype=np.float64)


def least_times(routed: Routing, layout: ExpertLayout, rates: LayerRates, least: FloatArray) -> FloatArray:
    """(L,) seconds that every map of a layer takes at least (docs/experts.md).

    The slowest rank carries at least ``least``, with balanced ranks carrying 1.  Selections that
    stay in a token's node are at most those of the hottest experts; a token with one that does not is sent once at
    least.
    """
    compute = rates.selection_s * routed.rule.active * rates.tokens * least
    crossing = np.array([_least_crossing(row, layout) for row in routed.shares])
    return np.asarray(compute + rates.tokens * rates.copy_bytes / rates.between_bytes_per_s * crossing)


def _least_crossing(row: FloatArray, layout: ExpertLayout) -> float:
    """Least mean of nodes beside its own that a token needs: the share of selections that must leave their node.

    An expert with r copies serves at most ``min(r, N) / N`` of its selections on the spot; the copies beyond one
    help most at the hottest.
    """
    spare, nodes = layout.slots - len(row), layout.nodes
    local = row.sum() / nodes
    for share in np.sort(row)[::-1]:
        more = min(spare, nodes - 1)
        local += share * more / nodes
        spare -= more
        if not spare:
            break
    return max(0.0, float(row.sum() - local))
