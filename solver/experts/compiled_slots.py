"""Compiled: experts over slots of any number for a rank, for several workloads at once, ranks of any speed.

Numba's cache notices a change only in the file of the function it compiled, so that no kernel calls one of another
file.  Letters: W workloads, E experts, G ranks, s slots of a rank.  ``shares`` (W, E) are scaled so that balanced
ranks all carry 1; ``held`` (G, s) is the expert in each slot; ``speeds`` (G,) have the mean 1.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numba
import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray

SQUARINGS: Final = 6
"""Ranks are pushed down by the 2**6-th power of their load: nearly by the maximum, but with a slope everywhere."""


@numba.njit(cache=True, nogil=True)
def packed(pieces: FloatArray, experts: IntArray, speeds: FloatArray, size: int) -> IntArray:
    """(G, size) ``pieces``, heaviest first, each to the rank that stays least loaded and lacks its expert.

    ``pieces`` (S,) descending and the expert of each.  Where the last ranks with room all hold the expert already,
    the piece changes places with one of a full rank.
    """
    ranks = len(speeds)
    held = np.full((ranks, size), -1, dtype=np.int64)
    load, filled = np.zeros(ranks), np.zeros(ranks, dtype=np.int64)
    for index in range(len(pieces)):
        best, least = -1, np.inf
        for g in range(ranks):
            after = (load[g] + pieces[index]) / speeds[g]
            if filled[g] == size or after >= least:
                continue
            free = True
            for i in range(filled[g]):
                free = free and held[g, i] != experts[index]
            if free:
                best, least = g, after
        if best >= 0:
            held[best, filled[best]] = experts[index]
            load[best] += pieces[index]
            filled[best] += 1
            continue
        _exchange_in(held, filled, load, experts[index], pieces[index])
    return held


@numba.njit(cache=True)
def _exchange_in(held: IntArray, filled: IntArray, load: FloatArray, expert: int, piece: float) -> None:
    """Put ``expert`` on a rank without it and move what lay there to a rank with room: there always is one."""
    ranks, size = held.shape
    for room in range(ranks):
        if filled[room] == size:
            continue
        for g in range(ranks):
            if g == room or (held[g] == expert).any():
                continue
            for i in range(filled[g]):
                if not (held[room, : filled[room]] == held[g, i]).any():
                    held[room, filled[room]] = held[g, i]
                    filled[room] += 1
                    held[g, i] = expert
                    load[g] += piece
                    return


@numba.njit(cache=True)
def _counts(held: IntArray, experts: int) -> IntArray:
    """(E,) copies of each expert."""
    counts = np.zeros(experts, dtype=np.int64)
    for g in range(len(held)):
        for i in range(held.shape[1]):
            counts[held[g, i]] += 1
    return counts


@numba.njit(cache=True)
def _load(shares: FloatArray, counts: IntArray, held: IntArray, speed: float) -> float:
    """The load of one rank, with the experts ``held`` (s,), over its speed."""
    total = 0.0
    for i in range(len(held)):
        total += shares[held[i]] / counts[held[i]]
    return total / speed


@numba.njit(cache=True)
def _best_swap(
    pieces: FloatArray, held: IntArray, speeds: FloatArray, load: FloatArray, top: int
) -> tuple[int, int, int]:
    """Rank, its slot and the slot of rank ``top`` whose swap leaves the slower of both fastest; rank -1 = none."""
    best, at, own, other = load[top] * (1 - 1e-12), -1, -1, -1
    for g in range(len(held)):
        for i in range(held.shape[1]):
            if g == top:
                continue
            for j in range(held.shape[1]):
                less = pieces[held[top, i]] - pieces[held[g, j]]
                if less <= 0:
                    continue
                slower = max(load[top] - less / speeds[top], load[g] + less / speeds[g])
                if slower < best and not (held[g] == held[top, i]).any() and not (held[top] == held[g, j]).any():
                    best, at, own, other = slower, g, i, j
    return at, own, other


@numba.njit(cache=True, nogil=True)
def swapped_down(shares: FloatArray, held: IntArray, speeds: FloatArray, target: float, most: int) -> int:
    """Swap experts of the slowest rank with others while that makes it faster; ``held`` changes; swaps done.

    For one workload, ``shares`` (E,), and copies as they are.  None is done once the slowest rank is at ``target``.
    """
    counts, load = _counts(held, len(shares)), np.empty(len(held))
    pieces = shares / np.maximum(counts, 1)
    for g in range(len(held)):
        load[g] = _load(shares, counts, held[g], speeds[g])
    for done in range(most):
        top = int(np.argmax(load))
        if load[top] <= target:
            return done
        g, own, other = _best_swap(pieces, held, speeds, load, top)
        if g < 0:
            return done
        held[top, own], held[g, other] = held[g, other], held[top, own]
        load[top] = _load(shares, counts, held[top], speeds[top])
        load[g] = _load(shares, counts, held[g], speeds[g])
    return most


class _Map(NamedTuple):
    """Where a search stands.

    ``counts`` (E,) copies, ``where`` (E, G) the ranks of the copies; ``loads`` (W, G) over speeds, ``powers`` (W,)
    sums of their powers, ``tops`` (W,) the slowest ranks; the rest as above.  A change that is looked at: the ranks
    ``touched``, their ``new`` loads (W, G), and the sums ``trial`` (W,); ``mark`` (G,) is scratch.
    """

    shares: FloatArray
    speeds: FloatArray
    held: IntArray
    counts: IntArray
    where: IntArray
    loads: FloatArray
    powers: FloatArray
    tops: IntArray
    touched: IntArray
    new: FloatArray
    trial: FloatArray
    mark: BoolArray


@numba.njit(cache=True)
def _opened(shares: FloatArray, held: IntArray, speeds: FloatArray) -> _Map:
    """The search at its start; ``held`` is changed by it."""
    workloads, experts = shares.shape
    ranks = len(held)
    counts = _counts(held, experts)
    where, filled = np.zeros((experts, ranks), dtype=np.int64), np.zeros(experts, dtype=np.int64)
    loads = np.zeros((workloads, ranks))
    for g in range(ranks):
        for i in range(held.shape[1]):
            where[held[g, i], filled[held[g, i]]] = g
            filled[held[g, i]] += 1
        for w in range(workloads):
            loads[w, g] = _load(shares[w], counts, held[g], speeds[g])
    return _Map(
        shares,
        speeds,
        held,
        counts,
        where,
        loads,
        np.zeros(workloads),
        np.zeros(workloads, dtype=np.int64),
        np.zeros(ranks, dtype=np.int64),
        np.zeros((workloads, ranks)),
        np.zeros(workloads),
        np.zeros(ranks, dtype=np.bool_),
    )


@numba.njit(cache=True)
def _power(load: float) -> float:
    """``load`` to the power of ``2**SQUARINGS``."""
    for _ in range(SQUARINGS):
        load *= load
    return load


@numba.njit(cache=True)
def _smooth_worth(powers: FloatArray, weights: FloatArray, ranks: int) -> float:
    """Weighted sum over workloads of 1 over the power mean of the loads; ``powers`` (W,) sums of powers."""
    worth = 0.0
    for w in range(len(weights)):
        mean = powers[w] / ranks
        for _ in range(SQUARINGS):
            mean = np.sqrt(mean)
        worth += weights[w] / mean
    return worth


@numba.njit(cache=True)
def _settled(state: _Map, weights: FloatArray) -> float:
    """Sum powers anew and find the slowest ranks; the weighted sum of balancedness."""
    worth, ranks = 0.0, len(state.held)
    for w in range(len(weights)):
        total, top = 0.0, 0
        for g in range(ranks):
            total += _power(state.loads[w, g])
            if state.loads[w, g] > state.loads[w, top]:
                top = g
        state.powers[w], state.tops[w] = total, top
        worth += weights[w] / state.loads[w, top]
    return worth


@numba.njit(cache=True)
def _trial_worth(state: _Map, weights: FloatArray, count: int) -> float:
    """``_smooth_worth`` after a change of the first ``count`` ranks ``touched``."""
    for w in range(len(weights)):
        total = state.powers[w]
        for index in range(count):
            at = state.touched[index]
            total += _power(state.new[w, at]) - _power(state.loads[w, at])
        state.trial[w] = max(total, 1e-9)
    return _smooth_worth(state.trial, weights, len(state.held))


@numba.njit(cache=True)
def _after_swap(state: _Map, g: int, h: int, a: int, b: int) -> int:
    """Look at expert ``a`` of rank ``g`` and ``b`` of ``h`` changing places; ranks touched, 0 = not allowed."""
    if a == b or g == h or (state.held[h] == a).any() or (state.held[g] == b).any():
        return 0
    state.touched[0], state.touched[1] = g, h
    for w in range(len(state.shares)):
        less = state.shares[w, a] / state.counts[a] - state.shares[w, b] / state.counts[b]
        state.new[w, g] = state.loads[w, g] - less / state.speeds[g]
        state.new[w, h] = state.loads[w, h] + less / state.speeds[h]
    return 2


@numba.njit(cache=True)
def _after_copy(state: _Map, a: int, b: int, h: int) -> int:
    """Look at a further copy of ``a`` in the place of ``b`` on rank ``h``; ranks touched, 0 = not allowed."""
    counts, where = state.counts, state.where
    if counts[b] < 2 or a == b or (state.held[h] == a).any():
        return 0
    count = 0
    for turn in range(2):
        e = a if turn == 0 else b
        for index in range(counts[e]):
            at = where[e, index]
            if not state.mark[at]:
                state.mark[at] = True
                state.touched[count] = at
                count += 1
    # ``h`` holds ``b`` and is among them
    for index in range(count):
        at = state.touched[index]
        state.mark[at] = False
        for w in range(len(state.shares)):
            state.new[w, at] = state.loads[w, at]
    for w in range(len(state.shares)):
        thinner, thicker = state.shares[w, a] / (counts[a] + 1), state.shares[w, b] / (counts[b] - 1)
        for index in range(counts[a]):
            at = where[a, index]
            state.new[w, at] += (thinner - state.shares[w, a] / counts[a]) / state.speeds[at]
        for index in range(counts[b]):
            at = where[b, index]
            state.new[w, at] += (thicker - state.shares[w, b] / counts[b]) / state.speeds[at]
        state.new[w, h] += (thinner - thicker) / state.speeds[h]
    return count


@numba.njit(cache=True)
def _moved(where: IntArray, count: int, expert: int, old: int, new: int) -> None:
    """Replace rank ``old`` by ``new`` among the ``count`` ranks that hold ``expert``."""
    for index in range(count):
        if where[expert, index] == old:
            where[expert, index] = new
            return


@numba.njit(cache=True)
def _take(state: _Map, count: int, g: int, i: int, h: int, j: int, a: int) -> None:
    """Do it: ``a`` goes into slot ``j`` of ``h``, and what lay there into slot ``i`` of ``g`` (-1: away)."""
    b = state.held[h, j]
    state.held[h, j] = a
    if i >= 0:
        state.held[g, i] = b
        _moved(state.where, state.counts[a], a, g, h)
        _moved(state.where, state.counts[b], b, h, g)
    else:
        state.where[a, state.counts[a]] = h
        state.counts[a] += 1
        state.counts[b] -= 1
        _moved(state.where, state.counts[b], b, h, state.where[b, state.counts[b]])
    for index in range(count):
        at = state.touched[index]
        for w in range(len(state.shares)):
            state.loads[w, at] = _load(state.shares[w], state.counts, state.held[at], state.speeds[at])


@numba.njit(cache=True)
def _below(number: int) -> int:
    """A random number from 0 and below ``number``."""
    return int(np.random.random() * number)  # noqa: NPY002


@numba.njit(cache=True, nogil=True)
def anneal_slots(
    shares: FloatArray,
    held: IntArray,
    speeds: FloatArray,
    weights: FloatArray,
    steps: int,
    seed: int,
    hot: float,
    cold: float,
) -> float:
    """Simulated annealing of ``held``, which ends as the best found: its weighted sum of balancedness.

    A step swaps two slots, or gives a slot with one of several copies of an expert to another expert.  Worse ones
    are taken with a probability that falls with the temperature, from ``hot`` to ``cold``, in balancedness.
    """
    np.random.seed(seed)  # noqa: NPY002
    workloads, experts = shares.shape
    ranks, size = held.shape
    state = _opened(shares, held, speeds)
    best_worth = _settled(state, weights)
    worth, best = _smooth_worth(state.powers, weights, ranks), held.copy()
    temperature, factor = hot, (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        temperature *= factor
        g, i, h, j = _below(ranks), _below(size), _below(ranks), _below(size)
        if _below(2):
            g = state.tops[_below(workloads)]
        a = held[g, i]
        if ranks * size > experts and _below(2):
            a = _below(experts) if _below(2) else a
            i = -1
            count = _after_copy(state, a, held[h, j], h)
        else:
            count = _after_swap(state, g, h, a, held[h, j])
        if not count:
            continue
        after = _trial_worth(state, weights, count)
        if after < worth and np.random.random() >= np.exp((after - worth) / temperature):  # noqa: NPY002
            continue
        _take(state, count, g, i, h, j, a)
        reached = _settled(state, weights)
        worth = _smooth_worth(state.powers, weights, ranks)
        if reached > best_worth:
            best_worth = reached
            best[:] = held
    held[:] = best
    return best_worth
