"""Links to join many nodes: those that every ring over so many of them must use.

Nodes merge along ever slower links (single linkage).  Just before the merge that first makes a part of ``size``
nodes, no part holds that many, so whatever joins ``size`` nodes goes from part to part at least once.  This holds
for any partition whose parts are that small, whichever message or matrix it was made from (docs/placement.md).
"""

from __future__ import annotations

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray


def merges(times_s: FloatArray) -> FloatArray:
    """Single linkage of nodes by the faster way of ``times_s`` (N, N), as rows of SciPy's ``linkage``."""
    # Imported late: they take half a second, and a service has no use for them.
    from scipy.cluster.hierarchy import linkage
    from scipy.spatial.distance import squareform

    faster = np.minimum(times_s, times_s.T)
    np.fill_diagonal(faster, 0.0)
    return np.asarray(linkage(squareform(faster, checks=False), method="single"))


def parts_below(merged: FloatArray, size: int) -> IntArray:
    """(N,) the part of each node when nodes have merged as far as they can with no part of ``size`` nodes."""
    nodes = len(merged) + 1
    part = np.arange(nodes)
    for index, (a, b, _, count) in enumerate(merged):
        if count >= size:
            break
        part[(part == a) | (part == b)] = nodes + index
    return part


def across(part: IntArray) -> BoolArray:
    """(N, N) the links that lead from part to part."""
    return np.asarray(part[:, None] != part[None, :])
