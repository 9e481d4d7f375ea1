"""The steady state of a pipeline as a linear program (docs/pipeline.md derives it and proves the bounds).

In the steady state every event is repeated once a period: a micro-batch under 1F1B; under interleaved 1F1B a round,
in which ``P`` micro-batches pass all ``v`` virtual stages.  Each rank then runs ``slots`` forwards and as many
backwards a period (1, or ``P v``).  With start times ``f[s,k], b[s,k]`` of the ``k``-th forward and backward of
rank ``s``, where an index beyond the last slot means the next period (``x[s, k + slots] = x[s, k] + L``), the
period ``L`` is the least for which the waits have a solution:

    b[s, k - w_s]     >= f[s,k] + F      a backward follows the rank's newest forward
    f[s, k + w_s + 1] >= b[s,k] + B      and the rank's next forward follows it; w_s = forwards of the warm-up
    f[s+1, k]         >= f[s,k] + F + c      activations arrive
    b[s, k]           >= b[s+1,k] + B + c    gradients arrive
    f[0, k + P]       >= f[P-1,k] + F + c    interleaved, except on the last virtual stage: on to the next one
    b[P-1, k + P]     >= b[0,k] + B + c      the same for gradients, except on the first

``F, B`` are those of the chunk that slot ``k`` works on, ``c`` the transfer that leaves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, overload

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.ilp import ModelBuilder, Terms
from solver.pipeline.schedule import Schedule

Duration = tuple[float, Terms]
"""Seconds plus a linear expression of columns, so that transfers may be decided in the same program."""

FORWARD, BACKWARD = 0, 1
MOST_EVENTS_OF_A_PERIOD: Final = 64
"""Longest period of which every event gets a start time of its own in a larger program: 4 ranks with 2 virtual
stages.  The waits of longer ones are averaged over the slots: the bound is a little lower, but programs of 6 ranks
with 4 virtual stages are solved four times as fast."""


@dataclass(frozen=True, slots=True, eq=False)
class Waits:
    """The waits of one period, one entry each: ``start[later] + periods L >= start[earlier] + its seconds``.

    Those seconds are the duration of ``chunk`` and, unless ``hop`` is -1, the transfer that leaves rank ``hop``,
    both of direction ``way`` (0 forward, 1 backward).  ``events`` start times are numbered from 0.
    """

    events: int
    later: IntArray
    earlier: IntArray
    periods: IntArray
    way: IntArray
    chunk: IntArray
    hop: IntArray


def slots_of_period(pipeline: int, virtual: int) -> int:
    """Forwards that each rank runs a period."""
    return 1 if virtual == 1 else pipeline * virtual


@lru_cache(maxsize=64)
def period_waits(pipeline: int, virtual: int, *, blocking: bool = False, averaged: bool = False) -> Waits:
    """The waits of a pipeline's steady state; ``blocking``: ranks wait for their sends.

    ``averaged``: the mean over all slots of the waits that every slot has; then a period is one slot and ``chunk``
    is the rank, whose chunks' mean counts.
    """
    slots, chunks = 1 if averaged else slots_of_period(pipeline, virtual), pipeline * virtual
    rows: list[tuple[int, int, int, int, int, int]] = []

    def after(later: tuple[int, int, int], earlier: tuple[int, int, int], hop: int = -1) -> None:
        """The event (way, rank, index) ``later`` waits for ``earlier``, whose index is a slot."""
        way, rank, slot = earlier
        level = slot // pipeline if way == FORWARD or averaged else virtual - 1 - slot // pipeline
        chunk = level * pipeline + rank
        if blocking:
            hop = -1 if chunk == (chunks - 1 if way == FORWARD else 0) else rank
        periods, position = divmod(later[2], slots)
        first, second = (event[0] * pipeline + event[1] for event in (later, earlier))
        rows.append((first * slots + position, second * slots + slot, periods, way, chunk, hop))

    for s in range(pipeline):
        warm_up = steady_warm_up(pipeline, virtual, s)
        for k in range(slots):
            after((BACKWARD, s, k - warm_up), (FORWARD, s, k))
            after((FORWARD, s, k + warm_up + 1), (BACKWARD, s, k))
            if s + 1 < pipeline:
                after((FORWARD, s + 1, k), (FORWARD, s, k), s)
                after((BACKWARD, s, k), (BACKWARD, s + 1, k), s + 1)
    for k in range(slots - pipeline):
        after((FORWARD, 0, k + pipeline), (FORWARD, pipeline - 1, k), pipeline - 1)
        after((BACKWARD, pipeline - 1, k + pipeline), (BACKWARD, 0, k), 0)
    return Waits(2 * pipeline * slots, *np.array(rows, dtype=np.int64).T)


def steady_warm_up(pipeline: int, virtual: int, rank: int) -> int:
    """Forwards that ``rank`` is ahead of its backwards in the steady state."""
    ahead = pipeline - 1 - rank
    return ahead if virtual == 1 else 2 * ahead + (virtual - 1) * pipeline


@overload
def steady_periods(pipeline: int, virtual: int, micro_batches: int) -> int: ...
@overload
def steady_periods(pipeline: int, virtual: int, micro_batches: IntArray) -> IntArray: ...
def steady_periods(pipeline: int, virtual: int, micro_batches: int | IntArray) -> int | IntArray:
    """Whole periods that a step surely has besides the round trip of one micro-batch; negative: none.

    None where ranks do not divide micro-batches that pass virtual stages: their groups are larger than a round.
    """
    if virtual == 1:
        return micro_batches - pipeline
    whole_rounds = micro_batches % pipeline == 0
    return (micro_batches // pipeline - 1) * whole_rounds - 1


def add_period_bound(
    builder: ModelBuilder,
    *,
    end: int,
    schedule: Schedule,
    duration: Sequence[Sequence[Duration]],
    delay: Sequence[Sequence[Duration]],
) -> None:
    """Bound the column ``end``, the last backward of rank 0, by a round trip and the periods after it.

        end >= trip + steady_periods L + (P - 1) min(F, B) + P min(sum of F, sum of B)

    ``F, B`` belong to chunk 0, the sums to all chunks of rank 0; the last term is interleaved schedules' only.
    ``duration`` (2, C) and ``delay`` (2, P) are expressions of columns that are at least 0, with factors that are.
    """
    pipeline, virtual = schedule.pipeline, schedule.virtual
    periods = steady_periods(pipeline, virtual, schedule.micro_batches)
    if pipeline == 1 or periods < 0 or not schedule.is_periodic:
        return
    period = int(builder.add_columns(1)[0])
    if periods > 0 and (virtual == 1 or 2 * pipeline * pipeline * virtual <= MOST_EVENTS_OF_A_PERIOD):
        waits = period_waits(pipeline, virtual, blocking=schedule.blocking)
        _add_waits(builder, waits, period, duration, delay)
    elif periods > 0:
        _add_averaged(builder, period, duration, delay)
    parts = [(_trip(duration, delay), 1.0), (_least(duration[FORWARD][0], duration[BACKWARD][0]), pipeline - 1.0)]
    if virtual > 1:
        both = (_weighted([(part, 1.0) for part in way[::pipeline]]) for way in duration)
        parts.append((_least(*both), float(pipeline)))
    constant, terms = _weighted(parts)
    builder.add_row([(end, 1.0), (period, -float(periods)), *_times(terms, -1.0)], lower=constant)


def _add_averaged(
    builder: ModelBuilder,
    period: int,
    duration: Sequence[Sequence[Duration]],
    delay: Sequence[Sequence[Duration]],
) -> None:
    """The waits averaged over slots, and the cycle that follows micro-batches through all chunks."""
    pipeline, chunks = len(delay[0]), len(duration[0])
    virtual = chunks // pipeline
    slot = int(builder.add_columns(1)[0])
    share = 1.0 / virtual
    mean = [[_weighted([(part, share) for part in way[s::pipeline]]) for s in range(pipeline)] for way in duration]
    _add_waits(builder, period_waits(pipeline, virtual, averaged=True), slot, mean, delay)
    builder.add_row([(period, 1.0), (slot, -float(slots_of_period(pipeline, virtual)))], lower=0.0)
    parts = [(_trip(duration, delay), pipeline - 1.0)]
    parts += [(part, 1.0) for part in (*duration[FORWARD][-pipeline:], *delay[FORWARD][:-1], *duration[BACKWARD])]
    parts += [(part, float(virtual - (s == 0))) for s, part in enumerate(delay[BACKWARD])]
    constant, terms = _weighted(parts)
    builder.add_row([(period, 2.0 * pipeline - 1.0), *_times(terms, -1.0)], lower=constant)


def least_period_s(forward_s: FloatArray, backward_s: FloatArray, hop_s: FloatArray) -> FloatArray:
    """(n,) seconds that no period is shorter than, for many pipelines at once.

    ``forward_s`` and ``backward_s`` are (n, C); ``hop_s`` (n, P) is the transfer from each rank to the next and
    back, the last rank's being the one to the first.  The period of ranks that wait for their sends is no shorter.
    Three kinds of cycle: a rank's own work, a way down some ranks and back, and micro-batches through all chunks.
    """
    ranks, chunks = hop_s.shape[1], forward_s.shape[1]
    virtual = chunks // ranks
    work = (forward_s + backward_s).reshape(len(hop_s), virtual, ranks).sum(axis=1)
    until = np.pad((work + 2.0 * virtual * hop_s).cumsum(axis=1), ((0, 0), (1, 0)))
    share = 1 if virtual == 1 else ranks
    best = share * work.max(axis=1, initial=0.0)
    for passed in range(1, ranks):
        trips = until[:, passed + 1 :] - until[:, : ranks - passed] - 2.0 * virtual * hop_s[:, passed:]
        best = np.maximum(best, share / (passed + 1 if virtual == 1 else 2 * passed + 1) * trips.max(axis=1))
    if virtual > 1:
        through = (ranks - 1) * (until[:, -1] - 2.0 * hop_s[:, -1])
        through += forward_s[:, -ranks:].sum(axis=1) + backward_s.sum(axis=1)
        through += (virtual + 1) * hop_s[:, :-1].sum(axis=1) + (virtual - 1) * hop_s[:, -1]
        best = np.maximum(best, through / (2 * ranks - 1))
    return np.asarray(best)


def least_step_s(
    forward_s: FloatArray, backward_s: FloatArray, hop_s: FloatArray, micro_batches: IntArray
) -> FloatArray:
    """(n,) seconds before which no last backward on rank 0 ends: ``add_period_bound`` for many pipelines at once.

    Shapes as for ``least_period_s``; ``micro_batches`` is (n,).  0 where a step has no whole period.
    """
    ranks, chunks = hop_s.shape[1], forward_s.shape[1]
    virtual = chunks // ranks
    periods = steady_periods(ranks, virtual, micro_batches)
    trip = (forward_s + backward_s).sum(axis=1) + 2.0 * virtual * hop_s.sum(axis=1) - 2.0 * hop_s[:, -1]
    beside = (ranks - 1) * np.minimum(forward_s[:, 0], backward_s[:, 0])
    if virtual > 1:
        beside += ranks * np.minimum(forward_s[:, ::ranks].sum(axis=1), backward_s[:, ::ranks].sum(axis=1))
    whole = trip + periods * least_period_s(forward_s, backward_s, hop_s) + beside
    return np.where(periods >= 0, whole, 0.0)


def _trip(duration: Sequence[Sequence[Duration]], delay: Sequence[Sequence[Duration]]) -> Duration:
    """One micro-batch through all chunks and back."""
    pipeline, virtual = len(delay[0]), len(duration[0]) // len(delay[0])
    parts = [(part, 1.0) for way in duration for part in way]
    for way, closing in ((FORWARD, pipeline - 1), (BACKWARD, 0)):
        parts += [(part, float(virtual - (s == closing))) for s, part in enumerate(delay[way])]
    return _weighted(parts)


def _least(first: Duration, second: Duration) -> Duration:
    """An expression that neither exceeds: the lesser factor of each column."""
    factors: list[dict[int, float]] = [{}, {}]
    for kept, (_, terms) in zip(factors, (first, second), strict=True):
        for column, factor in terms:
            kept[column] = kept.get(column, 0.0) + factor
    shared = sorted(factors[0].keys() & factors[1].keys())
    return min(first[0], second[0]), [(column, min(kept[column] for kept in factors)) for column in shared]


def _weighted(parts: Sequence[tuple[Duration, float]]) -> Duration:
    constant = sum(part[0] * weight for part, weight in parts)
    return constant, [(column, factor * weight) for part, weight in parts for column, factor in part[1]]


def _add_waits(
    builder: ModelBuilder,
    waits: Waits,
    period: int,
    duration: Sequence[Sequence[Duration]],
    delay: Sequence[Sequence[Duration]],
) -> None:
    """A start time for each event, and a row for each wait."""
    start = builder.add_columns(waits.events)
    columns = zip(
        *(part.tolist() for part in (start[waits.later], start[waits.earlier], waits.periods)),
        *(part.tolist() for part in (waits.way, waits.chunk, waits.hop)),
        strict=True,
    )
    for later, earlier, periods, way, chunk, hop in columns:
        seconds, terms = duration[way][chunk]
        needed = [(later, 1.0), (earlier, -1.0), (period, float(periods)), *_times(terms, -1.0)]
        if hop >= 0:
            seconds += delay[way][hop][0]
            needed += _times(delay[way][hop][1], -1.0)
        builder.add_row(needed, lower=seconds)


def _times(terms: Terms, factor: float) -> list[tuple[int, float]]:
    return [(column, value * factor) for column, value in terms]
