"""EPLB, the balancer that engines ship with (deepseek-ai/EPLB), written anew from its description.

*Global*: the expert with the largest load per copy gets the next copy until all slots are taken; then copies go,
heaviest first, to the least loaded rank with a free slot.  *Hierarchical*: the router's groups of experts are
packed onto nodes in that same way, and each node then replicates and packs its own experts.  The published code
takes the hierarchical way where nodes divide the groups, and the global one otherwise.

Letters: L layers, E experts, S slots, G ranks, N nodes.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.layout import ExpertLayout


def eplb(loads: FloatArray, layout: ExpertLayout, groups: int) -> IntArray:
    """(L, S) slots in the mode that the published code picks for ``groups`` router groups."""
    if groups % layout.nodes:
        return eplb_global(loads, layout)
    return eplb_hierarchical(loads, layout, groups)


def eplb_global(loads: FloatArray, layout: ExpertLayout) -> IntArray:
    """(L, S) slots, nodes ignored."""
    return _replicated_and_packed(loads, layout.slots, layout.ranks)


def eplb_hierarchical(loads: FloatArray, layout: ExpertLayout, groups: int) -> IntArray:
    """(L, S) slots with each group of consecutive experts, copies included, inside one node."""
    layers, experts = loads.shape
    size = experts // groups
    of_groups = loads.reshape(layers, groups, size).sum(axis=2)
    node_groups = _packed(of_groups, layout.nodes).reshape(layers, layout.nodes, groups // layout.nodes)
    rows = np.arange(layers)[:, None]
    parts = []
    for node in range(layout.nodes):
        held = (node_groups[:, node, :, None] * size + np.arange(size)).reshape(layers, -1)
        inside = _replicated_and_packed(loads[rows, held], layout.slots // layout.nodes, layout.ranks_per_node)
        parts.append(held[rows, inside])
    return np.concatenate(parts, axis=1)


def _replicated_and_packed(loads: FloatArray, slots: int, ranks: int) -> IntArray:
    """(L, slots) copies for the largest load per copy, then packed onto ranks."""
    layers, experts = loads.shape
    every = np.arange(layers)
    counts = np.ones((layers, experts), dtype=np.int64)
    copies = np.tile(np.arange(experts), (layers, 1))
    for _ in range(slots - experts):
        heaviest = np.argmax(loads / counts, axis=1)
        counts[every, heaviest] += 1
        copies = np.concatenate([copies, heaviest[:, None]], axis=1)
    rows = every[:, None]
    return copies[rows, _packed((loads / counts)[rows, copies], ranks)]


def _packed(weights: FloatArray, packs: int) -> IntArray:
    """(L, items) the items of each pack side by side, equally many in each, heaviest first to the lightest pack."""
    layers, items = weights.shape
    size = items // packs
    every = np.arange(layers)
    filled, carried = np.zeros((layers, packs), dtype=np.int64), np.zeros((layers, packs))
    result = np.empty((layers, items), dtype=np.int64)
    order = np.argsort(-weights, axis=1, kind="stable")
    for place in range(items):
        item = order[:, place]
        pack = np.argmin(np.where(filled < size, carried, np.inf), axis=1)
        result[every, pack * size + filled[every, pack]] = item
        carried[every, pack] += weights[every, item]
        filled[every, pack] += 1
    return result
