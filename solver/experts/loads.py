"""How well a map of experts balances its ranks, and how much of the routing it keeps inside nodes.

Letters: L layers, E experts, S slots, G ranks, N nodes.  ``slots`` (L, S) names the expert in each slot, ``shares``
(L, E) the share of its layer's selections that an expert gets (any scale will do); copies share equally.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.layout import ExpertLayout


def replica_counts(slots: IntArray, experts: int) -> IntArray:
    """(L, E) how many slots hold each expert."""
    layers = len(slots)
    flat = (slots + experts * np.arange(layers)[:, None]).ravel()
    return np.bincount(flat, minlength=layers * experts).reshape(layers, experts)


def slot_loads(slots: IntArray, shares: FloatArray) -> FloatArray:
    """(L, S) what each slot carries: its expert's share over the expert's copies."""
    counts = replica_counts(slots, shares.shape[1])
    per_copy = shares / np.maximum(counts, 1)
    return np.asarray(np.take_along_axis(per_copy, slots, axis=1))


def rank_loads(slots: IntArray, shares: FloatArray, layout: ExpertLayout) -> FloatArray:
    """(L, G) the load of each rank over its relative speed, in the scale of ``shares``.

    Speeds are taken relative to their mean, so that perfectly balanced ranks all have the sum of shares over G.
    """
    by_rank = slot_loads(slots, shares).reshape(len(slots), layout.ranks, layout.slots_per_rank)
    return np.asarray(by_rank.sum(axis=2) / layout.relative_speeds())


def layer_balancedness(slots: IntArray, shares: FloatArray, layout: ExpertLayout) -> FloatArray:
    """(L,) mean over maximum rank load, 1 = balanced; with unequal speeds the balanced load over the maximum."""
    balanced = shares.sum(axis=1) / layout.ranks
    return np.asarray(balanced / rank_loads(slots, shares, layout).max(axis=1))


def balancedness(slots: IntArray, shares: FloatArray, layout: ExpertLayout) -> float:
    """Mean over layers of ``layer_balancedness``."""
    return float(layer_balancedness(slots, shares, layout).mean())


def node_counts(slots: IntArray, experts: int, layout: ExpertLayout) -> IntArray:
    """(L, N, E) how many slots of each node hold each expert."""
    layers = len(slots)
    row = np.arange(layers)[:, None] * layout.nodes + layout.node_of_slot()
    counts = np.bincount((row * experts + slots).ravel(), minlength=layers * layout.nodes * experts)
    return counts.reshape(layers, layout.nodes, experts)


def node_local_share(slots: IntArray, shares: FloatArray, layout: ExpertLayout) -> float:
    """Mean over layers of the share of selections that need not leave the node of their token.

    Tokens start on all N nodes equally and every copy of an expert serves the same number of them.  A node with
    ``r_en`` of the ``r_e`` copies serves ``r_en / r_e`` of the expert's selections, of which at most the ``1 / N``
    that start there stay inside: ``sum_e w_e sum_n min(1 / N, r_en / r_e)``.
    """
    counts = node_counts(slots, shares.shape[1], layout)
    served = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    local = np.minimum(served, 1.0 / layout.nodes).sum(axis=1)
    return float(((local * shares).sum(axis=1) / shares.sum(axis=1)).mean())
