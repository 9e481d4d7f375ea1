"""Compiled label setting: the pricing problem of the placement bound (docs/placement.md, "Cheapest routes").

A route gives each of Q positions a node.  Its cost along each of K paths of the event graph adds up from position
to position, so routes are built layer by layer as labels; at most W labels are kept for a node on a position.
Labels that are merged keep the least cost of each path and the visits that all have in common: no route gets lost.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.kernels import inner, kernel, relaxed

Labels = npt.NDArray[np.int16]

UNREACHED: Final = 1e300
"""Price of a route that does not exist."""


@kernel
def least_rest(hop_s: FloatArray, node_s: FloatArray, there: IntArray, back: IntArray) -> FloatArray:
    """(K, Q, N) least cost along each path of what follows a position, wherever the route goes on.

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


class Resources(NamedTuple):
    """Route consumption: ``hop_s`` (N, N), and of each of K paths ``node_s``, ``there``, ``back`` and ``rest_s``.

    Meaning as in ``least_rest``. ``limit_s`` (K,): the most of each path that a route may consume.
    """

    hop_s: FloatArray
    node_s: FloatArray
    there: IntArray
    back: IntArray
    rest_s: FloatArray
    limit_s: FloatArray


class Memory(NamedTuple):
    """``near`` (N, J): nodes whose visits a route remembers at a node; ``bit_of`` (N, N): which of them, or -1."""

    near: IntArray
    bit_of: IntArray


@inner
def _remembered(memory: int, n: int, m: int, near: IntArray, bit_of: IntArray) -> int:
    """Nodes near ``m``, as bits, that a route with ``memory`` at ``n`` has met on its way to ``m``."""
    result = 0
    for j in range(near.shape[1]):
        x = near[m, j]
        known = bit_of[n, x]
        if x == n or (known >= 0 and (memory >> known) & 1):
            result |= 1 << j
    return result


@relaxed("nnan", "nsz", "reassoc")
def _excess(
    cost: FloatArray, there: FloatArray, back: FloatArray, hop_s: float, back_s: float, rest: FloatArray
) -> float:
    """By how much a label of ``cost`` (K,) exceeds a limit after a hop; ``rest`` (K,): what follows less limits."""
    worst = -np.inf
    for k in range(len(cost)):
        worst = max(worst, cost[k] + there[k] * hop_s + back[k] * back_s + rest[k])
    return worst


class _Layer(NamedTuple):
    """Labels of one position: their ``number`` (N,), their ``cost`` (N, W, K) and ``memory`` (N, W) as bits."""

    number: IntArray
    cost: FloatArray
    memory: IntArray


@inner
def _arrivals(
    resources: Resources, bit_of: IntArray, layer: _Layer, q: int, m: int, source: IntArray, excess: FloatArray
) -> int:
    """Number of labels that may go on to ``m`` on position ``q``; fills ``source`` and ``excess`` (N W,)."""
    arrived, (count, cost, memory) = 0, layer
    width = cost.shape[1]
    there, back = resources.there[:, q].astype(np.float64), resources.back[:, q].astype(np.float64)
    rest = resources.node_s[:, q, m] + resources.rest_s[:, q, m] - resources.limit_s
    if not np.isfinite(rest).all():
        return 0
    for n in range(len(count)):
        known = bit_of[n, m]
        for i in range(count[n]):
            if n == m or (known >= 0 and (memory[n, i] >> known) & 1):
                continue
            worst = _excess(cost[n, i], there, back, resources.hop_s[n, m], resources.hop_s[m, n], rest)
            if worst <= 0.0:
                source[arrived], excess[arrived] = n * width + i, worst
                arrived += 1
    return arrived


@kernel
def label_routes(resources: Resources, memory_of: Memory, width: int) -> tuple[IntArray, Labels]:
    """Labels per position and node (Q, N), and the label (Q, N, W, N) each reaches on the next position's nodes.

    -1: no route that keeps every path within its limit goes there.  Routes do not return to a node they remember.
    """
    paths, positions, nodes = resources.node_s.shape
    count = np.zeros((positions, nodes), dtype=np.int64)
    reached = np.full((positions, nodes, width, nodes), -1, dtype=np.int16)
    cost, memory = np.full((nodes, width, paths), np.inf), np.zeros((nodes, width), dtype=np.int64)
    for n in range(nodes):
        if (resources.node_s[:, 0, n] + resources.rest_s[:, 0, n] <= resources.limit_s).all():
            cost[n, 0] = resources.node_s[:, 0, n]
            count[0, n] = 1
    source, excess = np.empty(nodes * width, dtype=np.int64), np.empty(nodes * width)
    for q in range(1, positions):
        new_cost, new_memory = np.full((nodes, width, paths), np.inf), np.full((nodes, width), -1, dtype=np.int64)
        there, back = resources.there[:, q].astype(np.float64), resources.back[:, q].astype(np.float64)
        for m in range(nodes):
            at = resources.node_s[:, q, m].copy()
            layer = _Layer(count[q - 1], cost, memory)
            arrived = _arrivals(resources, memory_of.bit_of, layer, q, m, source, excess)
            count[q, m] = min(arrived, width)
            order = np.argsort(excess[:arrived]) if arrived > width else np.arange(arrived)
            for j in range(arrived):
                group = j * count[q, m] // arrived
                n, i = source[order[j]] // width, source[order[j]] % width
                reached[q - 1, n, i, m] = group
                new_memory[m, group] &= _remembered(memory[n, i], n, m, memory_of.near, memory_of.bit_of)
                hop_s, back_s, least = resources.hop_s[n, m], resources.hop_s[m, n], new_cost[m, group]
                for k in range(paths):
                    least[k] = min(least[k], cost[n, i, k] + at[k] + there[k] * hop_s + back[k] * back_s)
        cost, memory = new_cost, new_memory
    return count, reached


@kernel
def within_limits(resources: Resources, routes: IntArray) -> BoolArray:
    """(n,) which of the routes (n, Q) keep every path within its limit."""
    kept = np.ones(len(routes), dtype=np.bool_)
    for r in range(len(routes)):
        for k in range(len(resources.limit_s)):
            cost = 0.0
            for q in range(routes.shape[1]):
                at = routes[r, q]
                cost += resources.node_s[k, q, at]
                if q > 0:
                    before = routes[r, q - 1]
                    cost += resources.there[k, q] * resources.hop_s[before, at]
                    cost += resources.back[k, q] * resources.hop_s[at, before]
            if not cost <= resources.limit_s[k]:
                kept[r] = False
                break
    return kept


@inner
def _offer(total: float, code: int, per_node: int, cheapest: FloatArray, origin: IntArray) -> None:
    """Take a route to a label among its ``cheapest`` (2,), which it is; ``origin`` (2,): their codes, as below."""
    same = origin[0] // per_node == code // per_node
    if total < cheapest[0]:
        if not same:
            cheapest[1], origin[1] = cheapest[0], origin[0]
        cheapest[0], origin[0] = total, code
    elif not same:
        cheapest[1], origin[1] = total, code


@inner
def _values(count: IntArray, reached: Labels, price: FloatArray) -> tuple[FloatArray, IntArray]:
    """(Q, N, W, 2) price of the cheapest routes to each label, and where they come from as (n W + i) 2 + which.

    The cheapest of all, and the cheapest of those that come from another node than it does.  Who goes back to the
    node that the cheapest comes from takes the other one, so that no route returns at once to where it was.
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
                    if total < later[m, label, 1]:
                        code = (n * width + i) * 2 + which
                        _offer(total, code, 2 * width, later[m, label], origin[m, label])
    return value, before


@kernel
def cheapest_routes(count: IntArray, reached: Labels, price: FloatArray) -> tuple[FloatArray, IntArray]:
    """For each node the price of the cheapest route that ends there (N,), and the route (N, Q).

    ``price`` (Q, N) is what a node costs on a position.  Where no route ends its price is ``UNREACHED``.
    """
    positions, nodes, width, _ = reached.shape
    value, before = _values(count, reached, price)
    routes = np.full((nodes, positions), -1, dtype=np.int64)
    ends = np.full(nodes, UNREACHED)
    for end in range(nodes):
        label = int(value[positions - 1, end, :, 0].argmin())
        ends[end] = value[positions - 1, end, label, 0]
        if ends[end] >= UNREACHED:
            continue
        n, which = end, 0
        for q in range(positions - 1, -1, -1):
            routes[end, q] = n
            code = before[q, n, label, which]
            if code >= 0:
                which, code = code % 2, code // 2
                n, label = code // width, code % width
    return ends, routes


@kernel
def cheapest_through(count: IntArray, reached: Labels, price: FloatArray) -> FloatArray:
    """(Q, N) price of the cheapest route that has a node on a position, otherwise as for ``cheapest_routes``."""
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
