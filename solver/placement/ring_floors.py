"""Least cost of reductions, wherever the nodes with slow links go (docs/placement.md, "Rings")."""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray


def in_and_out(between_s: FloatArray) -> FloatArray:
    """(N,) at most the slowest link of any closed ring of three nodes or more that holds the node.

    One node of the ring sends to it and another one hears from it; ``between_s`` (N, N) has senders in rows.
    """
    nodes = len(between_s)
    if nodes <= 2:
        return np.full(nodes, np.inf)
    cost = between_s + np.diag(np.full(nodes, np.inf))
    sender, receiver = np.argsort(cost, axis=0)[:2], np.argsort(cost, axis=1).T[:2]
    into, out = np.take_along_axis(cost, sender, axis=0), np.take_along_axis(cost.T, receiver, axis=0)
    apart = np.maximum(into[0], out[0])
    other = np.minimum(np.maximum(into[1], out[0]), np.maximum(into[0], out[1]))
    return np.asarray(np.where(sender[0] != receiver[0], apart, other))


def forced_floors(ring_s: FloatArray, count: int, spare: int) -> FloatArray:
    """(P,) seconds by which every last backward of a rank ends before the reductions are over, at least.

    ``ring_s`` (P, N): what a reduction takes that a node takes part in; ``count`` slots a rank, ``spare`` nodes to
    be left out.  Nodes that cost so much on this rank and all before it, more than the ranks after it and the spare
    ones can take, cannot all be kept away from these ranks, and those before it end later still.
    """
    stages = len(ring_s)
    falling = -np.sort(-np.minimum.accumulate(ring_s, axis=0), axis=1)
    return np.array([falling[s, count * (stages - 1 - s) + spare] for s in range(stages)])
