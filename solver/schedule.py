"""Pipeline schedules as event graphs: 1F1B and Megatron's interleaved 1F1B.

An event is one forward or backward of one micro-batch through one chunk.  Each waits for the event before it on
the same pipeline rank and for the one that feeds it: the forward of the chunk before, the backward of the chunk
after, or, on the last chunk, its own forward.  The graph depends only on sizes, so it is built once and reused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numba
import numpy as np

from solver.candidates import IntArray


class Events(NamedTuple):
    """Events in an order where everything an event waits for stands before it; one entry per event.

    ``previous`` is the index of the event before it on its pipeline rank and ``feed`` that of the event whose
    result it needs (-1 = none).  ``hop`` is the pipeline rank that sends the result (-1 = nothing is sent); a
    forward hop goes to the next rank, a backward hop to the one before, both around the ring.
    """

    chunk: IntArray
    backward: IntArray
    previous: IntArray
    feed: IntArray
    hop: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The event graph of one pipeline.

    ``rank`` and ``micro_batch`` say where and for what each event is; ``last`` (pipeline,) is the index of each
    rank's last event.
    """

    pipeline: int
    virtual: int
    micro_batches: int
    events: Events
    rank: IntArray
    micro_batch: IntArray
    last: IntArray


def _rank_order(pipeline: int, virtual: int, micro_batches: int, rank: int) -> IntArray:
    """Order of work on one rank as (chunk, micro-batch, is backward) rows.

    1F1B: Narayanan et al. 2021 (arXiv 2104.04473, section 2.2), rank ``s`` warms up with ``pipeline - 1 - s``
    forwards.  Interleaved: the same section and Megatron-Core's schedule, where micro-batches pass in groups of
    ``pipeline`` and the warm-up has ``2 (pipeline - s - 1) + (virtual - 1) pipeline`` forwards.
    """
    total = micro_batches * virtual
    step = np.arange(total)
    if virtual == 1:
        warm_up = min(total, pipeline - 1 - rank)
        forward_chunk = backward_chunk = np.zeros(total, dtype=np.int64)
        micro = step
    else:
        warm_up = min(total, 2 * (pipeline - rank - 1) + (virtual - 1) * pipeline)
        if micro_batches == pipeline:
            warm_up = total
        group = pipeline * virtual
        forward_chunk = step % group // pipeline
        backward_chunk = virtual - 1 - forward_chunk
        micro = step // group * pipeline + step % pipeline
    forwards = np.stack([forward_chunk * pipeline + rank, micro, np.zeros_like(step)], axis=1)
    backwards = np.stack([backward_chunk * pipeline + rank, micro, np.ones_like(step)], axis=1)
    steady = total - warm_up
    order = np.empty((2 * total, 3), dtype=np.int64)
    order[:warm_up] = forwards[:warm_up]
    order[warm_up : warm_up + 2 * steady : 2] = forwards[warm_up:]
    order[warm_up + 1 : warm_up + 2 * steady : 2] = backwards[:steady]
    order[warm_up + 2 * steady :] = backwards[steady:]
    return order


@numba.njit(cache=True)
def _topological(orders: IntArray, chunks: int, micro_batches: int) -> IntArray:
    """Rows (rank, chunk, micro-batch, backward, previous, feed, hop) in an order that respects all waits."""
    pipeline, length = orders.shape[0], orders.shape[1]
    index = np.full((2, chunks, micro_batches), -1, dtype=np.int64)
    next_event = np.zeros(pipeline, dtype=np.int64)
    previous = np.full(pipeline, -1, dtype=np.int64)
    rows = np.empty((pipeline * length, 7), dtype=np.int64)
    done = 0
    while done < rows.shape[0]:
        progressed = False
        for rank in range(pipeline):
            while next_event[rank] < length:
                chunk, micro, backward = orders[rank, next_event[rank]]
                feed, hop = -1, -1
                if backward == 1 and chunk == chunks - 1:
                    feed = index[0, chunk, micro]
                elif backward == 1:
                    feed = index[1, chunk + 1, micro]
                    hop = (chunk + 1) % pipeline
                elif chunk > 0:
                    feed = index[0, chunk - 1, micro]
                    hop = (chunk - 1) % pipeline
                if feed == -1 and (backward == 1 or chunk > 0):
                    break
                rows[done, 0] = rank
                rows[done, 1] = chunk
                rows[done, 2] = micro
                rows[done, 3] = backward
                rows[done, 4] = previous[rank]
                rows[done, 5] = feed
                rows[done, 6] = hop
                index[backward, chunk, micro] = done
                previous[rank] = done
                next_event[rank] += 1
                done += 1
                progressed = True
        if not progressed:
            return rows[:0]
    return rows


@lru_cache(maxsize=512)
def build_schedule(pipeline: int, virtual: int, micro_batches: int) -> Schedule:
    """The event graph of one pipeline.

    Interleaving needs ``pipeline > 1`` and ``micro_batches`` divisible by ``pipeline`` (Megatron's rule); the
    caller guarantees it.
    """
    assert virtual == 1 or (pipeline > 1 and micro_batches % pipeline == 0)
    orders = np.stack([_rank_order(pipeline, virtual, micro_batches, rank) for rank in range(pipeline)])
    rows = _topological(orders, pipeline * virtual, micro_batches)
    assert len(rows) == 2 * pipeline * virtual * micro_batches, "the schedule waits for itself"
    last = np.zeros(pipeline, dtype=np.int64)
    last[rows[:, 0]] = np.arange(len(rows))
    rank, chunk, micro_batch, backward, previous, feed, hop = (
        np.ascontiguousarray(rows[:, column]) for column in range(7)
    )
    events = Events(chunk, backward, previous, feed, hop)
    return Schedule(pipeline, virtual, micro_batches, events, rank, micro_batch, last)
