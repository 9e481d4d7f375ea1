"""Among plans that cost no more than the one found, the one whose requests stay the shortest.

Objectives that are counted (GPUs, price, power) leave many plans that are as good.  A second program keeps what the
first one cost and divides the load exactly:

    min  sum_m weight[m] stay[m] / (stay[m] of the plan found),     stay = requests in flight / requests a second

Of C requests in flight the rate is a straight line's (-sum rate / C, which has the same order for one model), of r
requests a second the number in flight is (sum in flight / r, Little's law).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from cluster_models.serving.goal import ServingGoal
from solver.candidates import IntArray
from solver.serving.loads import FloatArray
from solver.serving.planning.offers import Priced, capacities, cheapest_at_some_load, group_cost, open_offers
from solver.serving.planning.program import Demand, Offer
from solver.serving.planning.settle import Settled
from solver.serving.planning.zones import Zone

SHORTER: Final = 1e-4
"""Share by which stays must be shorter for another plan to be taken."""


def stay_of(settled: Settled) -> float:
    """Mean seconds of a request from its arrival to the last token, by Little's law."""
    return float(settled.at.concurrency.sum() / settled.at.requests_per_s.sum())


def is_shorter(settled: Sequence[Settled], than: Sequence[Settled], weights: Sequence[float]) -> bool:
    """Whether requests stay shorter, by the weights of their models."""
    parts = zip(settled, than, weights, strict=True)
    relative = sum(weight * stay_of(new) / stay_of(old) for new, old, weight in parts)
    return relative < sum(weights) * (1 - SHORTER)


def exact_demand(prices: Priced) -> Demand:
    """The load of the model, to be divided among groups."""
    workload = prices.served.workload
    load = workload.requests_per_s if workload.concurrency is None else workload.concurrency
    assert load is not None  # a workload has one of them
    return Demand(load, is_exact=True)


def stay_offers(prices: Priced, zones: Sequence[Zone], goal: ServingGoal, stay_s: float) -> list[Offer]:
    """Offers of the groups within the limits at all their loads; costs are stays over ``stay_s``."""
    costs = np.array([group_cost(group, zones[group.zone], goal) for group in prices.groups])
    able = np.flatnonzero((prices.top >= 0) & np.isfinite(costs))
    if not len(able):
        return []
    closed = prices.served.workload.concurrency is not None
    return cheapest_at_some_load(list((_closed if closed else _open)(prices, able, stay_s)))


def gpu_costs(offers: Sequence[Offer], zones: Sequence[Zone], goal: ServingGoal) -> FloatArray:
    """Share (J,) of one of each group in an objective that is a minimum."""
    return np.array([group_cost(each.group, zones[each.group.zone], goal) for each in offers])


def _closed(prices: Priced, able: IntArray, stay_s: float) -> Iterator[Offer]:
    """Loads as priced, and the highest within the limits."""
    points, top = prices.points, capacities(prices, able)
    scale = prices.served.weight * stay_s / exact_demand(prices).load
    for row, g in enumerate(able):
        own = slice(int(np.searchsorted(points.group, g)), int(prices.top[g]) + 1)
        loads, rates = points.concurrency[own], points.requests_per_s[own]
        if top.meets[row] and top.concurrency[row] > loads[-1]:
            loads, rates = np.append(loads, top.concurrency[row]), np.append(rates, top.requests_per_s[row])
        yield Offer(prices.groups[g], loads, -scale * rates)


def _open(prices: Priced, able: IntArray, stay_s: float) -> Iterator[Offer]:
    """Rates up to the highest within the limits, or up to the load where that is less."""
    scale = prices.served.weight / (exact_demand(prices).load * stay_s)
    return open_offers(prices, able, lambda _, points: scale * points.concurrency)
