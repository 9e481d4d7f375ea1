"""The compiled loop of the proof by enumeration: depth first over slots, cut off by what is already too slow.

Letters as in ``solver.compiled``: K slots, N nodes, R replicas, P pipeline ranks, C chunks, E kinds of event, X and
Y kinds of traffic.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled import Arrays, Rules
from solver.compiled_events import Events, fill_ends, walk_back
from solver.kernels import inner, kernel

PATHS: Final = 48
"""Critical paths remembered: the longest of them often rules out an assignment without a simulation."""
COMPLETE: Final = 0
"""Every assignment was looked at or ruled out."""
PAUSED: Final = 1
TO_PRICE: Final = 2


class LeastTimes(NamedTuple):
    """The least a slot pair can take when only one of its nodes is known, or neither.

    ``leaving`` and ``entering`` (F, N), ``any_pair`` (F,): by matrix, in the order hop, crossing kinds (X), reduce
    matrices (U) and gather matrices (U).
    """

    leaving: FloatArray
    entering: FloatArray
    any_pair: FloatArray


class Tree(NamedTuple):
    """Facts for the enumeration, and where it stands.

    ``order`` (K,): slots in the order in which they are filled.  ``replicas`` (K, R) and ``stages`` (K, P): whether
    filling a slot changes a replica's pipeline or a rank's rings.  ``twin`` (N,): the class of interchangeable
    nodes, of which the lowest unused one is enough.  ``first`` (R,): slots whose classes may not lie below that of
    ``first[0]``, because replicas may be rotated; empty where they may not.
    ``depth`` (1,), ``choice`` (K,), ``node_of`` (K,), ``used`` (N,): the branch at which the loop stands.
    ``ends`` (K + 1, R, P), ``reduce`` and ``gather`` (K + 1, P): bounds at each depth of that branch.
    ``work`` (PATHS, E, C), ``hops`` (PATHS, 2, P), ``rank`` (PATHS,), ``paths`` (2,): remembered paths, how many
    there are and where the next one goes.
    """

    order: IntArray
    replicas: BoolArray
    stages: BoolArray
    twin: IntArray
    first: IntArray
    depth: IntArray
    choice: IntArray
    node_of: IntArray
    used: BoolArray
    ends: FloatArray
    reduce: FloatArray
    gather: FloatArray
    work: IntArray
    hops: IntArray
    rank: IntArray
    paths: IntArray


@inner
def _slowest(
    node_of: IntArray, pairs: IntArray, between_s: FloatArray, inside_s: float, least: LeastTimes, matrix: int
) -> float:
    """At most the largest of ``between_s`` over slot pairs (u, 2), some of whose nodes are not chosen yet (-1)."""
    worst = 0.0
    for u in range(len(pairs)):
        a, b = pairs[u, 0], pairs[u, 1]
        if a < 0:
            continue
        if a == b:
            worst = max(worst, inside_s)
        elif node_of[a] >= 0 and node_of[b] >= 0:
            worst = max(worst, between_s[node_of[a], node_of[b]])
        elif node_of[a] >= 0:
            worst = max(worst, least.leaving[matrix, node_of[a]])
        elif node_of[b] >= 0:
            worst = max(worst, least.entering[matrix, node_of[b]])
        else:
            worst = max(worst, least.any_pair[matrix])
    return worst


@inner
def _inputs(
    node_of: IntArray,
    arrays: Arrays,
    least: LeastTimes,
    replica: int,
    duration_s: FloatArray,
    delay_s: FloatArray,
) -> None:
    """Fill ``duration_s`` (E, C) and ``delay_s`` (2, P) of one replica, at most what they will be."""
    ranks = arrays.hop_pairs.shape[2]
    for s in range(ranks):
        slowdown = 1.0
        for slot in arrays.cell_slots[replica, s]:
            if slot >= 0 and node_of[slot] >= 0:
                slowdown = max(slowdown, arrays.slowdown[node_of[slot]])
        for way in range(2):
            pairs = arrays.hop_pairs[replica, way, s]
            delay_s[way, s] = _slowest(node_of, pairs, arrays.hop_s, arrays.local_hop_s, least, 0)
        for kind in range(len(duration_s)):
            duration_s[kind, s::ranks] = arrays.duration_s[kind, s::ranks] * slowdown
        for x in range(len(arrays.cross_pairs)):
            hop = _slowest(node_of, arrays.cross_pairs[x, replica, s], arrays.cross_s[x], 0.0, least, 1 + x)
            for kind in range(len(duration_s)):
                exposed = max(0.0, hop - arrays.cross_hidden_s[x, kind])
                if exposed > 0.0:
                    duration_s[kind, s::ranks] += arrays.cross_count[x, kind, s::ranks] * exposed


@inner
def _rings(
    node_of: IntArray, arrays: Arrays, least: LeastTimes, s: int, reduce_s: FloatArray, gather_s: FloatArray
) -> None:
    """Write what is exposed of the rings of rank ``s``, at most what it will be."""
    first = 1 + len(arrays.cross_pairs)
    reduce, gather = -arrays.reduce_hidden_s[s], -arrays.gather_hidden_s[s]
    for y in range(len(arrays.ring_pairs)):
        pairs, times = arrays.ring_pairs[y, s], arrays.ring_times[y, s]
        slowest = _slowest(node_of, pairs, arrays.reduce_s[times], 0.0, least, first + times)
        reduce += max(arrays.reduce_local_s[y, s], slowest)
        matrix = first + len(arrays.reduce_s) + times
        slowest = _slowest(node_of, pairs, arrays.gather_s[times], 0.0, least, matrix)
        gather += max(arrays.gather_local_s[y, s], slowest)
    reduce_s[s], gather_s[s] = max(0.0, reduce), max(0.0, gather)


@inner
def _remember(tree: Tree, s: int, event: int, events: Events, ends: FloatArray, delay_s: FloatArray) -> None:
    """Keep what lies on the longest path to the end of ``event``, the last one of rank ``s``."""
    p = tree.paths[1]
    tree.paths[1] = (p + 1) % len(tree.rank)
    tree.paths[0] = max(tree.paths[0], p + 1)
    work, hops = tree.work[p], tree.hops[p]
    work[:] = 0
    hops[:] = 0
    tree.rank[p] = s
    walk_back(event, events, ends, delay_s, work, hops)


@inner
def _path_too_long(
    tree: Tree, duration_s: FloatArray, delay_s: FloatArray, reduce_s: FloatArray, limit_s: float
) -> bool:
    """Whether some remembered path alone ends after ``limit_s`` with its rank's reduction."""
    for p in range(tree.paths[0]):
        end = reduce_s[tree.rank[p]]
        for kind in range(len(duration_s)):
            for c in range(duration_s.shape[1]):
                end += tree.work[p, kind, c] * duration_s[kind, c]
        for way in range(2):
            for s in range(delay_s.shape[1]):
                end += tree.hops[p, way, s] * delay_s[way, s]
        if end >= limit_s:
            return True
    return False


@inner
def _last_end(arrays: Arrays, ends: FloatArray, reduce_s: FloatArray, gather_s: FloatArray) -> tuple[float, float]:
    """The last reduction's end, and what optimizer and gather take after it."""
    worst, tail = 0.0, 0.0
    for s in range(len(reduce_s)):
        tail = max(tail, arrays.optimizer_s[s] + gather_s[s])
        for r in range(len(ends)):
            worst = max(worst, ends[r, s] + reduce_s[s])
    return worst, tail


@inner
def _bound(
    tree: Tree,
    arrays: Arrays,
    least: LeastTimes,
    depth: int,
    cutoff_s: float,
    duration_s: FloatArray,
    delay_s: FloatArray,
    event_s: FloatArray,
) -> tuple[float, int]:
    """Step time that no completion of the branch beats, filling depth ``depth + 1``; and how often it simulated.

    It gives up, with some value of at least ``cutoff_s``, as soon as that is certain.
    """
    slot, ranks = tree.order[depth], arrays.hop_pairs.shape[2]
    ends, reduce_s, gather_s = tree.ends[depth + 1], tree.reduce[depth + 1], tree.gather[depth + 1]
    ends[:] = tree.ends[depth]
    reduce_s[:] = tree.reduce[depth]
    gather_s[:] = tree.gather[depth]
    for s in range(ranks):
        if tree.stages[slot, s]:
            _rings(tree.node_of, arrays, least, s, reduce_s, gather_s)
    worst, tail = _last_end(arrays, ends, reduce_s, gather_s)
    if worst + tail >= cutoff_s:
        return worst + tail, 0
    simulated = 0
    for r in range(len(ends)):
        if not tree.replicas[slot, r]:
            continue
        _inputs(tree.node_of, arrays, least, r, duration_s, delay_s)
        if _path_too_long(tree, duration_s, delay_s, reduce_s, cutoff_s - tail):
            return cutoff_s, simulated
        fill_ends(arrays.events, duration_s, delay_s, event_s)
        simulated += 1
        for s in range(ranks):
            ends[r, s] = event_s[arrays.last[s]]
            worst = max(worst, ends[r, s] + reduce_s[s])
            if worst + tail >= cutoff_s:
                _remember(tree, s, arrays.last[s], arrays.events, event_s, delay_s)
                return worst + tail, simulated
    return worst + tail, simulated


@kernel
def root_bounds(tree: Tree, arrays: Arrays, least: LeastTimes) -> None:
    """Fill depth 0 of the bounds, where no slot has a node yet."""
    ranks = arrays.hop_pairs.shape[2]
    duration_s, delay_s = np.empty(arrays.duration_s.shape), np.empty((2, ranks))
    event_s = np.empty(len(arrays.events.chunk))
    for s in range(ranks):
        _rings(tree.node_of, arrays, least, s, tree.reduce[0], tree.gather[0])
    for r in range(tree.ends.shape[1]):
        _inputs(tree.node_of, arrays, least, r, duration_s, delay_s)
        fill_ends(arrays.events, duration_s, delay_s, event_s)
        for s in range(ranks):
            tree.ends[0, r, s] = event_s[arrays.last[s]]


@inner
def _allowed(tree: Tree, arrays: Arrays, slot: int, node: int) -> bool:
    """Whether ``node`` may take ``slot`` on this branch, and need be tried there."""
    if tree.used[node] or not arrays.rules.eligible[slot, node]:
        return False
    for twin in range(node):
        if tree.twin[twin] == tree.twin[node] and not tree.used[twin]:
            return False
    for r in range(len(tree.first)):
        if tree.first[r] == slot and r > 0 and tree.node_of[tree.first[0]] >= 0:
            return bool(tree.twin[node] >= tree.twin[tree.node_of[tree.first[0]]])
    return True


@inner
def _keeps_rules(tree: Tree, rules: Rules, complete: bool) -> bool:
    """Whether the slots filled so far can still obey all rules; if ``complete``, whether they do."""
    seen = np.zeros(len(tree.twin), dtype=np.bool_)
    for g in range(len(rules.group_slots)):
        seen[:] = False
        places = 0
        for k in rules.group_slots[g]:
            if k >= 0 and tree.node_of[k] >= 0 and not seen[rules.places[g, tree.node_of[k]]]:
                seen[rules.places[g, tree.node_of[k]]] = True
                places += 1
        if places > rules.most_places[g] or (complete and places < rules.fewest_places[g]):
            return False
    used = np.zeros(len(rules.most_used), dtype=np.int64)
    for node in tree.node_of:
        for v in range(len(rules.quota_of)):
            if node >= 0 and rules.quota_of[v, node] >= 0:
                used[rules.quota_of[v, node]] += 1
    for w in range(len(used)):
        if used[w] > rules.most_used[w] or (complete and used[w] < rules.fewest_used[w]):
            return False
    return True


@kernel
def enumerate_slice(
    tree: Tree, arrays: Arrays, least: LeastTimes, best: IntArray, cutoff_s: float, work: int
) -> tuple[float, int, int]:
    """Go on enumerating for ``work`` simulations; the new cutoff, what is left of the work, and how it stands.

    ``best`` (K,) is overwritten with every assignment that beats the cutoff.  Where switches are shared, the step
    without their limits is only a bound: the loop stops at each such assignment for the caller to price it.
    """
    shared = len(arrays.uplinks.bytes_per_s) > 0
    slots, nodes = len(tree.order), len(tree.twin)
    duration_s, delay_s = np.empty(arrays.duration_s.shape), np.empty((2, arrays.hop_pairs.shape[2]))
    event_s = np.empty(len(arrays.events.chunk))
    spent = 0
    while spent < work:
        depth = tree.depth[0]
        if depth < 0:
            return cutoff_s, work - spent, COMPLETE
        slot = tree.order[depth]
        if tree.node_of[slot] >= 0:
            tree.used[tree.node_of[slot]] = False
            tree.node_of[slot] = -1
        node = tree.choice[depth]
        while node < nodes and not _allowed(tree, arrays, slot, node):
            node += 1
        tree.choice[depth] = node + 1
        spent += 1
        if node >= nodes:
            tree.choice[depth] = 0
            tree.depth[0] = depth - 1
            continue
        tree.node_of[slot] = node
        tree.used[node] = True
        if not _keeps_rules(tree, arrays.rules, depth + 1 == slots):
            continue
        step_s, simulated = _bound(tree, arrays, least, depth, cutoff_s, duration_s, delay_s, event_s)
        spent += simulated
        if step_s >= cutoff_s:
            continue
        if depth + 1 < slots:
            tree.depth[0] = depth + 1
            continue
        best[:] = tree.node_of
        if shared:
            return cutoff_s, work - spent, TO_PRICE
        cutoff_s = step_s
    return cutoff_s, 0, PAUSED
