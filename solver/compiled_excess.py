"""Compiled search for a grid that keeps the limits of a trial step (docs/placement.md, "Large grids").

A *route* is the nodes of one replica by rank.  Nothing is simulated: a route costs the largest excess of one of its
stretches of ranks over its limit, a ring the excesses of its links.  R replicas, P ranks, N nodes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel

SWAPS: Final = 0.25
STRETCHES: Final = 0.6
TURNS: Final = 0.8
"""Up to where a random number draws a swap in a route, an exchange between two routes, a turn; else a near node."""
AIMED: Final = 0.3
"""Share of moves in the worst of ``AIMED_AMONG`` routes."""
AIMED_AMONG: Final = 4
LONGEST: Final = 6
FARTHEST: Final = 4
"""Most ranks of a stretch that moves, and how many further on or back it may come to stand."""
WHOLE: Final = 0.1
"""Share of exchanges that take whole routes."""


class GridLimits(NamedTuple):
    """Limits that every stretch and ring of a grid keeps if its step is to end at a trial step time; seconds.

    ``both_s`` (N, N): transfer there and back; ``apart_s`` (N, N): the same as if all nodes were equally fast;
    ``work_s`` (P, N): forward and backward of a micro-batch; ``most_s`` (P, P): limit of ranks a .. b, which the
    step contains ``rounds`` (P, P) times.  ``link_s[matrix[s]]`` (N, N): ring links of rank s, limited to
    ``ring_s`` (P,).  ``curve``: an excess e costs e + ``curve`` e^2.
    """

    both_s: FloatArray
    apart_s: FloatArray
    work_s: FloatArray
    most_s: FloatArray
    rounds: FloatArray
    link_s: FloatArray
    matrix: IntArray
    ring_s: FloatArray
    curve: float


@inner
def _route_excess(route: IntArray, limits: GridLimits, together: float) -> float:
    """Cost of one route (P,), ``together`` times how far apart its nodes are in it."""
    ranks = len(route)
    until, apart, worst = np.zeros(ranks + 1), 0.0, 0.0
    for s in range(ranks):
        n = route[s]
        until[s + 1] = until[s] + limits.work_s[s, n]
        if s > 0:
            until[s + 1] += limits.both_s[route[s - 1], n]
            apart += limits.apart_s[route[s - 1], n]
    for a in range(ranks):
        # the transfer to the first rank of a stretch is not part of it
        start = until[a + 1] - limits.work_s[a, route[a]]
        for b in range(a, ranks):
            worst = max(worst, (until[b + 1] - start - limits.most_s[a, b]) * limits.rounds[a, b])
    return float(worst * (1.0 + limits.curve * worst) + together * limits.rounds[0, ranks - 1] * apart)


@inner
def _ring_excess(grid: IntArray, s: int, limits: GridLimits) -> float:
    """Cost of the ring of rank ``s``."""
    total, link_s = 0.0, limits.link_s[limits.matrix[s]]
    for r in range(len(grid)):
        excess = link_s[grid[r, s], grid[r + 1 if r + 1 < len(grid) else 0, s]] - limits.ring_s[s]
        if excess > 0:
            total += excess * (1.0 + limits.curve * excess)
    return total


@kernel
def excesses(grid: IntArray, limits: GridLimits, together: float) -> tuple[FloatArray, FloatArray]:
    """Cost of each route (R,) and of each ring (P,) of a grid (R, P), in seconds; 0 where limits are kept.

    ``together``: weight of how far apart the nodes of a route are, 0 for none.
    """
    routes = np.array([_route_excess(grid[r], limits, together) for r in range(grid.shape[0])])
    return routes, np.array([_ring_excess(grid, s, limits) for s in range(grid.shape[1])])


@inner
def _turn(route: IntArray, start: int, end: int, turned: IntArray) -> None:
    """Reverse the stretch ``start`` .. ``end`` - 1 of a route, or shift it round by one, in ``turned``."""
    kind = np.random.randint(3)  # noqa: NPY002
    for t in range(start, end):
        if kind == 0:
            source = start + end - 1 - t
        elif kind == 1:
            source = t + 1 if t + 1 < end else start
        else:
            source = t - 1 if t > start else end - 1
        turned[t] = route[source]


@inner
def _exchange(start: int, end: int, first: IntArray, second: IntArray) -> None:
    """Exchange that stretch of ``first`` with one of ``second``, half of them elsewhere; or all of both."""
    by = 0
    if np.random.random() < WHOLE:  # noqa: NPY002
        start, end = 0, len(first)
    elif np.random.random() < 0.5:  # noqa: NPY002
        by = np.random.randint(-FARTHEST, FARTHEST + 1)  # noqa: NPY002
        by = max(-start, min(by, len(first) - end))
    for t in range(start, end):
        first[t], second[t + by] = second[t + by], first[t]


@inner
def _beside(grid: IntArray, r: int, s: int) -> int:
    """A node before, behind or beside (r, s) on the ring."""
    replicas, ranks = grid.shape
    side = np.random.randint(4)  # noqa: NPY002
    if side == 0:
        node = grid[(r + 1) % replicas, s]
    elif side == 1:
        node = grid[(r - 1) % replicas, s]
    else:
        node = grid[r, s - 1 if s > 0 and (side == 2 or s + 1 == ranks) else s + 1]
    return int(node)


@inner
def _propose(r: int, grid: IntArray, place: IntArray, near: IntArray, first: IntArray, second: IntArray) -> int:
    """Write the route of ``r`` after a random move to ``first`` and that of the replica returned to ``second``."""
    replicas, ranks = grid.shape
    s, kind, other = np.random.randint(ranks), np.random.random(), r  # noqa: NPY002
    end = min(ranks, s + 1 + np.random.randint(LONGEST))  # noqa: NPY002
    first[:] = grid[r]
    if kind < SWAPS:
        t = np.random.randint(ranks)  # noqa: NPY002
        first[s], first[t] = first[t], first[s]
    elif kind < STRETCHES:
        other = int((r + 1 + np.random.randint(replicas - 1)) % replicas)  # noqa: NPY002
        second[:] = grid[other]
        _exchange(s, end, first, second)
    elif kind < TURNS:
        _turn(grid[r], s, end, first)
    else:
        node = near[_beside(grid, r, s), np.random.randint(near.shape[1])]  # noqa: NPY002
        if place[node] >= 0:
            other, t = int(place[node] // ranks), place[node] % ranks
            second[:] = grid[other]
            if other == r:
                first[t] = first[s]
            else:
                second[t] = first[s]
            first[s] = node
    if other == r:
        second[:] = first
    return other


@inner
def _replica(routes: FloatArray) -> int:
    """A replica to move in: any, or the worst of a few."""
    r = np.random.randint(len(routes))  # noqa: NPY002
    if np.random.random() < AIMED:  # noqa: NPY002
        for _ in range(AIMED_AMONG - 1):
            another = np.random.randint(len(routes))  # noqa: NPY002
            if routes[another] > routes[r]:
                r = another
    return int(r)


@kernel
def cool(
    grid: IntArray,
    limits: GridLimits,
    near: IntArray,
    together: float,
    moves: int,
    heat_s: tuple[float, float],
    seed: int,
) -> None:
    """Anneal ``grid`` (R, P) to the one of least cost met in ``moves``, from a temperature to another, in seconds.

    ``near`` (N, n): nodes with the fastest links to each node; ``together`` as in ``excesses``.
    """
    np.random.seed(seed)  # noqa: NPY002
    ranks = grid.shape[1]
    place = np.full(len(near), -1)
    for k in range(grid.size):
        place[grid[k // ranks, k % ranks]] = k
    routes, rings = excesses(grid, limits, together)
    total = least = routes.sum() + rings.sum()
    best, new_rings = grid.copy(), rings.copy()
    first, second, was_first, was_second = grid[0].copy(), grid[0].copy(), grid[0].copy(), grid[0].copy()
    temperature, ratio = heat_s[0], (heat_s[1] / heat_s[0]) ** (1.0 / max(1, moves))
    for _ in range(moves):
        temperature *= ratio
        r = _replica(routes)
        other = _propose(r, grid, place, near, first, second)
        was_first[:], was_second[:] = grid[r], grid[other]
        cost = other_cost = _route_excess(first, limits, together)
        change = cost - routes[r]
        if other != r:
            other_cost = _route_excess(second, limits, together)
            change += other_cost - routes[other]
        grid[r], grid[other] = first, second
        for s in range(ranks):
            new_rings[s] = rings[s]
            if first[s] != was_first[s] or second[s] != was_second[s]:
                new_rings[s] = _ring_excess(grid, s, limits)
                change += new_rings[s] - rings[s]
        if change > -temperature * np.log(1.0 - np.random.random()):  # noqa: NPY002
            grid[r], grid[other] = was_first, was_second
            continue
        routes[r], routes[other] = cost, other_cost
        rings[:] = new_rings
        for s in range(ranks):
            place[first[s]], place[second[s]] = r * ranks + s, other * ranks + s
        total += change
        if total < least:
            least = total
            best[:] = grid
    grid[:] = best
