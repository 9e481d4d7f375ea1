"""Compiled: the best chain over every way to split each layer's experts over the ranks.

Letters: L layers, G ranks, N nodes (0 where they do not matter), P labelled splits, Q splits that no exchange of
like ranks turns into one another.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel


@inner
def _most(masses: FloatArray) -> FloatArray:
    """(K,) the greatest entry of each column."""
    most = np.zeros(masses.shape[1])
    for b in range(len(most)):
        most[b] = masses[:, b].max()
    return most


@kernel
def extended(
    before: FloatArray,
    masses: tuple[FloatArray, FloatArray],
    ranks: IntArray,
    nodes: IntArray,
    classes: IntArray,
    firsts: IntArray,
) -> tuple[FloatArray, IntArray]:
    """(Q,) the best worth of a chain up to a next layer with each split, and (Q,) the labelled split before it.

    ``before`` (Q,) the same up to the layer before; ``masses[0][a, b]``: what transitions from set ``a`` of experts
    to set ``b`` are worth on one rank, ``masses[1]`` in one node; ``ranks`` (P, G) and ``nodes`` (P, N) the sets of
    each labelled split, ``classes`` (P,) its class, ``firsts`` (Q,) the labelled split that stands for each class.
    """
    on_rank, in_node = masses
    best, at = np.full(len(firsts), -np.inf), np.zeros(len(firsts), dtype=np.int64)
    starts = before[classes]
    order = np.argsort(-starts)
    most_rank, most_node = _most(on_rank), _most(in_node)
    for q in range(len(firsts)):
        limit = most_rank[ranks[firsts[q]]].sum() + most_node[nodes[firsts[q]]].sum()
        for p in order:
            value = starts[p]
            if value + limit <= best[q]:
                break
            for g in range(ranks.shape[1]):
                value += on_rank[ranks[p, g], ranks[firsts[q], g]]
            for n in range(nodes.shape[1]):
                value += in_node[nodes[p, n], nodes[firsts[q], n]]
            if value > best[q]:
                best[q], at[q] = value, p
    return best, at
