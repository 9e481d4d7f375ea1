"""Compiled: the event graph of a schedule and its simulation.

Letters: P pipeline ranks, C chunks (virtual stages), E kinds of event (``solver.orders``).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel


class Events(NamedTuple):
    """Events in an order where everything an event waits for stands before it; one entry per event.

    ``chunk`` is a column of ``Configuration.stage_layers``.  ``previous`` is the index of the event before it on
    its pipeline rank and ``feed`` that of the event whose result it needs (-1 = none).  ``hop`` is the transfer
    that delays that result, ``send`` the one that the event itself ends with, where ranks wait for their sends (-1
    = none): ``s`` leads from rank ``s`` to the next, ``P + s`` to the one before, both around the ring.
    """

    chunk: IntArray
    kind: IntArray
    previous: IntArray
    feed: IntArray
    hop: IntArray
    send: IntArray


@kernel
def topological_rows(orders: IntArray, hops: IntArray, micro_batches: int) -> IntArray:
    """Rows (rank, stage, micro-batch, kind, previous, feed, hop) in an order that respects all waits.

    ``orders`` (P, n, 4) as in ``solver.orders``; ``hops`` (2, C): the transfer by which a stage's results leave
    forwards and backwards (-1 = none).
    """
    pipeline, length, stages = orders.shape[0], orders.shape[1], hops.shape[1]
    index = np.full((2, stages, micro_batches), -1, dtype=np.int64)
    next_event = np.zeros(pipeline, dtype=np.int64)
    previous = np.full(pipeline, -1, dtype=np.int64)
    rows = np.empty((pipeline * length, 7), dtype=np.int64)
    done = 0
    while done < rows.shape[0]:
        progressed = False
        for rank in range(pipeline):
            while next_event[rank] < length:
                number = next_event[rank]
                stage, micro, kind, _ = orders[rank, number]
                way, source = kind, stage + 2 * kind - 1  # the stage before, or behind
                if kind == 1 and stage == stages - 1:
                    way, source = 0, stage
                waits = kind < 2 and source >= 0
                feed = index[way, source, micro] if waits else -1
                if waits and feed == -1:
                    break
                rows[done, 0] = rank
                rows[done, 1] = stage
                rows[done, 2] = micro
                rows[done, 3] = kind
                rows[done, 4] = previous[rank]
                rows[done, 5] = feed
                rows[done, 6] = hops[way, source] if waits and source != stage else -1
                for back in range(min(number, 2) + 1):
                    earlier = orders[rank, number - back]
                    if earlier[3] == back and earlier[2] < 2:
                        index[earlier[2], earlier[0], earlier[1]] = done
                previous[rank] = done
                next_event[rank] += 1
                done += 1
                progressed = True
        if not progressed:
            return rows[:0]
    return rows


@kernel
def event_ends(events: Events, duration_s: FloatArray, delay_s: FloatArray) -> FloatArray:
    """End of each event.  ``duration_s`` (E, C); ``delay_s`` (2, P): to the next rank, to the one before."""
    ends = np.empty(len(events.chunk))
    fill_ends(events, duration_s, delay_s, ends)
    return ends


@inner
def fill_ends(events: Events, duration_s: FloatArray, delay_s: FloatArray, ends: FloatArray) -> None:
    """Put the end of each event into ``ends``, as ``event_ends`` returns it."""
    # local names: a tuple passed on for every event costs thirty times the loop
    chunk, kind, previous, feed, hop, send = events
    delays = delay_s.reshape(delay_s.size)
    for event in range(len(ends)):
        start = 0.0
        if previous[event] >= 0:
            start = ends[previous[event]]
        if feed[event] >= 0:
            arrival = ends[feed[event]]
            if hop[event] >= 0:
                arrival += delays[hop[event]]
            start = max(start, arrival)
        if send[event] >= 0:
            start += delays[send[event]]
        ends[event] = start + duration_s[kind[event], chunk[event]]


@kernel
def last_ends(events: Events, last: IntArray, duration_s: FloatArray, delay_s: FloatArray) -> FloatArray:
    """(n, P) end of each rank's last event for many pipelines: durations (n, E, C), delays (n, 2, P)."""
    found = np.empty((len(duration_s), len(last)))
    ends = np.empty(len(events.chunk))
    for row in range(len(found)):
        fill_ends(events, duration_s[row], delay_s[row], ends)
        for s in range(len(last)):
            found[row, s] = ends[last[s]]
    return found


@kernel
def walk_back(
    event: int, events: Events, ends: FloatArray, delay_s: FloatArray, work: IntArray, hops: IntArray
) -> None:
    """Count in ``work`` (E, C) and ``hops`` (2, P) what lies on the longest path to the end of ``event``."""
    chunk, kind, previous, feed, hop, send = events
    delays, passed = delay_s.reshape(delay_s.size), hops.reshape(hops.size)
    while event >= 0:
        work[kind[event], chunk[event]] += 1
        if send[event] >= 0:
            passed[send[event]] += 1
        by_rank = ends[previous[event]] if previous[event] >= 0 else 0.0
        by_feed = -1.0
        if feed[event] >= 0:
            by_feed = ends[feed[event]]
            if hop[event] >= 0:
                by_feed += delays[hop[event]]
        if by_feed >= by_rank:
            if hop[event] >= 0:
                passed[hop[event]] += 1
            event = feed[event]
        else:
            event = previous[event]
