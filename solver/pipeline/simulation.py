"""Discrete-event simulation of one pipeline: exact start and end of every event.

A transfer is a pure delay that occupies neither sender nor receiver, unless the schedule's ranks wait for their
sends: then an event ends with its transfer.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled_events import event_ends, walk_back
from solver.pipeline.schedule import Schedule, events_of_chunk


def simulate(schedule: Schedule, duration_s: FloatArray, delay_s: FloatArray) -> FloatArray:
    """End of each event of ``schedule`` in seconds (see ``event_ends`` for the shapes)."""
    return np.asarray(event_ends(schedule.events, duration_s, delay_s))


def critical_path(
    schedule: Schedule, ends: FloatArray, delay_s: FloatArray, event: int
) -> tuple[IntArray, IntArray]:
    """Longest path to the end of ``event``: how often each chunk and each hop lies on it.

    Returns counts (kinds, chunks) and (2, pipeline).  The end is the sum of those durations and delays.  The path
    stays in the graph whatever the durations and delays are, so that same sum bounds the end from below for any
    others: a cut for the placement program.
    """
    kinds = events_of_chunk(schedule.order)
    work = np.zeros((kinds, schedule.pipeline * schedule.virtual), dtype=np.int64)
    hops = np.zeros((2, schedule.pipeline), dtype=np.int64)
    walk_back(event, schedule.events, ends, delay_s, work, hops)
    return work, hops
