"""Discrete-event simulation of one pipeline: exact start and end of every forward and backward.

A transfer is a pure delay: it occupies neither sender nor receiver.  Compiled, because the local search runs it
for every move.
"""

from __future__ import annotations

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.schedule import Schedule


@numba.njit(cache=True)
def event_ends(
    rank: IntArray,
    chunk: IntArray,
    backward: IntArray,
    previous: IntArray,
    feed: IntArray,
    hop: IntArray,
    duration_s: FloatArray,
    delay_s: FloatArray,
) -> FloatArray:
    """End of each event.  ``duration_s`` (2, chunks) and ``delay_s`` (2, pipeline): row 0 forward, 1 backward."""
    ends = np.empty(len(rank))
    for event in range(len(rank)):
        start = 0.0
        if previous[event] >= 0:
            start = ends[previous[event]]
        if feed[event] >= 0:
            arrival = ends[feed[event]]
            if hop[event] >= 0:
                arrival += delay_s[backward[event], hop[event]]
            start = max(start, arrival)
        ends[event] = start + duration_s[backward[event], chunk[event]]
    return ends


def simulate(schedule: Schedule, duration_s: FloatArray, delay_s: FloatArray) -> FloatArray:
    """End of each event of ``schedule`` in seconds (see ``event_ends`` for the shapes)."""
    return np.asarray(
        event_ends(
            schedule.rank,
            schedule.chunk,
            schedule.backward,
            schedule.previous,
            schedule.feed,
            schedule.hop,
            duration_s,
            delay_s,
        )
    )


@numba.njit(cache=True)
def _walk_back(
    event: int,
    rank: IntArray,
    chunk: IntArray,
    backward: IntArray,
    previous: IntArray,
    feed: IntArray,
    hop: IntArray,
    ends: FloatArray,
    delay_s: FloatArray,
    work: IntArray,
    hops: IntArray,
) -> None:
    while event >= 0:
        work[backward[event], chunk[event]] += 1
        by_rank = ends[previous[event]] if previous[event] >= 0 else 0.0
        by_feed = -1.0
        if feed[event] >= 0:
            by_feed = ends[feed[event]]
            if hop[event] >= 0:
                by_feed += delay_s[backward[event], hop[event]]
        if by_feed > by_rank or (by_feed == by_rank and feed[event] >= 0):
            if hop[event] >= 0:
                hops[backward[event], hop[event]] += 1
            event = feed[event]
        else:
            event = previous[event]


def critical_path(
    schedule: Schedule, ends: FloatArray, delay_s: FloatArray, event: int
) -> tuple[IntArray, IntArray]:
    """What the end of ``event`` is made of.

    Returns how often each chunk's work (2, chunks) and each hop (2, pipeline) lies on the longest path to it;
    the end is the sum of those durations and delays, and no choice of delays ends earlier than this same sum
    taken over the new delays (the path stays in the graph): a cut for the placement program.
    """
    work = np.zeros((2, schedule.pipeline * schedule.virtual), dtype=np.int64)
    hops = np.zeros((2, schedule.pipeline), dtype=np.int64)
    _walk_back(
        event,
        schedule.rank,
        schedule.chunk,
        schedule.backward,
        schedule.previous,
        schedule.feed,
        schedule.hop,
        ends,
        delay_s,
        work,
        hops,
    )
    return work, hops
