"""Compiled walks over nodes: the pricing of the packing bound (docs/placement.md).

A walk gives each of Q positions a node.  Its cost along each of K paths of the event graph adds up from position to
position, so walks are built layer by layer as labels; at most W labels are kept for a node on a position.  What is
merged keeps the least cost of each path and the visits that all have in common: no walk gets lost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.candidates import FloatArray, IntArray
from solver.kernels import kernel

Labels = npt.NDArray[np.int16]

UNREACHED: Final = 1e300
"""Price of a walk that does not exist."""


@kernel
def least_rest(hop_s: FloatArray, node_s: FloatArray, there: IntArray, back: IntArray) -> FloatArray:
    """(K, Q, N) least cost along each path of what follows a position, wherever the walk goes on.

    ``hop_s`` (N, N); ``node_s`` (K, Q, N): cost of a node on a position; ``there`` and ``back`` (K, Q): how often
    the path takes the hop to a position from the one before, and the hop back.
    """
    paths, positions, nodes = node_s.shape
    rest = np.zeros((paths, positions, nodes))
    for k in range(paths):
        for q in range(positions - 2, -1, -1):
            for n in range(nodes):
                least = np.inf
                for m in range(nodes):
                    if m != n:
                        hops = there[k, q + 1] * hop_s[n, m] + back[k, q + 1] * hop_s[m, n]
                        least = min(least, hops + node_s[k, q + 1, m] + rest[k, q + 1, m])
                rest[k, q, n] = least
    return rest


class Walking(NamedTuple):
    """What walks cost: ``hop_s`` (N, N), and of each of K paths ``node_s``, ``there``, ``back`` and ``rest_s``.

    As for ``least_rest``.  ``limit_s`` (K,): the most that each path may cost.  ``near`` (N, J): nodes whose visits
    a walk remembers where it is, ``bit_of`` (N, N): the position of a node among them, -1 = none.
    """

    hop_s: FloatArray
    node_s: FloatArray
    there: IntArray
    back: IntArray
    rest_s: FloatArray
    limit_s: FloatArray
    near: IntArray
    bit_of: IntArray


@kernel
def _remembered(memory: int, n: int, m: int, near: IntArray, bit_of: IntArray) -> int:
    """Of the nodes near ``m``, as bits, those that a walk with ``memory`` at ``n`` has met on its way to ``m``."""
    result = 0
    for j in range(near.shape[1]):
        x = near[m, j]
        known = bit_of[n, x]
        if x == n or (known >= 0 and (memory >> known) & 1):
            result |= 1 << j
    return result


@kernel
def _excess(walking: Walking, cost: FloatArray, q: int, n: int, m: int) -> float:
    """By how much a walk of ``cost`` (K,) at ``n`` must exceed a limit when it goes to ``m`` on position ``q``."""
    hop_s, back_s, worst = walking.hop_s[n, m], walking.hop_s[m, n], -np.inf
    for k in range(len(cost)):
        total = cost[k] + walking.there[k, q] * hop_s + walking.back[k, q] * back_s
        worst = max(worst, total + walking.node_s[k, q, m] + walking.rest_s[k, q, m] - walking.limit_s[k])
        if worst > 0.0:
            break
    return worst


@kernel
def _arrivals(
    walking: Walking,
    count: IntArray,
    cost: FloatArray,
    memory: IntArray,
    q: int,
    m: int,
    source: IntArray,
    excess: FloatArray,
) -> int:
    """Number of labels that may go on to ``m`` on position ``q``; fills ``source`` and ``excess`` (N W,)."""
    arrived, width = 0, cost.shape[1]
    for n in range(len(count)):
        known = walking.bit_of[n, m]
        for i in range(count[n]):
            if n == m or (known >= 0 and (memory[n, i] >> known) & 1):
                continue
            worst = _excess(walking, cost[n, i], q, n, m)
            if worst <= 0.0:
                source[arrived], excess[arrived] = n * width + i, worst
                arrived += 1
    return arrived


@kernel
def label_walks(walking: Walking, width: int) -> tuple[IntArray, Labels]:
    """Labels per position and node (Q, N), and the label (Q, N, W, N) each reaches on the next position's nodes.

    -1: no walk that keeps every path within its limit goes there.  Walks do not return to a node they remember.
    """
    paths, positions, nodes = walking.node_s.shape
    count = np.zeros((positions, nodes), dtype=np.int64)
    reached = np.full((positions, nodes, width, nodes), -1, dtype=np.int16)
    cost, memory = np.full((nodes, width, paths), np.inf), np.zeros((nodes, width), dtype=np.int64)
    for n in range(nodes):
        if (walking.node_s[:, 0, n] + walking.rest_s[:, 0, n] <= walking.limit_s).all():
            cost[n, 0] = walking.node_s[:, 0, n]
            count[0, n] = 1
    source, excess = np.empty(nodes * width, dtype=np.int64), np.empty(nodes * width)
    for q in range(1, positions):
        new_cost, new_memory = np.full((nodes, width, paths), np.inf), np.full((nodes, width), -1, dtype=np.int64)
        for m in range(nodes):
            arrived = _arrivals(walking, count[q - 1], cost, memory, q, m, source, excess)
            count[q, m] = min(arrived, width)
            order = np.argsort(excess[:arrived]) if arrived > width else np.arange(arrived)
            for j in range(arrived):
                group = j * count[q, m] // arrived
                n, i = source[order[j]] // width, source[order[j]] % width
                reached[q - 1, n, i, m] = group
                new_memory[m, group] &= _remembered(memory[n, i], n, m, walking.near, walking.bit_of)
                for k in range(paths):
                    total = cost[n, i, k] + walking.node_s[k, q, m]
                    total += walking.there[k, q] * walking.hop_s[n, m] + walking.back[k, q] * walking.hop_s[m, n]
                    new_cost[m, group, k] = min(new_cost[m, group, k], total)
        cost, memory = new_cost, new_memory
    return count, reached


@kernel
def _offer(total: float, code: int, per_node: int, cheapest: FloatArray, origin: IntArray) -> None:
    """Take a walk to a label among its ``cheapest`` (2,) where it is; ``origin`` (2,): their codes, as below."""
    same = origin[0] // per_node == code // per_node
    if total < cheapest[0]:
        if not same:
            cheapest[1], origin[1] = cheapest[0], origin[0]
        cheapest[0], origin[0] = total, code
    elif total < cheapest[1] and not same:
        cheapest[1], origin[1] = total, code


@kernel
def _values(count: IntArray, reached: Labels, price: FloatArray) -> tuple[FloatArray, IntArray]:
    """(Q, N, W, 2) price of the cheapest walks to each label, and where they come from as (n W + i) 2 + which.

    The cheapest of all, and the cheapest of those that come from another node than it does.  Who goes back to the
    node that the cheapest comes from takes the other one, so that no walk returns at once to where it was.
    """
    positions, nodes, width, _ = reached.shape
    value = np.full((positions, nodes, width, 2), UNREACHED)
    before = np.full((positions, nodes, width, 2), -1, dtype=np.int64)
    for n in range(nodes):
        if count[0, n] > 0:
            value[0, n, 0, 0] = price[0, n]
    for q in range(positions - 1):
        later, origin = value[q + 1], before[q + 1]
        for n in range(nodes):
            for i in range(count[q, n]):
                source = before[q, n, i, 0] // (2 * width)
                for m in range(nodes):
                    label, which = reached[q, n, i, m], int(m == source)
                    if label < 0 or value[q, n, i, which] >= UNREACHED:
                        continue
                    total = value[q, n, i, which] + price[q + 1, m]
                    code = (n * width + i) * 2 + which
                    _offer(total, code, 2 * width, later[m, label], origin[m, label])
    return value, before


@kernel
def cheapest_walks(count: IntArray, reached: Labels, price: FloatArray) -> tuple[FloatArray, IntArray]:
    """For each node the price of the cheapest walk that ends there (N,), and the walk (N, Q).

    ``price`` (Q, N) is what a node costs on a position.  Where no walk ends its price is ``UNREACHED``.
    """
    positions, nodes, width, _ = reached.shape
    value, before = _values(count, reached, price)
    walks = np.full((nodes, positions), -1, dtype=np.int64)
    ends = np.full(nodes, UNREACHED)
    for end in range(nodes):
        label = int(value[positions - 1, end, :, 0].argmin())
        ends[end] = value[positions - 1, end, label, 0]
        if ends[end] >= UNREACHED:
            continue
        n, which = end, 0
        for q in range(positions - 1, -1, -1):
            walks[end, q] = n
            code = before[q, n, label, which]
            if code >= 0:
                which, code = code % 2, code // 2
                n, label = code // width, code % width
    return ends, walks


@kernel
def cheapest_through(count: IntArray, reached: Labels, price: FloatArray) -> FloatArray:
    """(Q, N) price of the cheapest walk that has a node on a position, otherwise as for ``cheapest_walks``."""
    positions, nodes, width, _ = reached.shape
    value, _ = _values(count, reached, price)
    through = np.full((positions, nodes), UNREACHED)
    rest = np.zeros((nodes, width))
    for q in range(positions - 1, -1, -1):
        before = np.full((nodes, width), UNREACHED)
        for n in range(nodes):
            for i in range(count[q, n]):
                if q < positions - 1:
                    for m in range(nodes):
                        label = reached[q, n, i, m]
                        if label >= 0:
                            before[n, i] = min(before[n, i], price[q + 1, m] + rest[m, label])
                else:
                    before[n, i] = 0.0
                if value[q, n, i, 0] < UNREACHED and before[n, i] < UNREACHED:
                    through[q, n] = min(through[q, n], value[q, n, i, 0] + before[n, i])
        rest = before
    return through


@kernel
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


@kernel
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
