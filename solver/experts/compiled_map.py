"""Compiled: a map of one layer under moves of its slots, and the loads of ranks that follow.

Letters: W workloads, E experts, G ranks, N nodes, s slots of a rank.  Shares are scaled so that every rank of
a balanced map carries 1.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.kernels import inner


class LayerCase(NamedTuple):
    """A layer without its map.

    ``shares`` (W, E); ``near`` (W,): whether the nearest copy serves in a workload, else any copy; ``speeds`` (G,)
    of mean 1, ``nodes`` of G / N ranks side by side.
    """

    shares: FloatArray
    near: BoolArray
    speeds: FloatArray
    nodes: int


class LayerMap(NamedTuple):
    """A map while moves change it.

    ``held`` (G, s) the expert of each slot, ``counts`` (E,) copies, ``where`` (E, G) the ranks of an expert's
    copies; ``loads`` (W, G) over speeds and ``tried`` the same after a move.  ``on_node``, ``first`` (N,) and
    ``parts`` (G,) are scratch.
    """

    shares: FloatArray
    near: BoolArray
    speeds: FloatArray
    nodes: int
    some_near: bool
    held: IntArray
    counts: IntArray
    where: IntArray
    loads: FloatArray
    tried: FloatArray
    on_node: IntArray
    first: IntArray
    parts: FloatArray


class Move(NamedTuple):
    """``expert`` takes slot ``j`` of rank ``h`` from ``other``, which takes slot ``i`` of ``g``.

    With ``i`` = -1 it takes none: ``expert`` gets a further copy, and ``other`` loses one.
    """

    g: int
    i: int
    h: int
    j: int
    expert: int
    other: int


@inner
def opened(case: LayerCase, held: IntArray) -> LayerMap:
    """The map ``held`` (G, s), which moves change."""
    workloads, experts = case.shares.shape
    ranks = len(held)
    counts, where = np.zeros(experts, dtype=np.int64), np.zeros((experts, ranks), dtype=np.int64)
    for g in range(ranks):
        for expert in held[g]:
            where[expert, counts[expert]] = g
            counts[expert] += 1
    loads = np.zeros((workloads, ranks))
    on_node = np.zeros(case.nodes, dtype=np.int64)
    layer = LayerMap(
        case.shares,
        case.near,
        case.speeds,
        case.nodes,
        bool(case.near.any()),
        held,
        counts,
        where,
        loads,
        loads.copy(),
        on_node,
        on_node.copy(),
        np.zeros(ranks),
    )
    for expert in range(experts):
        _carry(layer, expert, 1.0)
    loads[:] = layer.tried
    return layer


@inner
def near_parts(
    where: IntArray, count: int, ranks: int, nodes: int, on_node: IntArray, first: IntArray, parts: FloatArray
) -> None:
    """Fill ``parts`` with the share of an expert's selections that each of its ``count`` copies serves.

    The copies lie on the ranks ``where``, no two on one.  A rank with a copy is served by it, a rank without one by
    the first copy of its node, and the ranks of nodes without any by all copies equally.
    """
    width = ranks // nodes
    for index in range(count):
        on_node[where[index] // width] = 0
        first[where[index] // width] = ranks
    holding = 0
    for index in range(count):
        node = where[index] // width
        holding += on_node[node] == 0
        on_node[node] += 1
        first[node] = min(first[node], where[index])
    anywhere = (nodes - holding) * width / (ranks * count)
    for index in range(count):
        node = where[index] // width
        own = 1 + width - on_node[node] if first[node] == where[index] else 1
        parts[index] = own / ranks + anywhere


@inner
def _carry(layer: LayerMap, expert: int, sign: float) -> None:
    """Add (1) or take away (-1) what the copies of an expert bring to the tried loads."""
    count, where = layer.counts[expert], layer.where[expert]
    if layer.some_near:
        near_parts(where, count, len(layer.speeds), layer.nodes, layer.on_node, layer.first, layer.parts)
    for w in range(len(layer.shares)):
        share = sign * layer.shares[w, expert]
        for index in range(count):
            part = layer.parts[index] if layer.near[w] else 1.0 / count
            layer.tried[w, where[index]] += share * part / layer.speeds[where[index]]


@inner
def holds(layer: LayerMap, rank: int, expert: int) -> bool:
    """Whether a rank has a copy of an expert."""
    found = False
    for slot in range(layer.held.shape[1]):
        found = found or layer.held[rank, slot] == expert
    return found


@inner
def allowed(layer: LayerMap, move: Move) -> bool:
    """Whether a move leaves every expert a copy and no rank with two of one."""
    if move.expert == move.other or holds(layer, move.h, move.expert):
        return False
    if move.i < 0:
        return bool(layer.counts[move.other] > 1)
    return move.g != move.h and not holds(layer, move.g, move.other)


@inner
def _rehome(layer: LayerMap, expert: int, old: int, new: int) -> None:
    """Replace rank ``old`` by ``new`` among those with a copy of ``expert``."""
    for index in range(layer.counts[expert]):
        if layer.where[expert, index] == old:
            layer.where[expert, index] = new
            return


@inner
def relocate(layer: LayerMap, move: Move) -> None:
    """Make a move, loads aside."""
    layer.held[move.h, move.j] = move.expert
    if move.i >= 0:
        layer.held[move.g, move.i] = move.other
        _rehome(layer, move.expert, move.g, move.h)
        _rehome(layer, move.other, move.h, move.g)
    else:
        layer.where[move.expert, layer.counts[move.expert]] = move.h
        layer.counts[move.expert] += 1
        layer.counts[move.other] -= 1
        _rehome(layer, move.other, move.h, layer.where[move.other, layer.counts[move.other]])


@inner
def put(layer: LayerMap, move: Move) -> None:
    """Make a move, with the loads after it in ``tried``."""
    for w in range(layer.loads.shape[0]):
        for rank in range(layer.loads.shape[1]):
            layer.tried[w, rank] = layer.loads[w, rank]
    if move.i >= 0 and not layer.some_near:
        a, b, g, h = move.expert, move.other, move.g, move.h
        for w in range(layer.loads.shape[0]):
            less = layer.shares[w, a] / layer.counts[a] - layer.shares[w, b] / layer.counts[b]
            layer.tried[w, g] -= less / layer.speeds[g]
            layer.tried[w, h] += less / layer.speeds[h]
        relocate(layer, move)
        return
    _carry(layer, move.expert, -1.0)
    _carry(layer, move.other, -1.0)
    relocate(layer, move)
    _carry(layer, move.expert, 1.0)
    _carry(layer, move.other, 1.0)


@inner
def take_back(layer: LayerMap, move: Move) -> None:
    """Undo a move that was put; ``loads`` were not changed by it."""
    relocate(layer, Move(move.g, move.i, move.h, move.j, move.other, move.expert))
