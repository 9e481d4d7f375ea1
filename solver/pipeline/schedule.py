"""Pipeline schedules as event graphs.

An event is one forward or backward of one micro-batch through one chunk, or one of the two parts of a backward.
Each waits for the event before it on the same pipeline rank and for the one that feeds it: the forward of the chunk
before, the backward of the chunk after, or, on the last chunk, its own forward.  A tensor that crosses to another
rank arrives a transfer later; where ranks wait for their sends, the transfer is part of the event that sends.  The
graph depends only on sizes, so it is built once and reused.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.training.schedules import PipelineSchedule, in_groups, in_model_order, model_columns
from solver.candidates import IntArray
from solver.compiled_events import Events, topological_rows
from solver.orders import BACKWARD, FORWARD, WEIGHT, rank_orders

MOST_EVENTS: Final = 500_000
"""Longest schedule that is simulated: every forward and backward of a step on one replica."""


def events_of_chunk(order: PipelineSchedule) -> int:
    """Events of a micro-batch on a chunk, which are the kinds of event."""
    return 3 if order.splits_backward else 2


@dataclass(frozen=True, slots=True, eq=False)
class Schedule:
    """The event graph of one pipeline; ``blocking``: its ranks wait for their sends.

    ``group`` micro-batches pass a virtual stage together.  ``rank`` and ``micro_batch`` say where and for what each
    event is; ``last`` (pipeline,) is the index of each rank's last event.
    """

    pipeline: int
    virtual: int
    micro_batches: int
    order: PipelineSchedule
    group: int
    events: Events
    rank: IntArray
    micro_batch: IntArray
    last: IntArray
    blocking: bool

    @property
    def is_closed(self) -> bool:
        """Whether the last rank also sends to the first."""
        return self.virtual > 1 and not self.order.is_v_shaped

    @property
    def is_periodic(self) -> bool:
        """Whether the steady state is that of ``solver.pipeline.period``."""
        whole = self.virtual == 1 or self.group == self.pipeline
        return self.order is PipelineSchedule.ONE_F_ONE_B and whole


@lru_cache(maxsize=64)
def build_schedule(
    pipeline: int,
    virtual: int,
    micro_batches: int,
    *,
    order: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B,
    group: int | None = None,
    blocking: bool = False,
    all_forwards_first: bool = False,
) -> Schedule:
    """The event graph of one pipeline; ``blocking``: ranks wait for their sends (``Framework.blocking_transfers``).

    ``all_forwards_first``: what interleaved stages do with one micro-batch a rank
    (``cluster_models.training.interleaving.runs_all_forwards_first``).

    Interleaving needs ``pipeline > 1`` and groups (as many as ranks unless said otherwise) of at least ``pipeline``
    micro-batches, the last one too: ``cluster_models.training.interleaving.micro_batch_group``; other schedules
    what ``cluster_models.training.schedules.can_run`` asks.  The caller guarantees it.
    """
    group = group or pipeline
    grouped = virtual > 1 and in_groups(order)
    assert not grouped or (pipeline > 1 and is_legal_group(pipeline, micro_batches, group))
    orders = rank_orders(
        order, pipeline, virtual, micro_batches, group=group, all_forwards_first=all_forwards_first
    )
    hops = _hops(order, pipeline, virtual)
    rows = topological_rows(orders, hops, micro_batches)
    assert len(rows) == orders.shape[0] * orders.shape[1], "the schedule waits for itself"
    last = np.zeros(pipeline, dtype=np.int64)
    last[rows[:, 0]] = np.arange(len(rows))
    rank, stage, micro_batch, kind, previous, feed, hop = (
        np.ascontiguousarray(rows[:, column]) for column in range(7)
    )
    columns = np.array(model_columns(order, pipeline, virtual), dtype=np.int64)
    send = np.full_like(hop, -1)
    if blocking:
        hop, send = send, np.where(kind == WEIGHT, -1, hops[np.minimum(kind, BACKWARD), stage])
    events = Events(columns[stage], kind, previous, feed, hop, send)
    return Schedule(pipeline, virtual, micro_batches, order, group, events, rank, micro_batch, last, blocking)


def _hops(order: PipelineSchedule, pipeline: int, virtual: int) -> IntArray:
    """(2, C) the transfer, as in ``Events``, by which each stage's results leave forwards and backwards."""
    rank = np.array(in_model_order(order, [range(pipeline)] * virtual), dtype=np.int64)
    down = np.arange(len(rank)) // pipeline % 2 == 1 if order.is_v_shaped else np.zeros(len(rank), dtype=np.bool_)
    hops = np.stack([rank + pipeline * down, rank + pipeline * ~down])
    leaves = np.full((2, len(rank)), pipeline > 1)
    leaves[FORWARD, -1] = leaves[BACKWARD, 0] = False
    if order.is_v_shaped:  # the model turns on the last rank, and again on the first
        stays = np.flatnonzero(rank[1:] == rank[:-1])
        leaves[FORWARD, stays] = leaves[BACKWARD, stays + 1] = False
    return np.where(leaves, hops, -1)


def is_legal_group(pipeline: int, micro_batches: int, group: int) -> bool:
    """Whether every group has at least ``pipeline`` micro-batches (Megatron-Core's rule)."""
    rest = micro_batches % group
    return pipeline <= group <= micro_batches and (rest == 0 or rest >= pipeline)
