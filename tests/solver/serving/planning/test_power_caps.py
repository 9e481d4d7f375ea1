"""Power caps of GPUs in serving plans."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations_with_replacement, product

import numpy as np
import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.serving.goal import ServingMode
from solver.check.serving import check_serving_plan
from solver.serving.plan import plan_serving
from solver.serving.planning.groups import Group, watts_of
from solver.serving.planning.islands import site_of
from solver.serving.planning.offers import capacities, priced, priced_groups
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


def test_no_split_group_with_caps_of_its_pools_beats_the_program() -> None:
    """Every pair of workers on three GPUs under 1.5 kW, in every ratio, with every pair of caps."""
    load = served("qwen3-30b-a3b", **CHAT, concurrency=70.0)
    modes = (ServingMode.SPLIT,)
    given = problem(nodes(1, gpus=3), load, objective="goodput", max_power_watts=1500.0, modes=modes)
    given = replace(given, goal=replace(given.goal, choose_power_caps=True))
    site = site_of(given.snapshot, given.goal)
    zones = zones_of(site, optimistic=True, splits=True)
    assert len(zones) == 16
    prices = priced(0, load, site, zones, given.goal)
    assert prices.table is not None
    shapes = [shape for (zone, shape), row in prices.table.rows.items() if zone == 0 and prices.table.fits[row]]
    every = [
        Group(0, number, decode, y, prefill, x, True, zone.cap_watts, zone.prefill_cap_watts)
        for number, zone in enumerate(zones)
        for decode, prefill, (x, y) in product(shapes, shapes, ((1, 1), (1, 2), (2, 1)))
        if decode.islands == prefill.islands == 1
        and y * decode.worker.gpus + x * prefill.worker.gpus <= 3
        and watts_of(Group(0, number, decode, y, prefill, x), zone) <= 1500.0
    ]
    assert {group.cap_watts == group.prefill_cap_watts for group in every} == {True, False}
    groups = priced_groups(prices.table, every, given.goal)
    able = np.flatnonzero(groups.top >= 0)
    tops = capacities(groups, able)
    best = 1024 * float(tops.requests_per_s[tops.meets].max())
    plan = sound_plan(given)
    assert plan.certificate.objective == pytest.approx(best, rel=OPTIONS.gap)
    assert plan.power_watts <= 1500.0


def test_prefill_that_has_time_is_capped_below_decode() -> None:
    """Where only decode is pressed: 420 + 595 W in place of twice 595 W."""
    limits = {"time_to_first_token_s": 1.0, "time_per_output_token_s": 0.01244}
    load = served("llama-3.1-8b", input_tokens=300, requests_per_s=16.0, **limits)
    modes = (ServingMode.SPLIT,)
    given = problem(nodes(1, gpus=2), load, objective="power", modes=modes, choose_power_caps=True)
    plan = sound_plan(given)
    assert [replica.power_cap_watts for replica in plan.replicas] == [420, 595]
    assert plan.certificate.bound <= 1015.0
    group = plan.groups[0]
    for cap, words in ((349.0, "power cap 349"), (490.0, "W; its replicas have")):
        other = replace(group, replicas=(replace(group.replicas[0], power_cap_watts=cap), *group.replicas[1:]))
        assert any(words in each for each in check_serving_plan(replace(plan, groups=(other,)), given))


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
