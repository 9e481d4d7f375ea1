"""Moves of the local search, compiled: which slots get which nodes (docs/placement.md, "The search").

Random numbers come from the state that ``solver.compiled_search.anneal_round`` seeds.  Letters and
data as in ``solver.search_types``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import IntArray
from solver.kernels import inner
from solver.search_types import Draft, Layout, State, Tables, Terms

SHORT: Final = 4
"""Most columns of a short stretch."""
AIMED_MOVES: Final = 4
LINE_MOVES: Final = 6
STRETCH_MOVES: Final = 2
ALL_MOVES: Final = AIMED_MOVES + 2 * LINE_MOVES + STRETCH_MOVES + 4
"""Shares of moves: aimed at what sets the pace, along a replica or a rank, of stretches, of columns, of any two."""


@inner
def _below(number: int) -> int:
    """A random number from 0 and below ``number``."""
    return int(np.random.random() * number)  # noqa: NPY002


@inner
def _give(target: IntArray, source: IntArray, order: IntArray, draft: Draft, count: int) -> int:
    """Give the nodes of the slots ``source`` (q,) to those of ``target``; how many slots move by now."""
    for k in range(len(target)):
        draft.moved[count + k] = target[k]
        draft.nodes[count + k] = order[source[k]]
    return count + len(target)


@inner
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


@inner
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


@inner
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


@inner
def _slow_term(layout: Layout, terms: Terms, state: State) -> int:
    """A term with a pair of slots of what sets the pace, the slowest replica or the ring after it; or -1."""
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


@inner
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


@inner
def propose(tables: Tables, state: State, draft: Draft) -> int:
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


@inner
def exchange(order: IntArray, position: IntArray, moved: IntArray, nodes: IntArray, count: int) -> None:
    """Make a move, or take it back: what stands in ``order`` and in ``nodes`` change places."""
    for k in range(count):
        order[moved[k]], nodes[k] = nodes[k], order[moved[k]]
        position[order[moved[k]]] = moved[k]
