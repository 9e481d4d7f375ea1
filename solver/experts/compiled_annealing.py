"""Compiled simulated annealing: the one loop of all searches of this package.

An objective brings the moves and what they are worth: balance (``compiled_balance``), loads of experts
(``compiled_moves``), time over nodes (``compiled_nodewise``), exact time (``compiled_few``), locality
(``compiled_chain_search``) and counts of copies (``compiled_pairs``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from solver.kernels import enclosed, inlined

S = TypeVar("S")
P = TypeVar("P")
M = TypeVar("M")


class Schedule(NamedTuple):
    """``steps`` of an annealing, its first and last temperature in units of the objective, and its seed."""

    steps: int
    hot: float
    cold: float
    seed: int


def annealer(
    propose: Callable[[S, P], M],
    judge: Callable[[S, P, M], float],
    accept: Callable[[S, P, M], None],
    reject: Callable[[S, P, M], None],
) -> Callable[[S, P, Schedule], None]:
    """Simulated annealing with compiled parts: a function of a state, an objective and a schedule, for kernels.

    ``propose`` draws a move.  ``judge`` tries it and returns by how much the objective grows, infinite for a move
    that is not allowed.  One that lowers it, or grows it by x with probability ``exp(-x / temperature)``, goes to
    ``accept``, any other allowed one to ``reject``, which takes back what was tried.  Temperatures fall
    geometrically.
    """

    @enclosed
    def anneal(state: S, objective: P, schedule: Schedule) -> None:
        np.random.seed(schedule.seed)  # noqa: NPY002
        temperature = schedule.hot
        factor = (schedule.cold / schedule.hot) ** (1.0 / max(1, schedule.steps))
        for _ in range(schedule.steps):
            temperature *= factor
            move = propose(state, objective)
            growth = judge(state, objective, move)
            if growth == np.inf:
                continue
            if growth <= 0.0 or np.random.random() < np.exp(-growth / temperature):  # noqa: NPY002
                accept(state, objective, move)
            else:
                reject(state, objective, move)

    return anneal


@inlined
def chance() -> float:
    """A random number from 0 and below 1."""
    return np.random.random()  # noqa: NPY002


@inlined
def below(number: int) -> int:
    """A random whole number from 0 and below ``number``."""
    return int(np.random.random() * number)  # noqa: NPY002
