"""For each layer: how well it can be balanced with how many loads of experts, from a running map.

Letters: L layers, E experts, G ranks, s slots of a rank.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts import compiled_moves as kernels
from solver.experts.balance import FEW, layer_case, slowest_load
from solver.experts.bounds import plain_bound
from solver.experts.compiled_annealing import Schedule
from solver.experts.layout import ExpertLayout
from solver.experts.least_moves import least_moves
from solver.experts.loads import CopyChoice

LIMITS: Final = 12
"""Loads of the slowest rank towards which moves are searched, between that of the running map and the least."""
STAIRS: Final = 6
"""Loads for which the least number of moves is worked out."""
WEIGHT: Final = 50.0
"""Price of a balanced rank's load above a limit, beside loading one expert."""
HOT: Final = 0.3
"""First temperature of annealing, in loads of one expert."""
COOLING: Final = 0.1
"""Its last temperature beside its first."""
LUMPY_HOT: Final = (30.0, 10.0, 3.0)
"""Where slots are few and single experts weigh much, searches from these go before."""
THREADS: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class Point:
    """One way to rebalance a layer: a map (G, s), its slowest load, the loads that lead to it, and their price."""

    held: IntArray
    slowest: float
    loads: int
    price: float


@dataclass(frozen=True, slots=True, eq=False)
class LayerFrontier:
    """Ways to rebalance a layer, each better balanced and dearer than the one before; the first is to leave it.

    ``stairs``: (loads, balancedness that no map with fewer loads than the next stair's exceeds).
    """

    points: tuple[Point, ...]
    stairs: tuple[tuple[float, float], ...]


def layer_frontiers(
    before: IntArray, shares: FloatArray, layout: ExpertLayout, *, far: float, steps: int, seed: int
) -> list[LayerFrontier]:
    """Frontiers of layers, each from its running map ``before`` (L, G, s) under ``shares`` (L, E).

    ``far``: price of an expert that comes from another node, beside 1 for one from the own.  ``steps``: of the
    annealing towards each limit.
    """

    def frontier(layer: int) -> LayerFrontier:
        return _frontier(before[layer], shares[layer], layout, far, (steps, seed + layer))

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(frontier, range(len(before))))


def load_prices(before: IntArray, experts: int, layout: ExpertLayout, far: float) -> FloatArray:
    """(G, E) the price of each expert on each rank: 0 where it lies, 1 from its node, ``far`` from others."""
    price = np.full((layout.ranks, experts), far)
    node = np.arange(layout.ranks) // layout.ranks_per_node
    for number in range(layout.nodes):
        price[np.ix_(node == number, np.unique(before[node == number]))] = 1.0
    np.put_along_axis(price, before, 0.0, axis=1)
    return price


def _frontier(
    before: IntArray, shares: FloatArray, layout: ExpertLayout, far: float, effort: tuple[int, int]
) -> LayerFrontier:
    slowest = float(slowest_load(shares[None, :], before, layout)[0])
    least = min(plain_bound(shares, layout), slowest)
    most = before.size
    found = kernels.Frontier(
        np.full(most + 1, np.inf), np.full(most + 1, np.inf), np.zeros((most + 1, *before.shape), dtype=np.int64)
    )
    limits = least * (slowest / least) ** np.linspace(1, 0, LIMITS + 1)[1:]
    steps, seed = effort
    price = load_prices(before, len(shares), layout, far)
    case = layer_case(shares[None, :], [CopyChoice.ANY], layout)
    for hot in (*LUMPY_HOT, HOT) if layout.slots <= FEW else (HOT,):
        schedule = Schedule(steps, hot, hot * COOLING, seed)
        kernels.search_moves(case, before, price, limits, WEIGHT, schedule, found)
    return LayerFrontier(_points(found, before, slowest), _stairs(shares, before, layout, (slowest, least)))


def _points(found: kernels.Frontier, before: IntArray, slowest: float) -> tuple[Point, ...]:
    """The maps found, cheapest first, each with a faster slowest rank than all cheaper ones."""
    points = [Point(before, slowest, 0, 0.0)]
    for loads in np.lexsort((found.slowest, found.cost)).tolist():
        if found.slowest[loads] < points[-1].slowest * (1 - 1e-9) and loads > 0:
            points.append(Point(found.maps[loads], float(found.slowest[loads]), loads, float(found.cost[loads])))
    return tuple(points)


def _stairs(
    shares: FloatArray, before: IntArray, layout: ExpertLayout, span: tuple[float, float]
) -> tuple[tuple[float, float], ...]:
    """(loads, balancedness): beyond the balancedness of a stair at least the loads of the next are needed."""
    slowest, least = span
    limits = least * (slowest / least) ** np.linspace(1, 0, STAIRS + 1)
    stairs = [(0.0, 1 / slowest)]
    for above, below in zip(limits[:-1].tolist(), limits[1:].tolist(), strict=True):
        stairs.append((float(max(1, least_moves(shares, before, layout, above))), 1 / below))
    return tuple(stairs)
