"""Compiled: the step time of an assignment of nodes.

Letters: K slots, N nodes, R replicas (data ranks), P pipeline ranks, C chunks (virtual stages), E kinds of event
(``solver.orders``), X kinds of crossing traffic, Y kinds of data parallel ring; q, u and v count pairs of slots.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled_events import Events, event_ends
from solver.kernels import inner, kernel


class Rules(NamedTuple):
    """Conditions of an allowed assignment.

    ``eligible`` (K, N): whether a node may take a slot.
    ``group_slots`` (G, g): groups of slots, padded with ``NO_SLOT``; ``places`` (G, N) numbers the place (leaf,
    rack, zone) of each node, from 0 and below N.  The nodes of a group must sit in at least ``fewest_places`` and
    at most ``most_places`` (G,) different places.
    ``quota_of`` (V, N): the quota that a node in use counts against on each level, -1 = none; at least
    ``fewest_used`` and at most ``most_used`` (W,) of the nodes of a quota may be in use.
    """

    eligible: BoolArray
    group_slots: IntArray
    fewest_places: IntArray
    most_places: IntArray
    places: IntArray
    quota_of: IntArray
    fewest_used: IntArray
    most_used: IntArray


class Uplinks(NamedTuple):
    """Switches whose way up is shared by all flows that leave or enter their part of the cluster at once.

    ``above`` (V, N): the switch over each node on each level, -1 = none; ``bytes_per_s`` (W,): what a switch passes
    in each direction.  Traffic between two nodes passes the switches, on every level, that they do not share.
    ``hop_bytes`` (R, 2, P, q), ``cross_bytes`` (X,), ``ring_bytes`` (2, Y, P) with reductions first: what one pair
    of slots sends at a time; a pair listed more than once counts as often.

    At the same time pass: the transfers of all replicas between two pipeline ranks, one way; the crossing
    collectives of one kind, everywhere; the rings of one kind, of all pipeline ranks.  Nothing that has something
    to send is done before the switches on its way have passed what passes them at that time.
    """

    above: IntArray
    bytes_per_s: FloatArray
    hop_bytes: FloatArray
    cross_bytes: FloatArray
    ring_bytes: FloatArray


class Arrays(NamedTuple):
    """Inputs of the compiled code.  Slot pairs are (sender, receiver), padded with ``NO_SLOT``.

    ``events`` and ``last``: the schedule (see ``solver.pipeline.schedule``).
    ``duration_s`` (E, C), ``local_hop_s`` (), ``slowdown`` (N,): compute on a healthy node, a hop inside a node,
    and how much longer each node computes.
    ``hop_pairs`` (R, 2, P, q, 2), ``hop_s`` (N, N): slots between which rank ``s`` sends forward and backward.
    ``cross_pairs`` (X, R, P, u, 2), ``cross_s`` (X, N, N), ``cross_count`` (X, E, C), ``cross_hidden_s`` (X, E):
    collectives of a chunk that cross nodes, by kind ``x``.
    ``cell_slots`` (R, P, q): slots whose GPUs work on a cell.
    ``ring_pairs`` (Y, P, v, 2), ``reduce_s`` and ``gather_s`` (U, N, N), ``*_local_s`` (Y, P): data parallel rings
    by kind ``y`` (all parameters but experts, and experts), one after the other; ``ring_times`` (Y, P): which of
    the ``U`` matrices holds the times of a ring's pairs.
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
    ring_times: IntArray
    reduce_s: FloatArray
    gather_s: FloatArray
    reduce_local_s: FloatArray
    gather_local_s: FloatArray
    reduce_hidden_s: FloatArray
    gather_hidden_s: FloatArray
    optimizer_s: FloatArray
    rules: Rules
    uplinks: Uplinks


@inner
def _slowdown(assignment: IntArray, slots: IntArray, slowdown: FloatArray) -> float:
    """Slowdown of the slowest node behind ``slots`` (q,)."""
    worst = 1.0
    for slot in slots:
        if slot >= 0:
            worst = max(worst, slowdown[assignment[slot]])
    return worst


@kernel
def violations(assignment: IntArray, rules: Rules) -> int:
    """How often an assignment (K,) breaks the rules, counted as ``Rules`` says."""
    count = 0
    for slot in range(len(assignment)):
        count += not rules.eligible[slot, assignment[slot]]
    seen = np.full(len(rules.eligible[0]), -1, dtype=np.int64)
    for group in range(len(rules.group_slots)):
        places = 0
        for slot in rules.group_slots[group]:
            if slot >= 0:
                place = rules.places[group, assignment[slot]]
                places += seen[place] != group
                seen[place] = group
        count += max(0, rules.fewest_places[group] - places) + max(0, places - rules.most_places[group])
    used = np.zeros(len(rules.most_used), dtype=np.int64)
    for quota_of in rules.quota_of:
        for node in assignment:
            if quota_of[node] >= 0:
                used[quota_of[node]] += 1
    for quota in range(len(used)):
        count += max(0, rules.fewest_used[quota] - used[quota]) + max(0, used[quota] - rules.most_used[quota])
    return count


@inner
def _pass(
    assignment: IntArray, pairs: IntArray, sent_bytes: FloatArray, uplinks: Uplinks, shared_s: FloatArray
) -> None:
    """Add to ``shared_s`` (2, W) the seconds in which pairs (u, 2) that send ``sent_bytes`` (u,) pass each switch.

    Row 0 is the way up, at the senders' side, and row 1 the way down.
    """
    for u in range(len(pairs)):
        if pairs[u, 0] >= 0 and pairs[u, 0] != pairs[u, 1]:
            for above in uplinks.above:
                up, down = above[assignment[pairs[u, 0]]], above[assignment[pairs[u, 1]]]
                if up != down and up >= 0:
                    shared_s[0, up] += sent_bytes[u] / uplinks.bytes_per_s[up]
                if up != down and down >= 0:
                    shared_s[1, down] += sent_bytes[u] / uplinks.bytes_per_s[down]


@kernel
def shared_seconds(assignment: IntArray, arrays: Arrays) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Seconds in which each switch passes what passes it at the same time, up and down.

    For transfers (2, P, 2, W), crossing collectives (X, 2, W), and rings (2, Y, 2, W), reductions first.
    """
    uplinks, switches = arrays.uplinks, len(arrays.uplinks.bytes_per_s)
    replicas, _, ranks = arrays.hop_pairs.shape[:3]
    hops = np.zeros((2, ranks, 2, switches))
    cross = np.zeros((len(arrays.cross_pairs), 2, switches))
    rings = np.zeros((2, len(arrays.ring_pairs), 2, switches))
    if switches == 0:
        return hops, cross, rings
    for s in range(ranks):
        for r in range(replicas):
            for way in range(2):
                sent_bytes = uplinks.hop_bytes[r, way, s]
                _pass(assignment, arrays.hop_pairs[r, way, s], sent_bytes, uplinks, hops[way, s])
            for x in range(len(cross)):
                sent_bytes = np.full(arrays.cross_pairs.shape[3], uplinks.cross_bytes[x])
                _pass(assignment, arrays.cross_pairs[x, r, s], sent_bytes, uplinks, cross[x])
        for kind in range(2):
            for y in range(len(arrays.ring_pairs)):
                sent_bytes = np.full(arrays.ring_pairs.shape[2], uplinks.ring_bytes[kind, y, s])
                _pass(assignment, arrays.ring_pairs[y, s], sent_bytes, uplinks, rings[kind, y])
    return hops, cross, rings


@kernel
def slowest_pair(
    assignment: IntArray,
    pairs: IntArray,
    between_s: FloatArray,
    inside_s: float,
    above: IntArray,
    shared_s: FloatArray,
) -> float:
    """The largest of ``between_s`` (N, N) over slot pairs (u, 2); a pair on one slot takes ``inside_s``.

    A pair that sends anything also waits for the switches ``above`` (V, N) on its way, ``shared_s`` (2, W).
    """
    worst = 0.0
    for u in range(len(pairs)):
        a, b = pairs[u, 0], pairs[u, 1]
        if a < 0:
            continue
        seconds = inside_s if a == b else between_s[assignment[a], assignment[b]]
        worst = max(worst, seconds)
        if a != b and seconds > 0.0:
            for level in above:
                up, down = level[assignment[a]], level[assignment[b]]
                if up != down and up >= 0:
                    worst = max(worst, shared_s[0, up])
                if up != down and down >= 0:
                    worst = max(worst, shared_s[1, down])
    return worst


@kernel
def replica_inputs(
    assignment: IntArray,
    arrays: Arrays,
    replica: int,
    shared_s: tuple[FloatArray, FloatArray, FloatArray],
    duration_s: FloatArray,
    delay_s: FloatArray,
) -> None:
    """Fill ``duration_s`` (E, C) and ``delay_s`` (2, P) of one replica; ``shared_s`` is from ``shared_seconds``."""
    # chunk by chunk: slices made for every cell cost more than the simulation
    ranks, above, hop_s = arrays.hop_pairs.shape[2], arrays.uplinks.above, arrays.hop_s
    for s in range(ranks):
        slowdown = _slowdown(assignment, arrays.cell_slots[replica, s], arrays.slowdown)
        for way in range(2):
            pairs, shared = arrays.hop_pairs[replica, way, s], shared_s[0][way, s]
            delay_s[way, s] = slowest_pair(assignment, pairs, hop_s, arrays.local_hop_s, above, shared)
        for kind in range(len(duration_s)):
            for c in range(s, duration_s.shape[1], ranks):
                duration_s[kind, c] = arrays.duration_s[kind, c] * slowdown
        for x in range(len(arrays.cross_pairs)):
            pairs, shared = arrays.cross_pairs[x, replica, s], shared_s[1][x]
            hop = slowest_pair(assignment, pairs, arrays.cross_s[x], 0.0, above, shared)
            for kind in range(len(duration_s)):
                exposed = max(0.0, hop - arrays.cross_hidden_s[x, kind])
                for c in range(s, duration_s.shape[1], ranks):
                    duration_s[kind, c] += arrays.cross_count[x, kind, c] * exposed


@kernel
def exposed_rings(
    assignment: IntArray,
    arrays: Arrays,
    shared_s: tuple[FloatArray, FloatArray, FloatArray],
    reduce_s: FloatArray,
    gather_s: FloatArray,
) -> None:
    """Fill the exposed gradient reduction and parameter gather (P,) under ``assignment``.

    ``shared_s`` is what ``shared_seconds`` says of the assignment.
    """
    above = arrays.uplinks.above
    for s in range(len(reduce_s)):
        reduce_s[s], gather_s[s] = -arrays.reduce_hidden_s[s], -arrays.gather_hidden_s[s]
        for y in range(len(arrays.ring_pairs)):
            pairs, times = arrays.ring_pairs[y, s], arrays.ring_times[y, s]
            reduce = slowest_pair(assignment, pairs, arrays.reduce_s[times], 0.0, above, shared_s[2][0, y])
            gather = slowest_pair(assignment, pairs, arrays.gather_s[times], 0.0, above, shared_s[2][1, y])
            reduce_s[s] += max(arrays.reduce_local_s[y, s], reduce)
            gather_s[s] += max(arrays.gather_local_s[y, s], gather)
        reduce_s[s], gather_s[s] = max(0.0, reduce_s[s]), max(0.0, gather_s[s])


@kernel
def step_seconds(assignment: IntArray, arrays: Arrays) -> tuple[float, float]:
    """Step time of an assignment (K,), and a tie-breaker: the mean over replicas and ranks of the same."""
    replicas, ranks = arrays.hop_pairs.shape[0], arrays.hop_pairs.shape[2]
    shared_s = shared_seconds(assignment, arrays)
    reduce_s, gather_s = np.empty(ranks), np.empty(ranks)
    exposed_rings(assignment, arrays, shared_s, reduce_s, gather_s)
    duration_s, delay_s = np.empty(arrays.duration_s.shape), np.empty((2, ranks))
    worst, total = 0.0, 0.0
    for replica in range(replicas):
        replica_inputs(assignment, arrays, replica, shared_s, duration_s, delay_s)
        ends = event_ends(arrays.events, duration_s, delay_s)
        for s in range(ranks):
            end = ends[arrays.last[s]] + reduce_s[s]
            worst = max(worst, end)
            total += end
    tail = 0.0
    for s in range(ranks):
        tail = max(tail, arrays.optimizer_s[s] + gather_s[s])
    return worst + tail, total / (replicas * ranks) + tail
