"""Micro-batches whose activations the chunks of a pipeline hold at once, by schedule."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.training.frameworks import Framework
from cluster_models.training.interleaving import micro_batch_group, runs_all_forwards_first
from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import BoolArray, CandidateBatch, FloatArray, IntArray
from solver.orders import BACKWARD, FORWARD, WEIGHT, rank_orders

SETTLED_GROUPS: Final = 4
"""Groups of micro-batches after which a schedule with split backwards holds no more than before."""


@dataclass(frozen=True, slots=True)
class Held:
    """Micro-batches by chunk, (n, v, P), chunk ``v * P + rank``, that each rank holds at a moment of the step.

    ``activations``: forwards whose backward has not ended; ``waiting``: those among them whose gradients of
    activations are done and those of weights are not.
    """

    activations: FloatArray
    waiting: FloatArray


def held_at_peaks(batch: CandidateBatch, micro_batches: IntArray, framework: Framework) -> Iterator[Held]:
    """The moments of which one is the peak of each rank, whatever activations and gradients take.

    The candidates share schedule, pipeline and, but for 1F1B, virtual size and have ``micro_batches`` (n,).
    """
    order, sizes = batch.runs, (int(batch.pipeline[0]), int(batch.virtual_pipeline[0]))
    if order is PipelineSchedule.ONE_F_ONE_B:
        held = chunks_in_flight(batch, micro_batches, framework)
        yield Held(held, np.zeros_like(held))
        return
    if order is PipelineSchedule.GPIPE:
        every = np.broadcast_to(micro_batches.astype(np.float64)[:, None, None], (len(batch), *sizes[::-1]))
        yield Held(every, np.zeros_like(every))
        return
    counts, row = np.unique(micro_batches, return_inverse=True)
    groups = [micro_batch_group(framework, sizes[0], count) or sizes[0] for count in counts.tolist()]
    moments = [
        _moments(order, *sizes, min(count, SETTLED_GROUPS * group), group)
        for count, group in zip(counts.tolist(), groups, strict=True)
    ]
    for number in range(max(map(len, moments))):
        found = np.stack([each[min(number, len(each) - 1)] for each in moments])[row.reshape(-1)]
        yield Held(found[:, 0], found[:, 1])


@lru_cache(maxsize=1024)
def _moments(order: PipelineSchedule, pipeline: int, virtual: int, micro_batches: int, group: int) -> FloatArray:
    """(J, 2, v, P) activations and waiting micro-batches of ``Held`` at the moments that may be the peak.

    On a V these are the moments of each rank that no other exceeds in each of its chunks, whatever their layers.
    Interleaved ranks have too many of those: theirs are the moments that no other exceeds in the sums over chunks,
    as under 1F1B, the first of equal ones.
    """
    found = _least_beaten if order.is_v_shaped else _least_beaten_sums
    by_rank = [
        found(_of_rank(rows, virtual, pipeline))
        for rows in rank_orders(order, pipeline, virtual, micro_batches, group=group)
    ]
    most = max(map(len, by_rank))
    filled = [np.concatenate([each, each[-1:].repeat(most - len(each), axis=0)]) for each in by_rank]
    return np.stack(filled, axis=3)


def _of_rank(rows: IntArray, virtual: int, pipeline: int) -> FloatArray:
    """(events, 2, v) activations and waiting micro-batches of one rank, whose order ``rows`` is, at each event."""
    turn, kind = rows[:, 0] // pipeline, rows[:, 2]
    whole = (kind == BACKWARD) & (rows[:, 3] > 0)  # what it makes is used at once
    waits, waited = (kind == BACKWARD) & ~whole, (kind == WEIGHT) & ~np.concatenate([[False], whole[:-1]])

    def ended(own: BoolArray) -> FloatArray:
        """(1 + events, v) how many have ended before each event, and in all."""
        mine = own[:, None] & (turn[:, None] == np.arange(virtual))
        return np.concatenate([np.zeros((1, virtual)), mine.cumsum(axis=0)])

    # an event holds what it works on until its end, and by then has made all that it makes
    activations = ended(kind == FORWARD)[1:] - ended(kind == WEIGHT)[:-1]
    return np.stack([activations, ended(waits)[1:] - ended(waited)[:-1]], axis=1)


def _least_beaten(moments: FloatArray) -> FloatArray:
    """(J, 2, v) the moments that no other exceeds or equals in every figure; of equal ones one."""
    figures = moments.reshape(len(moments), -1)
    packed = figures @ (figures.max() + 1.0) ** np.arange(figures.shape[1])
    first = np.unique(packed, return_index=True)[1]
    figures = figures[first]
    covers = (figures[None] >= figures[:, None]).all(axis=2)
    kept: FloatArray = moments[first[covers.sum(axis=1) == 1]]  # each covers itself
    return kept


def _least_beaten_sums(moments: FloatArray) -> FloatArray:
    """(J, 2, v) the same by activations and waiting micro-batches of all chunks together."""
    activations, waiting = moments.sum(axis=2).T
    order = np.lexsort((-waiting, -activations))
    most_before = np.concatenate([[-np.inf], np.maximum.accumulate(waiting[order])[:-1]])
    kept: FloatArray = moments[order[waiting[order] > most_before]]
    return kept


def chunks_in_flight(batch: CandidateBatch, micro_batches: IntArray, framework: Framework) -> FloatArray:
    """(n, v, P) micro-batches whose activations chunk ``v * P + rank`` holds at the peak of 1F1B, 0 without it.

    1F1B keeps P - s on rank s (PipeDream-Flush, arXiv 2104.04473, section 2.2.1); the interleaved schedule
    warms up with 2(P - s - 1) + (v - 1)g forwards and one more, a group of g micro-batches of a chunk before the
    next chunk (the same paper, section 2.2.2, and Megatron-Core's schedule, which up to 0.9 ran all forwards first
    where there were as many micro-batches as ranks).  Experts that are exchanged beside compute add nothing: the
    warm-up has a forward more, but then each forward runs beside a backward and takes the place it frees by layers.
    """
    stages, virtual = int(batch.pipeline[0]), batch.virtual_pipeline[:, None]
    rank = np.arange(stages)
    group = _groups(framework, stages, micro_batches)[:, None]
    warm = np.where(virtual == 1, stages - rank, 2 * (stages - rank - 1) + (virtual - 1) * group + 1)
    forwards = np.minimum(warm, micro_batches[:, None] * virtual)
    if runs_all_forwards_first(framework):
        forwards = np.where((virtual > 1) & (micro_batches == stages)[:, None], stages * virtual, forwards)
    whole, rest = forwards // (group * virtual) * group, forwards % (group * virtual)
    size = np.minimum(group, micro_batches[:, None] - whole)[:, None, :]
    chunk = np.arange(virtual.max())[None, :, None]
    partial = np.clip(rest[:, None, :] - chunk * size, 0, size)
    return np.where(chunk < virtual[:, None], whole[:, None, :] + partial, 0).astype(np.float64)


def _groups(framework: Framework, pipeline: int, micro_batches: IntArray) -> IntArray:
    """(n,) micro-batches that pass a virtual stage together; as many as ranks where the framework takes none."""
    counts, row = np.unique(micro_batches, return_inverse=True)
    groups = [micro_batch_group(framework, pipeline, count) or pipeline for count in counts.tolist()]
    return np.array(groups, dtype=np.int64)[row.reshape(-1)]
