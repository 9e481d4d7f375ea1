"""Compiled: worth of maps of neighbouring layers, and an upper bound on it.

Letters: L layers, E experts, G ranks, s experts of a part.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel

_PATIENCE, _PROGRESS = 8, 1e-4
"""Rounds of prices without so much progress, as a share, end the search for better ones."""


@inner
def followed(onward: FloatArray, back: FloatArray, ranks: IntArray, worth: FloatArray) -> FloatArray:
    """(L, G, E) what each expert would save on each rank with the maps ``ranks`` (L, E) of both neighbours.

    ``onward`` (L - 1, E, E) are transitions, ``back`` the same transposed, ``worth`` (G, G).
    """
    layers, experts = ranks.shape
    flow = np.zeros((layers, len(worth), experts))
    for layer in range(layers):
        for e in range(experts):
            for g in range(len(worth)):
                saved = worth[g, ranks[layer, e]]
                if saved == 0.0:
                    continue
                if layer > 0:
                    for f in range(experts):
                        flow[layer - 1, g, f] += saved * back[layer - 1, e, f]
                if layer < layers - 1:
                    for f in range(experts):
                        flow[layer + 1, g, f] += saved * onward[layer, e, f]
    return flow


@kernel
def rank_masses(table: FloatArray, here: IntArray, there: IntArray, ranks: int) -> FloatArray:
    """(G, G) the transitions ``table`` (E, E) from rank to rank, for the ranks (E,) of both layers."""
    masses = np.zeros((ranks, ranks))
    for e in range(len(here)):
        row = masses[here[e]]
        for f in range(len(there)):
            row[there[f]] += table[e, f]
    return masses


@kernel
def dealt(order: IntArray, experts: int, ranks: int) -> IntArray:
    """(E,) the rank of each expert, as many on each: pairs, ``expert * G + rank``, are taken in ``order``."""
    size = experts // ranks
    found, room = np.full(experts, -1), np.full(ranks, size)
    for pair in order:
        expert, rank = pair // ranks, pair % ranks
        if found[expert] < 0 and room[rank] > 0:
            found[expert] = rank
            room[rank] -= 1
    return found


@kernel
def partners(table: FloatArray, size: int, rounds: int) -> float:
    """The least over some prices of what rows keep that choose ``size`` partners each: see ``chain_bounds``."""
    experts = len(table)
    prices, demand = np.zeros(experts), np.zeros(experts)
    # what a row chose at the last prices is nearly what it chooses at the next
    chosen = np.zeros((experts, size), dtype=np.int64)
    chosen[:] = np.arange(size)
    best, sure, waited = np.inf, np.inf, 0
    for turn in range(rounds):
        value = size * prices.sum()
        demand[:] = -size
        for e in range(experts):
            value += _greatest(table[e] - prices, chosen[e])
            for f in chosen[e]:
                demand[f] += 1
        best = min(best, value)
        if best < sure * (1 - _PROGRESS):
            sure, waited = best, 0
        waited += 1
        norm = (demand * demand).sum()
        if norm == 0 or waited > _PATIENCE:
            break
        prices += demand * (0.05 * best / (1 + turn / 5) / norm)
    return best


@inner
def _greatest(values: FloatArray, chosen: IntArray) -> float:
    """The sum of the greatest of ``values``, as many as ``chosen`` has; it starts with some and ends with these."""
    taken = np.zeros(len(values), dtype=np.bool_)
    taken[chosen] = True
    least = int(np.argmin(values[chosen]))
    for f in range(len(values)):
        if not taken[f] and values[f] > values[chosen[least]]:
            chosen[least] = f
            least = int(np.argmin(values[chosen]))
    return float(values[chosen].sum())
