"""Pipeline schedules as event graphs: 1F1B and Megatron's interleaved 1F1B.

An event is one forward or backward of one micro-batch through one chunk.  Each waits for the event before it on
the same pipeline rank and for the one that feeds it: the forward of the chunk before, the backward of the chunk
after, or, on the last chunk, its own forward.  What crosses to another rank arrives a transfer later; where ranks
wait for their sends, the transfer is part of the event that sends.  The graph depends only on sizes, so it is built
once and reused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import IntArray
from solver.compiled import Events, topological_rows

MOST_EVENTS: Final = 500_000
"""Longest schedule that is simulated: every forward and backward of a step on one replica."""


def events_of_chunk(schedule: PipelineSchedule) -> int:
    """Events of a micro-batch on a chunk."""
    return 3 if schedule.splits_backward else 2


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The event graph of one pipeline; ``blocking``: its ranks wait for their sends.

    ``group`` micro-batches pass a virtual stage together.  ``rank`` and ``micro_batch`` say where and for what each
    event is; ``last`` (pipeline,) is the index of each rank's last event.
    """

    pipeline: int
    virtual: int
    micro_batches: int
    group: int
    events: Events
    rank: IntArray
    micro_batch: IntArray
    last: IntArray
    blocking: bool


def _rank_order(
    pipeline: int, virtual: int, micro_batches: int, group: int, rank: int, *, all_forwards_first: bool
) -> IntArray:
    """Order of work on one rank as (chunk, micro-batch, is backward) rows.

    1F1B: Narayanan et al. 2021 (arXiv 2104.04473, section 2.2), rank ``s`` warms up with ``pipeline - 1 - s``
    forwards.  Interleaved: the same section and Megatron-Core's schedule, where micro-batches pass in groups, the
    last of which may be smaller, and the warm-up has ``2 (pipeline - s - 1) + (virtual - 1) group`` forwards.
    """
    total = micro_batches * virtual
    step = np.arange(total)
    if virtual == 1:
        warm_up = min(total, pipeline - 1 - rank)
        forward_chunk = backward_chunk = np.zeros(total, dtype=np.int64)
        micro = step
    else:
        warm_up = min(total, 2 * (pipeline - rank - 1) + (virtual - 1) * group)
        if all_forwards_first and micro_batches == pipeline:
            warm_up = total
        first = step // (group * virtual) * group
        size = np.minimum(group, micro_batches - first)
        inside = step - first * virtual
        forward_chunk = inside // size
        backward_chunk = virtual - 1 - forward_chunk
        micro = first + inside % size
    forwards = np.stack([forward_chunk * pipeline + rank, micro, np.zeros_like(step)], axis=1)
    backwards = np.stack([backward_chunk * pipeline + rank, micro, np.ones_like(step)], axis=1)
    steady = total - warm_up
    order = np.empty((2 * total, 3), dtype=np.int64)
    order[:warm_up] = forwards[:warm_up]
    order[warm_up : warm_up + 2 * steady : 2] = forwards[warm_up:]
    order[warm_up + 1 : warm_up + 2 * steady : 2] = backwards[:steady]
    order[warm_up + 2 * steady :] = backwards[steady:]
    return order


@lru_cache(maxsize=64)
def build_schedule(
    pipeline: int,
    virtual: int,
    micro_batches: int,
    *,
    group: int | None = None,
    blocking: bool = False,
    all_forwards_first: bool = False,
) -> Schedule:
    """The event graph of one pipeline; ``blocking``: ranks wait for their sends (``Framework.blocking_transfers``).

    ``all_forwards_first``: what interleaved stages do with one micro-batch a rank
    (``cluster_models.training.interleaving.runs_all_forwards_first``).

    Interleaving needs ``pipeline > 1`` and groups (as many as ranks unless said otherwise) of at least ``pipeline``
    micro-batches, the last one too (``cluster_models.training.interleaving.micro_batch_group``).
    The caller guarantees it.
    """
    group = group or pipeline
    assert virtual == 1 or (pipeline > 1 and is_legal_group(pipeline, micro_batches, group))
    orders = np.stack(
        [
            _rank_order(pipeline, virtual, micro_batches, group, rank, all_forwards_first=all_forwards_first)
            for rank in range(pipeline)
        ]
    )
    rows = topological_rows(orders, pipeline * virtual, micro_batches)
    assert len(rows) == 2 * pipeline * virtual * micro_batches, "the schedule waits for itself"
    last = np.zeros(pipeline, dtype=np.int64)
    last[rows[:, 0]] = np.arange(len(rows))
    rank, chunk, micro_batch, backward, previous, feed, hop = (
        np.ascontiguousarray(rows[:, column]) for column in range(7)
    )
    none = np.full_like(hop, -1)
    send = none
    if blocking:
        sends = np.where(backward > 0, chunk > 0, chunk < pipeline * virtual - 1)
        hop, send = none, np.where(sends, rank, -1)
    events = Events(chunk, backward, previous, feed, hop, send)
    return Schedule(pipeline, virtual, micro_batches, group, events, rank, micro_batch, last, blocking)


def is_legal_group(pipeline: int, micro_batches: int, group: int) -> bool:
    """Whether every group has at least ``pipeline`` micro-batches (Megatron-Core's rule)."""
    rest = micro_batches % group
    return pipeline <= group <= micro_batches and (rest == 0 or rest >= pipeline)
