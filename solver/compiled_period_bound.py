"""Compiled routes over nodes whose periods are limited: the pricing of the period bound (docs/placement.md).

A route gives each of P positions a node.  How far its slowest stretch of ranks stays below its limit is one number,
the *slack*, which is rounded up to whole levels: a route that keeps the limits keeps them here too.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import kernel, relaxed

UNREACHED: Final = 1e300
"""Price of a route that does not exist."""
ROOM: Final = 1e-6
"""Levels that rounding up leaves for the rounding of floating-point numbers."""


@relaxed("nnan", "nsz")
def next_layer(  # noqa: C901 - one kernel, called once for each position
    value: FloatArray, hop_s: FloatArray, gain_s: FloatArray, most: IntArray, price: FloatArray, level_s: float
) -> FloatArray:
    """(N, W) price of the cheapest route to each node with a slack of at least each level, one position further.

    ``value`` (N, W): the same on the position before; ``hop_s`` (N, N): transfer there and back between two nodes;
    ``gain_s`` (N,): what a node adds to the slack before the transfer takes from it; ``most`` (N,): most levels of
    slack on it, -1 where it may not be; ``price`` (N,); ``level_s``: seconds of a level.
    """
    nodes, width = value.shape
    result = np.full((nodes, width), UNREACHED)
    for m in range(nodes):
        last = min(most[m], width - 1)
        if last < 0:
            continue
        row = result[m]
        for n in range(nodes):
            if n == m or value[n, 0] >= UNREACHED:
                continue
            known, shift = value[n], int(np.ceil((gain_s[m] - hop_s[n, m]) / level_s + ROOM))
            for level in range(min(shift, last + 1)):
                if known[0] < row[level]:  # noqa: PLR1730 - as it stands the compiler makes vectors of it
                    row[level] = known[0]
            for level in range(max(0, shift), min(last, width - 1 + shift) + 1):
                if known[level - shift] < row[level]:  # noqa: PLR1730
                    row[level] = known[level - shift]
        for level in range(last + 1):
            if row[level] < UNREACHED:
                row[level] += price[m]
    return result


@kernel
def route_to(values: FloatArray, hop_s: FloatArray, gain_s: FloatArray, level_s: float, end: int) -> IntArray:
    """(P,) nodes of the cheapest route to ``end``, from the layers (P, N, W) and gains (P, N) of ``next_layer``."""
    positions, nodes, width = values.shape
    route = np.empty(positions, dtype=np.int64)
    m, level = end, 0
    for q in range(positions - 1, 0, -1):
        route[q] = m
        best, at, slack = np.inf, 0, 0
        for n in range(nodes):
            before = max(0, level - int(np.ceil((gain_s[q, m] - hop_s[n, m]) / level_s + ROOM)))
            if n != m and before < width and values[q - 1, n, before] < best:
                best, at, slack = values[q - 1, n, before], n, before
        m, level = at, slack
    route[0] = m
    return route
