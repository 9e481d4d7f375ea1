"""Compiled bottleneck rings: how slow a ring through given nodes is at least (docs/placement.md, "Branches")."""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel


@inner
def _gaps(link_s: FloatArray, through: IntArray, free: IntArray) -> FloatArray:
    """(4, S, S) slowest link, at least, from one node to another with 0, 1, 2 and any more of ``free`` between."""
    count = len(through)
    gap = np.full((4, count, count), np.inf)
    for j in range(count):
        end = through[j]
        entering = min([link_s[w, end] for w in free] + [np.inf])
        # from each free node, by way of another one
        onward = np.array(
            [min([max(link_s[w, x], link_s[x, end]) for x in free if x != w] + [np.inf]) for w in free]
        )
        for i in range(count):
            start = through[i]
            gap[0, i, j] = link_s[start, end]
            leaving = np.inf
            for k, w in enumerate(free):
                leaving = min(leaving, link_s[start, w])
                gap[1, i, j] = min(gap[1, i, j], max(link_s[start, w], link_s[w, end]))
                gap[2, i, j] = min(gap[2, i, j], max(link_s[start, w], onward[k]))
            gap[3, i, j] = max(leaving, entering)
    return gap


@inner
def _extend(ring_s: FloatArray, gap: FloatArray, longer_s: FloatArray) -> None:
    """Lower ``longer_s``, the slowest link by how many others a ring took, to ``ring_s`` and then a gap (4,)."""
    for used in range(len(ring_s)):
        for k in range(min(4, len(ring_s) - used)):
            longer_s[used + k] = min(longer_s[used + k], max(ring_s[used], gap[k]))


@kernel
def ring_through(link_s: FloatArray, through: IntArray, free: IntArray, length: int) -> float:
    """The slowest link, at least, of any closed ring of ``length`` nodes through all of ``through`` (S,), S > 1.

    The others are from ``free``; each may come in several places.  Held and Karp's dynamic program for the
    bottleneck: which nodes were met, where the ring stands, how many others it took.
    """
    count, others = len(through), length - len(through)
    gap = _gaps(link_s, through, free)
    best = np.full((1 << count, count, others + 1), np.inf)
    best[1, 0, 0] = 0.0
    closed = np.full(others + 1, np.inf)
    for met in range(1, 1 << count, 2):
        for at in range(count):
            if met & (1 << at):
                for j in range(1, count):
                    if not met & (1 << j):
                        _extend(best[met, at], gap[:, at, j], best[met | (1 << j), j])
    for at in range(1, count):
        _extend(best[-1, at], gap[:, at, 0], closed)
    return float(closed.min())
