"""Seconds of one pipeline by the simulated schedule, cut short where it only repeats itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cluster_models.training.schedules import PipelineSchedule
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
    durations_s: Sequence[FloatArray],
    delay_s: FloatArray,
    *,
    micro_batches: int,
    order: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B,
    blocking: bool = False,
    group: int | None = None,
    all_forwards_first: bool = False,
) -> FloatArray:
    """(P,) seconds until each rank has done its last event.

    ``durations_s`` are the chunks' times (C,) by kind of event, ``delay_s`` (P,) a transfer's from each rank to
    the next; ``blocking`` and ``all_forwards_first`` as for ``build_schedule``.  Schedules are simulated until they
    have settled and then prolonged by the period of their last round; other schedules than 1F1B as a whole, up to
    ``MOST_EVENTS``.  Interleaved micro-batches that ranks do not divide are simulated where ``group`` says how many
    pass a virtual stage together; else what is over counts by its share of a round.
    """
    pipeline = len(delay_s)
    durations: FloatArray = np.stack(durations_s)
    chunks = len(durations_s[0])
    virtual = chunks // pipeline
    if pipeline == 1:
        return np.array([micro_batches * float(durations.sum())])
    delays = np.stack([delay_s, np.roll(delay_s, 1)])

    def ends(count: int, group: int | None = None) -> FloatArray:
        schedule = build_schedule(
            pipeline,
            virtual,
            count,
            order=order,
            group=group,
            blocking=blocking,
            all_forwards_first=all_forwards_first and group is None,
        )
        found: FloatArray = simulate(schedule, durations, delays)[schedule.last]
        return found

    regular = order is PipelineSchedule.ONE_F_ONE_B and (virtual == 1 or group in {None, pipeline})
    if not regular and durations.size * micro_batches <= MOST_EVENTS:
        return ends(micro_batches, group)
    whole_rounds = micro_batches // pipeline * pipeline
    rounds = min(max(USUAL_EVENTS // (4 * pipeline * chunks), LEAST_ROUNDS), SETTLED_ROUNDS)
    if micro_batches <= (rounds + 1) * pipeline and (virtual == 1 or whole_rounds == micro_batches):
        return ends(micro_batches)
    settled = rounds * pipeline
    if virtual > 1 and micro_batches < settled:
        least = max(whole_rounds, pipeline)
        return ends(least) + (micro_batches - least) / pipeline * (ends(least + pipeline) - ends(least))
    last, before = ends(settled), ends(settled - pipeline)
    return last + (micro_batches - settled) / pipeline * (last - before)
