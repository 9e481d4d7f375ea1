"""Branches of the placement bound: what a rank's reduction takes, and which rank a node serves.

A rank has one reduction, which all its routes wait for: it takes at most d seconds or more.  And a node serves the
rank or does not: if it does, the others of the rank lie on one ring with it, two of them beside it.  A step is
impossible when it is so in every branch (docs/placement.md, "Branches").  Letters: P ranks, N nodes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import scipy

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled_rings import ring_through
from solver.placement.chains import TOLERANCE, Chains

MOST_ORDERED: Final = 10
"""Nodes of a rank that its ring is asked to go through: the program over their orders doubles with each."""
LEAST_SHARE: Final = 0.1
"""Share of a route that both sides of a reduction time must rule out for it to be worth a branch."""
SLOW: Final = 1.2
"""Times the reduction that most nodes allow, beyond which a node is a slow one."""
SEEN: Final = 1e-4
"""Least share of a node or route that counts."""
FEW: Final = 2
"""Times the nodes of a ring: with more possible neighbours than that a node surely has two of them on its rank."""
RING_OF_TWO: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    """``low_s``, ``high_s`` (P,): between them lies the exposed reduction of each rank.

    ``may`` (P, N): nodes that a rank may have; ``chosen`` (P, N): nodes that it has.
    """

    low_s: FloatArray
    high_s: FloatArray
    may: BoolArray
    chosen: BoolArray

    def floors(self, ring_s: FloatArray) -> FloatArray:
        """``ring_s`` (P, N), the least reduction of a rank with a node, in this branch; infinite: not this node."""
        least_s = np.maximum(ring_s, self.low_s[:, None])
        return np.where(self.may & (least_s <= self.high_s[:, None] * (1.0 + TOLERANCE)), least_s, np.inf)

    def tightened(self, chains: Chains, latest_s: FloatArray, *, spare: bool) -> Branch | None:
        """The branch with what follows from it in steps that leave ``latest_s``; ``None`` where nothing is left.

        A rank with no choice takes what there is, and without ``spare`` nodes each has some rank.  ``latest_s``
        (P, N, P): the most that the reduction of each rank may take when a node serves a rank.
        """
        branch, ring_s = self, chains.ring_s
        while True:
            possible = np.isfinite(branch.floors(ring_s))
            possible &= (branch.low_s <= latest_s * (1.0 + TOLERANCE)).all(axis=2)
            chosen = branch.chosen | (possible & (possible.sum(axis=1, keepdims=True) == chains.count))
            if not spare:
                chosen |= possible & (possible.sum(axis=0) == 1)
            few = (possible.sum(axis=1) < chains.count) | (chosen.sum(axis=1) > chains.count)
            if few.any() or (chosen & ~possible).any() or not (spare or possible.any(axis=0).all()):
                return None
            may = possible & (chosen | ~chosen.any(axis=0))
            least_s = np.sort(np.where(may, ring_s, np.inf), axis=1)[:, chains.count - 1]
            low_s = np.maximum(branch.low_s, np.where(np.isfinite(least_s), least_s, 0.0))
            # every rank has so many nodes, and each must leave the reductions their time
            most_s = np.sort(np.where(may[:, :, None], latest_s, -np.inf), axis=1)[:, -chains.count].min(axis=0)
            high_s = np.minimum(branch.high_s, most_s)
            if chosen.any():
                high_s = np.minimum(high_s, latest_s[chosen].min(axis=0))
            for s in np.flatnonzero(chosen.any(axis=1)).tolist():
                nodes = np.flatnonzero(chosen[s])
                may[s] &= branch.partners(s, chains)[nodes].all(axis=0) | chosen[s]
                if len(nodes) == chains.count:
                    may[s] &= chosen[s]
                through_s = least_ring(chains, s, nodes, may[s])
                low_s[s] = max(low_s[s], ring_s[s, nodes].max(), through_s)
            tightened = Branch(low_s, high_s, may, chosen)
            if all(
                np.array_equal(one, other)
                for one, other in ((may, branch.may), (low_s, branch.low_s), (high_s, branch.high_s))
            ):
                return tightened
            branch = tightened

    def without(self, impossible: BoolArray) -> Branch:
        """The same with some nodes (P, N) ruled out."""
        return replace(self, may=self.may & ~impossible)

    def until(self, latest_s: FloatArray) -> Branch:
        """The same with reductions of ``latest_s`` (P,) at most."""
        return replace(self, high_s=np.minimum(self.high_s, latest_s))

    def beyond(self, least_s: FloatArray) -> Branch:
        """The same with reductions of ``least_s`` (P,) at least."""
        return replace(self, low_s=np.maximum(self.low_s, least_s))

    def serving(self, rank: int, node: int) -> Branch:
        """The same with ``node`` on ``rank``."""
        may, chosen = self.may.copy(), self.chosen.copy()
        may[np.arange(len(may)) != rank, node] = False
        chosen[rank, node] = True
        return replace(self, may=may, chosen=chosen)

    def partners(self, rank: int, chains: Chains) -> BoolArray:
        """(N, N) which nodes may be on one ring of a rank."""
        return on_one_ring(chains.link_s[rank] <= self.high_s[rank] * (1.0 + TOLERANCE), chains.count)

    def neighbour_rows(self, chains: Chains) -> FloatArray:
        """(J, P, N) sums over the nodes of all ranks that are never above 0: who is on a ring has two neighbours.

        One link leads to a node and one from it, each fast enough for the rank.  Only of nodes with few such links.
        """
        rows = []
        possible, link_s, count = np.isfinite(self.floors(chains.ring_s)), chains.link_s, chains.count
        for s in range(len(self.may) if count > RING_OF_TWO else 0):
            allowed = (
                (link_s[s] <= self.high_s[s] * (1.0 + TOLERANCE))
                & possible[s]
                & ~np.eye(len(link_s[s]), dtype=bool)
            )
            for node in np.flatnonzero(possible[s]):
                after, before = allowed[node], allowed[:, node] & possible[s]
                for needed, beside in ((2.0, after | before), (1.0, after), (1.0, before)):
                    if beside.sum() <= FEW * count:
                        row = np.zeros(self.may.shape)
                        row[s, beside] = -1.0
                        row[s, node] = needed
                        rows.append(row)
        return np.array(rows).reshape(-1, *self.may.shape)


class FractionalSolution(NamedTuple):
    """Routes (n, P) in ``shares`` (n,) that together take every node at most once; ``end_s`` (n, P) of each."""

    routes: IntArray
    shares: FloatArray
    end_s: FloatArray

    def on_ranks(self, nodes: int) -> FloatArray:
        """(P, N) how much of each node is on each rank."""
        columns = [np.bincount(at, weights=self.shares, minlength=nodes) for at in self.routes.T]
        return np.array(columns)


class Split(NamedTuple):
    """How a branch is parted: by what the reduction of ``rank`` takes, or by the rank that ``node`` serves."""

    node: int = -1
    rank: int = -1
    threshold_s: float = 0.0


def root(ring_s: FloatArray) -> Branch:
    """The branch in which nothing is decided."""
    none = np.zeros(ring_s.shape, dtype=np.bool_)
    return Branch(np.zeros(len(ring_s)), np.full(len(ring_s), np.inf), np.isfinite(ring_s), none)


def split_of(branch: Branch, fraction: FractionalSolution, chains: Chains, step_s: float) -> Split | None:
    """How to part ``branch`` so that less of ``fraction`` is left; ``None``: there is no way.

    Slow nodes are decided first, for what their rings take decides most: those with the fewest ranks left, and of
    these the slowest.
    """
    if not len(fraction.routes):
        return None
    whole = fraction.on_ranks(chains.ring_s.shape[1])
    undecided = np.asarray(branch.may.any(axis=0) & ~branch.chosen.any(axis=0))
    slow = np.asarray(undecided & slow_nodes(chains))
    if slow.any():
        ranks = branch.may.sum(axis=0)
        slow &= ranks == ranks[slow].min()
        return Split(node=int(np.where(slow, chains.ring_s.min(axis=0), -np.inf).argmax()))
    return _threshold(branch, fraction, whole, chains, step_s) or _by_node(branch, whole, chains, undecided)


def slow_nodes(chains: Chains) -> BoolArray:
    """(N,) nodes on whose rings a reduction takes longer than on those of most."""
    least_s = chains.ring_s.min(axis=0)
    return np.asarray(least_s > SLOW * np.median(least_s))


def _threshold(
    branch: Branch, fraction: FractionalSolution, whole: FloatArray, chains: Chains, step_s: float
) -> Split | None:
    """A reduction of at most d or more, where both lose more than ``LEAST_SHARE`` of a route.

    One side loses the nodes whose rings take longer or that have no two neighbours, the other the routes that
    leave less.
    """
    best, split = LEAST_SHARE, None
    share, latest_s = np.where(branch.may, whole, 0.0), step_s - fraction.end_s
    both_s = np.minimum(chains.link_s, chains.link_s.swapaxes(1, 2))
    for s in range(len(share)):
        tried = np.concatenate([chains.ring_s[s, fraction.routes[:, s]], latest_s[:, s] * (1.0 + TOLERANCE)])
        for d in np.unique(tried[(tried > branch.low_s[s]) & (tried < branch.high_s[s])]).tolist():
            too_late = fraction.shares[latest_s[:, s] < d].sum()
            if too_late <= best:
                continue
            lost = float(share[s, chains.ring_s[s] > d].sum())
            if chains.count > RING_OF_TWO:
                nodes = np.flatnonzero(share[s])
                beside = (both_s[s, nodes] <= d) & (nodes[:, None] != np.arange(len(share[s])))
                lost = max(lost, float((2.0 * share[s, nodes] - beside @ whole[s]).max()))
            if min(too_late, lost) > best:
                best, split = min(too_late, lost), Split(rank=s, threshold_s=d)
    return split


def _by_node(branch: Branch, whole: FloatArray, chains: Chains, undecided: BoolArray) -> Split | None:
    """The node with the slowest ring of those on several ranks, or else of all undecided."""
    most = np.where(branch.may, whole, 0.0).max(axis=0)
    for least, largest in ((SEEN, 1.0 - SEEN), (SEEN, np.inf)):
        open_ = undecided & (most > least) & (most < largest)
        if open_.any():
            node = int(np.where(open_, chains.ring_s.min(axis=0), -np.inf).argmax())
            return Split(node=node)
    return None


def on_one_ring(allowed: BoolArray, length: int) -> BoolArray:
    """(N, N) which nodes may share a ring of ``length`` nodes over ``allowed`` (N, N) links.

    There and back along the fewest links must not be longer than the ring.
    """
    if length < 2:
        return np.eye(len(allowed), dtype=bool)
    away = ~np.eye(len(allowed), dtype=bool)
    if allowed[away].all():
        return np.ones_like(allowed)
    hops = scipy.sparse.csgraph.shortest_path((allowed & away).astype(float), unweighted=True)
    return np.asarray(hops + hops.T <= length, dtype=np.bool_)


def least_ring(chains: Chains, rank: int, through: IntArray, may: BoolArray) -> float:
    """The slowest link, at least, of a ring of a rank through all of its nodes ``through`` (S,).

    ``may`` (N,): nodes that may be on it.  Where there are many to go through, only those with the slowest rings
    count.
    """
    if len(through) < RING_OF_TWO or chains.count < RING_OF_TWO:
        return 0.0
    worst = np.argsort(-chains.ring_s[rank], kind="stable")
    asked = worst[np.isin(worst, through)][: min(MOST_ORDERED, chains.count)]
    free = may.copy()
    free[asked] = False
    return float(ring_through(chains.link_s[rank], asked, np.flatnonzero(free), chains.count))
