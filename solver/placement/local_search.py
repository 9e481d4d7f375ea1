"""Compiled annealing over host orders: swap, reverse and insert moves, the step time exact at every move.

Compiled code knows only numpy's legacy generator; each run seeds its own.
"""

from __future__ import annotations

from typing import Final

import numba
import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.placement.problem import Arrays, PlacementProblem, step_seconds

TIE_WEIGHT: Final = 1e-3
"""Weight of the mean step time beside the slowest: it leads the search over plateaus of the maximum."""
PROBES: Final = 64
"""Random moves that set the first temperature: the mean worsening they cause."""


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
def _anneal(start: IntArray, slots: int, arrays: Arrays, moves: int, seed: int) -> tuple[IntArray, float]:
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


def chain_order(hop_s: FloatArray, first: int) -> IntArray:
    """Nodes in a nearest-neighbour chain from ``first``: close nodes stand side by side."""
    nodes = len(hop_s)
    order, left = [first], set(range(nodes)) - {first}
    cost = hop_s + hop_s.T
    while left:
        order.append(min(left, key=lambda node: (cost[order[-1], node], node)))
        left.remove(order[-1])
    return np.array(order, dtype=np.int64)


def search_placement(
    problem: PlacementProblem, *, moves: int, seed: int, start: IntArray | None = None
) -> tuple[IntArray, float]:
    """The best assignment (K,) found and its step time in seconds.

    Tries the order as given and chains along fast links, then anneals from the best of them for ``moves`` moves.
    The same problem, seed and moves give the same answer.
    """
    starts = [np.arange(problem.nodes)] if start is None else [_complete(start, problem.nodes)]
    starts += [chain_order(problem.arrays.hop_s, first) for first in range(0, problem.nodes, 4)][:8]
    scored = [(step_seconds(order[: problem.slots], problem.arrays), order) for order in starts]
    (step_s, _), order = min(scored, key=lambda entry: entry[0])
    if problem.nodes > 1:
        order, step_s = _anneal(order, problem.slots, problem.arrays, moves, seed)
    return order[: problem.slots].copy(), float(step_s)


def _complete(assignment: IntArray, nodes: int) -> IntArray:
    """``assignment`` followed by the nodes it leaves out."""
    rest = np.setdiff1d(np.arange(nodes), assignment)
    return np.concatenate([assignment, rest])
