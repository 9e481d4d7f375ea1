"""Compiled annealing over host orders: swap, reverse and insert moves, the step time exact at every move."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled import anneal, step_seconds, violations
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


class Found(NamedTuple):
    """The best assignment (K,) found, its step time in seconds, and how many slots break a rule in it."""

    assignment: IntArray
    step_s: float
    violations: int


def search_placement(problem: PlacementProblem, *, moves: int, seed: int, start: IntArray | None = None) -> Found:
    """The best assignment found: fewest violations of the problem's rules first, then the shortest step.

    Tries the order as given and chains along fast links, then anneals from the best of them for ``moves`` moves.
    The same problem, seed and moves give the same answer.
    """
    arrays, slots = problem.arrays, problem.slots
    starts = [np.arange(problem.nodes)] if start is None else [_complete(start, problem.nodes)]
    starts += [chain_order(arrays.hop_s, first) for first in range(0, problem.nodes, 4)][:8]
    scored = [
        (violations(order[:slots], arrays.rules), step_seconds(order[:slots], arrays), order) for order in starts
    ]
    broken, (step_s, _), order = min(scored, key=lambda entry: entry[:2])
    if problem.nodes > 1:
        order, step_s, broken = anneal(order, slots, arrays, moves, seed)
    return Found(order[:slots].copy(), float(step_s), int(broken))


def _complete(assignment: IntArray, nodes: int) -> IntArray:
    """``assignment`` followed by the nodes it leaves out."""
    rest = np.setdiff1d(np.arange(nodes), assignment)
    return np.concatenate([assignment, rest])
