"""Compiled annealing over host orders: swap, reverse and insert moves, the step time exact at every move."""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled import anneal, step_seconds
from solver.placement.problem import PlacementProblem


def chain_order(hop_s: FloatArray, first: int) -> IntArray:
    """Nodes in a nearest-neighbour chain from ``first``: close nodes stand side by side."""
    cost = hop_s + hop_s.T
    order = [first]
    taken = np.zeros(len(cost), dtype=bool)
    for _ in range(len(cost) - 1):
        taken[order[-1]] = True
        order.append(int(np.where(taken, np.inf, cost[order[-1]]).argmin()))
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
        order, step_s = anneal(order, problem.slots, problem.arrays, moves, seed)
    return order[: problem.slots].copy(), float(step_s)


def _complete(assignment: IntArray, nodes: int) -> IntArray:
    """``assignment`` followed by the nodes it leaves out."""
    rest = np.setdiff1d(np.arange(nodes), assignment)
    return np.concatenate([assignment, rest])
