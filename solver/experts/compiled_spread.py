"""Compiled: ranks over nodes, so that copies of one expert serve as many nodes as they can.

Letters: E experts, G ranks, N nodes, s slots of a rank.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel


@inner
def _gain(shares: FloatArray, counts: IntArray, on_node: IntArray, expert: int, leave: int, enter: int) -> float:
    """Gain of the share inside nodes when a copy of ``expert`` goes from node ``leave`` to ``enter``.

    ``sum_e w_e sum_n min(1 / N, r_en / r_e)``; ``on_node`` (N, E) counts ``r_en``.
    """
    copies, most = counts[expert], 1.0 / len(on_node)
    before = min(most, on_node[leave, expert] / copies) + min(most, on_node[enter, expert] / copies)
    after = min(most, (on_node[leave, expert] - 1) / copies) + min(most, (on_node[enter, expert] + 1) / copies)
    return float(shares[expert] * (after - before))


@inner
def _swap_gain(
    shares: FloatArray, counts: IntArray, on_node: IntArray, one: IntArray, other: IntArray, a: int, b: int
) -> float:
    """Gain of swapping a rank of node ``a`` with the experts ``one`` (s,) for one of ``b`` with ``other``."""
    gain = 0.0
    for i in range(len(one)):
        # an expert on both ranks stays where it is
        if counts[one[i]] > 1 and not (other == one[i]).any():
            gain += _gain(shares, counts, on_node, one[i], a, b)
        if counts[other[i]] > 1 and not (one == other[i]).any():
            gain += _gain(shares, counts, on_node, other[i], b, a)
    return gain


@kernel
def spread_ranks(shares: FloatArray, held: IntArray, nodes: int, passes: int) -> IntArray:
    """(G, s) the ranks of ``held`` in an order in which no swap of two between nodes keeps more inside nodes.

    ``shares`` (E,); ranks of a node stand side by side; at most ``passes`` rounds over all pairs of ranks.  What
    lies on a rank stays together, so that ranks of one speed carry what they did.
    """
    ranks, size = held.shape
    held, per_node = held.copy(), ranks // nodes
    counts, on_node = np.zeros(len(shares), dtype=np.int64), np.zeros((nodes, len(shares)), dtype=np.int64)
    for g in range(ranks):
        for i in range(size):
            counts[held[g, i]] += 1
            on_node[g // per_node, held[g, i]] += 1
    for _ in range(passes):
        changed = False
        for g in range(ranks):
            for h in range((g // per_node + 1) * per_node, ranks):
                a, b = g // per_node, h // per_node
                if _swap_gain(shares, counts, on_node, held[g], held[h], a, b) <= 1e-12:
                    continue
                changed = True
                for i in range(size):
                    on_node[a, held[g, i]] -= 1
                    on_node[b, held[g, i]] += 1
                    on_node[b, held[h, i]] -= 1
                    on_node[a, held[h, i]] += 1
                    held[g, i], held[h, i] = held[h, i], held[g, i]
        if not changed:
            break
    return held
