"""The pricing problem of the placement bound: the cheapest routes that end within a trial step time.

A route gives each pipeline rank a node.  ``Pricing`` makes the labels of one branch at one trial step time once;
each round of prices is then a shortest path over them (docs/placement.md, "Cheapest routes").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled_labels import (
    UNREACHED,
    Memory,
    Resources,
    cheapest_routes,
    cheapest_through,
    label_routes,
    within_limits,
)
from solver.placement.branching import Branch
from solver.placement.chains import Chains
from solver.placement.master import Prices

NEAR: Final = 10
"""Nodes whose visits a route remembers while it is close to them (the sets of an ng-route)."""
MOST_WIDTH: Final = 8
"""Labels of a node on a position, where their number allows it."""
MOST_EXTENSIONS: Final = 2e8
"""Extensions of labels, times paths, of one labelling (about 1 ns each); fewer labels for more nodes."""
DIFFERENT: Final = 4
"""Cheapest routes that are added at a time, before ..."""
PENALTY: Final = 0.5
"""... is added to the price of their nodes, so that the next ones differ."""
NS_PER_EXTENSION: Final = 8.0
PROOF: Final = 1e-6
"""Cost of routes beyond the nodes that makes a proof; prices lie between -1 and 1."""


def memory_of(hop_s: FloatArray) -> Memory:
    """Each node's nearest others, by transfers both ways."""
    nodes = len(hop_s)
    away_s = hop_s + hop_s.T + np.diag(np.full(nodes, np.inf))
    near = np.argsort(away_s, axis=1, kind="stable")[:, : min(NEAR, nodes - 1)].astype(np.int64)
    bit_of = np.full((nodes, nodes), -1, dtype=np.int64)
    np.put_along_axis(bit_of, near, np.arange(near.shape[1]), axis=1)
    return Memory(near, bit_of)


class Pricing:
    """Labels of all routes that keep within their resources; ``work`` is spent so far, about in nanoseconds."""

    def __init__(self, resources: Resources, memory: Memory, count: int) -> None:
        """For ``count`` routes."""
        paths, ranks, nodes = resources.node_s.shape
        width = int(np.clip(MOST_EXTENSIONS / paths // (nodes**2 * ranks), 1, MOST_WIDTH))
        self._resources, self._count = resources, count
        self._labels, self._reached = label_routes(resources, memory, width)
        self._arcs = float(self._labels.sum()) * nodes
        self.work = NS_PER_EXTENSION * self._arcs * paths

    def contains(self, routes: IntArray) -> BoolArray:
        """(n,) which of the routes (n, P) keep within their resources."""
        return within_limits(self._resources, routes)

    def cheapest(self, prices: Prices) -> tuple[float, IntArray]:
        """Least cost of routes beyond the budget, and cheap ones (n, P) that keep to different nodes."""
        ends, routes = cheapest_routes(self._labels, self._reached, prices.price)
        first = np.sort(ends)[: self._count]
        self.work += NS_PER_EXTENSION * self._arcs
        beyond = np.inf if first[-1] >= UNREACHED else float(first.sum() - prices.budget)
        if beyond > PROOF:
            return beyond, routes[:0]
        met, price = list[IntArray](), prices.price.copy()
        for _ in range(self._count):
            cheap = np.argsort(ends, kind="stable")[:DIFFERENT]
            met.append(routes[cheap[ends[cheap] < UNREACHED]])
            price[:, np.unique(met[-1])] += PENALTY
            ends, routes = cheapest_routes(self._labels, self._reached, price)
        self.work += NS_PER_EXTENSION * self._arcs * self._count
        return beyond, np.unique(np.concatenate(met), axis=0)

    def ruled_out(
        self, prices: Prices, branch: Branch, chains: Chains, out_of_time: Callable[[], bool]
    ) -> BoolArray:
        """(P, N) nodes that a rank cannot have in ``branch``: with them all routes cost more than the nodes."""
        price, most = prices.price, prices.budget + PROOF
        through = cheapest_through(self._labels, self._reached, price)
        others = float(np.sort(through[-1])[: self._count - 1].sum())
        result: BoolArray = np.greater(through + others, most)
        for s in range(len(price)):
            together = branch.partners(s, chains)
            for node in np.flatnonzero(~result[s] & ~branch.chosen[s]):
                absent = ~(together[node] | result[s])
                if not absent.any() or out_of_time():
                    continue
                self.work += NS_PER_EXTENSION * self._arcs
                with_node = price.copy()
                with_node[:, node] = with_node[s, absent] = UNREACHED
                with_node[s, node] = price[s, node]
                through = cheapest_through(self._labels, self._reached, with_node)
                ends = np.sort(through[-1])[: self._count]
                result[s, node] = max(ends.sum(), through[s, node] + ends[:-1].sum()) > most
        return result
