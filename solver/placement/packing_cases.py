"""Cases that the packing bound tells apart, for what no fraction of a walk shows.

A rank has one reduction, which all its walks wait for: it takes at most d seconds or more.  And a node serves the
rank or does not: if it does, the others of the rank lie on one ring with it.  A step is impossible when it is so in
both cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from typing import Final, NamedTuple

import numpy as np
from scipy.sparse.csgraph import shortest_path

from solver.candidates import BoolArray, FloatArray, IntArray

MOST_ORDERED: Final = 7
"""The rings of at most this many nodes are all looked at once their nodes are known."""
LEAST_SHARE: Final = 0.1
"""Of a walk, that both sides of a reduction time must rule out for it to be worth a split."""
SEEN: Final = 1e-4
ROUNDED: Final = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """``low_s``, ``high_s`` (P,): between them lies the exposed reduction of each rank.

    ``may`` (P, N): nodes that a rank may be on; ``chosen`` (P, N): nodes that it is on.  ``proven_s``: the step
    time up to which ``ruled_out`` (P, N) are no choice either.
    """

    low_s: FloatArray
    high_s: FloatArray
    may: BoolArray
    chosen: BoolArray
    ruled_out: BoolArray
    proven_s: float = 0.0

    def floors(self, ring_s: FloatArray, step_s: float) -> FloatArray:
        """``ring_s`` (P, N), the least reduction of a rank on a node, in this case; infinite: not on this node."""
        may = self.may & ~self.ruled_out if step_s <= self.proven_s else self.may
        least_s = np.maximum(ring_s, self.low_s[:, None])
        return np.where(may & (least_s <= self.high_s[:, None] * ROUNDED), least_s, np.inf)

    def is_empty(self, floor_s: FloatArray, count: int) -> bool:
        """Whether some rank finds fewer than ``count`` nodes, or not those chosen, among its ``floors`` (P, N)."""
        possible = np.isfinite(floor_s)
        return bool((possible.sum(axis=1) < count).any() or (self.chosen & ~possible).any())

    def without(self, impossible: BoolArray, step_s: float) -> Case:
        """The same, of which some nodes (P, N) are known to take longer than ``step_s``."""
        before = self.ruled_out if step_s <= self.proven_s else np.zeros_like(impossible)
        return replace(self, ruled_out=before | impossible, proven_s=step_s)


class Mixture(NamedTuple):
    """Walks (n, P) in ``shares`` (n,) that together take every node at most once; ``end_s`` (n, P) of each."""

    walks: IntArray
    shares: FloatArray
    end_s: FloatArray


def every_case(ring_s: FloatArray) -> Case:
    """Nothing is known."""
    none = np.zeros(ring_s.shape, dtype=np.bool_)
    return Case(np.zeros(len(ring_s)), np.full(len(ring_s), np.inf), np.isfinite(ring_s), none, none)


def split(
    case: Case, mixture: Mixture, ring_s: FloatArray, link_s: FloatArray, count: int, step_s: float
) -> list[Case]:
    """Cases that together make up ``case`` and leave less of ``mixture``; none: no more to tell.

    ``ring_s`` as for ``Case.floors``; ``link_s`` (P, N, N): least reduction of a rank whose ring takes a link;
    ``count`` nodes for each rank.
    """
    if not len(mixture.walks):
        return []
    return _by_reduction(case, mixture, ring_s, step_s) or _by_node(case, mixture, ring_s, link_s, count, step_s)


def _by_reduction(case: Case, mixture: Mixture, ring_s: FloatArray, step_s: float) -> list[Case]:
    """At most d or more: one side loses the nodes whose rings take longer, the other the walks that leave less."""
    best, found = LEAST_SHARE, None
    for s in range(len(ring_s)):
        floor_s = ring_s[s, mixture.walks[:, s]]
        for d in np.unique(floor_s):
            if case.low_s[s] < d < case.high_s[s]:
                too_slow = mixture.shares[floor_s > d].sum()
                too_late = mixture.shares[mixture.end_s[:, s] + d > step_s].sum()
                if min(too_slow, too_late) > best:
                    best, found = min(too_slow, too_late), (s, d)
    if found is None:
        return []
    s, d = found
    low_s, high_s = case.low_s.copy(), case.high_s.copy()
    low_s[s] = high_s[s] = d
    return [replace(case, high_s=high_s), replace(case, low_s=low_s)]


def _by_node(
    case: Case, mixture: Mixture, ring_s: FloatArray, link_s: FloatArray, count: int, step_s: float
) -> list[Case]:
    """The rank with the least choice takes the node it has most of, or it does not."""
    late_s = step_s - mixture.end_s.min(axis=0)
    best, found = np.inf, None
    for s in range(len(ring_s)):
        share = np.bincount(mixture.walks[:, s], weights=mixture.shares, minlength=ring_s.shape[1])
        choice = case.may[s] & (ring_s[s] <= min(case.high_s[s], late_s[s]))
        share[case.chosen[s] | ~case.may[s]] = 0.0
        if case.chosen[s].sum() < count and share.max() > SEEN and choice.sum() < best:
            best, found = choice.sum(), (s, int(share.argmax()))
    if found is None:
        return []
    may = case.may.copy()
    may[found] = False
    return [_with_node(case, *found, link_s, count), replace(case, may=may)]


def _with_node(case: Case, stage: int, node: int, link_s: FloatArray, count: int) -> Case:
    """``case`` where ``stage`` is on ``node``: only nodes on a ring with it, within the time allowed, remain."""
    may, chosen, low_s = case.may.copy(), case.chosen.copy(), case.low_s.copy()
    may[:, node] = False
    chosen[stage, node] = True
    may[stage] &= on_rings_with(link_s[stage] <= case.high_s[stage] * ROUNDED, node, count)
    may[stage, node] = True
    nodes = np.flatnonzero(chosen[stage])
    if len(nodes) == count:
        may[stage] = chosen[stage]
        low_s[stage] = max(low_s[stage], least_ring(link_s[stage][np.ix_(nodes, nodes)]))
    return replace(case, low_s=low_s, may=may, chosen=chosen)


def on_rings_with(allowed: BoolArray, node: int, length: int) -> BoolArray:
    """(N,) nodes that may share a ring of ``length`` nodes over ``allowed`` (N, N) links with ``node``.

    There and back along the fewest links must not be longer than the ring.
    """
    if length < 2:
        return np.asarray(np.arange(len(allowed)) == node, dtype=np.bool_)
    links = (allowed & ~np.eye(len(allowed), dtype=bool)).astype(float)
    there = shortest_path(links, unweighted=True, indices=node)
    back = shortest_path(links.T, unweighted=True, indices=node)
    return np.asarray(there + back <= length, dtype=np.bool_)


def least_ring(link_s: FloatArray) -> float:
    """The slowest link (n, n) of the ring through all n nodes where that is fastest; 0 where nodes are many."""
    nodes = len(link_s)
    if not 1 < nodes <= MOST_ORDERED:
        return 0.0
    orders = np.array([(0, *order) for order in permutations(range(1, nodes))])
    return float(link_s[orders, np.roll(orders, -1, axis=1)].max(axis=1).min())
