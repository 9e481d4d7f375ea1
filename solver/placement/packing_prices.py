"""The linear programs of the packing bound: prices for the walks known, and which of these go together."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.ilp import ModelBuilder, solve_relaxation


class Prices(NamedTuple):
    """``node`` (N,) of each node on any rank, and ``price`` (Q, N) with what rows add to that on each rank."""

    node: FloatArray
    price: FloatArray

    @property
    def budget(self) -> float:
        """What walks that keep all rows together cost at most."""
        return float(self.node.sum())

    def without_rows(self) -> Prices:
        """Where other rows hold, only prices of nodes mean the same."""
        return Prices(self.node, np.tile(self.node, (len(self.price), 1)))


def half_way(one: Prices, other: Prices) -> Prices:
    """Prices between ``one`` and ``other``."""
    return Prices(0.5 * (one.node + other.node), 0.5 * (one.price + other.price))


class Master:
    """Prices that make the cheapest of all walks known cost as much as possible beyond their share of the nodes."""

    def __init__(self, nodes: int, count: int, rows: FloatArray, *, spare: bool) -> None:
        """For ``count`` walks; ``spare``: some of the ``nodes`` are left over.

        ``rows`` (J, Q, N): sums over the visits of all walks that are never above 0.
        """
        self._builder, self._count, self._seen, self._rows = ModelBuilder(), count, set[bytes](), rows
        self._price = self._builder.add_columns(nodes, lower=0.0 if spare else -1.0, upper=1.0, cost=1.0)
        self._row_price = self._builder.add_columns(len(rows), lower=0.0, upper=1.0, cost=0.0)
        self._walk = int(self._builder.add_columns(1, lower=-nodes, upper=nodes, cost=-count)[0])

    def add(self, walks: IntArray) -> bool:
        """Add walks (n, Q); whether any is new."""
        before = len(self._seen)
        for walk in walks:
            key = (walk if len(self._rows) else np.sort(walk)).tobytes()
            if key not in self._seen:
                self._seen.add(key)
                visits = np.bincount(walk, minlength=len(self._price))
                terms = [(int(self._price[n]), -float(visits[n])) for n in np.flatnonzero(visits)]
                sums = self._rows[:, np.arange(len(walk)), walk].sum(axis=1)
                terms += [(int(self._row_price[j]), -float(sums[j])) for j in np.flatnonzero(sums)]
                self._builder.add_row([(self._walk, 1.0), *terms], upper=0.0)
        return len(self._seen) > before

    @property
    def rows(self) -> int:
        """Walks known."""
        return len(self._seen)

    def solve(self) -> tuple[Prices, float]:
        """The prices, and what the walks then cost beyond the budget."""
        outcome = solve_relaxation(self._builder.build())
        if outcome.values is None:
            return Prices(np.zeros(len(self._price)), np.zeros(self._rows.shape[1:])), 0.0
        node = outcome.values[self._price]
        return Prices(
            node, node + np.tensordot(outcome.values[self._row_price], self._rows, axes=1)
        ), -outcome.objective


def shares_of(walks: IntArray, nodes: int, count: int) -> FloatArray:
    """(n,) how much of each walk (n, P) makes ``count`` of them that meet on as few nodes as possible."""
    builder = ModelBuilder()
    share = builder.add_columns(len(walks), lower=0.0, upper=float(count), cost=0.0)
    beyond = builder.add_columns(nodes, lower=0.0, upper=float(count), cost=1.0)
    for node in range(nodes):
        visits = (walks == node).sum(axis=1)
        terms = [(int(share[w]), float(visits[w])) for w in np.flatnonzero(visits)]
        builder.add_row([*terms, (int(beyond[node]), -1.0)], upper=1.0)
    builder.add_row([(int(column), 1.0) for column in share], lower=count, upper=count)
    outcome = solve_relaxation(builder.build())
    return np.zeros(len(walks)) if outcome.values is None else outcome.values[share]
