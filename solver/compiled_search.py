"""Annealing over assignments of nodes, compiled: a move is judged by what it changes (docs/placement.md).

A move changes the terms of the slots that it touches.  Replicas whose terms change are bounded from below by their
last critical path under the new times; only where that does not rule the move out are they simulated.  Letters and
data as in ``solver.search_types``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled import violations
from solver.compiled_moves import exchange, propose
from solver.compiled_terms import (
    expose_rings,
    fill_cell_work,
    latest_end,
    score_of,
    share_switches,
    simulate_replica,
    term_seconds,
    walk_back,
)
from solver.kernels import inner, kernel
from solver.search_types import (
    Draft,
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


@inner
def _note_path(
    r: int, pipeline: Pipeline, ends: FloatArray, delay: FloatArray, paths: Paths, rank: np.int64
) -> None:
    """Keep the critical path of replica ``r`` to the last backward on ``rank``."""
    paths.rank[r] = rank
    walk_back(np.int64(pipeline.last[rank]), pipeline.rows, ends, delay, paths.work[r], paths.hops[r])


@inner
def _change_terms(count: int, move: int, order: IntArray, value: FloatArray, terms: Terms, draft: Draft) -> int:
    """Renew the terms of all slots moved where no switch is shared; how many are different now."""
    changed, alone, shared = 0, np.empty((0, 0), dtype=np.int64), np.empty((2, 0))
    stamp, moved, before, changes = draft.term_stamp, draft.moved, draft.before, draft.terms
    for k in range(count):
        for index in range(terms.slot_first[moved[k]], terms.slot_first[moved[k] + 1]):
            t = terms.slot_terms[index]
            if stamp[t] != move:
                stamp[t] = move
                renewed = term_seconds(t, order, terms, alone, shared)
                if renewed != value[t]:
                    changes[changed], before[changed] = t, value[t]
                    value[t] = renewed
                    changed += 1
    return changed


@inner
def _change_all(order: IntArray, value: FloatArray, terms: Terms, sharing: Sharing, draft: Draft) -> int:
    """Renew all terms, as a move may load any switch; how many are different now."""
    changed, phase = 0, sharing.phase
    share_switches(order, terms, sharing, draft.shared)
    for t in range(len(value)):
        renewed = term_seconds(t, order, terms, sharing.above, draft.shared[phase[t]])
        if renewed != value[t]:
            draft.terms[changed], draft.before[changed] = t, value[t]
            value[t] = renewed
            changed += 1
    return changed


@inner
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
            fill_cell_work(s, layout.ranks, state.value[at : at + layout.kinds], tables.compute, renewed)
            for c in range(s, len(renewed), layout.ranks):
                draft.bound[r] += paths.work[r, c] * (renewed[c] - state.work[r, c])
    if rings:
        expose_rings(state.value, layout, tables.exposure, draft.rings)
    else:
        draft.rings[:] = state.rings
    for r in range(layout.replicas):
        if draft.replica_stamp[r] == move:
            draft.cost[r] = draft.bound[r] + draft.rings[0, paths.rank[r]]
        else:
            draft.cost[r] = latest_end(state.ends[r], draft.rings[0]) if rings else state.cost[r]
    return cells, replicas


@inner
def _simulate_replicas(
    replicas: int, limit: float, tables: Tables, state: State, draft: Draft
) -> tuple[float, float]:
    """The score and step time of the move, or of what is certain when its score exceeds ``limit``."""
    layout, pipeline, optimizer_s = tables.layout, tables.pipeline, tables.exposure.optimizer_s
    score, step = score_of(draft.cost, draft.rings, optimizer_s, tables.mean_weight)
    for index in range(replicas):
        if score > limit:
            break
        r = draft.replicas[index]
        ends = draft.events[min(index, BUFFERS)]
        simulate_replica(
            pipeline.rows, draft.work[r], state.value[r * layout.delays : (r + 1) * layout.delays], ends
        )
        for s in range(layout.ranks):
            draft.ends[r, s] = ends[pipeline.last[s]]
        draft.cost[r] = latest_end(draft.ends[r], draft.rings[0])
        score, step = score_of(draft.cost, draft.rings, optimizer_s, tables.mean_weight)
    return score, step


@inner
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
            simulate_replica(pipeline.rows, state.work[r], delay, ends)
        _note_path(r, pipeline, ends, delay, state.paths, (state.ends[r] + state.rings[0]).argmax())


@inner
def _take_back(changed: int, cells: int, count: int, layout: Layout, state: State, draft: Draft) -> None:
    """Make the state what it was before the move."""
    exchange(state.order, state.position, draft.moved, draft.nodes, count)
    for index in range(changed):
        state.value[draft.terms[index]] = draft.before[index]
    for index in range(cells):
        r, s = draft.cells[index] // layout.ranks, draft.cells[index] % layout.ranks
        draft.work[r, s :: layout.ranks] = state.work[r, s :: layout.ranks]


@inner
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


@kernel
def refresh(tables: Tables, state: State) -> None:
    """Work out everything in ``state`` from its order, which is the best known then."""
    draft = _new_draft(tables, state)
    state.value[:] = np.nan
    changed = _change_all(state.order, state.value, tables.terms, tables.sharing, draft)
    cells, replicas = _bound_replicas(changed, 0, tables, state, draft)
    score, step = _simulate_replicas(replicas, np.inf, tables, state, draft)
    _accept(cells, replicas, tables, state, draft)
    broken = violations(state.order[: tables.slots], tables.rules)
    state.best[:] = state.order
    state.position[state.order] = np.arange(len(state.order))
    state.scores[:] = np.array([score, broken, 0.0, broken, step, score])


@kernel
def anneal_round(tables: Tables, state: State, moves: int, seed: int, hot: float, cold: float) -> None:
    """Try ``moves`` moves, the temperature falling from ``hot`` to ``cold`` seconds in equal ratios.

    With ``hot`` 0 every move is judged and none is taken; what those that change anything do on average is noted.
    """
    np.random.seed(seed)  # noqa: NPY002
    layout, draft, scores = tables.layout, _new_draft(tables, state), state.scores
    # the round before may have weighed the means differently
    scores[0], _ = score_of(state.cost, state.rings, tables.exposure.optimizer_s, tables.mean_weight)
    ratio = (cold / hot) ** (1.0 / max(1, moves)) if hot > 0.0 else 1.0
    temperature, differences, different = hot, 0.0, 0
    for move in range(moves):
        temperature *= ratio
        count = 0
        while count == 0:
            count = propose(tables, state, draft)
        exchange(state.order, state.position, draft.moved, draft.nodes, count)
        broken = violations(state.order[: tables.slots], tables.rules) if tables.ruled else 0
        if broken > scores[1] and np.random.random() * scores[2] > BREAKING * temperature:  # noqa: NPY002
            exchange(state.order, state.position, draft.moved, draft.nodes, count)
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
