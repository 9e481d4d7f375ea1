"""The chains of slots that a placement problem is made of, and what each node costs on each position.

A chain has one slot for each pipeline rank, between which the transfers of one replica go; cells of
several slots give several chains, replicas on the same slots throughout the same ones.  Where slots are shared
otherwise there are no chains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np
import scipy

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.placement.least_inputs import between_slots, fastest_between
from solver.placement.problem import PlacementProblem
from solver.placement.ring_floors import in_and_out

TOLERANCE: Final = 1e-9
"""Share of a limit that rounding may take."""
RING_RESOLUTION: Final = 5e-3
"""Share by which links may differ that are not told apart when the slowest link of a ring is looked for."""


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """``count`` chains; ``ring_s`` (P, N): least exposed reduction of a rank one of whose slots sits on a node.

    It is infinite where the node may take none of them.  ``link_s`` (P, N, N): least exposed reduction of a rank
    whose ring goes from a node to another.

    ``extra_s`` (E, C): least exposed crossing traffic of each chunk; ``least_hop_s``: the fastest transfer.
    """

    count: int
    ring_s: FloatArray
    link_s: FloatArray
    extra_s: FloatArray
    least_hop_s: float


def chains_of(problem: PlacementProblem) -> Chains | None:
    """The chains of ``problem``, or ``None`` where its slots are not disjoint chains."""
    arrays, stages = problem.arrays, problem.schedule.pipeline
    firsts = np.sort(np.unique(arrays.cell_slots, axis=0, return_index=True)[1])
    slots = arrays.cell_slots[firsts]
    off = ~np.eye(problem.nodes, dtype=bool)
    if not np.isfinite(arrays.hop_s[off]).all():
        return None
    if (slots < 0).any() or len(np.unique(slots)) < slots.size or not _chained(problem, firsts):
        return None
    exposed = np.zeros_like(arrays.duration_s)
    for x, pairs in enumerate(arrays.cross_pairs):
        least = np.maximum(0.0, fastest_between(arrays.cross_s[x]) - arrays.cross_hidden_s[x])
        used = np.tile(between_slots(pairs).any(axis=-1).all(axis=0), problem.schedule.virtual)
        exposed += used[None, :] * least[:, None] * arrays.cross_count[x]
    round_pairs = np.stack([arrays.hop_pairs[:, 0, -1], arrays.hop_pairs[:, 1, 0]])
    least_hop_s = fastest_between(arrays.hop_s) if between_slots(round_pairs).any(axis=-1).all() else 0.0
    thresholds = cache(lambda matrix, length: node_thresholds(arrays.reduce_s[matrix], length))
    ring_s = np.stack([_ring_floor(problem, s, thresholds) for s in range(stages)])
    for s in range(stages):
        ring_s[s, ~arrays.rules.eligible[slots[:, s].ravel()].any(axis=0)] = np.inf
    link_s = np.stack([_link_floor(problem, s) for s in range(stages)])
    return Chains(slots.shape[0] * slots.shape[2], ring_s, link_s, exposed, least_hop_s)


def _chained(problem: PlacementProblem, replicas: IntArray) -> bool:
    """Whether every slot of a cell of ``replicas`` sends to one slot of the next cell, which sends back to it."""
    arrays, stages = problem.arrays, problem.schedule.pipeline
    for replica in replicas:
        for s in range(stages - 1):
            there, back = arrays.hop_pairs[replica, 0, s], arrays.hop_pairs[replica, 1, s + 1]
            pairs = {(int(a), int(b)) for a, b in there if a >= 0}
            returns = {(int(b), int(a)) for a, b in back if a >= 0}
            ends = {a for a, _ in pairs}, {b for _, b in pairs}
            cells = set(arrays.cell_slots[replica, s].tolist()), set(arrays.cell_slots[replica, s + 1].tolist())
            if pairs != returns or ends != cells or len(pairs) != len(cells[0]):
                return False
    return True


def _ring_floor(problem: PlacementProblem, stage: int, thresholds: Callable[[int, int], FloatArray]) -> FloatArray:
    """(N,) exposed reduction of a stage on whose rings a node is, at least.

    ``thresholds``: ``node_thresholds`` of the matrix with a number, for rings of some length.
    """
    arrays = problem.arrays
    total = np.full(problem.nodes, -float(arrays.reduce_hidden_s[stage]))
    slots = np.unique(arrays.cell_slots[:, stage])
    for kind, pairs in enumerate(arrays.ring_pairs[:, stage]):
        length = _shortest_cycle(pairs[between_slots(pairs)], slots)
        crossing = thresholds(int(arrays.ring_times[kind, stage]), length)
        total += np.maximum(arrays.reduce_local_s[kind, stage], crossing)
    return np.asarray(np.maximum(0.0, total))


def _link_floor(problem: PlacementProblem, stage: int) -> FloatArray:
    """(N, N) least exposed reduction of a stage whose rings take a link, where one goes through all its slots."""
    arrays = problem.arrays
    slots = np.unique(arrays.cell_slots[:, stage])
    total = np.full((problem.nodes, problem.nodes), -float(arrays.reduce_hidden_s[stage]))
    orders = [pairs[between_slots(pairs)] for pairs in arrays.ring_pairs[:, stage]]
    whole = [_shortest_cycle(pairs, slots) == len(slots) for pairs in orders]
    order = {(int(a), int(b)) for a, b in orders[whole.index(True)]} if any(whole) else set()
    for kind, pairs in enumerate(orders):
        between_s, local_s = arrays.reduce_s[arrays.ring_times[kind, stage]], arrays.reduce_local_s[kind, stage]
        if not whole[kind] or {(int(a), int(b)) for a, b in pairs} != order:
            between_s = np.full_like(total, fastest_between(between_s) if len(pairs) else 0.0)
        elif len(slots) == 2:
            between_s = np.maximum(between_s, between_s.T)
        total += np.maximum(local_s, between_s)
    return np.asarray(np.maximum(0.0, total))


def _shortest_cycle(pairs: IntArray, slots: IntArray) -> int:
    """Fewest slots on one of the closed rings that ``pairs`` form.

    0 unless they hold every one of ``slots``, and where some but not all rings have two.
    """
    following = {int(a): int(b) for a, b in pairs}
    members = set(slots.tolist())
    if len(following) != len(pairs) or set(following) != members or set(following.values()) != members:
        return 0
    lengths = set()
    for slot, after in following.items():
        length, at = 1, after
        while at != slot:
            length, at = length + 1, following[at]
        lengths.add(length)
    # a ring of two uses both directions of its link, a longer one does not
    return 0 if len(lengths) > 1 and 2 in lengths else min(lengths, default=0)


def node_thresholds(between_s: FloatArray, length: int) -> FloatArray:
    """(N,) at most the slowest link of any ring of ``length`` different nodes or more that holds the node.

    Such a ring lies in a connected part, of that many nodes, of the links up to its slowest one, each node with
    two neighbours there; infinite where there is no such ring.
    """
    nodes = len(between_s)
    if length < 2:
        return np.zeros(nodes)
    if length == 2:
        both = np.maximum(between_s, between_s.T) + np.diag(np.full(nodes, np.inf))
        return np.asarray(both.min(axis=1))
    cost = np.minimum(between_s, between_s.T)
    np.fill_diagonal(cost, np.inf)
    links = np.unique(cost[np.isfinite(cost)])
    result = np.full(nodes, np.inf)

    def halve(below: int, above: int, outside: BoolArray, inside: BoolArray) -> None:
        """Floors of the nodes on rings up to the link ``above`` and on none up to ``below``."""
        between = inside & ~outside
        if not between.any():
            return
        if above - below == 1 or links[above] <= links[below + 1] * (1.0 + RING_RESOLUTION):
            result[between] = links[below + 1]
            return
        middle = (below + above) // 2
        on_middle = ring_nodes(cost <= links[middle], length)
        halve(below, middle, outside, on_middle)
        halve(middle, above, on_middle, inside)

    last = len(links) - 1
    if last >= 0:
        halve(-1, last, np.zeros(nodes, dtype=bool), ring_nodes(cost <= links[last], length))
    return np.asarray(np.maximum(result, in_and_out(between_s)))


def ring_nodes(allowed: BoolArray, length: int) -> BoolArray:
    """(N,) nodes that a ring of ``length`` nodes over the ``allowed`` (N, N) links may hold."""
    kept = np.ones(len(allowed), dtype=bool)
    while True:
        degree = (allowed & kept[None, :] & kept[:, None]).sum(axis=1)
        dropped = kept & (degree < 2)
        if not dropped.any():
            break
        kept &= ~dropped
    rows, columns = np.nonzero(allowed & kept[None, :] & kept[:, None])
    graph = scipy.sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=allowed.shape)
    part = scipy.sparse.csgraph.connected_components(graph, directed=False)[1]
    return np.asarray(kept & (np.bincount(part, weights=kept)[part] >= length))
