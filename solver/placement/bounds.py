"""Step times that no assignment can beat, from the best link and node of each kind.

The event graph's ends grow with every duration and delay, so the simulation itself, run with each of them at its
least, is a bound.  It is sharpened in two ways: rings need nodes that hang together by fast links, and when the
slow nodes cannot all be left out, some cell is slow.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import connected_components

from solver.candidates import FloatArray, IntArray
from solver.placement.problem import PlacementProblem
from solver.simulation import simulate


def placement_bound_s(problem: PlacementProblem) -> float:
    """Seconds that no assignment of ``problem`` can beat."""
    arrays = problem.arrays
    reduce, gather = _least_rings(problem)
    tail = float((arrays.optimizer_s + gather).max())
    duration_s, delay_s = least_inputs(problem)
    ends = np.max([_ends(problem, duration_s[r], delay_s[r]) for r in _distinct(delay_s)], axis=0)
    bound = float((ends + reduce).max())
    slowest = float(np.sort(arrays.slowdown)[problem.slots - 1])
    if slowest > 1.0:
        bound = max(bound, _with_one_slow_rank(problem, duration_s, delay_s, slowest))
    return max(bound, _with_connected_rings(problem, ends)) + tail


def least_inputs(problem: PlacementProblem) -> tuple[FloatArray, FloatArray]:
    """Durations (R, 2, C) and delays (R, 2, P) with every link and node at its best."""
    arrays = problem.arrays
    hop = _least(arrays.hop_s)
    crossing = (arrays.hop_pairs[..., 0] >= 0) & (arrays.hop_pairs[..., 0] != arrays.hop_pairs[..., 1])
    inside = (arrays.hop_pairs[..., 0] >= 0) & ~crossing
    delay = np.maximum(crossing.any(axis=-1) * hop, inside.any(axis=-1) * arrays.local_hop_s)
    duration = np.repeat(arrays.duration_s[None], problem.replicas, axis=0) * arrays.slowdown.min()
    stages = delay.shape[-1]
    for x, pairs in enumerate(arrays.cross_pairs):
        exposed = np.maximum(0.0, _least(arrays.cross_s[x]) - arrays.cross_hidden_s[x])
        used = np.tile((pairs[..., 0] >= 0).any(axis=-1), (1, problem.schedule.virtual))
        assert used.shape[1] == stages * problem.schedule.virtual
        duration += used[:, None, :] * exposed[None, :, None] * arrays.cross_count[x][None]
    return duration, delay


def _least(matrix: FloatArray) -> float:
    """The least off-diagonal entry; 0 for a single node."""
    off = ~np.eye(len(matrix), dtype=bool)
    return float(matrix[off].min()) if len(matrix) > 1 else 0.0


def _distinct(delay_s: FloatArray) -> IntArray:
    """Indices of replicas whose delays differ."""
    return np.unique(delay_s.reshape(len(delay_s), -1), axis=0, return_index=True)[1]


def _ends(problem: PlacementProblem, duration_s: FloatArray, delay_s: FloatArray) -> FloatArray:
    return simulate(problem.schedule, duration_s, delay_s)[problem.schedule.last]


def _least_rings(problem: PlacementProblem) -> tuple[FloatArray, FloatArray]:
    """Exposed reduction and gather (P,) with each ring on the best links."""
    arrays = problem.arrays
    exposed = []
    for crossing, local, hidden in (
        (arrays.reduce_s, arrays.reduce_local_s, arrays.reduce_hidden_s),
        (arrays.gather_s, arrays.gather_local_s, arrays.gather_hidden_s),
    ):
        used = (arrays.ring_pairs[..., 0] >= 0).any(axis=-1)
        least = np.array([[_least(matrix) for matrix in kind] for kind in crossing])
        exposed.append(np.maximum(0.0, np.maximum(local, used * least).sum(axis=0) - hidden))
    return exposed[0], exposed[1]


def _with_one_slow_rank(
    problem: PlacementProblem, duration_s: FloatArray, delay_s: FloatArray, slowdown: float
) -> float:
    """Some pipeline rank of some replica runs on a node at least this slow: the cheapest choice of it."""
    stages = delay_s.shape[-1]
    least = np.inf
    for replica in _distinct(delay_s):
        for stage in range(stages):
            slowed = duration_s[replica].copy()
            slowed[:, stage::stages] *= slowdown / problem.arrays.slowdown.min()
            least = min(least, float(_ends(problem, slowed, delay_s[replica]).max()))
    return float(least)


def _with_connected_rings(problem: PlacementProblem, ends: FloatArray) -> float:
    """Every ring lies in a part of the cluster whose links are all at least as fast as its slowest hop.

    If the parts joined by links faster than some threshold hold too few disjoint rings, some stage's ring is no
    faster than the threshold; the bound takes the stage where that hurts least.  Only for rings that do not
    share nodes.
    """
    arrays = problem.arrays
    pairs = arrays.ring_pairs[0]
    sizes = [len(np.unique(stage[stage >= 0])) for stage in pairs]
    slots = np.concatenate([np.unique(stage[stage >= 0]) for stage in pairs])
    if min(sizes) < 2 or len(np.unique(slots)) != len(slots) or len(set(sizes)) > 1:
        return 0.0
    unit = arrays.reduce_s[0].min(axis=0)
    threshold = _ring_threshold(unit, rings=len(sizes), size=sizes[0])
    others = arrays.reduce_local_s[1:].sum(axis=0)
    return float((ends + np.maximum(0.0, threshold + others - arrays.reduce_hidden_s)).min())


def _ring_threshold(hop_s: FloatArray, *, rings: int, size: int) -> float:
    """The least slowest hop that ``rings`` disjoint rings of ``size`` nodes can have (a lower bound of it)."""
    times = np.minimum(hop_s, hop_s.T)
    off = ~np.eye(len(times), dtype=bool)
    values = np.unique(times[off])
    low, high = 0, len(values) - 1
    while low < high:
        middle = (low + high) // 2
        _, part = connected_components((times <= values[middle]) & off, directed=False)
        if (np.bincount(part) // size).sum() >= rings:
            high = middle
        else:
            low = middle + 1
    return float(values[low])
