"""Durations and delays of a placement problem with every link and node at its best, and the ends they lead to."""

from __future__ import annotations

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.pipeline.simulation import simulate
from solver.placement.problem import PlacementProblem


def least_inputs(problem: PlacementProblem) -> tuple[FloatArray, FloatArray]:
    """Durations (R, E, C) and delays (R, 2, P) with every link and node at its best."""
    arrays = problem.arrays
    hop = fastest_between(arrays.hop_s)
    crossing = between_slots(arrays.hop_pairs)
    inside = (arrays.hop_pairs[..., 0] >= 0) & ~crossing
    delay = np.maximum(crossing.any(axis=-1) * hop, inside.any(axis=-1) * arrays.local_hop_s)
    duration = np.repeat(arrays.duration_s[None], problem.replicas, axis=0) * arrays.slowdown.min()
    stages = delay.shape[-1]
    for x, pairs in enumerate(arrays.cross_pairs):
        exposed = np.maximum(0.0, fastest_between(arrays.cross_s[x]) - arrays.cross_hidden_s[x])
        used = np.tile(between_slots(pairs).any(axis=-1), (1, problem.schedule.virtual))
        assert used.shape[1] == stages * problem.schedule.virtual
        duration += used[:, None, :] * exposed[None, :, None] * arrays.cross_count[x][None]
    return duration, delay


def between_slots(pairs: IntArray) -> BoolArray:
    """Mask of slot pairs (..., 2) that leave a node: one that joins a slot to itself takes no link."""
    return np.asarray((pairs[..., 0] >= 0) & (pairs[..., 0] != pairs[..., 1]))


def fastest_between(matrix: FloatArray) -> float:
    """The least entry of (N, N) off the diagonal; 0 for a single node."""
    off = ~np.eye(len(matrix), dtype=bool)
    return float(matrix[off].min()) if len(matrix) > 1 else 0.0


def distinct(duration_s: FloatArray, delay_s: FloatArray) -> IntArray:
    """Indices of replicas whose durations or delays differ."""
    inputs = np.concatenate([each.reshape(len(each), -1) for each in (duration_s, delay_s)], axis=1)
    return np.unique(inputs, axis=0, return_index=True)[1]


def last_ends(problem: PlacementProblem, duration_s: FloatArray, delay_s: FloatArray) -> FloatArray:
    """(P,) last backwards of a replica with durations (E, C) and delays (2, P)."""
    return simulate(problem.schedule, duration_s, delay_s)[problem.schedule.last]
