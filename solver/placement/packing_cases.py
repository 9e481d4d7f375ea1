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

MOST_ORDERED: Final = 8
"""The rings of at most this many nodes are all looked at once their nodes are known."""
LEAST_SHARE: Final = 0.1
"""Of a walk, that both sides of a reduction time must rule out for it to be worth a split."""
SEEN: Final = 1e-4
ROUNDED: Final = 1.0 + 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """``low_s``, ``high_s`` (P,): between them lies the exposed reduction of each rank.

    ``may`` (P, N): nodes that a rank may be on; ``chosen`` (P, N): nodes that it is on.
    """

    low_s: FloatArray
    high_s: FloatArray
    may: BoolArray
    chosen: BoolArray

    def floors(self, ring_s: FloatArray) -> FloatArray:
        """``ring_s`` (P, N), the least reduction of a rank on a node, in this case; infinite: not on this node."""
        least_s = np.maximum(ring_s, self.low_s[:, None])
        return np.where(self.may & (least_s <= self.high_s[:, None] * ROUNDED), least_s, np.inf)

    def settled(self, ring_s: FloatArray, link_s: FloatArray, count: int, *, spare: bool) -> Case | None:
        """The case with what follows from ``count`` nodes for each rank; ``None`` where it holds nothing.

        A rank with no choice takes what there is, and without ``spare`` nodes each is on some rank.
        """
        case = self
        while True:
            possible = np.isfinite(case.floors(ring_s))
            chosen = case.chosen | (possible & (possible.sum(axis=1, keepdims=True) == count))
            if not spare:
                chosen |= possible & (possible.sum(axis=0) == 1)
            few = (possible.sum(axis=1) < count) | (chosen.sum(axis=1) > count)
            if few.any() or (chosen & ~possible).any() or not (spare or possible.any(axis=0).all()):
                return None
            may, low_s = possible & (chosen | ~chosen.any(axis=0)), case.low_s.copy()
            for s in np.flatnonzero(chosen.any(axis=1)).tolist():
                nodes = np.flatnonzero(chosen[s])
                may[s] &= case.partners(s, link_s, count)[nodes].all(axis=0) | chosen[s]
                if len(nodes) == count:
                    may[s] &= chosen[s]
                    low_s[s] = max(low_s[s], least_ring(link_s[s][np.ix_(nodes, nodes)]))
            settled = replace(case, may=may, chosen=chosen, low_s=low_s)
            if np.array_equal(may, case.may) and np.array_equal(low_s, case.low_s):
                return settled
            case = settled

    def without(self, impossible: BoolArray) -> Case:
        """The same with some nodes (P, N) ruled out."""
        return replace(self, may=self.may & ~impossible)

    def until(self, latest_s: FloatArray) -> Case:
        """The same with reductions of ``latest_s`` (P,) at most."""
        return replace(self, high_s=np.minimum(self.high_s, latest_s))

    def partners(self, stage: int, link_s: FloatArray, count: int) -> BoolArray:
        """(N, N) which nodes may be on one ring of ``count`` nodes of a rank (``link_s`` as in ``Lanes``)."""
        return on_one_ring(link_s[stage] <= self.high_s[stage] * ROUNDED, count)


class Mixture(NamedTuple):
    """Walks (n, P) in ``shares`` (n,) that together take every node at most once; ``end_s`` (n, P) of each."""

    walks: IntArray
    shares: FloatArray
    end_s: FloatArray


def every_case(ring_s: FloatArray) -> Case:
    """Nothing is known."""
    none = np.zeros(ring_s.shape, dtype=np.bool_)
    return Case(np.zeros(len(ring_s)), np.full(len(ring_s), np.inf), np.isfinite(ring_s), none)


def split(case: Case, mixture: Mixture, ring_s: FloatArray, count: int, step_s: float) -> list[Case]:
    """Cases that together make up ``case`` and leave less of ``mixture``; none: no more to tell.

    ``ring_s`` as for ``Case.floors``; ``count`` nodes for each rank.
    """
    if not len(mixture.walks):
        return []
    return _by_reduction(case, mixture, ring_s, step_s) or _by_node(case, mixture, ring_s, count, step_s)


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


def _by_node(case: Case, mixture: Mixture, ring_s: FloatArray, count: int, step_s: float) -> list[Case]:
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
    s, node = found
    absent, present, chosen = case.may.copy(), case.may.copy(), case.chosen.copy()
    absent[s, node] = False
    present[np.arange(len(present)) != s, node] = False
    chosen[s, node] = True
    return [replace(case, may=present, chosen=chosen), replace(case, may=absent)]


def on_one_ring(allowed: BoolArray, length: int) -> BoolArray:
    """(N, N) which nodes may share a ring of ``length`` nodes over ``allowed`` (N, N) links.

    There and back along the fewest links must not be longer than the ring.
    """
    if length < 2:
        return np.eye(len(allowed), dtype=bool)
    away = ~np.eye(len(allowed), dtype=bool)
    if allowed[away].all():
        return np.ones_like(allowed)
    hops = shortest_path((allowed & away).astype(float), unweighted=True)
    return np.asarray(hops + hops.T <= length, dtype=np.bool_)


def least_ring(link_s: FloatArray) -> float:
    """The slowest link (n, n) of the ring through all n nodes where that is fastest; at most that where n is large.

    A link leads to each node, and one from it.
    """
    nodes = len(link_s)
    if nodes < 2:
        return 0.0
    if nodes > MOST_ORDERED:
        others = np.where(np.eye(nodes, dtype=bool), np.inf, link_s)
        return float(max(others.min(axis=0).max(), others.min(axis=1).max()))
    orders = np.array([(0, *order) for order in permutations(range(1, nodes))])
    return float(link_s[orders, np.roll(orders, -1, axis=1)].max(axis=1).min())
