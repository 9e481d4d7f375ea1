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

BUFFERS: Final = 4
"""Replicas whose events are kept while a move is judged; where it changes more, those are simulated once more."""
BREAKING: Final = 0.3
"""Share of the moves that break rules that are looked at, at the first temperature; fewer as it falls."""
SHORT: Final = 4
"""Most columns of a short stretch."""
AIMED_MOVES: Final = 4
LINE_MOVES: Final = 6
STRETCH_MOVES: Final = 2
ALL_MOVES: Final = AIMED_MOVES + 2 * LINE_MOVES + STRETCH_MOVES + 4
"""Shares of moves: aimed at what sets the pace, along a replica or a rank, of stretches, of columns, of any two."""


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
def _term(t: int, order: IntArray, terms: Terms, above: IntArray, shared: FloatArray) -> float:
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
def _score(cost: FloatArray, rings: FloatArray, optimizer_s: FloatArray, mean_weight: float) -> tuple[float, float]:
    """What the search minimises, the step time and a share of the means beside it, and the step time."""
    worst, mean, tail, ringing = 0.0, 0.0, 0.0, 0.0
    for r in range(len(cost)):
        worst = max(worst, cost[r])
        mean += cost[r]
    for s in range(len(optimizer_s)):
        tail = max(tail, optimizer_s[s] + rings[1, s])
        ringing += rings[0, s] + rings[1, s]
    step = worst + tail
    return step + mean_weight * (mean / len(cost) + ringing / len(optimizer_s)), step


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
def _note_path(
    r: int, pipeline: Pipeline, ends: FloatArray, delay: FloatArray, paths: Paths, rank: np.int64
) -> None:
    """Keep the critical path of replica ``r`` to the last backward on ``rank``."""
    paths.rank[r] = rank
    _walk_back(np.int64(pipeline.last[rank]), pipeline.rows, ends, delay, paths.work[r], paths.hops[r])


@numba.njit(cache=True, nogil=True)
def _below(number: int) -> int:
    """A random number from 0 and below ``number``."""
    return int(np.random.random() * number)  # noqa: NPY002


@numba.njit(cache=True, nogil=True)
def _give(target: IntArray, source: IntArray, order: IntArray, draft: Draft, count: int) -> int:
    """Give the nodes of the slots ``source`` (q,) to those of ``target``; how many slots move by now."""
    for k in range(len(target)):
        draft.moved[count + k] = target[k]
        draft.nodes[count + k] = order[source[k]]
    return count + len(target)


@numba.njit(cache=True, nogil=True)
def _change_line(kind: int, line: IntArray, order: IntArray, draft: Draft) -> int:
    """Exchange two cells of a line (n, q), reverse a stretch or put one cell elsewhere; how many slots move."""
    if len(line) < 2:
        return 0
    i, j = _below(len(line)), _below(len(line) - 1)
    j += j >= i
    if kind == 0:
        count = _give(line[i], line[j], order, draft, 0)
        return _give(line[j], line[i], order, draft, count)
    low, high, count = min(i, j), max(i, j), 0
    for k in range(low, high + 1):
        if kind == 1:
            source = low + high - k
        elif i < j:
            source = k + 1 if k < high else low
        else:
            source = k - 1 if k > low else high
        count = _give(line[k], line[source], order, draft, count)
    return count


@numba.njit(cache=True, nogil=True)
def _exchange_stretches(grid: IntArray, order: IntArray, draft: Draft) -> int:
    """Exchange two rows of the grid from the start, to the end, or over a few columns; how many slots move."""
    rows, columns = grid.shape[0], grid.shape[1]
    if rows < 2:
        return 0
    a, b = _below(rows), _below(rows - 1)
    b += b >= a
    low, high, kind, count = _below(columns), columns, _below(3), 0
    if kind == 0:
        low, high = 0, low + 1
    elif kind == 1:
        high = min(columns, low + 1 + _below(SHORT))
    for s in range(low, high):
        count = _give(grid[a, s], grid[b, s], order, draft, count)
        count = _give(grid[b, s], grid[a, s], order, draft, count)
    return count


@numba.njit(cache=True, nogil=True)
def _change_columns(grid: IntArray, order: IntArray, draft: Draft) -> int:
    """Exchange two columns of the grid, or reverse the order of some rows; how many slots move."""
    rows, columns = grid.shape[0], grid.shape[1]
    by_row, count = _below(2) == 0, 0
    i, j = _below(rows if by_row else columns), _below(rows if by_row else columns)
    if not by_row and i != j:
        for r in range(rows):
            count = _give(grid[r, i], grid[r, j], order, draft, count)
            count = _give(grid[r, j], grid[r, i], order, draft, count)
    if by_row and i != j:
        low, high = min(i, j), max(i, j)
        for r in range(low, high + 1):
            for s in range(columns if 2 * r != low + high else 0):
                count = _give(grid[r, s], grid[low + high - r, s], order, draft, count)
    return count


@numba.njit(cache=True, nogil=True)
def _slow_term(layout: Layout, terms: Terms, state: State) -> int:
    """Of what sets the pace, the slowest replica or the ring after it, a term with a pair of slots; or -1."""
    r = int(state.cost.argmax())
    if _below(3) == 0:
        kinds = (layout.gathers - layout.reduces) // layout.ranks
        t = layout.reduces + state.paths.rank[r] * kinds + _below(kinds)
        return t if terms.first[t] < terms.first[t + 1] else -1
    chosen, slowest = -1, -1.0
    for _ in range(3):
        s = _below(layout.delays - 1)
        t = r * layout.delays + s
        weight = state.value[t] * (1.0 + state.paths.hops[r, s])
        if weight > slowest and terms.first[t] < terms.first[t + 1]:
            chosen, slowest = t, weight
    return chosen


@numba.njit(cache=True, nogil=True)
def _aim(tables: Tables, state: State, draft: Draft) -> int:
    """Exchange a node of the slowest pair of what sets the pace, mostly for one near its other node."""
    t, terms, order = _slow_term(tables.layout, tables.terms, state), tables.terms, state.order
    if t < 0:
        return 0
    between, pair, slowest = terms.seconds[terms.matrix[t]], 0, -1.0
    for p in range(terms.first[t], terms.first[t + 1]):
        seconds = between[order[terms.pairs[p, 0]], order[terms.pairs[p, 1]]]
        if seconds > slowest:
            pair, slowest = p, seconds
    side = _below(2)
    slot, other = terms.pairs[pair, side], terms.pairs[pair, 1 - side]
    node = tables.near[order[other], _below(tables.near.shape[1])]
    if _below(4) == 0:
        node = _below(len(order))
    if node == order[slot] or node == order[other]:
        return 0
    draft.moved[0], draft.moved[1] = slot, state.position[node]
    draft.nodes[0], draft.nodes[1] = node, order[slot]
    return 2


@numba.njit(cache=True, nogil=True)
def _propose(tables: Tables, state: State, draft: Draft) -> int:
    """Write which slots a move gives which nodes; how many, 0 where the move drawn does not exist."""
    order, grid = state.order, tables.grid
    rows, columns = grid.shape[0], grid.shape[1]
    kind = _below(ALL_MOVES)
    if kind < AIMED_MOVES:
        return _aim(tables, state, draft)
    kind -= AIMED_MOVES
    if kind < LINE_MOVES:
        return _change_line(kind % 3, grid[_below(rows)], order, draft)
    kind -= LINE_MOVES
    if kind < LINE_MOVES:
        return _change_line(kind % 3, grid[:, _below(columns)], order, draft)
    kind -= LINE_MOVES
    if kind < STRETCH_MOVES:
        return _exchange_stretches(grid, order, draft)
    if kind == STRETCH_MOVES:
        return _change_columns(grid, order, draft)
    i, j = _below(tables.slots), _below(len(order))
    draft.moved[0], draft.moved[1] = i, j
    draft.nodes[0], draft.nodes[1] = order[j], order[i]
    return 0 if i == j else 2


@numba.njit(cache=True, nogil=True)
def _exchange(order: IntArray, position: IntArray, moved: IntArray, nodes: IntArray, count: int) -> None:
    """Make a move, or take it back: what stands in ``order`` and in ``nodes`` change places."""
    for k in range(count):
        order[moved[k]], nodes[k] = nodes[k], order[moved[k]]
        position[order[moved[k]]] = moved[k]


@numba.njit(cache=True, nogil=True)
def _change_terms(count: int, move: int, order: IntArray, value: FloatArray, terms: Terms, draft: Draft) -> int:
    """Renew the terms of all slots moved where no switch is shared; how many are different now."""
    changed, alone, shared = 0, np.empty((0, 0), dtype=np.int64), np.empty((2, 0))
    stamp, moved, before, changes = draft.term_stamp, draft.moved, draft.before, draft.terms
    for k in range(count):
        for index in range(terms.slot_first[moved[k]], terms.slot_first[moved[k] + 1]):
            t = terms.slot_terms[index]
            if stamp[t] != move:
                stamp[t] = move
                renewed = _term(t, order, terms, alone, shared)
                if renewed != value[t]:
                    changes[changed], before[changed] = t, value[t]
                    value[t] = renewed
                    changed += 1
    return changed


@numba.njit(cache=True, nogil=True)
def _change_all(order: IntArray, value: FloatArray, terms: Terms, sharing: Sharing, draft: Draft) -> int:
    """Renew all terms, as a move may load any switch; how many are different now."""
    changed, phase = 0, sharing.phase
    _share(order, terms, sharing, draft.shared)
    for t in range(len(value)):
        renewed = _term(t, order, terms, sharing.above, draft.shared[phase[t]])
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
    score, step = _score(draft.cost, draft.rings, optimizer_s, tables.mean_weight)
    for index in range(replicas):
        if score > limit:
            break
        r = draft.replicas[index]
        ends = draft.events[min(index, BUFFERS)]
        _simulate(pipeline.rows, draft.work[r], state.value[r * layout.delays : (r + 1) * layout.delays], ends)
        for s in range(layout.ranks):
            draft.ends[r, s] = ends[pipeline.last[s]]
        draft.cost[r] = _latest(draft.ends[r], draft.rings[0])
        score, step = _score(draft.cost, draft.rings, optimizer_s, tables.mean_weight)
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
    _exchange(state.order, state.position, draft.moved, draft.nodes, count)
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
def refresh(tables: Tables, state: State) -> None:
    """Work out everything in ``state`` from its order, which is the best known then."""
    draft = _new_draft(tables, state)
    state.value[:] = np.nan
    changed = _change_all(state.order, state.value, tables.terms, tables.sharing, draft)
    cells, replicas = _bound_replicas(changed, 0, tables, state, draft)
    score, step = _simulate_replicas(replicas, np.inf, tables, state, draft)
    _accept(cells, replicas, tables, state, draft)
    broken = _violations(state.order[: tables.slots], tables.rules)
    state.best[:] = state.order
    state.position[state.order] = np.arange(len(state.order))
    state.scores[:] = np.array([score, broken, 0.0, broken, step, score])


@numba.njit(cache=True, nogil=True)
def anneal_round(tables: Tables, state: State, moves: int, seed: int, hot: float, cold: float) -> None:
    """Try ``moves`` moves, the temperature falling from ``hot`` to ``cold`` seconds in equal ratios.

    With ``hot`` 0 every move is judged and none is taken; what those that change anything do on average is noted.
    """
    np.random.seed(seed)  # noqa: NPY002
    layout, draft, scores = tables.layout, _new_draft(tables, state), state.scores
    # the round before may have weighed the means differently
    scores[0], _ = _score(state.cost, state.rings, tables.exposure.optimizer_s, tables.mean_weight)
    ratio = (cold / hot) ** (1.0 / max(1, moves)) if hot > 0.0 else 1.0
    temperature, differences, different = hot, 0.0, 0
    for move in range(moves):
        temperature *= ratio
        count = 0
        while count == 0:
            count = _propose(tables, state, draft)
        _exchange(state.order, state.position, draft.moved, draft.nodes, count)
        broken = _violations(state.order[: tables.slots], tables.rules) if tables.ruled else 0
        if broken > scores[1] and np.random.random() * scores[2] > BREAKING * temperature:  # noqa: NPY002
            _exchange(state.order, state.position, draft.moved, draft.nodes, count)
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
        if hot == 0.0 and score != scores[0]:
            differences += abs(score - scores[0])
            different += 1
        if hot == 0.0 or score > limit:
            _take_back(changed, cells, count, layout, state, draft)
            continue
        _accept(cells, replicas, tables, state, draft)
        scores[0], scores[1] = score, broken
        if (broken, step, score) < (scores[3], scores[4], scores[5]):
            state.best[:] = state.order
            scores[3], scores[4], scores[5] = broken, step, score
    if hot == 0.0:
        scores[2] = differences / max(1, different)
