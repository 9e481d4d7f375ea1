"""Compiled: how many copies each expert gets where every rank has two slots.

For given counts the best map is known: the heaviest copy goes with the lightest, the next with the next
(docs/experts.md).  So only counts are searched.  Numba's cache notices a change only in the file of the function it
compiled, so that no kernel calls one of another file.  Letters: E experts, S slots, G ranks.
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray

STEP: Final = 0.002
"""The pairs are pushed below a limit that lies so much (relatively) under the heaviest pair of the best counts."""


@numba.njit(cache=True, nogil=True)
def thinnest(shares: FloatArray, slots: int, most: int) -> IntArray:
    """(E,) counts with the lightest heaviest copy: each further copy goes to the heaviest per copy.

    ``shares`` (E,); no expert gets more than ``most`` copies.
    """
    counts = np.ones(len(shares), dtype=np.int64)
    for _ in range(slots - len(shares)):
        heaviest, at = -1.0, 0
        for e in range(len(shares)):
            if counts[e] < most and shares[e] / counts[e] > heaviest:
                heaviest, at = shares[e] / counts[e], e
        counts[at] += 1
    return counts


@numba.njit(cache=True)
def _sorted_pieces(shares: FloatArray, counts: IntArray, slots: int) -> FloatArray:
    """(S,) what each copy carries, ascending."""
    pieces, filled = np.empty(slots), 0
    for e in range(len(shares)):
        for _ in range(counts[e]):
            pieces[filled] = shares[e] / counts[e]
            filled += 1
    pieces.sort()
    return pieces


@numba.njit(cache=True)
def _excess(pieces: FloatArray, limit: float) -> float:
    """By how much the pairs exceed ``limit``, all together."""
    total, last = 0.0, len(pieces) - 1
    for i in range(len(pieces) // 2):
        total += max(0.0, pieces[i] + pieces[last - i] - limit)
    return total


@numba.njit(cache=True)
def _heaviest_pair(pieces: FloatArray) -> float:
    """The heaviest pair."""
    heaviest, last = 0.0, len(pieces) - 1
    for i in range(len(pieces) // 2):
        heaviest = max(heaviest, pieces[i] + pieces[last - i])
    return heaviest


@numba.njit(cache=True)
def _exchanged(old: FloatArray, new: FloatArray, thin: float, r: int, thick: float, c: int) -> None:
    """Fill ``new`` from ``old``, both ascending: a copy moved from the expert ``thin``, ``r`` to ``thick``, ``c``.

    The first has share ``thin`` and ``r`` copies, the second ``thick`` and ``c``, before the move.
    """
    drop, drop_left, also, also_left = thin / r, r, thick / c, c
    low, low_left, high, high_left = thin / (r - 1), r - 1, thick / (c + 1), c + 1
    if high < low:
        low, low_left, high, high_left = high, high_left, low, low_left
    at = 0
    for index in range(len(old)):
        value = old[index]
        while low_left > 0 and low <= value:
            new[at] = low
            at += 1
            low_left -= 1
        while low_left == 0 and high_left > 0 and high <= value:
            new[at] = high
            at += 1
            high_left -= 1
        if drop_left > 0 and value == drop:
            drop_left -= 1
        elif also_left > 0 and value == also:
            also_left -= 1
        else:
            new[at] = value
            at += 1
    new[at : at + low_left] = low
    new[at + low_left : at + low_left + high_left] = high


@numba.njit(cache=True, nogil=True)
def annealed_counts(
    shares: FloatArray, start: IntArray, most: int, target: float, steps: int, seed: int, hot: float, cold: float
) -> IntArray:
    """(E,) the best counts that simulated annealing found from ``start``.

    A step moves one copy from an expert to another; what is lowered is the excess of all pairs over a limit just
    below the heaviest pair of the best counts so far.  Ends early at a heaviest pair of ``target``.
    """
    np.random.seed(seed)  # noqa: NPY002
    experts, slots = len(shares), int(start.sum())
    counts, best = start.copy(), start.copy()
    pieces, trial = _sorted_pieces(shares, counts, slots), np.empty(slots)
    heaviest = _heaviest_pair(pieces)
    limit = max(heaviest * (1 - STEP), target)
    excess = _excess(pieces, limit)
    temperature, factor = hot, (cold / hot) ** (1.0 / max(1, steps))
    for _ in range(steps):
        if heaviest <= target * (1 + 1e-9):
            break
        temperature *= factor
        a = int(np.random.random() * experts)  # noqa: NPY002
        while counts[a] < 2:
            a = int(np.random.random() * experts)  # noqa: NPY002
        b = int(np.random.random() * experts)  # noqa: NPY002
        if a == b or counts[b] >= most:
            continue
        _exchanged(pieces, trial, shares[a], counts[a], shares[b], counts[b])
        after = _excess(trial, limit)
        if after > excess and np.random.random() >= np.exp((excess - after) / temperature):  # noqa: NPY002
            continue
        pieces, trial, excess = trial, pieces, after
        counts[a] -= 1
        counts[b] += 1
        reached = _heaviest_pair(pieces)
        if reached < heaviest:
            heaviest, best[:] = reached, counts
            limit = max(heaviest * (1 - STEP), target)
            excess = _excess(pieces, limit)
    return best


@numba.njit(cache=True, nogil=True)
def paired(pieces: FloatArray, experts: IntArray) -> IntArray:
    """(G, 2) the heaviest of ``pieces``, descending, with the lightest and so on, never two of one expert.

    ``experts`` names the expert of each piece.  Two copies of one expert that meet in the middle change partners
    with the pair that grows least by it.
    """
    ranks = len(pieces) // 2
    first, second = np.arange(ranks), len(pieces) - 1 - np.arange(ranks)
    for g in range(ranks):
        own = experts[first[g]]
        if own != experts[second[g]]:
            continue
        least, partner = np.inf, -1
        for h in range(ranks):
            if experts[first[h]] == own or experts[second[h]] == own:
                continue
            grown = pieces[second[g]] + pieces[first[h]]
            if grown < least:
                least, partner = grown, h
        if partner >= 0:
            first[partner], second[g] = second[g], first[partner]
    held = np.empty((ranks, 2), dtype=np.int64)
    for g in range(ranks):
        held[g, 0], held[g, 1] = experts[first[g]], experts[second[g]]
    return held
