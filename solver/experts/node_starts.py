"""Maps over nodes from which searches start, and copies packed onto ranks.

Letters: L layers, E experts, S slots, N nodes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.copy_counts import greedy_counts
from solver.experts.layout import ExpertLayout
from solver.experts.packing import packed

_SWAPS: Final = 200


def balanced_start(shares: FloatArray, layout: ExpertLayout, swaps: int = _SWAPS) -> IntArray:
    """(L, S): the next copy to the largest load per copy, then packed onto all ranks, nodes ignored."""
    speeds, size = layout.relative_speeds(), layout.slots_per_rank
    rows = []
    for row in shares:
        counts = greedy_counts(row, layout.slots, layout.ranks)
        rows.append(packed(np.repeat(np.arange(len(row)), counts), row / counts, speeds, size, swaps).ravel())
    return np.array(rows)


def grouped_start(shares: FloatArray, layout: ExpertLayout, groups: int) -> IntArray:
    """(L, S): whole groups of consecutive experts in each node, copies beside them."""
    size, capacity = shares.shape[1] // groups, layout.slots // layout.nodes
    one = np.ones(layout.nodes)
    rows = []
    for row in shares:
        loads = row.reshape(groups, size).sum(axis=1)
        held = np.zeros((layout.nodes, capacity), dtype=np.int64)
        for node, chosen in enumerate(packed(np.arange(groups), loads, one, groups // layout.nodes, 0)):
            members = (chosen[:, None] * size + np.arange(size)).ravel()
            counts = greedy_counts(row[members], capacity, layout.ranks_per_node)
            held[node] = np.repeat(members, counts)
        rows.append(packed_inside(held, row, layout))
    return np.array(rows)


def packed_inside(held: IntArray, row: FloatArray, layout: ExpertLayout) -> IntArray:
    """(S,) the copies (N, S / N) ``held`` by the nodes packed onto the ranks of each."""
    per_copy = row / np.maximum(np.bincount(held.ravel(), minlength=len(row)), 1)
    speeds = layout.relative_speeds().reshape(layout.nodes, -1)
    parts = [
        packed(copies, per_copy, node_speeds, layout.slots_per_rank, _SWAPS)
        for copies, node_speeds in zip(held, speeds, strict=True)
    ]
    return np.concatenate(parts).ravel()
