"""Maps over nodes: best of all on small cases, never behind the published balancer, sound bounds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations, combinations_with_replacement

import numpy as np
import pytest

from benchmarks.eplb import eplb_global, eplb_hierarchical
from cluster_models.training.expert_slots import ExpertSlots
from solver.candidates import FloatArray, IntArray
from solver.experts.dispatch import LayerRates, RouterRule, Routing, layer_times, routing
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, balancedness
from solver.experts.nodewise import place_nodewise, usual_rates

FAST, SLOW = 50e9, 5e9


def rates(between_bytes_per_s: float) -> LayerRates:
    """A layer like DeepSeek-V3's on ranks with such links between nodes."""
    return LayerRates(1e-7, 7_392.0, 14_336.0, between_bytes_per_s, 360e9)


def uneven(layers: int, experts: int, seed: int, spread: float = 0.8) -> FloatArray:
    """(L, E) loads as uneven as those counted of DeepSeek-R1."""
    return np.random.default_rng(seed).lognormal(0.0, spread, (layers, experts))


def every_map(experts: int, layout: ExpertLayout) -> IntArray:
    """(maps, S) of two nodes: all of them up to the order of slots, ranks and nodes."""
    rank = list(combinations(range(experts), layout.slots_per_rank))
    node = list(combinations_with_replacement(rank, layout.ranks_per_node))
    rows = [np.ravel(pair) for pair in combinations_with_replacement(node, 2)]
    return np.array([row for row in rows if len(set(row)) == experts])


@pytest.mark.parametrize("between", [SLOW, FAST])
@pytest.mark.parametrize("rule", [RouterRule(2), RouterRule(2, 2, 1), RouterRule(2, 3, 2)])
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("choice", CopyChoice)
def test_small_maps_are_the_best_of_all(between: float, rule: RouterRule, seed: int, choice: CopyChoice) -> None:
    """Six experts in eight slots of two nodes: no map is faster, none faster than the bound."""
    layout, loads = ExpertLayout(4, 2, 8), uneven(1, 6, seed, 0.5)
    maps = every_map(6, layout)
    one = routing(loads, rule)
    many = Routing(rule, np.repeat(one.shares, len(maps), axis=0), np.repeat(one.weights, len(maps), axis=0), {})
    best = layer_times(maps, many, layout, rates(between), choice).total_s.min()
    placed = place_nodewise(one, layout, rates(between), choice=choice, proposals=4_000)
    assert placed.times.total_s[0] == pytest.approx(best, rel=1e-9)
    assert placed.bound_s[0] <= best * (1 + 1e-9)


@pytest.mark.parametrize(
    ("experts", "layout", "rule"),
    [
        (256, ExpertLayout(32, 4, 288), RouterRule(8, 8, 4)),
        (256, ExpertLayout(64, 8, 320), RouterRule(8, 8, 4)),
        (256, ExpertLayout(64, 8, 256), RouterRule(8, 8, 4)),
        (128, ExpertLayout(16, 2, 128), RouterRule(8)),
        (8, ExpertLayout(8, 2, 8), RouterRule(2)),
        (8, ExpertLayout(8, 2, 16), RouterRule(2)),
        (64, ExpertLayout(12, 3, 72), RouterRule(6)),
    ],
)
def test_no_layer_is_slower_than_in_either_mode_of_the_published_balancer(
    experts: int, layout: ExpertLayout, rule: RouterRule
) -> None:
    """Few proposals are enough never to be behind, with slow and with fast links."""
    loads = uneven(3, experts, 1)
    routed = routing(loads, rule)
    groups = rule.groups if rule.groups % layout.nodes == 0 else layout.nodes
    modes = [eplb_global(loads, layout)]
    if experts % groups == 0:
        modes.append(eplb_hierarchical(loads, layout, groups))
    for between in (SLOW, FAST):
        for choice in CopyChoice:
            placed = place_nodewise(routed, layout, rates(between), choice=choice, proposals=3_000, threads=2)
            for mode in modes:
                their_times = layer_times(mode, routed, layout, rates(between), choice).total_s
                assert (placed.times.total_s <= their_times * (1 + 1e-9)).all()
            assert (placed.bound_s <= placed.times.total_s).all()
        unknown = place_nodewise(routed, layout, rates(between), proposals=9_000, threads=2).slots
        for choice in CopyChoice:
            ours, *theirs = (
                layer_times(each, routed, layout, rates(between), choice).total_s.sum()
                for each in (unknown, *modes)
            )
            assert ours <= min(theirs) * (1 + 1e-9)
        rows = tuple(tuple(row.tolist()) for row in unknown)
        ExpertSlots(tuple(range(3)), rows, experts, layout.ranks)


@pytest.mark.parametrize("choice", CopyChoice)
@pytest.mark.parametrize("gbit_per_s", [50, 100, 200, 400])
def test_one_map_is_never_behind_where_neither_speed_nor_choice_is_known(
    choice: CopyChoice, gbit_per_s: float
) -> None:
    """Made without a speed, it beats both modes at every speed, with dispatch in 16 bits too."""
    ours, modes, routed, layout = unknown_case()
    for dispatch in (usual_rates().dispatch_bytes, usual_rates().combine_bytes):
        each = replace(usual_rates(gbit_per_s * 1e9 / 8), dispatch_bytes=dispatch)
        mine, *theirs = (layer_times(slots, routed, layout, each, choice).total_s.sum() for slots in (ours, *modes))
        assert mine < min(theirs)


@cache
def unknown_case() -> tuple[IntArray, list[IntArray], Routing, ExpertLayout]:
    """A map of a few layers, those of the published balancer, and what they are for."""
    layout = ExpertLayout(32, 4, 288)
    routed = routing(uneven(3, 256, 11), RouterRule(8, 8, 4))
    placed = place_nodewise(routed, layout, usual_rates(), speed_known=False, threads=2)
    return (
        placed.slots,
        [eplb_global(routed.shares, layout), eplb_hierarchical(routed.shares, layout, 8)],
        routed,
        layout,
    )


def test_crossing_nodes_is_spared_without_losing_balance() -> None:
    """With usual rates, nearly all balance, and no more crossing than whole groups in nodes have (within 1 %)."""
    layout, rule = ExpertLayout(32, 4, 288), RouterRule(8, 8, 4)
    routed = routing(uneven(4, 256, 2), rule)
    placed = place_nodewise(routed, layout, usual_rates(), speed_known=False, proposals=30_000, threads=2)
    grouped, scattered = (
        layer_times(mode, routed, layout, usual_rates())
        for mode in (eplb_hierarchical(routed.shares, layout, 8), eplb_global(routed.shares, layout))
    )
    assert placed.times.busiest_crossing.mean() < 1.01 * grouped.busiest_crossing.mean()
    assert placed.times.busiest_crossing.mean() < 0.9 * scattered.busiest_crossing.mean()
    assert balancedness(placed.slots, routed.shares, layout) > 0.97


def test_faster_links_buy_balance() -> None:
    """The faster the links, the more balanced the ranks and the more crosses nodes."""
    layout = ExpertLayout(32, 4, 288)
    routed = routing(uneven(3, 256, 3), RouterRule(8, 8, 4))
    slow, fast = (place_nodewise(routed, layout, rates(each), proposals=80_000) for each in (SLOW, 4 * FAST))
    assert fast.times.compute_s.mean() < slow.times.compute_s.mean()
    assert fast.times.crossing.mean() > slow.times.crossing.mean()


def test_maps_depend_on_seed_and_proposals_alone() -> None:
    """Threads change nothing."""
    layout = ExpertLayout(16, 4, 80)
    routed = routing(uneven(4, 64, 4), RouterRule(6))
    first, again = (
        place_nodewise(routed, layout, rates(FAST), proposals=5_000, seed=7, threads=threads) for threads in (1, 2)
    )
    assert (first.slots == again.slots).all()


def test_faster_ranks_carry_more() -> None:
    """A node of ranks that compute twice as fast gets more of the load than the other."""
    layout = ExpertLayout(8, 2, 72, (2.0,) * 4 + (1.0,) * 4)
    loads = uneven(2, 64, 5, 0.3)
    placed = place_nodewise(routing(loads, RouterRule(8)), layout, rates(FAST * 100), proposals=20_000)
    assert balancedness(placed.slots, loads, layout) > 0.95


def test_measured_pairs_gather_experts_that_tokens_select_together() -> None:
    """Experts that are always selected in pairs end in one node, whatever their numbers."""
    experts, layout = 16, ExpertLayout(4, 2, 16)
    pairs = np.zeros((experts, experts))
    for first, second in zip(range(8), range(8, 16), strict=True):
        pairs[first, second] = pairs[second, first] = 100.0
    loads = pairs.sum(axis=1)[None, :]
    placed = place_nodewise(routing(loads, RouterRule(2), {0: pairs}), layout, rates(SLOW), proposals=10_000)
    node = {expert: slot // 8 for slot, expert in enumerate(placed.slots[0].tolist())}
    assert all(node[first] == node[first + 8] for first in range(8))
    assert placed.times.crossing[0] == pytest.approx(0.5, rel=1e-6)
