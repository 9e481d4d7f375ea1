"""Orders of work on pipeline ranks, event by event (docs/pipeline.md draws them).

Rows are (stage, micro-batch, kind, held): a stage is a chunk in the order of the model, and a result of which
``held`` events follow on the rank leaves when the last of them ends.  A whole backward of a schedule that splits
some is its part for activations, held until that for weights behind it.  Letters: P ranks, v virtual stages, m
micro-batches, s a rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import IntArray

FORWARD: Final = 0
BACKWARD: Final = 1
"""The whole of it, or its part for activations where the schedule splits it."""
WEIGHT: Final = 2
"""The part of a backward for weights."""


@lru_cache(maxsize=8)
def rank_orders(
    schedule: PipelineSchedule,
    pipeline: int,
    virtual: int,
    micro_batches: int,
    *,
    group: int,
    all_forwards_first: bool = False,
) -> IntArray:
    """(P, events, 4) the rows of every rank; not to be written to.

    ``group``: interleaved micro-batches that pass a virtual stage together; ``all_forwards_first``: what
    interleaved stages do with as many micro-batches as ranks (``cluster_models.training.interleaving``).
    """
    sizes = pipeline, virtual, micro_batches
    match schedule:
        case PipelineSchedule.ONE_F_ONE_B:
            first = all_forwards_first and micro_batches == pipeline and virtual > 1
            orders = [_in_turn(*sizes, group, s, all_forwards_first=first) for s in range(pipeline)]
        case PipelineSchedule.GPIPE:
            orders = [_breadth_first(*sizes, s) for s in range(pipeline)]
        case PipelineSchedule.ZERO_BUBBLE:
            orders = [_zero_bubble(*sizes, group, s) for s in range(pipeline)]
        case PipelineSchedule.ZB_V:
            orders = [_zb_v(pipeline, micro_batches, s) for s in range(pipeline)]
        case PipelineSchedule.DUALPIPE_V:
            orders = [_dualpipe_v(pipeline, micro_batches, s) for s in range(pipeline)]
    return np.stack(orders)


def _turns(virtual: int, micro_batches: int, group: int, stages: IntArray) -> tuple[IntArray, IntArray]:
    """(v m, 2) stage and micro-batch of a rank's forwards and backwards, micro-batches in groups.

    The last group may be smaller; ``stages`` (v,) are those of the rank.
    """
    step = np.arange(micro_batches * virtual)
    first = step // (group * virtual) * group
    size = np.minimum(group, micro_batches - first)
    inside = step - first * virtual
    chunk, micro_batch = inside // size, first + inside % size
    forwards = np.stack([stages[chunk], micro_batch], axis=1)
    return forwards, np.stack([stages[virtual - 1 - chunk], micro_batch], axis=1)


def _in_turn(
    pipeline: int, virtual: int, micro_batches: int, group: int, rank: int, *, all_forwards_first: bool
) -> IntArray:
    """1F1B: Narayanan et al. 2021 (arXiv 2104.04473, section 2.2), s warms up with P - 1 - s forwards.

    Interleaved: the same section and Megatron-Core's schedule, whose warm-up has 2 (P - 1 - s) + (v - 1) group
    forwards.
    """
    total = micro_batches * virtual
    if virtual == 1:
        group = max(micro_batches, 1)
    forwards, backwards = _turns(virtual, micro_batches, group, np.arange(rank, pipeline * virtual, pipeline))
    ahead = pipeline - 1 - rank
    warm_up = min(total, ahead if virtual == 1 else 2 * ahead + (virtual - 1) * group)
    if all_forwards_first:
        warm_up = total
    step = np.arange(total)
    return _sorted((forwards, FORWARD, 2 * (step - warm_up)), (backwards, BACKWARD, 2 * step + 1))


def _breadth_first(pipeline: int, virtual: int, micro_batches: int, rank: int) -> IntArray:
    """GPipe, whose backwards begin with the first micro-batch; PyTorch's LoopedBFS, whose begin with the last."""
    forwards, backwards = _turns(
        virtual, micro_batches, micro_batches, np.arange(rank, pipeline * virtual, pipeline)
    )
    if virtual > 1:
        backwards[:, 1] = micro_batches - 1 - backwards[:, 1]
    step = np.arange(len(forwards))
    return _sorted((forwards, FORWARD, step - len(step)), (backwards, BACKWARD, step))


def _zero_bubble(pipeline: int, virtual: int, micro_batches: int, group: int, rank: int) -> IntArray:
    """ZB-H1 (arXiv 2401.10241, section 2.3) and PyTorch's InterleavedZeroBubble.

    The warm-up has P - 1 - s + (v - 1) group forwards; the part for weights follows ``s`` parts for activations
    behind its own.
    """
    total = micro_batches * virtual
    if virtual == 1:
        group = max(micro_batches, 1)
    forwards, backwards = _turns(virtual, micro_batches, group, np.arange(rank, pipeline * virtual, pipeline))
    warm_up = min(total, pipeline - 1 - rank + (virtual - 1) * group * (virtual > 1))
    step = np.arange(total)
    return _sorted(
        (forwards, FORWARD, 3 * (step - warm_up)),
        (backwards, BACKWARD, 3 * step + 1),
        (backwards, WEIGHT, 3 * (step + rank) + 2),
    )


def _sorted(*parts: tuple[IntArray, int, IntArray]) -> IntArray:
    """Rows of parts (stage and micro-batch, kind, place in the order); nothing is held."""
    rows = [
        np.column_stack([events, np.full(len(events), kind), np.zeros_like(place)]) for events, kind, place in parts
    ]
    return np.concatenate(rows)[np.argsort(np.concatenate([place for *_, place in parts]), kind="stable")]


_KINDS: Final = (FORWARD, BACKWARD, WEIGHT)
_F0, _I0, _W0, _F1, _I1, _W1 = ([(stage, kind, 0)] for stage in (0, 1) for kind in _KINDS)
_WHOLE: Final = tuple([(stage, BACKWARD, 1), (stage, WEIGHT, 0)] for stage in (0, 1))
"""A whole backward on each virtual stage."""
_BOTH: Final = tuple([(stage, FORWARD, 2), *_WHOLE[1 - stage]] for stage in (0, 1))
"""A forward on each virtual stage and a backward on the other as one: both results leave at its end."""


def _zb_v(pipeline: int, micro_batches: int, rank: int) -> IntArray:
    """ZB-V by hand (arXiv 2405.15362, appendix; PyTorch's ZBVZeroBubble), for parts that take equally long.

    Made for at least 2 P - 1 micro-batches; of fewer the events of those that there are not are left out.
    """
    most, left = max(micro_batches, 2 * pipeline - 1), pipeline - rank
    events = _F0 * (2 * left - 1) + (_F1 + _F0) * rank
    events += (_F1 + _I1 + _W1) * left
    steady = most - (2 * left - 1 + rank)
    events += (_F0 + _I0 + _W0 + _F1 + _I1 + _W1) * steady
    events += (_I0 + _W0 + _F1 + _I1 + _W1) * (left - 1)
    events += (_I0 + _I1) * rank + (_I0 + _W0) * left
    events += _W1 * rank + _W0 * rank
    rows = _numbered(events, pipeline, rank)
    return rows[rows[:, 1] < micro_batches]


def _dualpipe_v(pipeline: int, micro_batches: int, rank: int) -> IntArray:
    """DualPipeV in its eight steps (DeepSeek's DualPipe repository, ``dualpipev.py``; PyTorch's DualPipeV)."""
    left = pipeline - 1 - rank
    events = _F0 * (2 * left) + (_F0 + _F1) * (rank + 1) + (_I1 + _W1 + _F1) * left
    main = (_BOTH[0] + _BOTH[1]) * (micro_batches - 2 * pipeline + rank + 1)
    if rank == pipeline - 1:  # the first two are not joined, for a shorter bubble
        main = _F0 + _WHOLE[1] + main[3:]
    events += main + (_WHOLE[1] + _BOTH[1]) * left
    last, whole = [1, 0] * (rank + 1), rank + 1
    for stage in last[:whole]:
        events += _WHOLE[stage]
    waiting = last[whole:]  # the second half is split
    for stage in waiting:
        events += [(stage, BACKWARD, 0)]
    waiting += [0] * left
    for number, stage in enumerate(waiting):
        events += [(stage, WEIGHT, 0), *_I0 * (number < left)]
    return _numbered(events, pipeline, rank)


def _numbered(events: Sequence[tuple[int, int, int]], pipeline: int, rank: int) -> IntArray:
    """Rows of events on a V, whose micro-batches follow each other on each virtual stage and in each kind."""
    found = np.array(events, dtype=np.int64).reshape(-1, 3)
    micro_batch = np.empty(len(found), dtype=np.int64)
    for key in range(2 * 3):
        own = found[:, 0] * 3 + found[:, 1] == key
        micro_batch[own] = np.arange(own.sum())
    stage = np.where(found[:, 0] == 0, rank, 2 * pipeline - 1 - rank)
    return np.column_stack([stage, micro_batch, found[:, 1], found[:, 2]])
