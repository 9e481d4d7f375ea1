"""Cost of an assignment, term by term, compiled for the local search (docs/placement.md, "The search").

A term is one transfer, collective or ring: the slowest of its pairs of slots sets its seconds.  Letters and
data as in ``solver.search_types``.
"""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel
from solver.search_types import Compute, Exposure, IndexArray, Layout, Sharing, Terms


@kernel
def event_levels(previous: IntArray, feed: IntArray) -> IntArray:
    """The longest chain of waits before each event; events of one level do not wait for each other."""
    levels = np.zeros(len(previous), dtype=np.int64)
    for event in range(len(previous)):
        if previous[event] >= 0:
            levels[event] = levels[previous[event]] + 1
        if feed[event] >= 0:
            levels[event] = max(levels[event], levels[feed[event]] + 1)
    return levels


@inner
def simulate_replica(rows: IndexArray, work: FloatArray, delay: FloatArray, ends: FloatArray) -> None:
    """Fill ``ends`` (E + 1,) of the events, counted from 1."""
    ends[0] = 0.0
    for event in range(len(rows)):
        by_rank = ends[rows[event, 0]]
        by_feed = ends[rows[event, 1]] + delay[rows[event, 2]]
        start = max(by_rank, by_feed)
        ends[event + 1] = start + delay[rows[event, 3]] + work[rows[event, 4]]


@inner
def walk_back(
    event: np.int64, rows: IndexArray, ends: FloatArray, delay: FloatArray, work: FloatArray, hops: FloatArray
) -> None:
    """Count in ``work`` (E C,) and ``hops`` (D,) what lies on the longest path to the end of ``event``."""
    work[:] = 0.0
    hops[:] = 0.0
    while event > 0:
        row = rows[event - 1]
        work[row[4]] += 1.0
        hops[row[3]] += 1.0
        if row[1] > 0 and ends[row[1]] + delay[row[2]] >= ends[row[0]]:
            hops[row[2]] += 1.0
            event = np.int64(row[1])
        else:
            event = np.int64(row[0])


@inner
def share_switches(order: IntArray, terms: Terms, sharing: Sharing, shared: FloatArray) -> None:
    """Fill the seconds (phases, 2, W) in which each switch passes what each phase sends up and down."""
    above, bytes_per_s, sent_bytes, phase = sharing
    shared[:] = 0.0
    for t in range(len(phase)):
        for p in range(terms.first[t], terms.first[t + 1]):
            for level in range(len(above)):
                up, down = above[level, order[terms.pairs[p, 0]]], above[level, order[terms.pairs[p, 1]]]
                if up != down and up >= 0:
                    shared[phase[t], 0, up] += sent_bytes[p] / bytes_per_s[up]
                if up != down and down >= 0:
                    shared[phase[t], 1, down] += sent_bytes[p] / bytes_per_s[down]


@inner
def term_seconds(t: int, order: IntArray, terms: Terms, above: IntArray, shared: FloatArray) -> float:
    """The slowest pair of a term, or the slowest switch (2, W) on the way of a pair that sends anything."""
    worst: float = terms.floor[t]
    between = terms.seconds[terms.matrix[t]]
    for p in range(terms.first[t], terms.first[t + 1]):
        a, b = order[terms.pairs[p, 0]], order[terms.pairs[p, 1]]
        worst = max(worst, between[a, b])
        for level in range(len(above) if between[a, b] > 0.0 else 0):
            up, down = above[level, a], above[level, b]
            if up != down and up >= 0:
                worst = max(worst, shared[0, up])
            if up != down and down >= 0:
                worst = max(worst, shared[1, down])
    return worst


@inner
def fill_cell_work(s: int, ranks: int, cell: FloatArray, compute: Compute, work: FloatArray) -> None:
    """Fill the durations in ``work`` (E C,) of the chunks on rank ``s`` from the terms (1 + X,) of its cell."""
    duration_s, count, hidden = compute
    chunks = duration_s.shape[1]
    for kind in range(len(duration_s)):
        for c in range(s, chunks, ranks):
            total = duration_s[kind, c] * cell[0]
            for x in range(len(count)):
                total += count[x, kind, c] * max(0.0, cell[1 + x] - hidden[x, kind])
            work[kind * chunks + c] = total


@inner
def expose_rings(value: FloatArray, layout: Layout, exposure: Exposure, rings: FloatArray) -> None:
    """Fill the exposed reductions and gathers (2, P)."""
    kinds = (layout.gathers - layout.reduces) // layout.ranks
    for s in range(layout.ranks):
        reduce, gather = -exposure.reduce_hidden_s[s], -exposure.gather_hidden_s[s]
        for y in range(s * kinds, s * kinds + kinds):
            reduce += value[layout.reduces + y]
            gather += value[layout.gathers + y]
        rings[0, s], rings[1, s] = max(0.0, reduce), max(0.0, gather)


@inner
def latest_end(ends: FloatArray, reduce: FloatArray) -> float:
    """When the last of a replica's ranks has reduced its gradients."""
    latest = 0.0
    for s in range(len(reduce)):
        end = ends[s] + reduce[s]
        latest = max(latest, end)
    return latest


@inner
def score_of(
    cost: FloatArray, rings: FloatArray, optimizer_s: FloatArray, mean_weight: float
) -> tuple[float, float]:
    """Score that the search minimises, the step time and a share of the means beside it, and the step time."""
    worst, mean, tail, ringing = 0.0, 0.0, 0.0, 0.0
    for r in range(len(cost)):
        worst = max(worst, cost[r])
        mean += cost[r]
    for s in range(len(optimizer_s)):
        tail = max(tail, optimizer_s[s] + rings[1, s])
        ringing += rings[0, s] + rings[1, s]
    step = worst + tail
    return step + mean_weight * (mean / len(cost) + ringing / len(optimizer_s)), step
