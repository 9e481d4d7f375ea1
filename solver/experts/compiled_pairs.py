"""Compiled: how many copies each expert gets where every rank has two slots.

For given counts the best map is known: the heaviest copy goes with the lightest, the next with the next
(docs/experts.md).  So only counts are searched.  Letters: E experts, S slots, G ranks.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_annealing import Schedule, annealer, below
from solver.kernels import inner, kernel

STEP: Final = 0.002
"""The pairs are pushed below a limit that lies so much (relatively) under the heaviest pair of the best counts."""


@inner
def _sorted_pieces(shares: FloatArray, counts: IntArray, slots: int) -> FloatArray:
    """(S,) what each copy carries, ascending."""
    pieces, filled = np.empty(slots), 0
    for e in range(len(shares)):
        for _ in range(counts[e]):
            pieces[filled] = shares[e] / counts[e]
            filled += 1
    pieces.sort()
    return pieces


@inner
def _excess(pieces: FloatArray, limit: float) -> float:
    """By how much the pairs exceed ``limit``, all together."""
    total, last = 0.0, len(pieces) - 1
    for i in range(len(pieces) // 2):
        total += max(0.0, pieces[i] + pieces[last - i] - limit)
    return total


@inner
def _heaviest_pair(pieces: FloatArray) -> float:
    """The heaviest pair."""
    heaviest, last = 0.0, len(pieces) - 1
    for i in range(len(pieces) // 2):
        heaviest = max(heaviest, pieces[i] + pieces[last - i])
    return heaviest


@inner
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


class _Counts(NamedTuple):
    """Counts of copies while they are searched.

    ``counts`` (E,) and ``best``; ``pieces`` (S,) what copies carry, ascending, and ``tried`` the same after a move;
    ``sums`` (4,): the heaviest pair of the best counts, a limit just below it, the excess over the limit, and the
    excess after a move.
    """

    shares: FloatArray
    counts: IntArray
    best: IntArray
    pieces: FloatArray
    tried: FloatArray
    sums: FloatArray


class _Aim(NamedTuple):
    """No expert gets more than ``most`` copies; no pair need be lighter than ``target``."""

    most: int
    target: float


@inner
def _note(state: _Counts, aim: _Aim) -> None:
    """Keep the counts if their heaviest pair is the lightest so far, and lower the limit below it."""
    reached = _heaviest_pair(state.pieces)
    if reached < state.sums[0]:
        state.sums[0] = reached
        state.best[:] = state.counts
        state.sums[1] = max(reached * (1 - STEP), aim.target)
        state.sums[2] = _excess(state.pieces, state.sums[1])


@inner
def _propose(state: _Counts, _: _Aim) -> tuple[int, int]:
    """One copy from an expert with several to another."""
    a = below(len(state.counts))
    while state.counts[a] < 2:
        a = below(len(state.counts))
    return a, below(len(state.counts))


@inner
def _judge(state: _Counts, aim: _Aim, move: tuple[int, int]) -> float:
    """Growth of the excess; no move is allowed once the target is reached."""
    a, b = move
    shares, counts = state.shares, state.counts
    if a == b or counts[b] >= aim.most or state.sums[0] <= aim.target * (1 + 1e-9):
        return np.inf
    _exchanged(state.pieces, state.tried, shares[a], counts[a], shares[b], counts[b])
    state.sums[3] = _excess(state.tried, state.sums[1])
    return float(state.sums[3] - state.sums[2])


@inner
def _accept(state: _Counts, aim: _Aim, move: tuple[int, int]) -> None:
    state.pieces[:] = state.tried
    state.sums[2] = state.sums[3]
    state.counts[move[0]] -= 1
    state.counts[move[1]] += 1
    _note(state, aim)


@inner
def _reject(_: _Counts, __: _Aim, ___: tuple[int, int]) -> None:
    return


_anneal = annealer(_propose, _judge, _accept, _reject)


@kernel
def annealed_counts(shares: FloatArray, start: IntArray, most: int, target: float, schedule: Schedule) -> IntArray:
    """(E,) the best counts that simulated annealing found from ``start``.

    The objective is the excess of all pairs over a limit just below the heaviest pair of the best counts so far.
    """
    pieces = _sorted_pieces(shares, start, int(start.sum()))
    sums = np.array([np.inf, 0.0, 0.0, 0.0])
    state = _Counts(shares, start.copy(), start.copy(), pieces, pieces.copy(), sums)
    aim = _Aim(most, target)
    _note(state, aim)
    _anneal(state, aim, schedule)
    return state.best


@kernel
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
