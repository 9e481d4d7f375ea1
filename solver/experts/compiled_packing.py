"""Compiled: copies of experts packed onto ranks of any speed, and swaps that make the slowest rank faster.

Letters: E experts, G ranks, s slots of a rank.  ``shares`` (E,) are scaled so that balanced ranks all carry 1;
``held`` (G, s) is the expert in each slot; ``speeds`` (G,) have the mean 1.
"""

from __future__ import annotations

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray


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
