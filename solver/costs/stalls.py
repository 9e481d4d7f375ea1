"""Time that pipelines lose because their micro-batches take unequally long."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import FloatArray
from solver.compiled_events import last_ends
from solver.pipeline.schedule import Schedule, build_schedule, events_of_chunk, is_legal_group

_TURNS: Final = 4
"""Micro-batches that are simulated, for each pipeline rank; what later ones lose is the same."""
_MOST_EVENTS: Final = 200_000
_FEWEST: Final = 4
_SHARES: Final = (1.0, 2.0), (1.0, 1.0, 1.0)
"""Forward and backward, or forward and the two parts of a backward, of a micro-batch on a stage."""


def stall(order: PipelineSchedule, pipeline: int, virtual: int, loads: FloatArray) -> float:
    """Time of a pipeline over that with equal micro-batches, at least 1: the mean of simulations.

    ``loads`` (n, micro-batches): how long each takes, in as many pipelines; equal stages, transfers left out.
    """
    if pipeline == 1 or not loads.any():
        return 1.0
    count = min(loads.shape[1], _TURNS * pipeline)
    group = pipeline if is_legal_group(pipeline, count, pipeline) else count
    schedule = build_schedule(pipeline, virtual, count, order=order, group=group)
    rows = max(_FEWEST, _MOST_EVENTS // len(schedule.events.chunk))
    first = loads[:rows, :count]
    equal = float(_step_s(schedule, np.ones((1, count)))[0])
    return max(1.0, float((_step_s(schedule, first) / (first.mean(axis=1) * equal)).mean()))


def _step_s(schedule: Schedule, loads: FloatArray) -> FloatArray:
    """(n,) ends of pipelines whose micro-batches take ``loads`` (n, micro-batches)."""
    shares = np.array(_SHARES[events_of_chunk(schedule.order) - 2])
    events = schedule.events._replace(chunk=schedule.micro_batch)
    durations = np.ascontiguousarray(loads[:, None, :] * shares[:, None])
    delays = np.zeros((len(loads), 2, schedule.pipeline))
    return np.asarray(last_ends(events, schedule.last, durations, delays).max(axis=1))
