"""A bound by the nodes that cannot be left out: some ranks compute, send and reduce no better than bad nodes can.

The worst ``n`` nodes, less the spare ones, fill at least as many ranks as it takes to hold them; the bound takes
the ranks where that hurts least, before the optimizer step and in the gather after it together.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled import Arrays
from solver.placement.least_inputs import between_slots, distinct, fastest_between, last_ends
from solver.placement.problem import NO_SLOT, PlacementProblem

MOST_BAD_RANKS: Final = 4
"""Ranks of bad nodes that are looked for at most: the first two tell nearly all."""


class Least(NamedTuple):
    """The least durations (R, E, C), delays (R, 2, P), exposed rings (P,), and end of the last reduction."""

    duration_s: FloatArray
    delay_s: FloatArray
    reduce_s: FloatArray
    gather_s: FloatArray
    last_s: float


def bad_nodes_bound_s(problem: PlacementProblem, least: Least) -> float:
    """Seconds that no step beats, on nodes of a bad kind where there must be some; every slot belongs to a rank."""
    arrays = problem.arrays
    fullest = max(len(np.unique(slots[slots >= 0])) for slots in arrays.cell_slots.swapaxes(0, 1))
    spare, stages = problem.nodes - problem.slots, least.delay_s.shape[-1]
    bound, seen = 0.0, set[bytes]()
    for order in worst_first(problem):
        for ranks in range(1, min(stages, MOST_BAD_RANKS) + 1):
            bad = np.sort(order[: spare + fullest * (ranks - 1) + 1])
            if len(bad) == problem.nodes > 1 or bad.tobytes() in seen:
                continue
            seen.add(bad.tobytes())
            bound = max(bound, _least_step_s(*_with_one_of(problem, least, bad), ranks))
    return bound


def _least_step_s(last_s: FloatArray, tail_s: FloatArray, ranks: int) -> float:
    """The least sum of the longest ``last_s`` (P,) and the longest ``tail_s`` (P,) of any so many ``ranks``."""
    order = np.argsort(tail_s)
    return min(
        float(np.sort(last_s[order[:count]])[ranks - 1] + tail_s[order[count - 1]])
        for count in range(ranks, len(order) + 1)
    )


def worst_first(problem: PlacementProblem) -> tuple[IntArray, IntArray]:
    """The nodes by how slowly they compute, and by their links."""
    slowdown = problem.arrays.slowdown
    link_s = np.maximum(*_links_of(problem.arrays.hop_s, np.arange(problem.nodes)))
    return np.lexsort((link_s, slowdown))[::-1], np.lexsort((slowdown, link_s))[::-1]


def _with_one_of(problem: PlacementProblem, least: Least, bad: IntArray) -> tuple[FloatArray, FloatArray]:
    """(P,) last reduction and longest tail when a slot of each rank in turn sits on one of the ``bad`` nodes.

    Compute slows down, and traffic inside chunks takes the links of a bad node.
    """
    arrays, stages = problem.arrays, least.delay_s.shape[-1]
    longer_s = _longer_s(problem, bad)
    into_s, out_s = (float(each.min()) for each in _links_of(arrays.hop_s, bad))
    covered = _covered(problem)
    own_s = _rings_on(bad, covered, arrays, arrays.reduce_s, arrays.reduce_local_s) - arrays.reduce_hidden_s
    gather_s = _rings_on(bad, covered, arrays, arrays.gather_s, arrays.gather_local_s) - arrays.gather_hidden_s
    tail_s = arrays.optimizer_s + np.maximum(least.gather_s, gather_s)
    last_s = np.full(stages, np.inf)
    for replica in distinct(least.duration_s, least.delay_s):
        duration_s, delay_s = least.duration_s[replica], least.delay_s[replica]
        sends, hears = _every_slot_linked(problem, int(replica))
        for stage in range(stages):
            slowed, later, reduced = duration_s.copy(), delay_s.copy(), least.reduce_s.copy()
            slowed[:, stage::stages] += longer_s[:, stage::stages]
            before, after = (stage - 1) % stages, (stage + 1) % stages
            later[:, stage] = np.maximum(later[:, stage], np.where(sends[:, stage], out_s, 0.0))
            later[0, before] = max(later[0, before], into_s if hears[0, before] else 0.0)
            later[1, after] = max(later[1, after], into_s if hears[1, after] else 0.0)
            reduced[stage] = max(reduced[stage], own_s[stage])
            changed = longer_s.any() or (later > delay_s).any() or (reduced > least.reduce_s).any()
            end_s = float((last_ends(problem, slowed, later) + reduced).max()) if changed else least.last_s
            last_s[stage] = min(last_s[stage], end_s)
    return last_s, np.maximum(tail_s, float((arrays.optimizer_s + least.gather_s).max()))


def _links_of(between_s: FloatArray, nodes: IntArray) -> tuple[FloatArray, FloatArray]:
    """(n,) the fastest link that leads to each of ``nodes``, and the fastest from it."""
    into, out = between_s[:, nodes].copy(), between_s[nodes].copy()
    own = np.arange(len(nodes))
    into[nodes, own] = out[own, nodes] = np.inf
    return into.min(axis=0), out.min(axis=1)


def _longer_s(problem: PlacementProblem, bad: IntArray) -> FloatArray:
    """(E, C) seconds that each chunk takes longer at least with a slot of its rank on one of the ``bad`` nodes."""
    arrays = problem.arrays
    longer_s: FloatArray = arrays.duration_s * (float(arrays.slowdown[bad].min()) - arrays.slowdown.min())
    for between_s, pairs, count, hidden_s in zip(
        arrays.cross_s, arrays.cross_pairs, arrays.cross_count, arrays.cross_hidden_s, strict=True
    ):
        own_s = float(np.maximum(*_links_of(between_s, bad)).min())
        exposed_s = np.maximum(0.0, own_s - hidden_s) - np.maximum(0.0, fastest_between(between_s) - hidden_s)
        if count.any() and exposed_s.any():
            crossed = np.tile(_crossed(arrays.cell_slots, pairs), problem.schedule.virtual)
            longer_s = longer_s + crossed * exposed_s[:, None] * count
    return longer_s


def _crossed(cell_slots: IntArray, pairs: IntArray) -> BoolArray:
    """(P,) whether links of the ``pairs`` (R, P, u, 2) lead to each slot of each cell of a rank, and from it."""
    ends = np.where(between_slots(pairs)[..., None], pairs, NO_SLOT)
    found = np.empty(pairs.shape[1], dtype=np.bool_)
    for stage, slots in enumerate(cell_slots.swapaxes(0, 1)[..., None]):
        met = [(slots == ends[:, stage, None, :, way]).any(axis=-1) for way in range(2)]
        found[stage] = (np.logical_and(*met) | (slots[..., 0] < 0)).all()
    return found


def _covered(problem: PlacementProblem) -> BoolArray:
    """(Y, P) whether links of the rings of a kind lead to each slot of a rank, and from it."""
    pairs = problem.arrays.ring_pairs
    found = np.empty(pairs.shape[:2], dtype=np.bool_)
    for stage in range(pairs.shape[1]):
        slots = np.unique(problem.arrays.cell_slots[:, stage])
        for kind in range(len(pairs)):
            crossing = pairs[kind, stage][between_slots(pairs[kind, stage])]
            found[kind, stage] = all(np.isin(slots, ends).all() for ends in crossing.T)
    return found


def _rings_on(
    nodes: IntArray, covered: BoolArray, arrays: Arrays, between_s: FloatArray, local_s: FloatArray
) -> FloatArray:
    """(P,) least seconds of the rings of each rank one of whose slots sits on one of ``nodes``."""
    own_s = np.array([np.maximum(*_links_of(matrix, nodes)).min() for matrix in between_s])
    seconds: FloatArray = np.maximum(local_s, np.where(covered, own_s[arrays.ring_times], 0.0)).sum(axis=0)
    return seconds


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
