"""Compiled: copies of experts packed onto ranks of any speed, and swaps that make the slowest rank faster.

Letters: E experts, G ranks, s slots of a rank.  ``shares`` (E,) are scaled so that balanced ranks all carry 1;
``held`` (G, s) is the expert in each slot; ``speeds`` (G,) have the mean 1.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_map import LayerCase, LayerMap, Move, allowed, opened, put
from solver.kernels import inner, kernel


@kernel
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


@inner
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


@inner
def _best_swap(layer: LayerMap, top: int) -> Move:
    """The swap with a slot of rank ``top`` that leaves the slower of both fastest; none: ``h`` = ``top``."""
    held, load, speeds = layer.held, layer.loads[0], layer.speeds
    pieces = layer.shares[0] / np.maximum(layer.counts, 1)
    best, found = load[top] * (1 - 1e-12), Move(top, 0, top, 0, 0, 0)
    for h in range(len(held)):
        for j in range(held.shape[1]):
            for i in range(held.shape[1]):
                less = pieces[held[top, i]] - pieces[held[h, j]]
                if less <= 0 or h == top:
                    continue
                slower = max(load[top] - less / speeds[top], load[h] + less / speeds[h])
                if slower < best:
                    move = Move(top, i, h, j, held[top, i], held[h, j])
                    if allowed(layer, move):
                        best, found = slower, move
    return found


@kernel
def swap_down(shares: FloatArray, held: IntArray, speeds: FloatArray, target: float, most: int) -> int:
    """Swap experts of the slowest rank with others while that makes it faster; ``held`` changes; number of swaps.

    For one workload, ``shares`` (E,), and copies as they are.  It ends once the slowest rank is at ``target``.
    """
    layer = opened(LayerCase(shares.reshape(1, -1), np.zeros(1, dtype=np.bool_), speeds, 1), held)
    for done in range(most):
        top = int(np.argmax(layer.loads[0]))
        move = _best_swap(layer, top)
        if layer.loads[0, top] <= target or move.h == top:
            return done
        put(layer, move)
        layer.loads[:] = layer.tried
    return most
