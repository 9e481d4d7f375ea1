"""Compiled search of a map for balance: slots of any number for a rank, several workloads, ranks of any speed.

Letters: W workloads, G ranks, s slots of a rank.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_annealing import Schedule, annealer, below
from solver.experts.compiled_map import LayerCase, LayerMap, Move, allowed, opened, put, take_back
from solver.kernels import inner, kernel

SQUARINGS: Final = 6
"""Ranks are pushed down by the 2**6-th power of their load: nearly by the maximum, but with a slope everywhere."""


class _Balance(NamedTuple):
    """A search.

    ``weights`` (W,) of the balancedness of workloads; ``slowest`` (W,) ranks.  ``worth`` (3,): the weighted
    balancedness by the power mean of loads, the same after a move, and the best by the maximum, of ``best`` (G, s).
    ``inside``: slots are swapped inside nodes alone.
    """

    weights: FloatArray
    slowest: IntArray
    worth: FloatArray
    best: IntArray
    inside: bool


@inner
def _smooth(weights: FloatArray, loads: FloatArray) -> float:
    """Weighted sum over workloads of 1 over the power mean of ``loads`` (W, G)."""
    worth = 0.0
    for w in range(len(weights)):
        total = 0.0
        for load in loads[w]:
            power = load
            for _ in range(SQUARINGS):
                power *= power
            total += power
        mean = total / loads.shape[1]
        for _ in range(SQUARINGS):
            mean = np.sqrt(mean)
        worth += weights[w] / mean
    return worth


@inner
def _note(layer: LayerMap, search: _Balance) -> None:
    """Find the slowest ranks, and keep the map if it is the best."""
    loads, reached = layer.loads, 0.0
    for w in range(len(search.weights)):
        top = int(np.argmax(loads[w]))
        search.slowest[w] = top
        reached += search.weights[w] / loads[w, top]
    if reached > search.worth[2]:
        search.worth[2] = reached
        search.best[:] = layer.held


@inner
def _propose(layer: LayerMap, search: _Balance) -> Move:
    """Swap two slots, or give a slot another expert; half of the moves start from a slowest rank."""
    held = layer.held
    ranks, size = held.shape
    g, i, j = below(ranks), below(size), below(size)
    if below(2):
        g = search.slowest[below(len(search.slowest))]
    if search.inside:
        width = ranks // layer.nodes
        h = g // width * width + below(width)
        return Move(g, i, h, j, held[g, i], held[h, j])
    h, experts = below(ranks), len(layer.counts)
    expert = held[g, i]
    if held.size > experts and below(2):
        i = -1
        if below(2):
            expert = below(experts)
    return Move(g, i, h, j, expert, held[h, j])


@inner
def _judge(layer: LayerMap, search: _Balance, move: Move) -> float:
    """Try a move; by how much the smooth worth falls."""
    if not allowed(layer, move):
        return np.inf
    put(layer, move)
    search.worth[1] = _smooth(search.weights, layer.tried)
    return float(search.worth[0] - search.worth[1])


@inner
def _accept(layer: LayerMap, search: _Balance, _: Move) -> None:
    layer.loads[:] = layer.tried
    search.worth[0] = search.worth[1]
    _note(layer, search)


@inner
def _reject(layer: LayerMap, _: _Balance, move: Move) -> None:
    take_back(layer, move)


_anneal = annealer(_propose, _judge, _accept, _reject)


@kernel
def anneal_balance(case: LayerCase, held: IntArray, weights: FloatArray, schedule: Schedule, inside: bool) -> float:
    """Anneal ``held`` (G, s), which ends as the best map found: its weighted sum of balancedness.

    Temperatures are in balancedness.  ``inside``: slots are swapped inside nodes alone, so that the same tokens
    cross nodes.
    """
    layer = opened(case, held)
    slowest = np.zeros(len(weights), dtype=np.int64)
    search = _Balance(weights, slowest, np.zeros(3), held.copy(), inside)
    search.worth[0] = _smooth(search.weights, layer.loads)
    _note(layer, search)
    _anneal(layer, search, schedule)
    held[:] = search.best
    return float(search.worth[2])
