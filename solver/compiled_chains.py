"""Compiled: which nodes are near to each other, at thousands of nodes."""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import kernel


@kernel
def chain_orders(both_s: FloatArray, firsts: IntArray) -> IntArray:
    """(chains, N) nodes in nearest-neighbour chains from each of ``firsts``: close nodes stand side by side.

    ``both_s`` (N, N): what a link takes, both ways together.  Of equally near nodes the lowest comes first.
    """
    nodes = len(both_s)
    orders = np.empty((len(firsts), nodes), dtype=np.int64)
    for chain in range(len(firsts)):
        free, node = np.arange(nodes), firsts[chain]
        for place in range(nodes):
            left = nodes - place
            orders[chain, place] = node
            # ``free`` stays in ascending order, so that the lowest of equals is met first
            kept, nearest, best_s = 0, -1, np.inf
            for index in range(left):
                other = free[index]
                if other != node:
                    free[kept] = other
                    kept += 1
                    if both_s[node, other] < best_s or nearest < 0:
                        nearest, best_s = other, both_s[node, other]
            node = nearest
    return orders


@kernel
def nearest_nodes(both_s: FloatArray, count: int) -> IntArray:
    """(N, count) the nodes nearest to each node, nearest first, the lowest of equals first.

    ``both_s`` as above; ``count`` is below N.
    """
    nodes = len(both_s)
    near = np.empty((nodes, count), dtype=np.int64)
    for node in range(nodes):
        found = 0
        for other in range(nodes):
            full = found == count
            if other == node or (full and both_s[node, other] >= both_s[node, near[node, count - 1]]):
                continue
            at = count - 1 if full else found
            while at > 0 and both_s[node, other] < both_s[node, near[node, at - 1]]:
                near[node, at] = near[node, at - 1]
                at -= 1
            near[node, at] = other
            found += not full
    return near
