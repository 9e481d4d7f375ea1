"""Split groups that are priced only where they may matter, against all of them priced."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

from cluster_models.cluster.topology import Node
from cluster_models.serving.goal import ServingMode
from solver.problem import Backend
from solver.serving.planning.columns import RATIOS, groups_below, unpriced_of
from solver.serving.planning.groups import Group
from solver.serving.planning.islands import Site, site_of
from solver.serving.planning.offers import Priced, demand, offers_of, priced, priced_groups
from solver.serving.planning.program import Duals, Offer, build_program
from solver.serving.planning.solving import solve
from solver.serving.planning.zones import Zone, classes_of, zones_of
from solver.serving.problem import ServingProblem
from tests.solver.serving.planning.problems import CHAT, OPTIONS, nodes, problem, served, sound_plan

CLOSED, OPEN = {"concurrency": 40.0}, {"requests_per_s": 6.0}


def _first(given: ServingProblem) -> tuple[Site, tuple[Zone, ...], Priced]:
    site = site_of(given.snapshot, given.goal)
    zones = zones_of(site, optimistic=True)
    return site, zones, priced(0, given.models[0], site, zones, given.goal)


def _every_split(prices: Priced, site: Site) -> list[Group]:
    """Every pair of workers in every ratio that fits into the largest node, or into all of them."""
    assert prices.table is not None
    fits = prices.table.fits
    shapes = [shape for (_, shape), row in prices.table.rows.items() if fits[row]]
    sizes = [len(island.gpus) for island in site.islands]
    found = []
    for prefill, decode, (x, y) in product(shapes, shapes, RATIOS):
        group = Group(0, 0, decode, y, prefill, x)
        slots = {shape.slot for shape in (prefill, decode) if shape.islands > 1}
        alike = len(slots) < 2 and all(shape.slot <= slot for slot in slots for shape in (prefill, decode))
        if alike and group.gpus <= sum(sizes):
            found.append(group)
        if prefill.islands == decode.islands == 1 and group.gpus <= max(sizes):
            found.append(Group(0, 0, decode, y, prefill, x, near=True))
    return found


def _offers(given: ServingProblem) -> tuple[Site, tuple[Zone, ...], list[Offer]]:
    """Offers of all groups there are."""
    site, zones, prices = _first(given)
    singles = [group for group in prices.groups if group.prefill is None]
    assert prices.table is not None
    every = priced_groups(prices.table, [*singles, *_every_split(prices, site)], given.goal)
    return site, zones, offers_of(every, zones, given.goal)


@pytest.mark.parametrize(
    ("hosts", "objective", "load"),
    [
        (nodes(1, gpus=5), "throughput", CLOSED),
        (nodes(1, gpus=4), "goodput", OPEN),
        (nodes(1, gpus=5), "gpus", {"concurrency": 300.0}),
        (nodes(2, gpus=2), "throughput", CLOSED),
    ],
)
def test_no_split_group_beats_those_priced(hosts: list[Node], objective: str, load: dict[str, float]) -> None:
    """The plan is that of the program over every pair of workers in every ratio."""
    given = problem(hosts, served("qwen3-30b-a3b", **CHAT, **load), objective=objective, modes=(ServingMode.SPLIT,))
    site, zones, offers = _offers(given)
    program = build_program(
        offers, [demand(given.models[0], given.goal)], zones, classes_of(site.islands, zones), given.goal
    )
    best = solve(program, backend=Backend.CBC, gap=0.0, time_limit_s=60.0)
    plan = sound_plan(given)
    assert plan.certificate.objective == pytest.approx(abs(best.outcome.objective), rel=OPTIONS.gap)
    assert plan.certificate.groups < len(_every_split(_first(given)[2], site))


@pytest.mark.parametrize(("objective", "load"), [("throughput", CLOSED), ("gpus", CLOSED), ("gpus", OPEN)])
def test_no_group_costs_less_than_its_bound(objective: str, load: dict[str, Any]) -> None:
    """Under made up duals: whatever lies below a value is among the groups that may lie below it."""
    given = problem(nodes(2, gpus=3), served("qwen3-30b-a3b", **CHAT, **load), objective=objective)
    site, zones, prices = _first(given)
    (unpriced,) = unpriced_of(0, prices, site, zones, given.goal)
    assert prices.table is not None
    wanted = demand(given.models[0], given.goal)
    part, price, gpu = np.array([0.0, 1.0, 1.9, 2.7]), 0.05, -0.02
    every = priced_groups(prices.table, _every_split(prices, site), given.goal)
    costs = {}
    for offer in offers_of(every, zones, given.goal):
        parts = sum(count * part[size] for size, count in offer.group.slots)
        at_loads = offer.costs - price * (offer.loads if wanted.load else np.ones_like(offer.loads))
        costs[offer.group] = float(at_loads.min() - parts - gpu * offer.group.gpus)
    duals = Duals(np.array([price]), {0: part}, gpu, 0.0, 0.0)
    for below in np.quantile(list(costs.values()), (0.05, 0.3, 0.7)).tolist():
        may, least, _ = groups_below(unpriced, duals, given.goal, (), below, 10**6)
        assert {group for group, cost in costs.items() if cost < below} <= set(may)
        assert least <= min(costs.values())


@pytest.mark.parametrize(("objective", "load"), [("throughput", CLOSED), ("goodput", OPEN), ("cost", OPEN)])
def test_a_plan_without_time_has_a_bound(objective: str, load: dict[str, float]) -> None:
    """Time that is over before the first relaxation leaves a bound that is loose, and holds."""
    given = problem(nodes(1, gpus=4), served("qwen3-30b-a3b", **CHAT, **load), objective=objective)
    best = sound_plan(given).certificate
    hasty = sound_plan(given, replace(OPTIONS, time_limit_s=1e-9)).certificate
    sign = 1.0 if objective == "cost" else -1.0
    assert math.isfinite(hasty.bound)
    assert sign * hasty.bound <= sign * best.bound + 1e-9
