"""How well a map of experts balances its ranks, and how much of the routing it keeps inside nodes.

Letters: L layers, E experts, S slots, G ranks, N nodes.  ``slots`` (L, S) names the expert in each slot, ``shares``
(L, E) the share of its layer's selections that an expert gets (any scale will do).
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.layout import ExpertLayout


class CopyChoice(StrEnum):
    """Choice among an expert's copies for a token.

    ``NEAREST``: the one on the token's own rank, else the first of its node, else any; as SGLang's static dispatch.
    ``ANY``: all as likely, wherever the token is; as vLLM, TensorRT-LLM and SGLang's dynamic dispatch.
    """

    NEAREST = "nearest"
    ANY = "any"


def replica_counts(slots: IntArray, experts: int) -> IntArray:
    """(L, E) how many slots hold each expert."""
    layers = len(slots)
    flat = (slots + experts * np.arange(layers)[:, None]).ravel()
    return np.bincount(flat, minlength=layers * experts).reshape(layers, experts)


def slot_parts(slots: IntArray, experts: int, layout: ExpertLayout, choice: CopyChoice) -> FloatArray:
    """(L, S) the share of its expert's selections that each slot serves; tokens start on all ranks equally.

    Nearest: a rank with a copy is served by it, 1 / G of the selections; the other ranks of its node by the first
    of the node's copies, the one in its lowest slot; the ranks of nodes without a copy by all copies equally.
    """
    copies = np.take_along_axis(replica_counts(slots, experts), slots, axis=1)
    if choice is CopyChoice.ANY:
        return np.asarray(1.0 / copies)
    counts, nodes = node_counts(slots, experts, layout), np.broadcast_to(layout.node_of_slot(), slots.shape)
    row = np.arange(len(slots))[:, None]
    held = (counts > 0).sum(axis=1)[row, slots]
    first = np.zeros(slots.size, dtype=np.bool_)
    first[np.unique((row * layout.nodes + nodes) * experts + slots, return_index=True)[1]] = True
    others = np.where(first.reshape(slots.shape), layout.ranks_per_node - counts[row, nodes, slots], 0)
    far = (layout.nodes - held) * layout.ranks_per_node / copies
    return np.asarray((1 + others + far) / layout.ranks)


def slot_loads(
    slots: IntArray, shares: FloatArray, layout: ExpertLayout, choice: CopyChoice = CopyChoice.ANY
) -> FloatArray:
    """(L, S) what each slot carries: what it serves of its expert's share."""
    return slot_parts(slots, shares.shape[1], layout, choice) * np.take_along_axis(shares, slots, axis=1)


def rank_loads(
    slots: IntArray, shares: FloatArray, layout: ExpertLayout, choice: CopyChoice = CopyChoice.ANY
) -> FloatArray:
    """(L, G) the load of each rank over its relative speed, in the scale of ``shares``.

    Speeds are taken relative to their mean, so that perfectly balanced ranks all have the sum of shares over G.
    """
    by_rank = slot_loads(slots, shares, layout, choice).reshape(len(slots), layout.ranks, layout.slots_per_rank)
    return np.asarray(by_rank.sum(axis=2) / layout.relative_speeds())


def layer_balancedness(
    slots: IntArray, shares: FloatArray, layout: ExpertLayout, choice: CopyChoice = CopyChoice.ANY
) -> FloatArray:
    """(L,) mean over maximum rank load, 1 = balanced; with unequal speeds the balanced load over the maximum."""
    balanced = shares.sum(axis=1) / layout.ranks
    return np.asarray(balanced / rank_loads(slots, shares, layout, choice).max(axis=1))


def balancedness(
    slots: IntArray, shares: FloatArray, layout: ExpertLayout, choice: CopyChoice = CopyChoice.ANY
) -> float:
    """Mean over layers of ``layer_balancedness``."""
    return float(layer_balancedness(slots, shares, layout, choice).mean())


def node_counts(slots: IntArray, experts: int, layout: ExpertLayout) -> IntArray:
    """(L, N, E) how many slots of each node hold each expert."""
    layers = len(slots)
    row = np.arange(layers)[:, None] * layout.nodes + layout.node_of_slot()
    counts = np.bincount((row * experts + slots).ravel(), minlength=layers * layout.nodes * experts)
    return counts.reshape(layers, layout.nodes, experts)


def node_local_share(slots: IntArray, shares: FloatArray, layout: ExpertLayout) -> float:
    """Mean over layers of the share of selections that a copy in the node of their token can serve.

    Tokens start on all N nodes equally: ``sum_e w_e (nodes with a copy of e) / N``.
    """
    local = (node_counts(slots, shares.shape[1], layout) > 0).mean(axis=1)
    return float(((local * shares).sum(axis=1) / shares.sum(axis=1)).mean())
