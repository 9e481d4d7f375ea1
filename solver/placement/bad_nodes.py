"""A bound by the nodes that cannot be left out: some ranks compute, send and reduce no better than bad nodes can.

The worst ``n`` nodes, less the spare ones, fill at least as many ranks as it takes to hold them; the bound takes
the ranks where that hurts least.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.placement.least_inputs import between_slots, distinct, last_ends
from solver.placement.problem import PlacementProblem

MOST_BAD_RANKS: Final = 4
"""Ranks of bad nodes that are looked for at most: the first two tell nearly all."""


def bad_nodes_bound_s(
    problem: PlacementProblem, duration_s: FloatArray, delay_s: FloatArray, reduce: FloatArray
) -> float:
    """Seconds before which the last reduction cannot end, on nodes of a bad kind where there must be some.

    ``duration_s``, ``delay_s`` and ``reduce`` (P,) are the least there can be; every slot belongs to a rank.
    """
    arrays = problem.arrays
    fullest = max(len(np.unique(slots[slots >= 0])) for slots in arrays.cell_slots.swapaxes(0, 1))
    spare, stages = problem.nodes - problem.slots, delay_s.shape[-1]
    bound, seen = 0.0, set[bytes]()
    for order in _worst_first(problem):
        for ranks in range(1, min(stages, MOST_BAD_RANKS) + 1):
            bad = np.sort(order[: spare + fullest * (ranks - 1) + 1])
            if len(bad) == problem.nodes > 1 or bad.tobytes() in seen:
                continue
            seen.add(bad.tobytes())
            hurt = _with_one_of(problem, duration_s, delay_s, reduce, bad)
            bound = max(bound, float(np.sort(hurt)[ranks - 1]))
    return bound


def _worst_first(problem: PlacementProblem) -> tuple[IntArray, IntArray]:
    """The nodes by how slowly they compute, and by their links."""
    slowdown = problem.arrays.slowdown
    link_s = np.maximum(*_links_of(problem.arrays.hop_s, np.arange(problem.nodes)))
    return np.lexsort((link_s, slowdown))[::-1], np.lexsort((slowdown, link_s))[::-1]


def _with_one_of(
    problem: PlacementProblem, duration_s: FloatArray, delay_s: FloatArray, reduce: FloatArray, bad: IntArray
) -> FloatArray:
    """(P,) last reduction, over all ranks, when a slot of each rank in turn sits on one of the ``bad`` nodes.

    It is 0 where that changes nothing.  Only compute slows down, not the traffic that ``duration_s`` also holds.
    """
    arrays, stages = problem.arrays, delay_s.shape[-1]
    longer_s = arrays.duration_s * (float(arrays.slowdown[bad].min()) - arrays.slowdown.min())
    into_s, out_s = (float(each.min()) for each in _links_of(arrays.hop_s, bad))
    own_s = np.maximum(reduce, [_least_ring_of(problem, stage, bad) for stage in range(stages)])
    least = np.full(stages, np.inf)
    for replica in distinct(duration_s, delay_s):
        sends, hears = _every_slot_linked(problem, int(replica))
        for stage in range(stages):
            slowed, later, reduced = duration_s[replica].copy(), delay_s[replica].copy(), reduce.copy()
            slowed[:, stage::stages] += longer_s[:, stage::stages]
            before, after = (stage - 1) % stages, (stage + 1) % stages
            later[:, stage] = np.maximum(later[:, stage], np.where(sends[:, stage], out_s, 0.0))
            later[0, before] = max(later[0, before], into_s if hears[0, before] else 0.0)
            later[1, after] = max(later[1, after], into_s if hears[1, after] else 0.0)
            reduced[stage] = own_s[stage]
            if longer_s.any() or (later > delay_s[replica]).any() or (reduced > reduce).any():
                ends = last_ends(problem, slowed, later)
                least[stage] = min(least[stage], float((ends + reduced).max()))
            else:
                least[stage] = 0.0
    return least


def _links_of(between_s: FloatArray, nodes: IntArray) -> tuple[FloatArray, FloatArray]:
    """(n,) the fastest link that leads to each of ``nodes``, and the fastest from it."""
    into, out = between_s[:, nodes].copy(), between_s[nodes].copy()
    own = np.arange(len(nodes))
    into[nodes, own] = out[own, nodes] = np.inf
    return into.min(axis=0), out.min(axis=1)


def _least_ring_of(problem: PlacementProblem, stage: int, nodes: IntArray) -> float:
    """Least exposed reduction of a rank one of whose slots sits on one of ``nodes``."""
    arrays = problem.arrays
    slots = np.unique(arrays.cell_slots[:, stage])
    total = -float(arrays.reduce_hidden_s[stage])
    for kind, pairs in enumerate(arrays.ring_pairs[:, stage]):
        crossing = pairs[between_slots(pairs)]
        covered = all(np.isin(slots, ends).all() for ends in crossing.T)
        matrix = arrays.reduce_s[arrays.ring_times[kind, stage]]
        own = float(np.maximum(*_links_of(matrix, nodes)).min()) if covered else 0.0
        total += max(float(arrays.reduce_local_s[kind, stage]), own)
    return total


def _every_slot_linked(problem: PlacementProblem, replica: int) -> tuple[BoolArray, BoolArray]:
    """(2, P) whether each slot of a cell sends, and each of the next hears, by direction and the sender's rank."""
    arrays, stages = problem.arrays, problem.schedule.pipeline
    sends, hears = np.zeros((2, 2, stages), dtype=bool)
    for way, step in enumerate((1, -1)):
        for stage in range(stages):
            pairs = arrays.hop_pairs[replica, way, stage]
            crossing = pairs[between_slots(pairs)]
            own, its = (arrays.cell_slots[replica, s % stages] for s in (stage, stage + step))
            sends[way, stage] = np.isin(own, crossing[:, 0]).all()
            hears[way, stage] = np.isin(its, crossing[:, 1]).all()
    return sends, hears
