"""Step times that no assignment can beat, from the best link and node of each kind.

The event graph's ends grow with every duration and delay, so the simulation itself, run with each of them at its
least, is a bound.  It is sharpened in two ways.  Where bad nodes cannot all be left out, some ranks compute, send
and reduce no better than these can (``solver.placement.bad_nodes``).  And where the cluster falls into parts joined
by slower links only, either some ring crosses between parts, or every ring stays in one and whole stages follow
each other across (docs/placement.md).
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Final

import numpy as np
import scipy

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.placement.bad_nodes import Least, bad_nodes_bound_s
from solver.placement.least_inputs import between_slots, distinct, last_ends, least_inputs
from solver.placement.problem import PlacementProblem
from solver.placement.unavoidable_links import across, merges, parts_below

MOST_CUTS: Final = 3
"""Partitions looked at: the cluster without its slowest, two slowest, three slowest unavoidable links."""
MOST_CHOICES: Final = 100
"""Choices of crossed boundaries that are simulated; beyond, a single crossing is assumed."""


def placement_bound_s(problem: PlacementProblem) -> float:
    """Seconds that no assignment of ``problem`` can beat."""
    arrays = problem.arrays
    reduce, gather = least_rings(problem)
    tail = float((arrays.optimizer_s + gather).max())
    duration_s, delay_s = least_inputs(problem)
    ends = np.max([last_ends(problem, duration_s[r], delay_s[r]) for r in distinct(duration_s, delay_s)], axis=0)
    last = float((ends + reduce).max())
    bound = max(last, _with_parts(problem, duration_s, delay_s, ends, reduce)) + tail
    if problem.nodes > 1 and len(np.unique(arrays.cell_slots[arrays.cell_slots >= 0])) == problem.slots:
        bound = max(bound, bad_nodes_bound_s(problem, Least(duration_s, delay_s, reduce, gather, last)))
    return bound


def least_rings(problem: PlacementProblem) -> tuple[FloatArray, FloatArray]:
    """Exposed reduction and gather (P,), no ring without the slow link that joining so many nodes takes."""
    arrays = problem.arrays
    lengths = _ring_lengths(problem)
    crossed = _crossed(problem, lengths)
    exposed = []
    for crossing, local, hidden in (
        (arrays.reduce_s, arrays.reduce_local_s, arrays.reduce_hidden_s),
        (arrays.gather_s, arrays.gather_local_s, arrays.gather_hidden_s),
    ):
        slowest = np.zeros(lengths.shape)
        for at, length in np.ndenumerate(lengths):
            if length > 1:
                slowest[at] = crossing[arrays.ring_times[at]][crossed[int(length)]].min()
        exposed.append(np.maximum(0.0, np.maximum(local, slowest).sum(axis=0) - hidden))
    return exposed[0], exposed[1]


def _ring_lengths(problem: PlacementProblem) -> IntArray:
    """(Y, P) slots that the hops of the longest ring of a kind and rank join; 1 where none leaves its node."""
    pairs = problem.arrays.ring_pairs
    leaving = between_slots(pairs)
    lengths = np.ones(pairs.shape[:2], dtype=np.int64)
    for kind, stage in np.argwhere(leaving.any(axis=-1)):
        lengths[kind, stage] = np.bincount(
            _joined_by(pairs[kind, stage][leaving[kind, stage]], problem.slots)
        ).max()
    return lengths


def _crossed(problem: PlacementProblem, lengths: IntArray) -> dict[int, BoolArray]:
    """Links by length (N, N) of which every ring of that length uses at least one."""
    wanted = sorted({int(length) for length in lengths.flat if length > 1})
    if not wanted:
        return {}
    merged = merges(problem.arrays.hop_s)
    return {length: across(parts_below(merged, length)) for length in wanted}


def _with_parts(
    problem: PlacementProblem,
    duration_s: FloatArray,
    delay_s: FloatArray,
    ends: FloatArray,
    reduce: FloatArray,
) -> float:
    """The better of the two ways to lay stages onto parts of the cluster, for the partition that hurts most.

    Only where each stage's first kind of ring joins all its slots.  Stages that share slots, or have unequally
    many, are only asked whether those that hang together fit into one part.
    """
    arrays = problem.arrays
    stages = [np.unique(pairs[pairs >= 0]) for pairs in arrays.cell_slots.swapaxes(0, 1)]
    size = len(stages[0])
    shared = len(np.unique(arrays.cell_slots)) < sum(map(len, stages))
    alike = not shared and all(len(slots) == size for slots in stages)
    if not all(_joined(pairs, slots) for pairs, slots in zip(arrays.ring_pairs[0], stages, strict=True)):
        return 0.0
    best = 0.0
    for part in _partitions(arrays.hop_s):
        exposed = _crossing_rings(problem, across(part)) - arrays.reduce_hidden_s
        crossing_ring = max(float((ends + reduce).max()), float((ends + np.maximum(0.0, exposed)).min()))
        if alike:
            whole_stages = _with_stages_across(problem, duration_s, delay_s, reduce, part, size)
        else:
            whole_stages = np.inf if _largest_union(problem.slots, stages) > np.bincount(part).max() else 0.0
        best = max(best, whole_stages if alike and size == 1 else min(crossing_ring, whole_stages))
    return best


def _largest_union(slots: int, stages: list[IntArray]) -> int:
    """Slots of the stages that hang together by slots they share, of the largest such group."""
    pairs = np.concatenate([np.stack([own[:-1], own[1:]], axis=1) for own in stages])
    return int(np.bincount(_joined_by(pairs, slots)).max())


def _joined(pairs: IntArray, slots: IntArray) -> bool:
    """Whether slot pairs (u, 2) connect all ``slots``: then some pair joins two parts where they lie in both."""
    inside = pairs[np.isin(pairs, slots).all(axis=-1)]
    return not _joined_by(np.searchsorted(slots, inside), len(slots)).any()


def _joined_by(pairs: IntArray, slots: int) -> IntArray:
    """(slots,) the number, from 0, of the group of each slot: those that pairs (u, 2) join one after the other."""
    graph = scipy.sparse.coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(slots, slots))
    return scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def _linked(problem: PlacementProblem, replica: int, stage: int) -> bool:
    """Whether a replica's transfers between a stage and the next go from one's slots to the other's, both ways."""
    arrays = problem.arrays
    after = (stage + 1) % problem.schedule.pipeline
    own, its = (arrays.cell_slots[:, s].ravel() for s in (stage, after))
    there, back = arrays.hop_pairs[replica, 0, stage], arrays.hop_pairs[replica, 1, after]
    forward = np.isin(there[:, 0], own) & np.isin(there[:, 1], its) & between_slots(there)
    backward = np.isin(back[:, 0], its) & np.isin(back[:, 1], own) & between_slots(back)
    return bool(forward.any() and backward.any())


def _crossing_rings(problem: PlacementProblem, crossing: BoolArray) -> FloatArray:
    """(P,) least reduction when a stage's nodes lie in several parts, joined by the ``crossing`` (N, N) links.

    Rings over some of a stage's nodes only (experts over many nodes) may still stay on one side.
    """
    arrays = problem.arrays
    total = np.zeros(problem.schedule.pipeline)
    for kind, pairs in enumerate(arrays.ring_pairs):
        links = crossing if np.array_equal(pairs, arrays.ring_pairs[0]) else ~np.eye(len(crossing), dtype=bool)
        used = between_slots(pairs).any(axis=-1)
        least = arrays.reduce_s[:, links].min(axis=-1)[arrays.ring_times[kind]]
        total += np.maximum(arrays.reduce_local_s[kind], used * least)
    return total


def _partitions(hop_s: FloatArray) -> list[IntArray]:
    """Parts of the cluster when its slowest unavoidable links are cut, one to ``MOST_CUTS`` of them."""
    cost = np.minimum(hop_s, hop_s.T)
    tree = scipy.sparse.csgraph.minimum_spanning_tree(cost).tocoo()
    order = np.argsort(tree.data)
    result = []
    for cuts in range(1, min(MOST_CUTS, len(order)) + 1):
        kept = order[: len(order) - cuts]
        graph = scipy.sparse.coo_array((tree.data[kept], (tree.row[kept], tree.col[kept])), shape=tree.shape)
        result.append(scipy.sparse.csgraph.connected_components(graph, directed=False)[1].astype(np.int64))
    return result


def _with_stages_across(
    problem: PlacementProblem,
    duration_s: FloatArray,
    delay_s: FloatArray,
    reduce: FloatArray,
    part: IntArray,
    size: int,
) -> float:
    """Every stage lies in one part, ``size`` nodes each: where too few fit into one, stages follow across.

    With ``k`` parts at least ``k - 1`` of the boundaries between stages cross, ``k`` where the pipeline closes to
    a ring; the bound takes the boundaries where that hurts least.
    """
    hop_s, schedule = problem.arrays.hop_s, problem.schedule
    room = np.sort(np.bincount(part) // size)[::-1].cumsum()
    if room[-1] < schedule.pipeline:
        return np.inf
    parts = int(np.searchsorted(room, schedule.pipeline)) + 1
    closed = schedule.is_closed
    boundaries = range(schedule.pipeline if closed else schedule.pipeline - 1)
    crossed = 0 if parts == 1 else parts - (not closed)
    if comb(len(boundaries), crossed) > MOST_CHOICES:
        crossed = 1
    slow = float(hop_s[across(part)].min())
    replica = int(distinct(duration_s, delay_s)[0])
    if not all(_linked(problem, replica, boundary) for boundary in boundaries):
        return 0.0
    least = np.inf
    for chosen in combinations(boundaries, crossed):
        delays = delay_s[replica].copy()
        for boundary in chosen:
            after = (boundary + 1) % schedule.pipeline
            delays[0, boundary] = max(delays[0, boundary], slow)
            delays[1, after] = max(delays[1, after], slow)
        least = min(least, float((last_ends(problem, duration_s[replica], delays) + reduce).max()))
    return float(least)
