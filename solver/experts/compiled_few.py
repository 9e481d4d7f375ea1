"""Compiled search over few slots by the exact time of a layer.

Letters: E experts, S slots, G ranks, N nodes, K terms.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.experts.compiled_annealing import Schedule, annealer, below
from solver.experts.compiled_map import LayerCase, LayerMap, Move, allowed, near_parts, opened, relocate, take_back
from solver.experts.compiled_node_time import NodeCase, crossings, fill_needs, node_state
from solver.experts.compiled_reach import rank_needs
from solver.kernels import inner, kernel

_LESS: Final = 1.0 - 1e-12


class FewCase(NamedTuple):
    """One layer, and seconds of what is counted.

    ``load_s`` of the load of a rank of mean speed, ``inside_s`` of a token that surely needs the busiest rank.  A
    term is (K,) ``between_s`` of a crossing of 1, paced by the busiest node or the mean (``by_mean``), with copies
    near a token's node preferred or all as likely (``near``), and beside ``references``.  ``speeds`` (G,).
    """

    nodes: NodeCase
    load_s: float
    inside_s: float
    between_s: FloatArray
    by_mean: BoolArray
    near: BoolArray
    references: FloatArray
    speeds: FloatArray


@inner
def _fill_parts(case: FewCase, row: IntArray, totals: IntArray, near: bool, parts: FloatArray) -> None:
    """Fill (S,) with the share of its expert's selections that each slot serves."""
    if not near:
        for slot in range(len(row)):
            parts[slot] = 1.0 / totals[row[slot]]
        return
    ranks, nodes = len(case.speeds), len(case.nodes.node_speeds)
    size, copies = len(row) // ranks, np.zeros(ranks, dtype=np.int64)
    on_node, first, served = np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64), np.zeros(ranks)
    for expert in range(len(totals)):
        at = np.flatnonzero(row == expert)
        for index in range(len(at)):
            copies[index] = at[index] // size
        near_parts(copies, len(at), ranks, nodes, on_node, first, served)
        for index in range(len(at)):
            parts[at[index]] = served[index]


@inner
def _here(case: FewCase, row: IntArray, totals: IntArray, near: bool) -> float:
    """Seconds of the slowest rank's products and of the busiest rank's links inside its node."""
    ranks, slowest, parts = len(case.speeds), 0.0, np.zeros(len(row))
    size = len(row) // ranks
    _fill_parts(case, row, totals, near, parts)
    for rank in range(ranks):
        load = 0.0
        for slot in range(rank * size, (rank + 1) * size):
            load += case.nodes.shares[row[slot]] * parts[slot]
        slowest = max(slowest, load / case.speeds[rank])
    here = case.load_s * slowest
    if case.inside_s > 0.0:
        reached = np.zeros(ranks)
        by_rank = parts.reshape(ranks, size)
        rank_needs(case.nodes.weights, row.reshape(ranks, size), by_rank, case.nodes.router, reached)
        here += case.inside_s * reached.max()
    return here


@inner
def most_beside(case: FewCase, row: IntArray) -> float:
    """The most that (S,) ``row`` takes under any term, beside its reference."""
    experts, nodes = len(case.nodes.shares), len(case.nodes.node_speeds)
    state = node_state(row.reshape(nodes, len(row) // nodes), experts)
    near = even = (0.0, 0.0)
    near_s = even_s = 0.0
    if case.near.any():
        near_s = _here(case, row, state.totals, True)
        fill_needs(case.nodes, state.near, False)
        near = crossings(state.near.needs)
    if not case.near.all():
        even_s = _here(case, row, state.totals, False)
        fill_needs(case.nodes, state.even, False)
        even = crossings(state.even.needs)
    worst = 0.0
    for term in range(len(case.between_s)):
        here = near_s if case.near[term] else even_s
        busiest, mean = near if case.near[term] else even
        crossing = mean if case.by_mean[term] else busiest
        worst = max(worst, (here + case.between_s[term] * crossing) / case.references[term])
    return worst


class _Search(NamedTuple):
    """``worst`` (3,): the most that a map takes beside references, now, after a move, and of ``best`` (S,)."""

    case: FewCase
    worst: FloatArray
    best: IntArray


@inner
def _propose(layer: LayerMap, _: _Search) -> Move:
    """Swap two slots, or give a slot another expert."""
    held = layer.held
    ranks, size = held.shape
    g, i, h, j = below(ranks), below(size), below(ranks), below(size)
    if held.size > len(layer.counts) and below(2):
        return Move(g, -1, h, j, below(len(layer.counts)), held[h, j])
    return Move(g, i, h, j, held[g, i], held[h, j])


@inner
def _judge(layer: LayerMap, search: _Search, move: Move) -> float:
    """Try a move; growth of the most that the map takes."""
    if not allowed(layer, move):
        return np.inf
    relocate(layer, move)
    search.worst[1] = most_beside(search.case, layer.held.ravel())
    return float(search.worst[1] - search.worst[0])


@inner
def _accept(layer: LayerMap, search: _Search, _: Move) -> None:
    search.worst[0] = search.worst[1]
    if search.worst[0] < search.worst[2] * _LESS:
        search.worst[2] = search.worst[0]
        search.best[:] = layer.held.ravel()


@inner
def _reject(layer: LayerMap, _: _Search, move: Move) -> None:
    take_back(layer, move)


_anneal = annealer(_propose, _judge, _accept, _reject)


@kernel
def anneal_few(case: FewCase, row: IntArray, schedule: Schedule) -> float:
    """Anneal (S,) ``row``, which ends as the best map met; what it takes at most beside references.

    Temperatures are in shares of the references.
    """
    ranks = len(case.speeds)
    one = LayerCase(case.nodes.shares.reshape(1, -1), np.zeros(1, dtype=np.bool_), case.speeds, 1)
    layer = opened(one, row.copy().reshape(ranks, len(row) // ranks))
    now = most_beside(case, row)
    _anneal(layer, _Search(case, np.array([now, now, now]), row), schedule)
    return most_beside(case, row)
