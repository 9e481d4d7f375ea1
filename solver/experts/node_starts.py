"""Maps over nodes from which searches start, and copies packed onto ranks.

Letters: L layers, E experts, S slots, N nodes.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_packing import packed, swapped_down
from solver.experts.copy_counts import greedy_counts
from solver.experts.layout import ExpertLayout

_SWAPS: Final = 200


def balanced_start(shares: FloatArray, layout: ExpertLayout, swaps: int = _SWAPS) -> IntArray:
    """(L, S): the next copy to the largest load per copy, then packed onto all ranks, nodes ignored."""
    return np.array(
        [packed_copies(row, greedy_counts(row, layout.slots, layout.ranks), layout, swaps) for row in shares]
    )


def grouped_start(shares: FloatArray, layout: ExpertLayout, groups: int) -> IntArray:
    """(L, S): whole groups of consecutive experts in each node, copies beside them."""
    size, capacity = shares.shape[1] // groups, layout.slots // layout.nodes
    one = np.ones(layout.nodes)
    rows = []
    for row in shares:
        loads = row.reshape(groups, size).sum(axis=1)
        heaviest = np.argsort(-loads, kind="stable")
        held = np.zeros((layout.nodes, capacity), dtype=np.int64)
        for node, chosen in enumerate(packed(loads[heaviest], heaviest, one, groups // layout.nodes)):
            members = (chosen[:, None] * size + np.arange(size)).ravel()
            counts = greedy_counts(row[members], capacity, layout.ranks_per_node)
            held[node] = np.repeat(members, counts)
        rows.append(packed_inside(held, row, layout))
    return np.array(rows)


def packed_copies(row: FloatArray, counts: IntArray, layout: ExpertLayout, swaps: int = _SWAPS) -> IntArray:
    """(S,) the copies of (E,) ``counts`` packed onto all ranks."""
    speeds = layout.relative_speeds()
    return _packed(np.repeat(np.arange(len(row)), counts), row / counts, speeds, layout.slots_per_rank, swaps)


def packed_inside(held: IntArray, row: FloatArray, layout: ExpertLayout) -> IntArray:
    """(S,) the copies (N, S / N) ``held`` by the nodes packed onto the ranks of each."""
    per_copy = row / np.maximum(np.bincount(held.ravel(), minlength=len(row)), 1)
    speeds = layout.relative_speeds().reshape(layout.nodes, -1)
    parts = [
        _packed(copies, per_copy, node_speeds, layout.slots_per_rank)
        for copies, node_speeds in zip(held, speeds, strict=True)
    ]
    return np.concatenate(parts)


def _packed(copies: IntArray, per_copy: FloatArray, speeds: FloatArray, size: int, swaps: int = _SWAPS) -> IntArray:
    heaviest = copies[np.argsort(-per_copy[copies], kind="stable")]
    held = packed(per_copy[heaviest], heaviest, speeds, size)
    here = per_copy * np.bincount(copies, minlength=len(per_copy))
    swapped_down(here, held, speeds, here.sum() / speeds.sum(), swaps)
    return np.asarray(held.ravel())
