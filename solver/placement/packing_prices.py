"""The linear programs of the packing bound: prices for the walks known, and which of these go together."""

from __future__ import annotations

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.ilp import ModelBuilder, solve_relaxation


class Master:
    """Prices that make the cheapest of all walks known cost as much as possible beyond their share of the nodes."""

    def __init__(self, nodes: int, count: int, *, spare: bool) -> None:
        """For ``count`` walks; ``spare``: some of the ``nodes`` are left over."""
        self._builder, self._count, self._seen = ModelBuilder(), count, set[bytes]()
        self._price = self._builder.add_columns(nodes, lower=0.0 if spare else -1.0, upper=1.0, cost=1.0)
        self._walk = int(self._builder.add_columns(1, lower=-nodes, upper=nodes, cost=-count)[0])

    def add(self, walks: IntArray) -> bool:
        """Add walks (n, Q); whether any is new."""
        before = len(self._seen)
        for walk in walks:
            key = np.sort(walk).tobytes()
            if key not in self._seen:
                self._seen.add(key)
                terms = [(int(self._price[n]), -1.0) for n in walk]
                self._builder.add_row([(self._walk, 1.0), *terms], upper=0.0)
        return len(self._seen) > before

    @property
    def rows(self) -> int:
        """Walks known."""
        return len(self._seen)

    def solve(self) -> tuple[FloatArray, float]:
        """The prices (N,), and what the walks then cost beyond all nodes."""
        outcome = solve_relaxation(self._builder.build())
        if outcome.values is None:
            return np.zeros(len(self._price)), 0.0
        return outcome.values[self._price], -outcome.objective


def shares_of(walks: IntArray, nodes: int, count: int) -> FloatArray:
    """(n,) how much of each walk (n, P) makes ``count`` of them that meet on as few nodes as possible."""
    builder = ModelBuilder()
    share = builder.add_columns(len(walks), lower=0.0, upper=float(count), cost=0.0)
    beyond = builder.add_columns(nodes, lower=0.0, upper=float(count), cost=1.0)
    for node in range(nodes):
        terms = [(int(column), 1.0) for column in share[(walks == node).any(axis=1)]]
        builder.add_row([*terms, (int(beyond[node]), -1.0)], upper=1.0)
    builder.add_row([(int(column), 1.0) for column in share], lower=count, upper=count)
    outcome = solve_relaxation(builder.build())
    return np.zeros(len(walks)) if outcome.values is None else outcome.values[share]
