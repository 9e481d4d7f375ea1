"""Power caps of GPUs in serving plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.serving.goal import ServingMode
from solver.check.serving import check_serving_plan
from solver.serving.plan import plan_serving
from solver.serving.planning.islands import site_of
from solver.serving.planning.offers import capacities, priced
from solver.serving.planning.zones import zones_of
from tests.cluster_models.clusters import host
from tests.solver.serving.planning.problems import CHAT, OPTIONS, nodes, problem, served, sound_plan

ONE = {"modes": (ServingMode.AGGREGATED,), "choose_power_caps": True}
"""Replicas for both phases alone, each with a cap or none."""


def test_no_choice_of_caps_beats_the_program() -> None:
    """Every multiset of replicas on four GPUs under 1.9 kW, each with each cap: the best is the plan."""
    load = served("qwen3-32b", **CHAT, concurrency=70.0)
    given = problem(nodes(1, gpus=4), load, objective="goodput", max_power_watts=1900.0, **ONE)
    site = site_of(given.snapshot, given.goal)
    zones = zones_of(site, optimistic=True)
    prices = priced(0, load, site, zones, given.goal)
    tops = capacities(prices, np.arange(len(prices.groups)))
    able = np.flatnonzero(tops.meets & (prices.top >= 0)).tolist()
    assert {prices.groups[row].cap_watts for row in able} == {None, 595, 490, 420}
    best = 0.0
    for count in range(1, 5):
        for choice in combinations_with_replacement(able, count):
            gpus = sum(prices.groups[row].gpus for row in choice)
            watts = sum(prices.groups[row].gpus * zones[prices.groups[row].zone].watts for row in choice)
            if gpus <= 4 and watts <= 1900.0:
                best = max(best, 1024 * sum(float(tops.requests_per_s[row]) for row in choice))
    plan = sound_plan(given)
    assert plan.certificate.objective == pytest.approx(best, rel=1e-3)
    assert len({replica.power_cap_watts for replica in plan.replicas}) >= 1
    assert plan.power_watts <= 1900.0
    rated = sound_plan(replace(given, goal=replace(given.goal, choose_power_caps=False)))
    assert plan.tokens_per_s > 1.1 * rated.tokens_per_s


def test_a_fixed_cap_holds_for_every_gpu_and_costs_rate() -> None:
    """Each replica states it, power is counted by it, and the same GPUs serve less."""
    load = served(**CHAT)
    usual, slow = (
        sound_plan(problem(nodes(1), load, objective="goodput", gpu_power_cap_watts=cap)) for cap in (None, 420.0)
    )
    assert {replica.power_cap_watts for replica in slow.replicas} == {420.0}
    assert {replica.power_cap_watts for replica in usual.replicas} == {None}
    assert slow.power_watts == 420.0 * slow.gpus
    assert 0.6 * usual.tokens_per_s < slow.tokens_per_s < 0.95 * usual.tokens_per_s
    over = sound_plan(problem(nodes(1), load, objective="goodput", gpu_power_cap_watts=700.0))
    assert over.tokens_per_s == usual.tokens_per_s
    assert {replica.power_cap_watts for replica in over.replicas} == {None}


def test_caps_that_no_measurement_reaches_are_refused() -> None:
    """With the least that can be priced; a cap beside the choice of one is a contradiction."""
    with pytest.raises(InvalidWorkload, match=r"gpu_power_cap_watts.*give at least 350"):
        plan_serving(problem(nodes(1), served(**CHAT), gpu_power_cap_watts=349.0), OPTIONS)
    with pytest.raises(InvalidWorkload, match="conflicts with choose_power_caps"):
        problem(nodes(1), served(**CHAT), gpu_power_cap_watts=500.0, choose_power_caps=True)


def test_caps_are_chosen_below_the_power_of_whatever_board() -> None:
    """One of a watt, as a cluster may state, has none; kinds that are avoided forbid no cap."""
    given = problem(nodes(1), served(**CHAT), choose_power_caps=True)
    cluster = given.snapshot.cluster
    kinds = {name: replace(kind, power_watts=1.0) for name, kind in cluster.gpu_kinds.items()}
    small = replace(given.snapshot, cluster=replace(cluster, gpu_kinds=kinds))
    assert set(site_of(small, given.goal).caps.values()) == {(None,)}
    both = (*nodes(1), host("b0", gpu="B200-SXM-180GB"))
    capped = {"gpu_power_cap_watts": 400.0, "objective": "goodput"}
    with pytest.raises(InvalidWorkload, match=r"B200.*give at least 500"):
        plan_serving(problem(both, served(**CHAT), **capped), OPTIONS)
    assert sound_plan(problem(both, served(**CHAT), avoid_nodes=("b0",), **capped)).power_watts > 0


def test_the_check_finds_a_cap_that_the_goal_does_not_have() -> None:
    """A replica that states none is faster than it may be."""
    given = problem(nodes(1), served(**CHAT), objective="goodput", gpu_power_cap_watts=420.0)
    plan = sound_plan(given)
    replicas = tuple(replace(each, power_cap_watts=None) for each in plan.groups[0].replicas)
    wrong = replace(plan, groups=(replace(plan.groups[0], replicas=replicas), *plan.groups[1:]))
    found = list(check_serving_plan(wrong, given))
    assert any("power cap" in each for each in found)
