"""All compiled code, in one file: numba's cache notices a change only in the file of the function it compiled.

The kernels are the inner loops of the planner: the event graph of a schedule, its simulation, the step time of an
assignment of nodes, and the annealing over assignments.  Letters: K slots, N nodes, R replicas (data ranks),
P pipeline ranks, C chunks (virtual stages), X kinds of crossing traffic, Y kinds of data parallel ring; q, u and v
count pairs of slots.  Compiled code knows only numpy's legacy random generator; every run seeds its own.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numba
import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray


class Events(NamedTuple):
    """Events in an order where everything an event waits for stands before it; one entry per event.

    ``previous`` is the index of the event before it on its pipeline rank and ``feed`` that of the event whose
    result it needs (-1 = none).  ``hop`` is the pipeline rank whose transfer delays that result, ``send`` the one
    whose transfer the event itself ends with, where ranks wait for their sends (-1 = none); a forward hop goes to
    the next rank, a backward hop to the one before, both around the ring.
    """

    chunk: IntArray
    backward: IntArray
    previous: IntArray
    feed: IntArray
    hop: IntArray
    send: IntArray


class Rules(NamedTuple):
    """Which assignments are allowed.

    ``eligible`` (K, N): whether a node may take a slot.
    ``group_slots`` (G, g): groups of slots, padded with ``NO_SLOT``, whose nodes must all sit in different places
    (``apart`` (G,)) or all in the same one; ``places`` (G, N) numbers the place (leaf, rack, zone) of each node.
    """

    eligible: BoolArray
    group_slots: IntArray
    apart: BoolArray
    places: IntArray


class Uplinks(NamedTuple):
    """Switches whose way up is shared by all flows that leave or enter their part of the cluster at once.

    ``above`` (V, N): the switch over each node on each level, -1 = none; ``bytes_per_s`` (W,): what a switch passes
    in each direction.  Traffic between two nodes passes the switches, on every level, that they do not share.
    ``hop_bytes`` (R, 2, P, q), ``cross_bytes`` (X,), ``ring_bytes`` (Y, P): what one pair of slots sends at a time.
    """

    above: IntArray
    bytes_per_s: FloatArray
    hop_bytes: FloatArray
    cross_bytes: FloatArray
    ring_bytes: FloatArray


class Arrays(NamedTuple):
    """Everything the compiled code reads.  Slot pairs are (sender, receiver), padded with ``NO_SLOT``.

    ``events`` and ``last``: the schedule (see ``solver.pipeline.schedule``).
    ``duration_s`` (2, C), ``local_hop_s`` (), ``slowdown`` (N,): compute on a healthy node, a hop inside a node,
    and how much longer each node computes.
    ``hop_pairs`` (R, 2, P, q, 2), ``hop_s`` (N, N): slots between which rank ``s`` sends forward and backward.
    ``cross_pairs`` (X, R, P, u, 2), ``cross_s`` (X, N, N), ``cross_count`` (X, 2, C), ``cross_hidden_s`` (X, 2):
    collectives of a chunk that cross nodes, by kind ``x``.
    ``cell_slots`` (R, P, q): slots whose GPUs work on a cell.
    ``ring_pairs`` (Y, P, v, 2), ``reduce_s`` and ``gather_s`` (Y, P, N, N), ``*_local_s`` (Y, P): data parallel
    rings by kind ``y`` (all parameters but experts, and experts), one after the other.
    ``*_hidden_s`` (P,) and ``optimizer_s`` (P,).
    ``rules``: what is allowed; ``uplinks``: switches that traffic shares.
    """

    events: Events
    last: IntArray
    duration_s: FloatArray
    local_hop_s: float
    slowdown: FloatArray
    hop_pairs: IntArray
    hop_s: FloatArray
    cross_pairs: IntArray
    cross_s: FloatArray
    cross_count: FloatArray
    cross_hidden_s: FloatArray
    cell_slots: IntArray
    ring_pairs: IntArray
    reduce_s: FloatArray
    gather_s: FloatArray
    reduce_local_s: FloatArray
    gather_local_s: FloatArray
    reduce_hidden_s: FloatArray
    gather_hidden_s: FloatArray
    optimizer_s: FloatArray
    rules: Rules
    uplinks: Uplinks


TIE_WEIGHT: Final = 1e-3
"""Weight of the mean step time beside the slowest: it leads the search over plateaus of the maximum."""
PROBES: Final = 64
"""Random moves that set the first temperature: the mean worsening they cause."""


@numba.njit(cache=True)
def topological_rows(orders: IntArray, chunks: int, micro_batches: int) -> IntArray:
    """Rows (rank, chunk, micro-batch, backward, previous, feed, hop) in an order that respects all waits."""
    pipeline, length = orders.shape[0], orders.shape[1]
    index = np.full((2, chunks, micro_batches), -1, dtype=np.int64)
    next_event = np.zeros(pipeline, dtype=np.int64)
    previous = np.full(pipeline, -1, dtype=np.int64)
    rows = np.empty((pipeline * length, 7), dtype=np.int64)
    done = 0
    while done < rows.shape[0]:
        progressed = False
        for rank in range(pipeline):
            while next_event[rank] < length:
                chunk, micro, backward = orders[rank, next_event[rank]]
                feed, hop = -1, -1
                if backward == 1 and chunk == chunks - 1:
                    feed = index[0, chunk, micro]
                elif backward == 1:
                    feed = index[1, chunk + 1, micro]
                    hop = (chunk + 1) % pipeline
                elif chunk > 0:
                    feed = index[0, chunk - 1, micro]
                    hop = (chunk - 1) % pipeline
                if feed == -1 and (backward == 1 or chunk > 0):
                    break
                rows[done, 0] = rank
                rows[done, 1] = chunk
                rows[done, 2] = micro
                rows[done, 3] = backward
                rows[done, 4] = previous[rank]
                rows[done, 5] = feed
                rows[done, 6] = hop
                index[backward, chunk, micro] = done
                previous[rank] = done
                next_event[rank] += 1
                done += 1
                progressed = True
        if not progressed:
            return rows[:0]
    return rows


@numba.njit(cache=True)
def event_ends(events: Events, duration_s: FloatArray, delay_s: FloatArray) -> FloatArray:
    """End of each event.  ``duration_s`` (2, chunks) and ``delay_s`` (2, pipeline): row 0 forward, 1 backward."""
    # local names: a tuple passed on for every event costs thirty times the loop
    chunk, backward, previous, feed, hop, send = events
    ends = np.empty(len(chunk))
    for event in range(len(ends)):
        start = 0.0
        if previous[event] >= 0:
            start = ends[previous[event]]
        if feed[event] >= 0:
            arrival = ends[feed[event]]
            if hop[event] >= 0:
                arrival += delay_s[backward[event], hop[event]]
            start = max(start, arrival)
        if send[event] >= 0:
            start += delay_s[backward[event], send[event]]
        ends[event] = start + duration_s[backward[event], chunk[event]]
    return ends


@numba.njit(cache=True)
def walk_back(
    event: int, events: Events, ends: FloatArray, delay_s: FloatArray, work: IntArray, hops: IntArray
) -> None:
    """Count in ``work`` (2, C) and ``hops`` (2, P) what lies on the longest path to the end of ``event``."""
    chunk, backward, previous, feed, hop, send = events
    while event >= 0:
        work[backward[event], chunk[event]] += 1
        if send[event] >= 0:
            hops[backward[event], send[event]] += 1
        by_rank = ends[previous[event]] if previous[event] >= 0 else 0.0
        by_feed = -1.0
        if feed[event] >= 0:
            by_feed = ends[feed[event]]
            if hop[event] >= 0:
                by_feed += delay_s[backward[event], hop[event]]
        if by_feed >= by_rank:
            if hop[event] >= 0:
                hops[backward[event], hop[event]] += 1
            event = feed[event]
        else:
            event = previous[event]


@numba.njit(cache=True)
def _slowdown(assignment: IntArray, slots: IntArray, slowdown: FloatArray) -> float:
    """Of the nodes behind ``slots`` (q,), the slowest one's."""
    worst = 1.0
    for slot in slots:
        if slot >= 0:
            worst = max(worst, slowdown[assignment[slot]])
    return worst


@numba.njit(cache=True)
def slowest_pair(assignment: IntArray, pairs: IntArray, between_s: FloatArray, inside_s: float) -> float:
    """The largest of ``between_s`` (N, N) over slot pairs (u, 2); a pair on one slot takes ``inside_s``."""
    worst = 0.0
    for u in range(len(pairs)):
        a, b = pairs[u, 0], pairs[u, 1]
        if a >= 0:
            worst = max(worst, inside_s if a == b else between_s[assignment[a], assignment[b]])
    return worst


@numba.njit(cache=True)
def replica_inputs(
    assignment: IntArray, arrays: Arrays, replica: int, duration_s: FloatArray, delay_s: FloatArray
) -> None:
    """Fill ``duration_s`` (2, C) and ``delay_s`` (2, P) of one replica under ``assignment``."""
    ranks = arrays.hop_pairs.shape[2]
    for s in range(ranks):
        slowdown = _slowdown(assignment, arrays.cell_slots[replica, s], arrays.slowdown)
        for way in range(2):
            pairs = arrays.hop_pairs[replica, way, s]
            delay_s[way, s] = slowest_pair(assignment, pairs, arrays.hop_s, arrays.local_hop_s)
            duration_s[way, s::ranks] = arrays.duration_s[way, s::ranks] * slowdown
        for x in range(len(arrays.cross_pairs)):
            hop = slowest_pair(assignment, arrays.cross_pairs[x, replica, s], arrays.cross_s[x], 0.0)
            for way in range(2):
                exposed = max(0.0, hop - arrays.cross_hidden_s[x, way])
                duration_s[way, s::ranks] += arrays.cross_count[x, way, s::ranks] * exposed


@numba.njit(cache=True)
def exposed_rings(assignment: IntArray, arrays: Arrays, reduce_s: FloatArray, gather_s: FloatArray) -> None:
    """Fill the exposed gradient reduction and parameter gather (P,) under ``assignment``."""
    for s in range(len(reduce_s)):
        reduce_s[s], gather_s[s] = -arrays.reduce_hidden_s[s], -arrays.gather_hidden_s[s]
        for y in range(len(arrays.ring_pairs)):
            pairs = arrays.ring_pairs[y, s]
            reduce_s[s] += max(
                arrays.reduce_local_s[y, s], slowest_pair(assignment, pairs, arrays.reduce_s[y, s], 0.0)
            )
            gather_s[s] += max(
                arrays.gather_local_s[y, s], slowest_pair(assignment, pairs, arrays.gather_s[y, s], 0.0)
            )
        reduce_s[s], gather_s[s] = max(0.0, reduce_s[s]), max(0.0, gather_s[s])


@numba.njit(cache=True)
def step_seconds(assignment: IntArray, arrays: Arrays) -> tuple[float, float]:
    """Step time of an assignment (K,), and a tie-breaker: the mean over replicas and ranks of the same."""
    replicas, ranks = arrays.hop_pairs.shape[0], arrays.hop_pairs.shape[2]
    reduce_s, gather_s = np.empty(ranks), np.empty(ranks)
    exposed_rings(assignment, arrays, reduce_s, gather_s)
    duration_s, delay_s = np.empty((2, arrays.duration_s.shape[1])), np.empty((2, ranks))
    worst, total = 0.0, 0.0
    for replica in range(replicas):
        replica_inputs(assignment, arrays, replica, duration_s, delay_s)
        ends = event_ends(arrays.events, duration_s, delay_s)
        for s in range(ranks):
            end = ends[arrays.last[s]] + reduce_s[s]
            worst = max(worst, end)
            total += end
    tail = 0.0
    for s in range(ranks):
        tail = max(tail, arrays.optimizer_s[s] + gather_s[s])
    return worst + tail, total / (replicas * ranks) + tail


@numba.njit(cache=True)
def _propose(order: IntArray, slots: int, changed: IntArray) -> None:
    """Write a neighbour of ``order`` to ``changed``: the first ``slots`` entries are in use."""
    nodes = len(order)
    changed[:] = order
    i = np.random.randint(slots)  # noqa: NPY002
    j = np.random.randint(nodes)  # noqa: NPY002
    while j == i:
        j = np.random.randint(nodes)  # noqa: NPY002
    kind = np.random.randint(4)  # noqa: NPY002
    if kind <= 1 or j >= slots:
        changed[i], changed[j] = order[j], order[i]
    elif kind == 2:
        low, high = min(i, j), max(i, j)
        changed[low : high + 1] = order[low : high + 1][::-1]
    else:
        node = order[i]
        if i < j:
            changed[i:j] = order[i + 1 : j + 1]
        else:
            changed[j + 1 : i + 1] = order[j:i]
        changed[j] = node


@numba.njit(cache=True)
def anneal(start: IntArray, slots: int, arrays: Arrays, moves: int, seed: int) -> tuple[IntArray, float]:
    """The best order (N,) of nodes met in ``moves`` moves, its first ``slots`` in use, and its step time."""
    np.random.seed(seed)  # noqa: NPY002
    order, best, changed = start.copy(), start.copy(), start.copy()
    step, tie = step_seconds(order[:slots], arrays)
    score = step + TIE_WEIGHT * tie
    best_step, best_score = step, score
    scale = 0.0
    for _ in range(PROBES):
        _propose(order, slots, changed)
        new_step, new_tie = step_seconds(changed[:slots], arrays)
        scale += max(0.0, new_step + TIE_WEIGHT * new_tie - score) / PROBES
    for move in range(moves):
        _propose(order, slots, changed)
        new_step, new_tie = step_seconds(changed[:slots], arrays)
        new_score = new_step + TIE_WEIGHT * new_tie
        temperature = scale * (1.0 - move / moves) ** 3 + 1e-12 * step
        if new_score <= score or np.random.random() < np.exp((score - new_score) / temperature):  # noqa: NPY002
            order[:] = changed
            score = new_score
            if new_step < best_step or (new_step == best_step and new_score < best_score):
                best[:] = changed
                best_step, best_score = new_step, new_score
    return best, best_step
