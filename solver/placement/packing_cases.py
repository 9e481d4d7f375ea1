"""Cases that the packing bound tells apart, for what no fraction of a walk shows.

A rank has one reduction, which all its walks wait for: it takes at most d seconds or more.  And a node serves the
rank or does not: if it does, the others of the rank lie on one ring with it, two of them beside it.  A step is
impossible when it is so in both cases.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
from scipy.sparse.csgraph import shortest_path

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled_bounds import ring_through

MOST_ORDERED: Final = 10
"""Nodes of a rank that its ring is asked to go through."""
LEAST_SHARE: Final = 0.1
"""Of a walk, that both sides of a reduction time must rule out for it to be worth a split."""
SLOW_SHARE: Final = 0.4
"""The same where only settled slow nodes count: such a split is worth more than any other."""
SLOW: Final = 1.2
"""Times the reduction that most nodes allow, beyond which a node is a slow one."""
SEEN: Final = 1e-4
SETTLED: Final = 0.99
"""Share of a node on one rank from which it counts as being there."""
FEW: Final = 2
"""Times the nodes of a ring: with more possible neighbours than that a node surely has two of them on its rank."""
RING_OF_TWO: Final = 2
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
            may = possible & (chosen | ~chosen.any(axis=0))
            least_s = np.sort(np.where(may, ring_s, np.inf), axis=1)[:, count - 1]
            low_s = np.maximum(case.low_s, np.where(np.isfinite(least_s), least_s, 0.0))
            for s in np.flatnonzero(chosen.any(axis=1)).tolist():
                nodes = np.flatnonzero(chosen[s])
                may[s] &= case.partners(s, link_s, count)[nodes].all(axis=0) | chosen[s]
                if len(nodes) == count:
                    may[s] &= chosen[s]
                through_s = least_ring(link_s[s], nodes, may[s], count, np.argsort(-ring_s[s], kind="stable"))
                low_s[s] = max(low_s[s], ring_s[s, nodes].max(), through_s)
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

    def neighbour_rows(self, ring_s: FloatArray, link_s: FloatArray, count: int) -> FloatArray:
        """(J, P, N) sums over the nodes of all ranks that are never above 0: who is on a ring has two neighbours.

        One link leads to a node and one from it, each fast enough for the rank.  Only of nodes with few such links.
        """
        rows = []
        possible = np.isfinite(self.floors(ring_s))
        for s in range(len(self.may) if count > RING_OF_TWO else 0):
            allowed = (link_s[s] <= self.high_s[s] * ROUNDED) & possible[s] & ~np.eye(len(link_s[s]), dtype=bool)
            for node in np.flatnonzero(possible[s]):
                after, before = allowed[node], allowed[:, node] & possible[s]
                for needed, beside in ((2.0, after | before), (1.0, after), (1.0, before)):
                    if beside.sum() <= FEW * count:
                        row = np.zeros(self.may.shape)
                        row[s, beside] = -1.0
                        row[s, node] = needed
                        rows.append(row)
        return np.array(rows).reshape(-1, *self.may.shape)


class Mixture(NamedTuple):
    """Walks (n, P) in ``shares`` (n,) that together take every node at most once; ``end_s`` (n, P) of each."""

    walks: IntArray
    shares: FloatArray
    end_s: FloatArray

    def on_ranks(self, nodes: int) -> FloatArray:
        """(P, N) how much of each node is on each rank."""
        columns = [np.bincount(at, weights=self.shares, minlength=nodes) for at in self.walks.T]
        return np.array(columns)


def every_case(ring_s: FloatArray) -> Case:
    """Nothing is known."""
    none = np.zeros(ring_s.shape, dtype=np.bool_)
    return Case(np.zeros(len(ring_s)), np.full(len(ring_s), np.inf), np.isfinite(ring_s), none)


def split(
    case: Case, mixture: Mixture, ring_s: FloatArray, link_s: FloatArray, count: int, step_s: float
) -> list[Case]:
    """Cases that together make up ``case`` and leave less of ``mixture``; none: no more to tell.

    ``ring_s`` and ``link_s`` as in ``Lanes``; ``count`` nodes for each rank.  Slow nodes are settled first: what
    their rings take decides most.
    """
    if not len(mixture.walks):
        return []
    whole = mixture.on_ranks(ring_s.shape[1])
    share = np.where(case.may, whole, 0.0)
    slow = ring_s > SLOW * np.median(ring_s, axis=1, keepdims=True)
    settled = np.where(slow & (share > SETTLED), share, 0.0)
    rings = _Rings(case, mixture, whole, ring_s, np.minimum(link_s, link_s.swapaxes(1, 2)), count, step_s)
    return (
        rings.through(settled, link_s)
        or rings.split(settled, SLOW_SHARE)
        or _by_node(case, np.where(slow, share, 0.0), ring_s)
        or rings.split(share, LEAST_SHARE)
        or _by_node(case, share, ring_s)
        or _by_node(case, share, ring_s, settled=True)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Rings:
    """Where to split a case because of what the ring of a rank takes.

    ``whole`` (P, N): how much of each node is on each rank; ``both_s`` (P, N, N): the faster direction of each
    link; otherwise as for ``split``.
    """

    case: Case
    mixture: Mixture
    whole: FloatArray
    ring_s: FloatArray
    both_s: FloatArray
    count: int
    step_s: float

    def through(self, settled: FloatArray, link_s: FloatArray) -> list[Case]:
        """A slow node serves its rank, or not, where a ring through all slow nodes there leaves too little time."""
        best, found = SLOW_SHARE, None
        for s in np.flatnonzero((settled > 0).sum(axis=1) >= RING_OF_TWO).tolist():
            worst = np.argsort(-self.ring_s[s], kind="stable")
            through = np.flatnonzero((settled[s] > 0) | self.case.chosen[s])
            d = least_ring(link_s[s], through, self.case.may[s], self.count, worst)
            too_late = self.mixture.shares[self.step_s - self.mixture.end_s[:, s] < d].sum()
            waiting = worst[np.isin(worst, through) & ~self.case.chosen[s][worst]]
            if d > self.case.low_s[s] and too_late > best and len(waiting):
                best, found = too_late, (s, int(waiting[0]))
        return [] if found is None else _serves(self.case, *found)

    def split(self, share: FloatArray, least: float) -> list[Case]:
        """At most d or more, where both lose more than ``least``; ``share`` (P, N): of the nodes that count.

        One side loses the nodes whose rings take longer or that have no two neighbours, the other the walks that
        leave less.
        """
        best, found = least, None
        latest_s = self.step_s - self.mixture.end_s
        for s in np.flatnonzero(share.any(axis=1)).tolist():
            tried = np.concatenate([self.ring_s[s, self.mixture.walks[:, s]], latest_s[:, s] * ROUNDED])
            for d in np.unique(tried[(tried > self.case.low_s[s]) & (tried < self.case.high_s[s])]).tolist():
                too_late = self.mixture.shares[latest_s[:, s] < d].sum()
                if too_late <= best:
                    continue
                lost = min(too_late, self._too_slow(s, d, share[s]))
                if lost > best:
                    best, found = lost, (s, d)
        if found is None:
            return []
        s, d = found
        low_s, high_s = self.case.low_s.copy(), self.case.high_s.copy()
        low_s[s] = high_s[s] = d
        return [replace(self.case, high_s=high_s), replace(self.case, low_s=low_s)]

    def _too_slow(self, s: int, d: float, share: FloatArray) -> float:
        lost = float(share[self.ring_s[s] > d].sum())
        if self.count > RING_OF_TWO:
            nodes = np.flatnonzero(share)
            beside = (self.both_s[s, nodes] <= d) & (nodes[:, None] != np.arange(len(share)))
            lost = max(lost, float((2.0 * share[nodes] - beside @ self.whole[s]).max()))
        return lost


def _by_node(case: Case, share: FloatArray, ring_s: FloatArray, *, settled: bool = False) -> list[Case]:
    """The node with the slowest ring of those on several ranks takes the one it is on most, or does not.

    ``settled``: also of those on one rank.
    """
    most = share.max(axis=0)
    undecided = (most > SEEN) & ((most < 1.0 - SEEN) | settled) & ~case.chosen.any(axis=0)
    if not undecided.any():
        return []
    node = int(np.where(undecided, ring_s.min(axis=0), -np.inf).argmax())
    s = int(share[:, node].argmax())
    return _serves(case, s, node)


def _serves(case: Case, s: int, node: int) -> list[Case]:
    """Rank ``s`` takes a node, or it does not."""
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


def least_ring(link_s: FloatArray, through: IntArray, may: BoolArray, count: int, worst: IntArray) -> float:
    """The slowest link, at least, of a ring of ``count`` nodes through all of ``through`` (S,).

    ``link_s`` (N, N); ``may`` (N,): nodes that may be on it.  Of many to go through only some are asked for, the
    first of ``worst`` (N,).
    """
    if len(through) < RING_OF_TWO or count < RING_OF_TWO:
        return 0.0
    asked = worst[np.isin(worst, through)][: min(MOST_ORDERED, count)]
    free = may.copy()
    free[asked] = False
    return float(ring_through(link_s, asked, np.flatnonzero(free), count))
