"""One placement problem: the slots of a configuration, the nodes, and the exact step time of an assignment.

A launcher takes an ordered host list, so what is decided is which node takes *slot* ``k`` (the ``k``-th host).
Letters: K slots, N nodes, R replicas (data ranks), P pipeline ranks, C chunks (virtual stages), E kinds of event, X
kinds of crossing traffic, Y kinds of data parallel ring; q, u, v count slot pairs.

    step = max over s (max over r (end of the last backward on (r, s)) + exposed gradient reduction of s)
           + max over s (optimizer step of s + exposed parameter gather of s)

The second maximum waits for the first because gradient clipping needs the norm over all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled import Arrays, Rules, Uplinks, exposed_rings, replica_inputs, shared_seconds, slowest_pair
from solver.compiled_events import event_ends
from solver.pipeline.schedule import Schedule

NO_SLOT = -1


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

    ``duration_s`` (R, E, C) and ``delay_s`` (R, 2, P) with crossing traffic and slow nodes in; ``end_s`` (R, P):
    last backward; ``crossing_s`` (X, R, E, P): what of one collective of each kind of crossing traffic is exposed;
    ``reduce_s``, ``gather_s`` (P,): what of the rings is.
    """

    step_s: float
    duration_s: FloatArray
    delay_s: FloatArray
    end_s: FloatArray
    crossing_s: FloatArray
    reduce_s: FloatArray
    gather_s: FloatArray


def no_rules(slots: int, nodes: int) -> Rules:
    """Every node may take every slot."""
    return Rules(
        eligible=np.ones((slots, nodes), dtype=np.bool_),
        group_slots=np.empty((0, 1), dtype=np.int64),
        fewest_places=np.empty(0, dtype=np.int64),
        most_places=np.empty(0, dtype=np.int64),
        places=np.empty((0, nodes), dtype=np.int64),
        quota_of=np.empty((0, nodes), dtype=np.int64),
        fewest_used=np.empty(0, dtype=np.int64),
        most_used=np.empty(0, dtype=np.int64),
    )


def no_uplinks(hop_pairs: IntArray, cross_pairs: IntArray, ring_pairs: IntArray, nodes: int) -> Uplinks:
    """No switch limits what passes between nodes (slot pairs as in ``Arrays``)."""
    return Uplinks(
        above=np.empty((0, nodes), dtype=np.int64),
        bytes_per_s=np.empty(0),
        hop_bytes=np.zeros(hop_pairs.shape[:-1]),
        cross_bytes=np.zeros(len(cross_pairs)),
        ring_bytes=np.zeros((2, *ring_pairs.shape[:2])),
    )


def placed_times(problem: PlacementProblem, assignment: IntArray) -> PlacedTimes:
    """All times of one assignment; ``step_s`` equals ``step_seconds``."""
    arrays, schedule = problem.arrays, problem.schedule
    ranks = schedule.pipeline
    shared_s = shared_seconds(assignment, arrays)
    duration_s = np.empty((problem.replicas, *arrays.duration_s.shape))
    delay_s = np.empty((problem.replicas, 2, ranks))
    end_s = np.empty((problem.replicas, ranks))
    for replica in range(problem.replicas):
        replica_inputs(assignment, arrays, replica, shared_s, duration_s[replica], delay_s[replica])
        ends = event_ends(arrays.events, duration_s[replica], delay_s[replica])
        end_s[replica] = ends[arrays.last]
    above = arrays.uplinks.above
    hops = np.array(
        [
            [
                [slowest_pair(assignment, pairs, between_s, 0.0, above, shared) for pairs in cell]
                for cell in replicas
            ]
            for replicas, between_s, shared in zip(arrays.cross_pairs, arrays.cross_s, shared_s[1], strict=True)
        ]
    )
    crossing_s = np.maximum(0.0, hops[:, :, None, :] - arrays.cross_hidden_s[:, None, :, None])
    reduce_s, gather_s = np.empty(ranks), np.empty(ranks)
    exposed_rings(assignment, arrays, shared_s, reduce_s, gather_s)
    step_s = float((end_s.max(axis=0) + reduce_s).max() + (arrays.optimizer_s + gather_s).max())
    return PlacedTimes(step_s, duration_s, delay_s, end_s, crossing_s, reduce_s, gather_s)
