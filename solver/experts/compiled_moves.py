"""Compiled: maps of one layer that differ little from a running one and are balanced better.

Letters: E experts, G ranks, s slots of a rank.  ``shares`` (E,) are scaled so that balanced ranks all carry 1,
``held`` (G, s) is the expert in each slot, ``speeds`` (G,) have the mean 1, ``price`` (G, E) says what it costs to
load an expert onto a rank: 0 where the running map has it.
"""

from __future__ import annotations

from typing import NamedTuple

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray


class Frontier(NamedTuple):
    """The best maps found by the number of loads that lead to them, from the running map.

    ``slowest`` (K + 1,) load of the slowest rank, ``cost`` (K + 1,) prices of all loads, ``maps`` (K + 1, G, s).
    """

    slowest: FloatArray
    cost: FloatArray
    maps: IntArray


class _State(NamedTuple):
    """Where a search stands: ``where`` (E, G) is 1 where a rank holds an expert, ``new`` (G,) loads looked at."""

    shares: FloatArray
    speeds: FloatArray
    price: FloatArray
    held: IntArray
    counts: IntArray
    where: IntArray
    load: FloatArray
    new: FloatArray


@numba.njit(cache=True)
def _opened(shares: FloatArray, held: IntArray, speeds: FloatArray, price: FloatArray) -> _State:
    """The search at its start; ``held`` is changed by it."""
    ranks, size = held.shape
    counts, where = np.zeros(len(shares), dtype=np.int64), np.zeros((len(shares), ranks), dtype=np.int64)
    for g in range(ranks):
        for i in range(size):
            counts[held[g, i]] += 1
            where[held[g, i], g] = 1
    load = np.zeros(ranks)
    for g in range(ranks):
        for i in range(size):
            load[g] += shares[held[g, i]] / counts[held[g, i]] / speeds[g]
    return _State(shares, speeds, price, held, counts, where, load, load.copy())


@numba.njit(cache=True)
def _excess(load: FloatArray, speeds: FloatArray, limit: float) -> float:
    """What ranks carry above ``limit``."""
    total = 0.0
    for g in range(len(load)):
        if load[g] > limit:
            total += (load[g] - limit) * speeds[g]
    return total


@numba.njit(cache=True)
def _try_swap(state: _State, g: int, i: int, h: int, j: int) -> bool:
    """Look at two slots changing their experts, in ``state.new``; whether that is allowed."""
    a, b = state.held[g, i], state.held[h, j]
    if a == b or g == h or state.where[a, h] or state.where[b, g]:
        return False
    state.new[:] = state.load
    less = state.shares[a] / state.counts[a] - state.shares[b] / state.counts[b]
    state.new[g] -= less / state.speeds[g]
    state.new[h] += less / state.speeds[h]
    return True


@numba.njit(cache=True)
def _try_copy(state: _State, a: int, h: int, j: int) -> bool:
    """Look at slot ``j`` of ``h`` going to a further copy of ``a``, in ``state.new``; whether that is allowed."""
    b = state.held[h, j]
    counts = state.counts
    if a == b or counts[b] < 2 or state.where[a, h]:
        return False
    thinner = state.shares[a] * (1.0 / (counts[a] + 1) - 1.0 / counts[a])
    thicker = state.shares[b] * (1.0 / (counts[b] - 1) - 1.0 / counts[b])
    for g in range(len(state.load)):
        change = thinner * state.where[a, g] + thicker * state.where[b, g]
        state.new[g] = state.load[g] + change / state.speeds[g]
    own = state.shares[a] / (counts[a] + 1) - state.shares[b] / (counts[b] - 1)
    state.new[h] += own / state.speeds[h]
    return True


@numba.njit(cache=True)
def _put(state: _State, g: int, i: int, expert: int) -> None:
    """Write ``expert`` into a slot; counts are the caller's."""
    state.where[state.held[g, i], g] = 0
    state.held[g, i] = expert
    state.where[expert, g] = 1


@numba.njit(cache=True)
def _below(number: int) -> int:
    """A random number from 0 and below ``number``."""
    return int(np.random.random() * number)  # noqa: NPY002


@numba.njit(cache=True)
def _missing(state: _State, before: IntArray) -> tuple[int, int, int]:
    """A rank, a slot with an expert that the running map has elsewhere, and one it lacks; rank -1 = not met."""
    g = _below(len(before))
    expert = before[g, _below(before.shape[1])]
    if state.where[expert, g]:
        return -1, 0, 0
    first = _below(before.shape[1])
    for turn in range(before.shape[1]):
        i = (first + turn) % before.shape[1]
        if state.price[g, state.held[g, i]] > 0:
            return g, i, expert
    return -1, 0, 0


@numba.njit(cache=True)
def _slot_of(state: _State, expert: int) -> tuple[int, int]:
    """A slot that holds ``expert``, one onto which it was loaded if there is any."""
    found, at = -1, -1
    for g in range(len(state.held)):
        if not state.where[expert, g] or (found >= 0 and state.price[g, expert] == 0):
            continue
        for i in range(state.held.shape[1]):
            if state.held[g, i] == expert:
                found, at = g, i
    return found, at


@numba.njit(cache=True)
def _proposed(state: _State, before: IntArray, top: int) -> tuple[int, int, int, int, int]:
    """A change to look at: two slots (g, i), (h, j) that swap, or with i = -1 expert a into slot (h, j).

    g = -1: none was met.  Half start from the slowest rank, a quarter lead back towards the running map.
    """
    ranks, size = state.held.shape
    copies = ranks * size > len(state.shares)
    kind = _below(4)
    if kind == 0:
        h, j, a = _missing(state, before)
        if h < 0:
            return -1, 0, 0, 0, 0
        if state.counts[state.held[h, j]] > 1 and _below(2):
            return 0, -1, h, j, a
        g, i = _slot_of(state, a)
        return g, i, h, j, a
    g, i, h, j = _below(ranks), _below(size), _below(ranks), _below(size)
    if kind > 1:
        g = top
    if not copies or _below(2):
        return g, i, h, j, state.held[g, i]
    if not _below(4):
        return 0, -1, g, i, _below(len(state.shares))
    return 0, -1, h, j, state.held[g, i]


@numba.njit(cache=True)
def _step(state: _State, change: tuple[int, int, int, int, int]) -> float:
    """Look at a change, in ``state.new``; by how much its loads cost more, infinite where it is not allowed."""
    g, i, h, j, a = change
    b = state.held[h, j]
    if i < 0:
        if not _try_copy(state, a, h, j):
            return np.inf
        return float(state.price[h, a] - state.price[h, b])
    if not _try_swap(state, g, i, h, j):
        return np.inf
    return float(state.price[h, a] - state.price[g, a] + state.price[g, b] - state.price[h, b])


@numba.njit(cache=True)
def _take(state: _State, change: tuple[int, int, int, int, int]) -> None:
    """Do what was looked at."""
    g, i, h, j, a = change
    b = state.held[h, j]
    if i < 0:
        state.counts[a] += 1
        state.counts[b] -= 1
    else:
        _put(state, g, i, b)
        state.where[b, h] = 0
    _put(state, h, j, a)
    if i >= 0:
        state.where[b, g] = 1
        state.where[a, g] = 0
    state.load[:] = state.new


@numba.njit(cache=True)
def _noted(state: _State, frontier: Frontier, cost: float) -> None:
    """Keep the map if it is the best for its number of loads."""
    ranks, size = state.held.shape
    loads = 0
    for g in range(ranks):
        for i in range(size):
            loads += state.price[g, state.held[g, i]] > 0
    slowest = state.load.max()
    if loads < len(frontier.slowest):
        less = slowest < frontier.slowest[loads] * (1 - 1e-12)
        if less or (slowest <= frontier.slowest[loads] and cost < frontier.cost[loads]):
            frontier.slowest[loads], frontier.cost[loads] = slowest, cost
            frontier.maps[loads] = state.held


@numba.njit(cache=True)
def _over(load: float, limit: float) -> float:
    """What a load exceeds the limit by."""
    return max(0.0, load - limit)


@numba.njit(cache=True)
def _best_swap(state: _State, limit: float, top: int) -> tuple[float, tuple[int, int, int, int, int]]:
    """What the best swap with a slot of rank ``top`` takes off the excess for its cost, and the swap."""
    best, found = 1e-9, (-1, 0, 0, 0, 0)
    ranks, size = state.held.shape
    load, speeds, price = state.load, state.speeds, state.price
    for i in range(size):
        a = state.held[top, i]
        for h in range(ranks):
            if h == top or state.where[a, h]:
                continue
            for j in range(size):
                b = state.held[h, j]
                mass = state.shares[a] / state.counts[a] - state.shares[b] / state.counts[b]
                if mass <= 0 or state.where[b, top]:
                    continue
                less = speeds[top] * (_over(load[top], limit) - _over(load[top] - mass / speeds[top], limit))
                less += speeds[h] * (_over(load[h], limit) - _over(load[h] + mass / speeds[h], limit))
                dearer = price[h, a] - price[top, a] + price[top, b] - price[h, b]
                worth = less / dearer if dearer > 0 else less * 1e3
                if worth > best:
                    best, found = worth, (top, i, h, j, a)
    return best, found


@numba.njit(cache=True)
def _worth(state: _State, change: tuple[int, int, int, int, int], limit: float, excess: float) -> float:
    """What a change takes off the excess for its cost; minus infinity where it is not allowed."""
    dearer = _step(state, change)
    if dearer == np.inf:
        return -np.inf
    less = excess - _excess(state.new, state.speeds, limit)
    return less / dearer if dearer > 0 else less * 1e3


@numba.njit(cache=True)
def _best_change(state: _State, limit: float) -> tuple[int, int, int, int, int]:
    """The change of a slot of the slowest rank, or of a copy of its experts, that lowers excess most for its cost.

    Rank -1: none lowers it.
    """
    ranks, size = state.held.shape
    top = int(np.argmax(state.load))
    excess = _excess(state.load, state.speeds, limit)
    best, found = _best_swap(state, limit, top)
    if ranks * size == len(state.shares):
        return found
    for h in range(ranks):
        for j in range(size):
            if state.counts[state.held[h, j]] < 2:
                continue
            for index in range(size if h != top else len(state.shares)):
                a = state.held[top, index] if h != top else index
                change = (0, -1, h, j, a)
                worth = _worth(state, change, limit, excess)
                if worth > best:
                    best, found = worth, change
    return found


@numba.njit(cache=True)
def _descend(state: _State, limit: float, frontier: Frontier, most: int) -> float:
    """The best change, one after the other, until no rank exceeds ``limit`` or none helps; what loads cost."""
    cost = 0.0
    for _ in range(most):
        if state.load.max() <= limit * (1 + 1e-12):
            break
        change = _best_change(state, limit)
        if change[0] < 0:
            break
        cost += _step(state, change)
        _take(state, change)
        _noted(state, frontier, cost)
    return cost


@numba.njit(cache=True)
def _anneal(
    state: _State,
    before: IntArray,
    limit: float,
    cost: float,
    schedule: tuple[int, float, float],
    frontier: Frontier,
) -> None:
    """Take random changes, dearer and worse ones ever less often."""
    steps, weight, temperature = schedule
    excess = _excess(state.load, state.speeds, limit)
    factor = 0.1 ** (1.0 / max(1, steps))
    top = int(np.argmax(state.load))
    for _ in range(steps):
        temperature *= factor
        change = _proposed(state, before, top)
        if change[0] < 0:
            continue
        dearer = _step(state, change)
        if dearer == np.inf:
            continue
        after = _excess(state.new, state.speeds, limit)
        worse = dearer + weight * (after - excess)
        if worse > 0 and np.random.random() >= np.exp(-worse / temperature):  # noqa: NPY002
            continue
        _take(state, change)
        cost += dearer
        excess = after
        top = int(np.argmax(state.load))
        if worse != 0:
            _noted(state, frontier, cost)


@numba.njit(cache=True, nogil=True)
def search_moves(
    shares: FloatArray,
    before: IntArray,
    speeds: FloatArray,
    price: FloatArray,
    limits: FloatArray,
    schedule: tuple[int, float, float, int],
    frontier: Frontier,
) -> None:
    """From the running map ``before`` (G, s) towards each of ``limits``, best changes first; fills ``frontier``.

    ``schedule``: steps of the annealing that follows for each limit, what a balanced rank's load above the limit
    weighs beside the price of a load, the first temperature in such prices, and a seed.
    """
    steps, weight, hot, seed = schedule
    np.random.seed(seed)  # noqa: NPY002
    for limit in limits:
        state = _opened(shares, before.copy(), speeds, price)
        _noted(state, frontier, 0.0)
        cost = _descend(state, limit, frontier, len(frontier.slowest))
        _anneal(state, before, limit, cost, (steps, weight, hot), frontier)
