"""Links to join many nodes: those that every ring over so many of them must use.

Nodes merge along ever slower links (single linkage).  Just before the merge that first makes a part of ``size``
nodes, no part holds that many, so whatever joins ``size`` nodes goes from part to part at least once.  This holds
for any partition whose parts are that small, whichever message or matrix it was made from (docs/placement.md).
"""

from __future__ import annotations

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray


def merges(times_s: FloatArray) -> IntArray:
    """(N - 1, 2) nodes whose parts merge, the fastest first, by the faster way of ``times_s`` (N, N).

    A minimum spanning tree grows from node 0 (Prim): parts are runs of the order in which nodes join it, cut before
    those that join later than others by a slower link.  SciPy's ``linkage`` says the same, but takes 0.3 s to load.
    """
    nearest_s = np.full(len(times_s), np.inf)
    joined, edges, lengths_s = 0, [], []
    is_open = np.ones(len(times_s), dtype=np.bool_)
    for _ in range(len(times_s) - 1):
        is_open[joined] = False
        nearest_s = np.minimum(nearest_s, np.minimum(times_s[joined], times_s[:, joined]))
        next_ = int(np.where(is_open, nearest_s, np.inf).argmin())
        edges.append((joined, next_))
        lengths_s.append(nearest_s[next_])
        joined = next_
    return np.array(edges, dtype=np.int64).reshape(-1, 2)[np.argsort(lengths_s, kind="stable")]


def parts_below(merged: IntArray, size: int) -> IntArray:
    """(N,) the part of each node when nodes have merged as far as they can with no part of ``size`` nodes."""
    part = np.arange(len(merged) + 1)
    for a, b in merged:
        both = (part == part[a]) | (part == part[b])
        if both.sum() >= size:
            break
        part[both] = part[a]
    return part


def across(part: IntArray) -> BoolArray:
    """(N, N) the links that lead from part to part."""
    return np.asarray(part[:, None] != part[None, :])
