"""Annealing over assignments of nodes, compiled: a move is judged by what it changes (docs/placement.md).

A move changes the terms of the slots that it touches.  Replicas whose terms change are bounded from below by their
last critical path under the new times; only where that does not rule the move out are they simulated.  Letters and
data as in ``solver.search_types``.
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled import Rules
from solver.search_types import (
    Compute,
    Draft,
    Exposure,
    IndexArray,
    Layout,
    Paths,
    Pipeline,
    Sharing,
    State,
    Tables,
    Terms,
)

TIE_WEIGHT: Final = 1e-3
"""Weight of the means over replicas and rings beside the slowest: they lead the search over plateaus."""
BUFFERS: Final = 4
"""Replicas whose events are kept while a move is judged; where it changes more, those are simulated once more."""


@numba.njit(cache=True, nogil=True)
def _simulate(rows: IndexArray, work: FloatArray, delay: FloatArray, ends: FloatArray) -> None:
    """Fill ``ends`` (E + 1,) of the events, counted from 1."""
    ends[0] = 0.0
    for event in range(len(rows)):
        by_rank = ends[rows[event, 0]]
        by_feed = ends[rows[event, 1]] + delay[rows[event, 2]]
        start = max(by_rank, by_feed)
        ends[event + 1] = start + delay[rows[event, 3]] + work[rows[event, 4]]


@numba.njit(cache=True, nogil=True)
def _walk_back(
    event: np.int64, rows: IndexArray, ends: FloatArray, delay: FloatArray, work: FloatArray, hops: FloatArray
) -> None:
    """Count in ``work`` (2 C,) and ``hops`` (D,) what lies on the longest path to the end of ``event``."""
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


@numba.njit(cache=True, nogil=True)
def _term(t: int, order: IntArray, terms: Terms) -> float:
    """The slowest pair of a term."""
    worst: float = terms.floor[t]
    between = terms.seconds[terms.matrix[t]]
    for p in range(terms.first[t], terms.first[t + 1]):
        pair = between[order[terms.pairs[p, 0]], order[terms.pairs[p, 1]]]
        worst = max(worst, pair)
    return worst


@numba.njit(cache=True, nogil=True)
def _share(order: IntArray, terms: Terms, sharing: Sharing, shared: FloatArray) -> None:
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


@numba.njit(cache=True, nogil=True)
def _shared_term(t: int, order: IntArray, terms: Terms, above: IntArray, shared: FloatArray) -> float:
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


@numba.njit(cache=True, nogil=True)
def _cell_work(s: int, ranks: int, cell: FloatArray, compute: Compute, work: FloatArray) -> None:
    """Fill the durations in ``work`` (2 C,) of the chunks on rank ``s`` from the terms (1 + X,) of its cell."""
    duration_s, count, hidden = compute
    chunks = duration_s.shape[1]
    for way in range(2):
        for c in range(s, chunks, ranks):
            total = duration_s[way, c] * cell[0]
            for x in range(len(count)):
                total += count[x, way, c] * max(0.0, cell[1 + x] - hidden[x, way])
            work[way * chunks + c] = total


@numba.njit(cache=True, nogil=True)
def _expose(value: FloatArray, layout: Layout, exposure: Exposure, rings: FloatArray) -> None:
    """Fill the exposed reductions and gathers (2, P)."""
    kinds = (layout.gathers - layout.reduces) // layout.ranks
    for s in range(layout.ranks):
        reduce, gather = -exposure.reduce_hidden_s[s], -exposure.gather_hidden_s[s]
        for y in range(s * kinds, s * kinds + kinds):
            reduce += value[layout.reduces + y]
            gather += value[layout.gathers + y]
        rings[0, s], rings[1, s] = max(0.0, reduce), max(0.0, gather)


@numba.njit(cache=True, nogil=True)
def _latest(ends: FloatArray, reduce: FloatArray) -> float:
    """When the last of a replica's ranks has reduced its gradients."""
    latest = 0.0
    for s in range(len(reduce)):
        end = ends[s] + reduce[s]
        latest = max(latest, end)
    return latest


@numba.njit(cache=True, nogil=True)
def _score(cost: FloatArray, rings: FloatArray, optimizer_s: FloatArray) -> tuple[float, float]:
    """What the search minimises, the step time and a little of the means beside it, and the step time."""
    worst, mean, tail, ringing = 0.0, 0.0, 0.0, 0.0
    for r in range(len(cost)):
        worst = max(worst, cost[r])
        mean += cost[r]
    for s in range(len(optimizer_s)):
        tail = max(tail, optimizer_s[s] + rings[1, s])
        ringing += rings[0, s] + rings[1, s]
    step = worst + tail
    return step + TIE_WEIGHT * (mean / len(cost) + ringing / len(optimizer_s)), step


@numba.njit(cache=True, nogil=True)
def _violations(assignment: IntArray, rules: Rules) -> int:
    """``solver.compiled.violations``."""
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


@numba.njit(cache=True, nogil=True)
def refresh(tables: Tables, state: State) -> None:
    """Work out everything in ``state`` from its order, which is the best known then."""
    layout, pipeline, sharing = tables.layout, tables.pipeline, tables.sharing
    shared = np.zeros((sharing.phase.max() + 1, 2, len(sharing.bytes_per_s)))
    _share(state.order, tables.terms, sharing, shared)
    for t in range(len(state.value)):
        state.value[t] = _shared_term(t, state.order, tables.terms, sharing.above, shared[sharing.phase[t]])
    _expose(state.value, layout, tables.exposure, state.rings)
    ends = np.empty(len(pipeline.rows) + 1)
    for r in range(layout.replicas):
        for s in range(layout.ranks):
            cell = layout.cells + (r * layout.ranks + s) * layout.kinds
            values = state.value[cell : cell + layout.kinds]
            _cell_work(s, layout.ranks, values, tables.compute, state.work[r])
        delay = state.value[r * layout.delays : (r + 1) * layout.delays]
        _simulate(pipeline.rows, state.work[r], delay, ends)
        for s in range(layout.ranks):
            state.ends[r, s] = ends[pipeline.last[s]]
        state.cost[r] = _latest(state.ends[r], state.rings[0])
        _note_path(r, pipeline, ends, delay, state.paths, (state.ends[r] + state.rings[0]).argmax())
    state.scores[0], step = _score(state.cost, state.rings, tables.exposure.optimizer_s)
    state.scores[1] = _violations(state.order[: tables.slots], tables.rules) if tables.ruled else 0
    state.best[:] = state.order
    state.scores[3], state.scores[4], state.scores[5] = state.scores[1], step, state.scores[0]


@numba.njit(cache=True, nogil=True)
def _note_path(
    r: int, pipeline: Pipeline, ends: FloatArray, delay: FloatArray, paths: Paths, rank: np.int64
) -> None:
    """Keep the critical path of replica ``r`` to the last backward on ``rank``."""
    paths.rank[r] = rank
    _walk_back(np.int64(pipeline.last[rank]), pipeline.rows, ends, delay, paths.work[r], paths.hops[r])


@numba.njit(cache=True, nogil=True)
def _propose(order: IntArray, slots: int, moved: IntArray, nodes: IntArray) -> int:
    """Write which slots a move gives which nodes; how many."""
    size = len(order)
    i = np.random.randint(slots)  # noqa: NPY002
    j = np.random.randint(size)  # noqa: NPY002
    while j == i:
        j = np.random.randint(size)  # noqa: NPY002
    kind = np.random.randint(4)  # noqa: NPY002
    if kind <= 1 or j >= slots:
        moved[0], moved[1] = i, j
        nodes[0], nodes[1] = order[j], order[i]
        return 2
    low, high = min(i, j), max(i, j)
    for k in range(high - low + 1):
        moved[k] = low + k
        if kind == 2:
            nodes[k] = order[high - k]
        elif i < j:
            nodes[k] = order[low + k + 1] if low + k < high else order[low]
        else:
            nodes[k] = order[low + k - 1] if k > 0 else order[high]
    return high - low + 1


@numba.njit(cache=True, nogil=True)
def _exchange(order: IntArray, moved: IntArray, nodes: IntArray, count: int) -> None:
    """Make a move, or take it back: what stands in ``order`` and in ``nodes`` change places."""
    for k in range(count):
        order[moved[k]], nodes[k] = nodes[k], order[moved[k]]


@numba.njit(cache=True, nogil=True)
def _change_terms(count: int, move: int, order: IntArray, value: FloatArray, terms: Terms, draft: Draft) -> int:
    """Renew the terms of all slots moved; how many are different now."""
    changed = 0
    stamp, moved, before, changes = draft.term_stamp, draft.moved, draft.before, draft.terms
    for k in range(count):
        for index in range(terms.slot_first[moved[k]], terms.slot_first[moved[k] + 1]):
            t = terms.slot_terms[index]
            if stamp[t] != move:
                stamp[t] = move
                renewed = _term(t, order, terms)
                if renewed != value[t]:
                    changes[changed], before[changed] = t, value[t]
                    value[t] = renewed
                    changed += 1
    return changed


@numba.njit(cache=True, nogil=True)
def _change_all(order: IntArray, value: FloatArray, terms: Terms, sharing: Sharing, draft: Draft) -> int:
    """Renew all terms, as a move may load any switch; how many are different now."""
    changed = 0
    _share(order, terms, sharing, draft.shared)
    for t in range(len(value)):
        renewed = _shared_term(t, order, terms, sharing.above, draft.shared[sharing.phase[t]])
        if renewed != value[t]:
            draft.terms[changed], draft.before[changed] = t, value[t]
            value[t] = renewed
            changed += 1
    return changed


@numba.njit(cache=True, nogil=True)
def _bound_replicas(changed: int, move: int, tables: Tables, state: State, draft: Draft) -> tuple[int, int]:
    """Fill the least cost of each replica, of those with new times by their paths; how many cells and replicas.

    The path of a replica is in the graph whatever the times are, so its length never exceeds the new end.
    """
    layout, paths = tables.layout, state.paths
    cells, replicas, rings = 0, 0, False
    for index in range(changed):
        t = draft.terms[index]
        if t >= layout.reduces:
            rings = True
            continue
        cell = (t - layout.cells) // layout.kinds
        r = t // layout.delays if t < layout.cells else cell // layout.ranks
        if draft.replica_stamp[r] != move:
            draft.replica_stamp[r] = move
            draft.replicas[replicas] = r
            draft.bound[r] = state.ends[r, paths.rank[r]]
            replicas += 1
        if t < layout.cells:
            difference = state.value[t] - draft.before[index]
            draft.bound[r] += paths.hops[r, t - r * layout.delays] * difference
        elif draft.cell_stamp[cell] != move:
            draft.cell_stamp[cell] = move
            draft.cells[cells] = cell
            cells += 1
            at, s, renewed = layout.cells + cell * layout.kinds, cell % layout.ranks, draft.work[r]
            _cell_work(s, layout.ranks, state.value[at : at + layout.kinds], tables.compute, renewed)
            for c in range(s, len(renewed), layout.ranks):
                draft.bound[r] += paths.work[r, c] * (renewed[c] - state.work[r, c])
    if rings:
        _expose(state.value, layout, tables.exposure, draft.rings)
    else:
        draft.rings[:] = state.rings
    for r in range(layout.replicas):
        if draft.replica_stamp[r] == move:
            draft.cost[r] = draft.bound[r] + draft.rings[0, paths.rank[r]]
        else:
            draft.cost[r] = _latest(state.ends[r], draft.rings[0]) if rings else state.cost[r]
    return cells, replicas


@numba.njit(cache=True, nogil=True)
def _simulate_replicas(
    replicas: int, limit: float, tables: Tables, state: State, draft: Draft
) -> tuple[float, float]:
    """The score and step time of the move, or of what is certain when its score exceeds ``limit``."""
    layout, pipeline, optimizer_s = tables.layout, tables.pipeline, tables.exposure.optimizer_s
    score, step = _score(draft.cost, draft.rings, optimizer_s)
    for index in range(replicas):
        if score > limit:
            break
        r = draft.replicas[index]
        ends = draft.events[min(index, BUFFERS)]
        _simulate(pipeline.rows, draft.work[r], state.value[r * layout.delays : (r + 1) * layout.delays], ends)
        for s in range(layout.ranks):
            draft.ends[r, s] = ends[pipeline.last[s]]
        draft.cost[r] = _latest(draft.ends[r], draft.rings[0])
        score, step = _score(draft.cost, draft.rings, optimizer_s)
    return score, step


@numba.njit(cache=True, nogil=True)
def _accept(cells: int, replicas: int, tables: Tables, state: State, draft: Draft) -> None:
    """Make the draft the state."""
    layout, pipeline = tables.layout, tables.pipeline
    state.rings[:] = draft.rings
    state.cost[:] = draft.cost
    for index in range(cells):
        r, s = draft.cells[index] // layout.ranks, draft.cells[index] % layout.ranks
        state.work[r, s :: layout.ranks] = draft.work[r, s :: layout.ranks]
    for index in range(replicas):
        r = draft.replicas[index]
        state.ends[r] = draft.ends[r]
        ends = draft.events[min(index, BUFFERS)]
        delay = state.value[r * layout.delays : (r + 1) * layout.delays]
        if index >= BUFFERS:
            _simulate(pipeline.rows, state.work[r], delay, ends)
        _note_path(r, pipeline, ends, delay, state.paths, (state.ends[r] + state.rings[0]).argmax())


@numba.njit(cache=True, nogil=True)
def _take_back(changed: int, cells: int, count: int, layout: Layout, state: State, draft: Draft) -> None:
    """Make the state what it was before the move."""
    _exchange(state.order, draft.moved, draft.nodes, count)
    for index in range(changed):
        state.value[draft.terms[index]] = draft.before[index]
    for index in range(cells):
        r, s = draft.cells[index] // layout.ranks, draft.cells[index] % layout.ranks
        draft.work[r, s :: layout.ranks] = state.work[r, s :: layout.ranks]


@numba.njit(cache=True, nogil=True)
def _new_draft(tables: Tables, state: State) -> Draft:
    """Room for moves, nothing changed yet."""
    size, layout, terms = len(state.order), tables.layout, len(state.value)
    cells = layout.replicas * layout.ranks
    return Draft(
        moved=np.empty(size, dtype=np.int64),
        nodes=np.empty(size, dtype=np.int64),
        term_stamp=np.full(terms, -1),
        cell_stamp=np.full(cells, -1),
        replica_stamp=np.full(layout.replicas, -1),
        terms=np.empty(terms, dtype=np.int64),
        before=np.empty(terms),
        cells=np.empty(cells, dtype=np.int64),
        replicas=np.empty(layout.replicas, dtype=np.int64),
        bound=np.empty(layout.replicas),
        work=state.work.copy(),
        ends=state.ends.copy(),
        cost=state.cost.copy(),
        rings=state.rings.copy(),
        events=np.empty((min(layout.replicas, BUFFERS) + 1, len(tables.pipeline.rows) + 1)),
        shared=np.zeros((tables.sharing.phase.max() + 1, 2, len(tables.sharing.bytes_per_s))),
    )


@numba.njit(cache=True, nogil=True)
def anneal_round(tables: Tables, state: State, moves: int, seed: int, hot: float, cold: float) -> None:
    """Try ``moves`` moves, the temperature falling from ``hot`` to ``cold`` seconds in equal ratios.

    With ``hot`` 0 every move is judged and none is taken; what they change on average is noted.
    """
    np.random.seed(seed)  # noqa: NPY002
    layout, draft, scores = tables.layout, _new_draft(tables, state), state.scores
    ratio = (cold / hot) ** (1.0 / max(1, moves)) if hot > 0.0 else 1.0
    temperature, difference = hot, 0.0
    for move in range(moves):
        temperature *= ratio
        count = _propose(state.order, tables.slots, draft.moved, draft.nodes)
        _exchange(state.order, draft.moved, draft.nodes, count)
        broken = _violations(state.order[: tables.slots], tables.rules) if tables.ruled else 0
        if broken > scores[1]:
            _exchange(state.order, draft.moved, draft.nodes, count)
            continue
        if len(tables.sharing.bytes_per_s) > 0:
            changed = _change_all(state.order, state.value, tables.terms, tables.sharing, draft)
        else:
            changed = _change_terms(count, move, state.order, state.value, tables.terms, draft)
        cells, replicas = _bound_replicas(changed, move, tables, state, draft)
        limit = scores[0] - temperature * np.log(1.0 - np.random.random())  # noqa: NPY002
        if hot == 0.0 or broken < scores[1]:
            limit = np.inf
        score, step = _simulate_replicas(replicas, limit, tables, state, draft)
        if hot == 0.0:
            difference += abs(score - scores[0]) / moves
        if hot == 0.0 or score > limit:
            _take_back(changed, cells, count, layout, state, draft)
            continue
        _accept(cells, replicas, tables, state, draft)
        scores[0], scores[1] = score, broken
        if (broken, step, score) < (scores[3], scores[4], scores[5]):
            state.best[:] = state.order
            scores[3], scores[4], scores[5] = broken, step, score
    scores[2] = difference
