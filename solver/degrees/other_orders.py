"""Optimistic ends of pipelines under schedules other than 1F1B: closed, and simulated where that may matter.

Letters: n candidates that share schedule, pipeline and virtual size, P ranks, C chunks; s a rank.  Bounds are paths
of the event graph (docs/pipeline.md, "Optimistic prices").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cluster_models.training.frameworks import Framework
from cluster_models.training.interleaving import micro_batch_group
from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import FloatArray, IntArray
from solver.compiled_events import last_ends
from solver.costs.parameters import by_rank
from solver.pipeline.schedule import build_schedule


def least_ends(
    order: PipelineSchedule, durations_s: Sequence[FloatArray], hop_s: FloatArray, micro_batches: IntArray
) -> FloatArray:
    """(n, P) seconds before which no rank's last event ends.

    ``durations_s``: (n, C) by kind of event; ``hop_s`` (n, P) from each rank to the next and back, the last rank's
    to the first (0 where none goes there); ``micro_batches`` (n,).
    """
    ranks = hop_s.shape[1]
    forward, back = durations_s[0], durations_s[1]
    weight = durations_s[2] if len(durations_s) > 2 else np.zeros_like(forward)
    busy = by_rank(forward + back + weight, ranks) * micro_batches[:, None]
    reach, drain = _before(forward[:, :ranks] + hop_s), _before(back[:, :ranks] + hop_s)
    # the last backward for activations on the first chunk of s has the gradients on all ranks before it to come
    chain = np.maximum.accumulate((reach + busy - _behind(order, weight, ranks) + drain)[:, ::-1], axis=1)[:, ::-1]
    ends = np.maximum(reach + busy, chain - drain + weight[:, :ranks])
    trip = (forward + back).sum(axis=1) + 2.0 * (forward.shape[1] // ranks * hop_s.sum(axis=1) - hop_s[:, -1])
    ends[:, 0] = np.maximum(ends[:, 0], trip + weight[:, 0])
    if order is PipelineSchedule.GPIPE:
        # behind all forwards of s the last one passes the ranks behind, and the first backward comes back
        turn = (forward + back)[:, -ranks:] + 2.0 * np.pad(hop_s[:, :-1], ((0, 0), (1, 0)))
        behind = turn[:, ::-1].cumsum(axis=1)[:, ::-1] - turn
        ends[:, 0] = np.maximum(ends[:, 0], (reach + busy + behind + drain).max(axis=1))
    elif forward.shape[1] == ranks > 1:
        trips = round_trips_s(forward + back, hop_s, micro_batches)
        ends[:, 0] = np.maximum(ends[:, 0], (reach + trips + drain).max(axis=1))
    return np.asarray(ends)


def round_trips_s(passes_s: FloatArray, hop_s: FloatArray, micro_batches: IntArray) -> FloatArray:
    """(n, P) seconds of each stage's round trips to the last and back, which follow one another.

    Stage s of P may be P - s forwards ahead of its backwards; ``passes_s`` (n, P) has both passes of each.
    """
    around = (passes_s + 2.0 * hop_s)[:, ::-1].cumsum(axis=1)[:, ::-1]
    return np.asarray(((micro_batches[:, None] - 1) // np.arange(hop_s.shape[1], 0, -1) + 1) * around)


def simulated_ends(
    order: PipelineSchedule,
    durations_s: Sequence[FloatArray],
    hop_s: FloatArray,
    micro_batches: IntArray,
    framework: Framework,
) -> FloatArray:
    """(n, P) the ends themselves where stages and links are as given; shapes as for ``least_ends``."""
    ranks = hop_s.shape[1]
    durations = np.stack(durations_s, axis=1)
    delays = np.stack([hop_s, np.roll(hop_s, 1, axis=1)], axis=1)
    found = np.empty(hop_s.shape)
    for count in np.unique(micro_batches).tolist():
        rows = np.flatnonzero(micro_batches == count)
        schedule = build_schedule(
            ranks,
            durations.shape[2] // ranks,
            count,
            order=order,
            group=micro_batch_group(framework, ranks, count),
            blocking=framework.blocking_transfers,
        )
        found[rows] = last_ends(schedule.events, schedule.last, durations[rows], delays[rows])
    return found


def _behind(order: PipelineSchedule, weight: FloatArray, ranks: int) -> FloatArray:
    """(n, P) at most the gradients of weights behind a rank's last backward for activations on its first chunk."""
    s = np.arange(ranks)
    first, last = weight[:, :ranks], weight[:, -ranks:]
    if order is PipelineSchedule.ZB_V:
        return np.asarray((s + 1) * first + s * last)
    return np.asarray((s + 1) * np.maximum(first, last if order is PipelineSchedule.DUALPIPE_V else 0.0))


def _before(values: FloatArray) -> FloatArray:
    """(n, P) sum over the ranks before each rank."""
    return np.asarray(values.cumsum(axis=1) - values)
