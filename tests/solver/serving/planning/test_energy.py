"""Plans that draw as little as can be for a rate of requests."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.serving.goal import ServingMode
from solver.check.serving import check_serving_plan
from solver.serving.loads import FloatArray
from solver.serving.plan import plan_serving
from solver.serving.planning.columns import groups_below, unpriced_of
from solver.serving.planning.islands import site_of
from solver.serving.planning.offers import offers_of, priced
from solver.serving.planning.pricing import drawn_watts_at, open_at
from solver.serving.planning.program import Duals
from solver.serving.planning.settle import consolidated
from solver.serving.planning.zones import zones_of
from tests.solver.serving.planning.problems import CHAT, OPTIONS, nodes, problem, served, sound_plan

SHARES = np.linspace(0.1, 0.5, 5)


@pytest.mark.parametrize(("size", "caps"), [(3, False), (2, True)])
def test_no_choice_of_replicas_and_shares_draws_less(size: int, caps: bool) -> None:
    """Every one or two replicas on a few GPUs, each with every tenth of the load: none draws 1 % less."""
    load = served("qwen3-32b", **CHAT, requests_per_s=3.0)
    modes = (ServingMode.AGGREGATED,)
    given = problem(nodes(1, gpus=size), load, objective="energy", modes=modes, choose_power_caps=caps)
    site = site_of(given.snapshot, given.goal)
    zones = zones_of(site, optimistic=True)
    prices = priced(0, load, site, zones, given.goal)
    assert prices.cases is not None
    every = np.arange(len(prices.groups))
    gpus = np.array([group.gpus for group in prices.groups])
    fits = gpus[:, np.newaxis] + gpus <= size

    def watts_at(share: float) -> FloatArray:
        """Watts of each group alone, infinite where limits are missed."""
        rates = np.full(len(every), 3.0 * share)
        watts = drawn_watts_at(prices.cases, prices.groups, zones, every, rates)
        return np.where(open_at(load, prices.cases, every, rates).meets, watts, np.inf)

    best = float(watts_at(1.0).min())
    for share in SHARES.tolist():
        both = watts_at(share)[:, np.newaxis] + watts_at(1.0 - share)
        best = min(best, float(both[fits].min(initial=np.inf)))
    plan = sound_plan(given)
    assert plan.drawn_watts is not None
    assert plan.certificate.objective == pytest.approx(plan.drawn_watts.value)
    assert plan.drawn_watts.value <= 1.01 * best
    assert plan.certificate.bound <= best * (1 + 1e-6)
    assert plan.figures[0].requests_per_s == pytest.approx(3.0)


@pytest.mark.parametrize("over", [1.002, 2.01])
def test_replicas_are_filled_one_after_the_other(over: float) -> None:
    """A rate little above what some take: the last one has the rest alone, and no bound says that it could not."""
    modes = (ServingMode.AGGREGATED,)
    alone = problem(nodes(1, gpus=1), served("llama-3.1-8b", **CHAT, requests_per_s=1.0), modes=modes)
    most = sound_plan(alone).figures[0].most_requests_per_s
    load = served("llama-3.1-8b", **CHAT, requests_per_s=over * most)
    given = problem(nodes(1, gpus=int(over) + 1), load, objective="energy", modes=modes)
    site = site_of(given.snapshot, given.goal)
    zones = zones_of(site, optimistic=True)
    prices = priced(0, load, site, zones, given.goal)
    assert prices.cases is not None
    rates = most * np.array([1.0, over % 1.0]) * (1.0 - 1e-4)
    small = [row for row, group in enumerate(prices.groups) if group.gpus == 1]
    full, rest = drawn_watts_at(prices.cases, prices.groups, zones, np.array(small * 2), rates)
    best = int(over) * float(full) + float(rest)
    stated = sound_plan(given).certificate
    assert stated.objective <= best * 1.005
    assert 0.95 * best <= stated.bound <= best * 1.005


def test_bounds_of_split_groups_hold() -> None:
    """The cost of groups less their price of the load is no less than their bound, priced as they are."""
    load = served("qwen3-30b-a3b", **CHAT, requests_per_s=6.0)
    given = problem(nodes(1, gpus=4), load, objective="energy", modes=(ServingMode.SPLIT,))
    site = site_of(given.snapshot, given.goal)
    zones = zones_of(site, optimistic=True)
    prices = priced(0, load, site, zones, given.goal)
    (unpriced,) = unpriced_of(0, prices, site, zones, given.goal)
    offers = offers_of(prices, zones, given.goal)
    assert offers
    for price, gpu in product((0.0, 100.0, 400.0), (0.0, -50.0)):
        duals = Duals(np.array([price]), {0: np.zeros(5)}, gpu, 0.0, 0.0)
        for offer in offers:
            others = [group for group in prices.groups if group != offer.group]
            found, least, _ = groups_below(unpriced, duals, given.goal, others, 1e9, 10_000)
            if offer.group in found:
                cost = offer.costs - price * offer.loads - gpu * offer.group.gpus
                assert least <= float(cost.min()) * (1 + 1e-6) + 1e-6


def test_the_plan_of_a_split_cluster_draws_less_than_that_of_fewest_gpus() -> None:
    """Its bound holds for the other; energy of requests in flight is no question."""
    load = served(**CHAT, requests_per_s=4.0)
    least, fewest = (sound_plan(problem(nodes(1, gpus=6), load, objective=each)) for each in ("energy", "gpus"))
    assert least.drawn_watts is not None
    assert fewest.drawn_watts is not None
    assert least.drawn_watts.value <= fewest.drawn_watts.value * (1 + OPTIONS.gap)
    assert least.certificate.bound <= fewest.drawn_watts.value
    for ends in ({"value": 300.0, "low": 250.0}, {"low": -1.0}, {"high": 1e9}, {"value": math.nan}):
        group = replace(least.groups[0], drawn_watts=replace(least.groups[0].drawn_watts, **ends))
        given = problem(nodes(1, gpus=6), load, objective="energy")
        broken = check_serving_plan(replace(least, groups=(group, *least.groups[1:])), given)
        assert any("boards and caps allow" in each for each in broken)
    with pytest.raises(InvalidWorkload, match="asks for requests_per_s"):
        plan_serving(problem(nodes(1), served(**CHAT), objective="energy"), OPTIONS)
    with pytest.raises(InvalidWorkload, match="asks for requests_per_s"):
        plan_serving(replace(problem(nodes(1), load, served(**CHAT)), goal=least.goal), OPTIONS)


def test_load_beyond_the_room_of_equal_groups_moves_to_others() -> None:
    """The first of two equal groups is filled; none is lost while any has room."""
    groups, loads = ("one", "other", "one"), np.array([6.0, 5.0, 4.0])
    assert consolidated(groups, loads, np.array([8.0, 7.0, 1.0])) == pytest.approx([8.0, 6.0, 1.0])
    assert consolidated(groups, loads, np.array([8.0, 5.5, 1.0])) == pytest.approx([8.0, 5.5, 1.0])
    assert consolidated(groups, loads, np.array([12.0, 7.0, 8.0])) == pytest.approx([10.0, 5.0, 8e-6])
