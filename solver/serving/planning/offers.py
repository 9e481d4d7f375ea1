"""Groups of one model in the integer program: loads, rates and costs, without those that others replace."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

import numpy as np

from cluster_models.serving.goal import ServedModel, ServingGoal, ServingMode, ServingObjective
from solver.candidates import IntArray
from solver.serving.cases import Arrays
from solver.serving.loads import FloatArray
from solver.serving.planning.groups import Group, single_groups, watts_of
from solver.serving.planning.islands import Site
from solver.serving.planning.pricing import (
    Points,
    WorkerTable,
    cases_of,
    closed_at,
    closed_points,
    drawn_watts_at,
    highest,
    joined,
    joined_cases,
    most_in_flight,
    open_at,
    refined,
    take_cases,
    worker_table,
)
from solver.serving.planning.program import Demand, Offer
from solver.serving.planning.shapes import Shape
from solver.serving.planning.splits import split_groups
from solver.serving.planning.zones import Zone
from solver.serving.rates import Rates

OPEN_MARGIN: Final = 2.0
"""Arrivals that a group is tried with at most, over its rate with as many requests in flight as it holds."""
LIGHT: Final = 1e-3
"""The least, over the same."""
RATES: Final = (0.05, 0.2, 0.4, 0.6, 0.75, 0.87, 0.95, 1.0)
"""Arrivals, as shares of the highest, between which what a group does is taken as a straight line."""
SCARCE: Final = (1e-6, 1e-3, 0.01, 0.025)
"""Further ones, where what a group does changes most: power drawn rises with a root of the rate."""
BEST_LOADS: Final = 100
"""Loads at which groups that take the same parts of islands are compared."""


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """Groups (G,) of one model with their points; ``top`` (G,): the row of each at its highest load within limits.

    ``shapes`` workers were enumerated, ``too_large`` of them do not hold a request; ``table`` has their prices.
    """

    served: ServedModel
    groups: tuple[Group, ...]
    cases: tuple[Arrays, Rates] | None
    points: Points
    top: IntArray
    shapes: int
    too_large: int
    table: WorkerTable | None = None


def is_exact(served: ServedModel, goal: ServingGoal) -> bool:
    """Whether the objective asks for exactly the requests in flight of the workload."""
    return goal.objective is ServingObjective.THROUGHPUT and served.workload.concurrency is not None


def shares_load(served: ServedModel, goal: ServingGoal) -> bool:
    """Whether groups share out exactly the load of the workload, for what they are worth depends on it."""
    return is_exact(served, goal) or goal.objective is ServingObjective.ENERGY


def demand(served: ServedModel, goal: ServingGoal) -> Demand:
    """The load that groups of the model must take; of goodput, as little as any group takes."""
    workload = served.workload
    load = workload.requests_per_s if workload.concurrency is None else workload.concurrency
    assert load is not None  # a workload has one of them
    if goal.objective is ServingObjective.GOODPUT:
        load = 0.0
    return Demand(load, shares_load(served, goal), goal.objective is ServingObjective.ENERGY)


def priced(model: int, served: ServedModel, site: Site, zones: Sequence[Zone], goal: ServingGoal) -> Priced:
    """All groups of one model that hold a request, priced in ``zones``."""
    every = list(single_groups(model, served, site, zones, goal))
    if not every:
        return nothing_priced(served)
    table = worker_table(served, zones, list(dict.fromkeys((each.zone, each.decode) for each in every)))
    singles = [each for each in every if table.fits[table.row(each.zone, each.decode)]]
    alike = [each for each in singles if each.cap_watts == each.prefill_cap_watts]
    groups = alike if ServingMode.AGGREGATED in goal.modes else []
    if ServingMode.SPLIT in goal.modes and served.workload.engine.splits:
        groups += dict.fromkeys(split_groups(table, site, singles))
    found = priced_groups(table, groups, goal)
    return replace(found, shapes=len(every), too_large=len(every) - len(singles))


def nothing_priced(served: ServedModel) -> Priced:
    """No group at all."""
    nothing = np.zeros(0, dtype=np.int64)
    none = np.zeros(0)
    empty = Points(nothing, none, none, none, none, np.empty((0, len(served.workload.limits_s))), none > 0)
    return Priced(served, (), None, empty, nothing, 0, 0)


def priced_groups(table: WorkerTable, groups: Sequence[Group], goal: ServingGoal) -> Priced:
    """``groups`` of the table's workers."""
    served = table.served
    if not groups:
        return replace(nothing_priced(served), table=table)
    cases = cases_of(table, groups)
    most = most_in_flight(cases)
    if is_exact(served, goal):
        most = np.full(len(groups), served.workload.concurrency)
    points = closed_points(served, cases, most)
    return Priced(served, tuple(groups), cases, points, highest(points, len(groups)), len(groups), 0, table)


def with_more(prices: Priced, more: Priced) -> Priced:
    """``prices`` and the groups of ``more``, which the same workers make."""
    if prices.cases is None or more.cases is None:
        return prices if more.cases is None else replace(more, shapes=prices.shapes, too_large=prices.too_large)
    groups, rows = len(prices.groups), len(prices.points.group)
    points = joined(prices.points, replace(more.points, group=more.points.group + groups))
    top = np.concatenate([prices.top, np.where(more.top < 0, -1, more.top + rows)])
    cases = joined_cases(prices.cases, more.cases)
    return replace(prices, groups=(*prices.groups, *more.groups), cases=cases, points=points, top=top)


def workers_of(groups: Sequence[Group], zones: Sequence[Zone]) -> list[tuple[int, Shape]]:
    """Workers of ``groups``, each once, with the zone that prices it."""
    return list(
        dict.fromkeys(
            (zones[each.zone].speed if shape.islands == 1 else each.zone, shape)
            for each in groups
            for shape in (each.decode, each.prefill)
            if shape is not None
        )
    )


def capacities(prices: Priced, groups: IntArray) -> Points:
    """Points of ``groups`` at the highest load within the limits, those that meet them at none marked so.

    That is the highest rate of random arrivals where the workload has a rate, else the most requests in flight.
    """
    assert prices.cases is not None  # there are groups
    served, cases = prices.served, take_cases(prices.cases, groups)
    points = prices.points
    if served.workload.concurrency is not None:
        top = prices.top[groups]
        low = np.where(top >= 0, points.concurrency[top], 0.0)
        after = np.minimum(top + 1, len(points.group) - 1)
        follows = (top >= 0) & (points.group[after] == groups)
        return refined(partial(closed_at, served, cases), low, np.where(follows, points.concurrency[after], low))
    last = np.searchsorted(points.group, groups, side="right") - 1
    high = OPEN_MARGIN * points.requests_per_s[last]
    return refined(partial(open_at, served, cases), LIGHT * high, high)


def offers_of(prices: Priced, zones: Sequence[Zone], goal: ServingGoal) -> list[Offer]:
    """Offers of the groups that meet the limits, without those that another on the same islands replaces."""
    costs = [group_cost(group, zones[group.zone], goal) for group in prices.groups]
    able = np.flatnonzero((prices.top >= 0) & np.isfinite(costs))
    if not len(able):
        return []
    if is_exact(prices.served, goal):
        return _at_loads(prices, able)
    if goal.objective is ServingObjective.ENERGY:
        return cheapest_at_some_load(list(_drawing(prices, able, zones)))
    top = capacities(prices, able)
    load = top.concurrency if prices.served.workload.concurrency is not None else top.requests_per_s
    value = top.requests_per_s if goal.objective.is_maximum else load
    best: dict[tuple[int, object], int] = {}
    for row in np.flatnonzero(top.meets & (load > 0)):
        group = prices.groups[able[row]]
        key = (group.zone, group.slots)
        if key not in best or value[row] > value[best[key]]:
            best[key] = int(row)
    return [
        Offer(
            prices.groups[able[row]],
            load[row : row + 1],
            _costs(prices, prices.groups[able[row]], top.requests_per_s[row : row + 1], zones, goal),
        )
        for row in best.values()
    ]


def _costs(
    prices: Priced, group: Group, requests_per_s: FloatArray, zones: Sequence[Zone], goal: ServingGoal
) -> FloatArray:
    """Coefficient of one group in the objective, a minimum, at each rate."""
    if goal.objective.is_maximum:
        return -prices.served.weight * prices.served.workload.output_tokens * requests_per_s
    return np.full(len(requests_per_s), group_cost(group, zones[group.zone], goal))


def group_cost(group: Group, zone: Zone, goal: ServingGoal) -> float:
    """Coefficient of a group in an objective that is a minimum; infinite without a price where it is cost."""
    if goal.objective is ServingObjective.COST:
        price = zone.gpu.price_usd_per_hour
        return math.inf if price is None else group.gpus * price
    if goal.objective in (ServingObjective.POWER, ServingObjective.ENERGY):
        return watts_of(group, zone)
    return float(group.gpus)


def _drawing(prices: Priced, able: IntArray, zones: Sequence[Zone]) -> Iterator[Offer]:
    """Offers of groups at several rates; costs are the watts they draw."""
    cases, groups = prices.cases, prices.groups
    assert cases is not None  # there are groups
    return open_offers(
        prices,
        able,
        lambda rows, points: drawn_watts_at(cases, groups, zones, rows, points.requests_per_s),
        (*SCARCE, *RATES),
    )


def open_offers(
    prices: Priced,
    able: IntArray,
    cost: Callable[[IntArray, Points], FloatArray],
    shares: tuple[float, ...] = RATES,
) -> Iterator[Offer]:
    """Offers of groups ``able`` at ``shares`` of the highest rate within the limits, or of the load where less.

    ``cost`` (P,) of groups (P,) at points.  Rates below one that misses the limits are left out.
    """
    assert prices.cases is not None  # there are groups
    load = prices.served.workload.requests_per_s
    assert load is not None  # nothing else arrives at random
    top = capacities(prices, able)
    able, most = able[top.meets], np.minimum(top.requests_per_s[top.meets], load)
    if not len(able):
        return
    loads = np.outer(most, shares)
    rows = np.repeat(np.arange(len(able)), len(shares))
    points = open_at(prices.served, take_cases(prices.cases, able), rows, loads.ravel())
    costs = cost(able[rows], points).reshape(loads.shape)
    meets = np.logical_and.accumulate(points.meets.reshape(loads.shape)[:, ::-1], axis=1).sum(axis=1)
    for row in np.flatnonzero(meets):
        yield Offer(prices.groups[able[row]], loads[row, -meets[row] :], costs[row, -meets[row] :])


def _at_loads(prices: Priced, able: IntArray) -> list[Offer]:
    """Offers at every load, of groups that are the fastest at some load among those on the same islands."""
    points = prices.points
    starts = np.searchsorted(points.group, able)
    rows = {int(g): slice(start, prices.top[g] + 1) for g, start in zip(able, starts, strict=True)}
    scale = prices.served.weight * prices.served.workload.output_tokens
    return cheapest_at_some_load(
        [
            Offer(prices.groups[g], points.concurrency[own], -scale * points.requests_per_s[own])
            for g, own in rows.items()
        ]
    )


def cheapest_at_some_load(offers: Sequence[Offer]) -> list[Offer]:
    """``offers`` without those that another on the same islands replaces at every load."""
    most = max(float(each.loads[-1]) for each in offers)
    grid = np.geomspace(min(1.0, *(float(each.loads[0]) for each in offers), most), most, BEST_LOADS)
    alike: dict[tuple[int, object], list[Offer]] = defaultdict(list)
    for offer in offers:
        alike[offer.group.zone, offer.group.slots].append(offer)
    kept = []
    for members in alike.values():
        # beyond the most of one another that takes a little more has no rival
        at = np.union1d(grid, [each.loads[-1] for each in members])
        costs = np.array([np.interp(at, each.loads, each.costs, right=np.inf) for each in members])
        kept += [members[best] for best in np.unique(costs.argmin(axis=0))]
    return kept
