"""Compiled: maps of one layer that differ little from a running one and are balanced better.

Letters: E experts, G ranks, s slots of a rank.  One workload; ``price`` (G, E) is that of loading an expert onto a
rank: 0 where the running map has it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_annealing import Schedule, annealer, below
from solver.experts.compiled_map import LayerCase, LayerMap, Move, allowed, holds, opened, put, take_back
from solver.kernels import inner, kernel


class Frontier(NamedTuple):
    """The best maps found by the number of loads that lead to them, from the running map.

    ``slowest`` (K + 1,) load of the slowest rank, ``cost`` (K + 1,) prices of all loads, ``maps`` (K + 1, G, s).
    """

    slowest: FloatArray
    cost: FloatArray
    maps: IntArray


class _Moves(NamedTuple):
    """A search towards ``limit``, from the running map ``before`` (G, s).

    ``weight``: price of a balanced rank's load above the limit.  ``sums`` (4,): the price of all loads, the excess
    over the limit, and both after a move.
    """

    price: FloatArray
    before: IntArray
    limit: float
    weight: float
    sums: FloatArray
    frontier: Frontier


@inner
def _excess(load: FloatArray, speeds: FloatArray, limit: float) -> float:
    """Load of ranks above ``limit``."""
    total = 0.0
    for g in range(len(load)):
        if load[g] > limit:
            total += (load[g] - limit) * speeds[g]
    return total


@inner
def _dearer(price: FloatArray, move: Move) -> float:
    """Growth of the price of all loads by a move."""
    growth = price[move.h, move.expert] - price[move.h, move.other]
    if move.i >= 0:
        growth += price[move.g, move.other] - price[move.g, move.expert]
    return float(growth)


@inner
def _returning(layer: LayerMap, search: _Moves) -> Move:
    """A move that brings an expert back to where the running map has it; one of nothing if none was met."""
    held, before = layer.held, search.before
    ranks, size = held.shape
    h, first = below(ranks), below(size)
    expert = before[h, below(size)]
    if not holds(layer, h, expert):
        for turn in range(size):
            j = (first + turn) % size
            if search.price[h, held[h, j]] > 0:
                if layer.counts[held[h, j]] > 1 and below(2):
                    return Move(0, -1, h, j, expert, held[h, j])
                g = _source(layer, search.price, expert)
                return Move(g, int(np.argmax(held[g] == expert)), h, j, expert, held[h, j])
    return Move(0, -1, h, 0, expert, expert)


@inner
def _source(layer: LayerMap, price: FloatArray, expert: int) -> int:
    """A rank with ``expert``, one that loaded it if there is any."""
    for index in range(layer.counts[expert]):
        if price[layer.where[expert, index], expert] > 0:
            return int(layer.where[expert, index])
    return int(layer.where[expert, 0])


@inner
def _propose(layer: LayerMap, search: _Moves) -> Move:
    """Half of the moves start from the slowest rank, a quarter lead back towards the running map."""
    held = layer.held
    ranks, size = held.shape
    kind = below(4)
    if kind == 0:
        return _returning(layer, search)
    g, i, h, j = below(ranks), below(size), below(ranks), below(size)
    if kind > 1:
        g = int(np.argmax(layer.loads[0]))
    if held.size == len(layer.counts) or below(2):
        return Move(g, i, h, j, held[g, i], held[h, j])
    if below(4):
        return Move(g, -1, h, j, held[g, i], held[h, j])
    return Move(h, -1, g, i, below(len(layer.counts)), held[g, i])


@inner
def _judge(layer: LayerMap, search: _Moves, move: Move) -> float:
    """Try a move; growth of prices and weighted excess."""
    if not allowed(layer, move):
        return np.inf
    dearer = _dearer(search.price, move)
    put(layer, move)
    excess = _excess(layer.tried[0], layer.speeds, search.limit)
    search.sums[2], search.sums[3] = search.sums[0] + dearer, excess
    return float(dearer + search.weight * (excess - search.sums[1]))


@inner
def _accept(layer: LayerMap, search: _Moves, _: Move) -> None:
    layer.loads[:] = layer.tried
    search.sums[:2] = search.sums[2:]
    _note(layer, search)


@inner
def _reject(layer: LayerMap, _: _Moves, move: Move) -> None:
    take_back(layer, move)


@inner
def _note(layer: LayerMap, search: _Moves) -> None:
    """Keep the map if it is the best for its number of loads."""
    held, frontier = layer.held, search.frontier
    loads = 0
    for g in range(len(held)):
        for expert in held[g]:
            loads += search.price[g, expert] > 0
    slowest, cost = layer.loads[0].max(), search.sums[0]
    if loads < len(frontier.slowest):
        less = slowest < frontier.slowest[loads] * (1 - 1e-12)
        if less or (slowest <= frontier.slowest[loads] and cost < frontier.cost[loads] - 1e-9):
            frontier.slowest[loads], frontier.cost[loads] = slowest, cost
            frontier.maps[loads] = held


@inner
def _over(load: float, limit: float) -> float:
    """Load above the limit."""
    return max(0.0, load - limit)


@inner
def _best_swap(layer: LayerMap, search: _Moves, top: int) -> tuple[float, Move]:
    """The swap with a slot of rank ``top`` that lowers the excess most for its price, and by how much."""
    best, found = 1e-9, Move(0, -1, 0, 0, 0, 0)
    held, load, speeds, limit = layer.held, layer.loads[0], layer.speeds, search.limit
    pieces = layer.shares[0] / np.maximum(layer.counts, 1)
    ranks, size = held.shape
    for i in range(size):
        a = held[top, i]
        for h in range(ranks):
            if h == top or holds(layer, h, a):
                continue
            for j in range(size):
                b = held[h, j]
                mass = pieces[a] - pieces[b]
                if mass <= 0 or holds(layer, top, b):
                    continue
                less = speeds[top] * (_over(load[top], limit) - _over(load[top] - mass / speeds[top], limit))
                less += speeds[h] * (_over(load[h], limit) - _over(load[h] + mass / speeds[h], limit))
                move = Move(top, i, h, j, a, b)
                worth = _for_its_price(less, _dearer(search.price, move))
                if worth > best:
                    best, found = worth, move
    return best, found


@inner
def _for_its_price(less: float, dearer: float) -> float:
    """Excess taken off for each load's price."""
    return less / dearer if dearer > 0 else less * 1e3


@inner
def _less_by_copy(layer: LayerMap, limit: float, move: Move) -> float:
    """Excess taken off by a further copy, on the ranks of both experts alone: putting each move costs much more."""
    a, b, counts, load, speeds = move.expert, move.other, layer.counts, layer.loads[0], layer.speeds
    share_a, share_b = layer.shares[0, a], layer.shares[0, b]
    thinner = share_a / (counts[a] + 1) - share_a / counts[a]
    thicker = share_b / (counts[b] - 1) - share_b / counts[b]
    less = 0.0
    for index in range(counts[a]):
        g = layer.where[a, index]
        change = thinner + thicker if holds(layer, g, b) else thinner
        less += speeds[g] * (_over(load[g], limit) - _over(load[g] + change / speeds[g], limit))
    for index in range(counts[b]):
        g = layer.where[b, index]
        if holds(layer, g, a):
            continue
        change = share_a / (counts[a] + 1) - share_b / counts[b] if g == move.h else thicker
        less += speeds[g] * (_over(load[g], limit) - _over(load[g] + change / speeds[g], limit))
    return less


@inner
def _best_move(layer: LayerMap, search: _Moves) -> Move:
    """The move of a slot of the slowest rank, or copy of its experts, that lowers excess most for its price.

    One of nothing where none lowers it.
    """
    held = layer.held
    ranks, size = held.shape
    top = int(np.argmax(layer.loads[0]))
    best, found = _best_swap(layer, search, top)
    if held.size == len(layer.counts):
        return found
    for h in range(ranks):
        for j in range(size):
            if layer.counts[held[h, j]] < 2:
                continue
            for index in range(size if h != top else len(layer.counts)):
                move = Move(h, -1, h, j, held[top, index] if h != top else index, held[h, j])
                if not allowed(layer, move):
                    continue
                worth = _for_its_price(_less_by_copy(layer, search.limit, move), _dearer(search.price, move))
                if worth > best:
                    best, found = worth, move
    return found


@inner
def _descend(layer: LayerMap, search: _Moves) -> None:
    """The best move, one after the other, until no rank exceeds the limit or none helps."""
    for _ in range(len(search.frontier.slowest)):
        if layer.loads[0].max() <= search.limit * (1 + 1e-12):
            break
        move = _best_move(layer, search)
        if move.expert == move.other:
            break
        _judge(layer, search, move)
        _accept(layer, search, move)


_anneal = annealer(_propose, _judge, _accept, _reject)


@kernel
def search_moves(
    case: LayerCase,
    before: IntArray,
    price: FloatArray,
    limits: FloatArray,
    weight: float,
    schedule: Schedule,
    frontier: Frontier,
) -> None:
    """From the running map ``before`` (G, s) towards each of ``limits``, best moves first; fills ``frontier``.

    ``weight``: of a balanced rank's load above the limit beside the price of a load; temperatures are in such
    prices.
    """
    for limit in limits:
        layer = opened(case, before.copy())
        search = _Moves(price, before, limit, weight, np.zeros(4), frontier)
        search.sums[1] = _excess(layer.loads[0], case.speeds, limit)
        _note(layer, search)
        _descend(layer, search)
        _anneal(layer, search, schedule)
