"""Discrete-event simulation of one pipeline: exact start and end of every forward and backward.

A transfer is a pure delay: it occupies neither sender nor receiver.  Compiled, because the local search runs it
for every move.
"""

from __future__ import annotations

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.schedule import Events, Schedule


@numba.njit(cache=True)
def event_ends(events: Events, duration_s: FloatArray, delay_s: FloatArray) -> FloatArray:
    """End of each event.  ``duration_s`` (2, chunks) and ``delay_s`` (2, pipeline): row 0 forward, 1 backward."""
    ends = np.empty(len(events.chunk))
    for event in range(len(ends)):
        start = 0.0
        if events.previous[event] >= 0:
            start = ends[events.previous[event]]
        start = max(start, _arrival(event, events, ends, delay_s))
        ends[event] = start + duration_s[events.backward[event], events.chunk[event]]
    return ends


@numba.njit(cache=True)
def _arrival(event: int, events: Events, ends: FloatArray, delay_s: FloatArray) -> float:
    """When the result that ``event`` needs is there; 0 if it needs none."""
    feed = events.feed[event]
    if feed < 0:
        return 0.0
    arrival: float = ends[feed]
    if events.hop[event] >= 0:
        arrival += delay_s[events.backward[event], events.hop[event]]
    return arrival


def simulate(schedule: Schedule, duration_s: FloatArray, delay_s: FloatArray) -> FloatArray:
    """End of each event of ``schedule`` in seconds (see ``event_ends`` for the shapes)."""
    return np.asarray(event_ends(schedule.events, duration_s, delay_s))


@numba.njit(cache=True)
def _walk_back(
    event: int, events: Events, ends: FloatArray, delay_s: FloatArray, work: IntArray, hops: IntArray
) -> None:
    while event >= 0:
        work[events.backward[event], events.chunk[event]] += 1
        by_rank = ends[events.previous[event]] if events.previous[event] >= 0 else 0.0
        if events.feed[event] >= 0 and _arrival(event, events, ends, delay_s) >= by_rank:
            if events.hop[event] >= 0:
                hops[events.backward[event], events.hop[event]] += 1
            event = events.feed[event]
        else:
            event = events.previous[event]


def critical_path(
    schedule: Schedule, ends: FloatArray, delay_s: FloatArray, event: int
) -> tuple[IntArray, IntArray]:
    """What the end of ``event`` is made of: how often each chunk and each hop lies on the longest path to it.

    Returns counts (2, chunks) and (2, pipeline).  The end is the sum of those durations and delays.  The path
    stays in the graph whatever the durations and delays are, so that same sum bounds the end from below for any
    others: a cut for the placement program.
    """
    work = np.zeros((2, schedule.pipeline * schedule.virtual), dtype=np.int64)
    hops = np.zeros((2, schedule.pipeline), dtype=np.int64)
    _walk_back(event, schedule.events, ends, delay_s, work, hops)
    return work, hops
