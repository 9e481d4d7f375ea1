"""Seconds of one pipeline by the simulated schedule, cut short where it only repeats itself."""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray
from solver.pipeline.schedule import MOST_EVENTS, build_schedule
from solver.pipeline.simulation import simulate

LEAST_ROUNDS: Final = 3
SETTLED_ROUNDS: Final = 8
"""Micro-batches per pipeline rank after which each further one costs the same, within about 1 % (stages that differ
by 30 %); deep pipelines are taken as settled after ``LEAST_ROUNDS``."""
USUAL_EVENTS: Final = 40_000
"""Schedules that are simulated in well under a millisecond."""


def rank_ends(
    forward_s: FloatArray,
    backward_s: FloatArray,
    delay_s: FloatArray,
    *,
    micro_batches: int,
    blocking: bool = False,
    group: int | None = None,
    all_forwards_first: bool = False,
) -> FloatArray:
    """(P,) seconds until each rank has done its last backward.

    ``forward_s`` and ``backward_s`` (C,) are the chunks' times, ``delay_s`` (P,) a transfer's from each rank to
    the next; ``blocking`` and ``all_forwards_first`` as for ``build_schedule``.  Schedules are simulated until they
    have settled and then prolonged by the period of their last round.  Interleaved micro-batches that ranks do not
    divide are simulated where ``group`` says how many pass a virtual stage together; else what is over counts by
    its share of a round.
    """
    pipeline = len(delay_s)
    virtual = len(forward_s) // pipeline
    if pipeline == 1:
        return np.array([micro_batches * float(forward_s.sum() + backward_s.sum())])
    durations = np.stack([forward_s, backward_s])
    delays = np.stack([delay_s, np.roll(delay_s, 1)])

    def ends(count: int) -> FloatArray:
        schedule = build_schedule(
            pipeline, virtual, count, blocking=blocking, all_forwards_first=all_forwards_first
        )
        return simulate(schedule, durations, delays)[schedule.last]

    if virtual > 1 and group not in {None, pipeline} and 2 * len(forward_s) * micro_batches <= MOST_EVENTS:
        schedule = build_schedule(pipeline, virtual, micro_batches, group=group, blocking=blocking)
        return simulate(schedule, durations, delays)[schedule.last]
    whole_rounds = micro_batches // pipeline * pipeline
    rounds = min(max(USUAL_EVENTS // (4 * pipeline * len(forward_s)), LEAST_ROUNDS), SETTLED_ROUNDS)
    if micro_batches <= (rounds + 1) * pipeline and (virtual == 1 or whole_rounds == micro_batches):
        return ends(micro_batches)
    settled = rounds * pipeline
    if virtual > 1 and micro_batches < settled:
        least = max(whole_rounds, pipeline)
        return ends(least) + (micro_batches - least) / pipeline * (ends(least + pipeline) - ends(least))
    last, before = ends(settled), ends(settled - pipeline)
    return last + (micro_batches - settled) / pipeline * (last - before)
