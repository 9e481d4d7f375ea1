"""One placement problem: the slots of a configuration, the nodes, and the exact step time of an assignment.

A launcher takes an ordered host list, so what is decided is which node takes *slot* ``k`` (the ``k``-th host).
Letters: K slots, N nodes, R replicas (data ranks), P pipeline ranks, C chunks (virtual stages), X kinds of
crossing traffic, Y kinds of data parallel ring; q, u, v count slot pairs.

    step = max over s (max over r (end of the last backward on (r, s)) + exposed gradient reduction of s)
           + max over s (optimizer step of s + exposed parameter gather of s)

The second maximum waits for the first because gradient clipping needs the norm over all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.schedule import Events, Schedule
from solver.simulation import event_ends

NO_SLOT = -1


class Arrays(NamedTuple):
    """Everything the compiled code reads.  Slot pairs are (sender, receiver), padded with ``NO_SLOT``.

    ``events`` and ``last``: the schedule (see ``solver.schedule``).
    ``duration_s`` (2, C), ``local_hop_s`` (), ``slowdown`` (N,): compute on a healthy node, a hop inside a node,
    and how much longer each node computes.
    ``hop_pairs`` (R, 2, P, q, 2), ``hop_s`` (N, N): slots between which rank ``s`` sends forward and backward.
    ``cross_pairs`` (X, R, P, u, 2), ``cross_s`` (X, N, N), ``cross_count`` (X, 2, C), ``cross_hidden_s`` (X, 2):
    collectives of a chunk that cross nodes, by kind ``x``.
    ``cell_slots`` (R, P, q): slots whose GPUs work on a cell.
    ``ring_pairs`` (Y, P, v, 2), ``reduce_s`` and ``gather_s`` (Y, P, N, N), ``*_local_s`` (Y, P): data parallel
    rings by kind ``y`` (all parameters but experts, and experts), one after the other.
    ``*_hidden_s`` (P,) and ``optimizer_s`` (P,).
    """

    events: Events
    last: IntArray
    duration_s: FloatArray
    local_hop_s: float
    slowdown: FloatArray
    hop_pairs: IntArray
    hop_s: FloatArray
    cross_pairs: IntArray
    cross_s: FloatArray
    cross_count: FloatArray
    cross_hidden_s: FloatArray
    cell_slots: IntArray
    ring_pairs: IntArray
    reduce_s: FloatArray
    gather_s: FloatArray
    reduce_local_s: FloatArray
    gather_local_s: FloatArray
    reduce_hidden_s: FloatArray
    gather_hidden_s: FloatArray
    optimizer_s: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class PlacementProblem:
    """``slots`` hosts to choose out of ``nodes`` so that the step is shortest."""

    slots: int
    nodes: int
    schedule: Schedule
    arrays: Arrays

    @property
    def replicas(self) -> int:
        """Data parallel size."""
        return int(self.arrays.hop_pairs.shape[0])


@dataclass(frozen=True, slots=True, eq=False)
class PlacedTimes:
    """Times of one assignment, in seconds.

    ``duration_s`` (R, 2, C) and ``delay_s`` (R, 2, P) with crossing traffic and slow nodes in; ``end_s`` (R, P):
    last backward; ``crossing_s`` (X, R, 2, P): what of one collective of each kind of crossing traffic is exposed;
    ``reduce_s``, ``gather_s`` (P,): what of the rings is.
    """

    step_s: float
    duration_s: FloatArray
    delay_s: FloatArray
    end_s: FloatArray
    crossing_s: FloatArray
    reduce_s: FloatArray
    gather_s: FloatArray


@numba.njit(cache=True)
def _slowdown(assignment: IntArray, slots: IntArray, slowdown: FloatArray) -> float:
    """Of the nodes behind ``slots`` (q,), the slowest one's."""
    worst = 1.0
    for slot in slots:
        if slot >= 0:
            worst = max(worst, slowdown[assignment[slot]])
    return worst


@numba.njit(cache=True)
def slowest_pair(assignment: IntArray, pairs: IntArray, between_s: FloatArray, inside_s: float) -> float:
    """The largest of ``between_s`` (N, N) over slot pairs (u, 2); a pair on one slot takes ``inside_s``."""
    worst = 0.0
    for u in range(len(pairs)):
        a, b = pairs[u, 0], pairs[u, 1]
        if a >= 0:
            worst = max(worst, inside_s if a == b else between_s[assignment[a], assignment[b]])
    return worst


@numba.njit(cache=True)
def replica_inputs(
    assignment: IntArray, arrays: Arrays, replica: int, duration_s: FloatArray, delay_s: FloatArray
) -> None:
    """Fill ``duration_s`` (2, C) and ``delay_s`` (2, P) of one replica under ``assignment``."""
    ranks = arrays.hop_pairs.shape[2]
    for s in range(ranks):
        slowdown = _slowdown(assignment, arrays.cell_slots[replica, s], arrays.slowdown)
        for way in range(2):
            pairs = arrays.hop_pairs[replica, way, s]
            delay_s[way, s] = slowest_pair(assignment, pairs, arrays.hop_s, arrays.local_hop_s)
            duration_s[way, s::ranks] = arrays.duration_s[way, s::ranks] * slowdown
        for x in range(len(arrays.cross_pairs)):
            hop = slowest_pair(assignment, arrays.cross_pairs[x, replica, s], arrays.cross_s[x], 0.0)
            for way in range(2):
                exposed = max(0.0, hop - arrays.cross_hidden_s[x, way])
                duration_s[way, s::ranks] += arrays.cross_count[x, way, s::ranks] * exposed


@numba.njit(cache=True)
def exposed_rings(assignment: IntArray, arrays: Arrays, reduce_s: FloatArray, gather_s: FloatArray) -> None:
    """Fill the exposed gradient reduction and parameter gather (P,) under ``assignment``."""
    for s in range(len(reduce_s)):
        reduce_s[s], gather_s[s] = -arrays.reduce_hidden_s[s], -arrays.gather_hidden_s[s]
        for y in range(len(arrays.ring_pairs)):
            pairs = arrays.ring_pairs[y, s]
            reduce_s[s] += max(
                arrays.reduce_local_s[y, s], slowest_pair(assignment, pairs, arrays.reduce_s[y, s], 0.0)
            )
            gather_s[s] += max(
                arrays.gather_local_s[y, s], slowest_pair(assignment, pairs, arrays.gather_s[y, s], 0.0)
            )
        reduce_s[s], gather_s[s] = max(0.0, reduce_s[s]), max(0.0, gather_s[s])


@numba.njit(cache=True)
def step_seconds(assignment: IntArray, arrays: Arrays) -> tuple[float, float]:
    """Step time of an assignment (K,), and a tie-breaker: the mean over replicas and ranks of the same."""
    replicas, ranks = arrays.hop_pairs.shape[0], arrays.hop_pairs.shape[2]
    reduce_s, gather_s = np.empty(ranks), np.empty(ranks)
    exposed_rings(assignment, arrays, reduce_s, gather_s)
    duration_s, delay_s = np.empty((2, arrays.duration_s.shape[1])), np.empty((2, ranks))
    worst, total = 0.0, 0.0
    for replica in range(replicas):
        replica_inputs(assignment, arrays, replica, duration_s, delay_s)
        ends = event_ends(arrays.events, duration_s, delay_s)
        for s in range(ranks):
            end = ends[arrays.last[s]] + reduce_s[s]
            worst = max(worst, end)
            total += end
    tail = 0.0
    for s in range(ranks):
        tail = max(tail, arrays.optimizer_s[s] + gather_s[s])
    return worst + tail, total / (replicas * ranks) + tail


def placed_times(problem: PlacementProblem, assignment: IntArray) -> PlacedTimes:
    """All times of one assignment; ``step_s`` equals ``step_seconds``."""
    arrays, schedule = problem.arrays, problem.schedule
    ranks = schedule.pipeline
    duration_s = np.empty((problem.replicas, 2, ranks * schedule.virtual))
    delay_s = np.empty((problem.replicas, 2, ranks))
    end_s = np.empty((problem.replicas, ranks))
    for replica in range(problem.replicas):
        replica_inputs(assignment, arrays, replica, duration_s[replica], delay_s[replica])
        ends = event_ends(arrays.events, duration_s[replica], delay_s[replica])
        end_s[replica] = ends[arrays.last]
    hops = np.array(
        [
            [[slowest_pair(assignment, pairs, between_s, 0.0) for pairs in cell] for cell in replicas]
            for replicas, between_s in zip(arrays.cross_pairs, arrays.cross_s, strict=True)
        ]
    )
    crossing_s = np.maximum(0.0, hops[:, :, None, :] - arrays.cross_hidden_s[:, None, :, None])
    reduce_s, gather_s = np.empty(ranks), np.empty(ranks)
    exposed_rings(assignment, arrays, reduce_s, gather_s)
    step_s = float((end_s.max(axis=0) + reduce_s).max() + (arrays.optimizer_s + gather_s).max())
    return PlacedTimes(step_s, duration_s, delay_s, end_s, crossing_s, reduce_s, gather_s)
