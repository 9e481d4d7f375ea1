"""The linear programs of the placement bound: prices for the routes known, and which of these go together."""

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
        """Upper bound on the cost of routes that keep all rows together."""
        return float(self.node.sum())

    def without_rows(self) -> Prices:
        """Where other rows hold, only prices of nodes mean the same."""
        return Prices(self.node, np.tile(self.node, (len(self.price), 1)))


class Master:
    """The restricted master problem: prices at which the routes known cost most beyond their share of the nodes."""

    def __init__(self, nodes: int, count: int, rows: FloatArray, *, spare: bool) -> None:
        """For ``count`` routes; ``spare``: some of the ``nodes`` are left over.

        ``rows`` (J, Q, N): sums over the visits of all routes that are never above 0.
        """
        self._builder, self._count, self._seen, self._rows = ModelBuilder(), count, set[bytes](), rows
        self._price = self._builder.add_columns(nodes, lower=0.0 if spare else -1.0, upper=1.0, cost=1.0)
        self._row_price = self._builder.add_columns(len(rows), lower=0.0, upper=1.0, cost=0.0)
        self._route = int(self._builder.add_columns(1, lower=-nodes, upper=nodes, cost=-count)[0])

    def add(self, routes: IntArray) -> bool:
        """Add routes (n, Q); whether any is new."""
        before = len(self._seen)
        for route in routes:
            key = (route if len(self._rows) else np.sort(route)).tobytes()
            if key not in self._seen:
                self._seen.add(key)
                visits = np.bincount(route, minlength=len(self._price))
                terms = [(int(self._price[n]), -float(visits[n])) for n in np.flatnonzero(visits)]
                sums = self._rows[:, np.arange(len(route)), route].sum(axis=1)
                terms += [(int(self._row_price[j]), -float(sums[j])) for j in np.flatnonzero(sums)]
                self._builder.add_row([(self._route, 1.0), *terms], upper=0.0)
        return len(self._seen) > before

    @property
    def rows(self) -> int:
        """Routes known."""
        return len(self._seen)

    def solve(self) -> tuple[Prices, float]:
        """The prices, and what the routes then cost beyond the budget."""
        outcome = solve_relaxation(self._builder.build())
        if outcome.values is None:
            return Prices(np.zeros(len(self._price)), np.zeros(self._rows.shape[1:])), 0.0
        node = outcome.values[self._price]
        return Prices(
            node, node + np.tensordot(outcome.values[self._row_price], self._rows, axes=1)
        ), -outcome.objective


def combined(routes: IntArray, nodes: int, count: int) -> FloatArray:
    """(n,) how much of each route (n, P) makes ``count`` of them that meet on as few nodes as possible."""
    builder = ModelBuilder()
    share = builder.add_columns(len(routes), lower=0.0, upper=float(count), cost=0.0)
    beyond = builder.add_columns(nodes, lower=0.0, upper=float(count), cost=1.0)
    for node in range(nodes):
        visits = (routes == node).sum(axis=1)
        terms = [(int(share[w]), float(visits[w])) for w in np.flatnonzero(visits)]
        builder.add_row([*terms, (int(beyond[node]), -1.0)], upper=1.0)
    builder.add_row([(int(column), 1.0) for column in share], lower=count, upper=count)
    outcome = solve_relaxation(builder.build())
    return np.zeros(len(routes)) if outcome.values is None else outcome.values[share]
