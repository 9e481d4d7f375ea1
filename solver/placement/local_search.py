"""Local search for assignments: annealing, again and again from the best found, exact at every move."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.compiled import step_seconds, violations
from solver.compiled_search import anneal_round
from solver.placement.problem import PlacementProblem
from solver.placement.search_tables import search_state, search_tables

PROBES: Final = 64
"""Random moves that set the first temperature: what they change on average."""
LEAST_SHARE: Final = 1e-6
"""Of the step, what the first temperature is where they change nothing."""
COLD: Final = 1e-3
"""The last temperature, as a share of the first of its annealing."""
HEATS: Final = (1.0, 0.3, 0.3, 3.0, 0.3)
"""First temperatures of the annealings, in turn, as shares of the very first: most stay near the best found."""
FIRST_MOVES_PER_SLOT: Final = 100
"""Moves of the first annealing; each one after it is longer by ``LONGER``."""
LONGER: Final = 1.5
ROUND_EVENTS: Final = 4e7
"""Events that a round of moves simulates at most, were every move to change two replicas: 0.1 s or so."""


class Found(NamedTuple):
    """The best assignment (K,) found, its step time in seconds, and how often it breaks the rules."""

    assignment: IntArray
    step_s: float
    violations: int


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
    problem: PlacementProblem,
    *,
    moves: int,
    seed: int,
    start: IntArray | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Found:
    """The best assignment found: fewest violations of the problem's rules first, then the shortest step.

    Tries the order as given and chains along fast links, then anneals from the best of them for ``moves`` moves.
    The same problem, seed and moves give the same answer, unless ``stopped``, asked every 0.1 s or so, says yes.
    """
    arrays, slots = problem.arrays, problem.slots
    starts = [np.arange(problem.nodes)] if start is None else [_complete(start, problem.nodes)]
    starts += [chain_order(arrays.hop_s, first) for first in range(0, problem.nodes, 4)][:8]
    order = min(starts, key=lambda entry: _judged(problem, entry))
    if problem.nodes > 1:
        order = _annealed(problem, order, moves, seed, stopped)
    assignment = order[:slots].copy()
    broken, step_s = _judged(problem, assignment)
    return Found(assignment, step_s, broken)


def _judged(problem: PlacementProblem, order: IntArray) -> tuple[int, float]:
    """How often an order breaks the rules, and its step time."""
    assignment = order[: problem.slots]
    return int(violations(assignment, problem.arrays.rules)), float(step_seconds(assignment, problem.arrays)[0])


def _annealed(
    problem: PlacementProblem, order: IntArray, moves: int, seed: int, stopped: Callable[[], bool]
) -> IntArray:
    """The best order met; every annealing starts from the best of those before it."""
    tables = search_tables(problem)
    state = search_state(tables, order)
    seeds = (int(number) for number in _numbers(seed))
    anneal_round(tables, state, PROBES, next(seeds), 0.0, 0.0)
    first_s = state.scores[2] = max(state.scores[2], LEAST_SHARE * state.scores[4])
    for number, length in enumerate(_lengths(problem.slots, moves)):
        if number > 0:
            state = search_state(tables, state.best)
            state.scores[2] = first_s
        hot = first_s * HEATS[number % len(HEATS)]
        rounds = -(-length // max(100, int(ROUND_EVENTS / (2 * len(problem.schedule.rank) + 1000))))
        falls = COLD ** (1 / rounds)
        for index in range(rounds):
            if stopped():
                return state.best
            share = length * (index + 1) // rounds - length * index // rounds
            anneal_round(tables, state, share, next(seeds), hot * falls**index, hot * falls ** (index + 1))
    return state.best


def _lengths(slots: int, moves: int) -> Iterator[int]:
    """Moves of each annealing."""
    length = float(FIRST_MOVES_PER_SLOT * slots)
    while moves > 0:
        # what is left after the next one would be too short to find anything
        now = moves if moves < 2 * length else int(length)
        yield now
        moves -= now
        length *= LONGER


def _numbers(seed: int) -> Iterator[int]:
    """Seeds of rounds."""
    random = np.random.default_rng(seed)
    while True:
        yield int(random.integers(2**32))


def _complete(assignment: IntArray, nodes: int) -> IntArray:
    """``assignment`` followed by the nodes it leaves out."""
    rest = np.setdiff1d(np.arange(nodes), assignment)
    return np.concatenate([assignment, rest])
