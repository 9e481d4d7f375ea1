"""Moves from a running map: against every map of small cases, and by replaying them one after the other."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.training.expert_slots import ExpertSlots
from solver.candidates import FloatArray, IntArray
from solver.experts.balance import slowest_load
from solver.experts.layer_frontiers import layer_frontiers
from solver.experts.layout import ExpertLayout
from solver.experts.least_moves import least_moves, least_moves_in_all
from solver.experts.loads import balancedness
from solver.experts.moves import MoveCosts
from solver.experts.place import place_experts
from solver.experts.rebalance import Pace, Rebalanced, rebalance
from tests.solver.experts.test_place import skewed, workload

SMALL = [
    (ExpertLayout(2, 1, 4), 4),
    (ExpertLayout(2, 1, 6), 4),
    (ExpertLayout(3, 1, 6), 6),
    (ExpertLayout(3, 1, 6), 4),
    (ExpertLayout(4, 2, 4), 4),
    (ExpertLayout(3, 1, 6, (1.0, 2.0, 3.0)), 5),
]
COSTS = MoveCosts(1e6, 1e-9, 1e-8)
PACE = Pace(1e-3, 100)


def labelled_maps(experts: int, layout: ExpertLayout) -> list[IntArray]:
    """(G, s) each map without two copies of an expert on a rank, ranks told apart."""
    contents = list(itertools.combinations(range(experts), layout.slots_per_rank))
    return [
        np.array(held)
        for held in itertools.product(contents, repeat=layout.ranks)
        if len(set(itertools.chain.from_iterable(held))) == experts
    ]


def loads_between(before: IntArray, after: IntArray) -> int:
    """Experts that a rank has ``after`` and had not ``before``."""
    return sum(len(set(new) - set(old)) for old, new in zip(before.tolist(), after.tolist(), strict=True))


def least_of_all(shares: FloatArray, before: IntArray, layout: ExpertLayout) -> list[tuple[int, float]]:
    """(loads, slowest load) of every map."""
    return [
        (loads_between(before, after), float(slowest_load(shares[None, :], after, layout)[0]))
        for after in labelled_maps(len(shares), layout)
    ]


@given(st.sampled_from(SMALL), st.integers(0, 10**6))
@settings(max_examples=20)
def test_the_frontier_of_a_small_layer_is_that_of_all_maps(case: tuple[ExpertLayout, int], seed: int) -> None:
    """For each number of loads no map is better balanced than ours by 2 %, and no map undercuts the least moves."""
    layout, experts = case
    generator = np.random.default_rng(seed)
    maps = labelled_maps(experts, layout)
    before = maps[int(generator.integers(len(maps)))]
    shares = skewed(seed, 1, experts)[0]
    shares *= layout.ranks / shares.sum()
    every = least_of_all(shares, before, layout)
    found = layer_frontiers(before[None], shares[None], layout, far=1.0, steps=4000, seed=seed)[0]
    for loads in range(layout.slots + 1):
        best = min(load for count, load in every if count <= loads)
        ours = min(point.slowest for point in found.points if point.loads <= loads)
        assert best * (1 - 1e-9) <= ours <= best * 1.02
    for limit in {load for _, load in every}:
        needed = min(count for count, load in every if load <= limit + 1e-12)
        assert least_moves(shares, before, layout, limit) <= needed
    for (_, reach), (stair, _) in itertools.pairwise(found.stairs):
        assert all(count >= stair for count, load in every if 1 / load > reach * (1 + 1e-9))
    assert found.stairs[-1][1] >= 1 / min(load for _, load in every) * (1 - 1e-9)


@given(st.sampled_from(SMALL), st.integers(0, 10**6), st.floats(0.5, 1.0))
@settings(max_examples=12)
def test_moves_in_all_layers_lie_between_the_bound_and_little_above_the_best(
    case: tuple[ExpertLayout, int], seed: int, target: float
) -> None:
    """Over two layers, the bound does not exceed the fewest loads of all maps, nor do ours by more than one."""
    layout, experts = case
    generator = np.random.default_rng(seed)
    maps = labelled_maps(experts, layout)
    before = [maps[int(generator.integers(len(maps)))] for _ in range(2)]
    counts = skewed(seed, 2, experts)
    shares = counts * layout.ranks / counts.sum(axis=1, keepdims=True)
    every = [least_of_all(shares[layer], before[layer], layout) for layer in range(2)]
    reaching = [
        first + second
        for first, one in _best_by_loads(every[0])
        for second, other in _best_by_loads(every[1])
        if (one + other) / 2 >= target - 1e-9
    ]
    running = ExpertSlots((0, 1), tuple(tuple(held.ravel().tolist()) for held in before), experts, layout.ranks)
    answer = rebalance(running, workload(counts), layout, costs=_even(COSTS), pace=PACE, target=target)
    replay(running, answer, layout)
    if not reaching:
        assert not answer.reached
        return
    assert answer.least_moves is not None
    assert answer.least_moves <= min(reaching)
    if answer.reached:
        assert min(reaching) <= len(answer.moves) <= min(reaching) + 1
        assert answer.balancedness >= target - 1e-9


def _best_by_loads(every: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """(loads, best balancedness with so many)."""
    return [(n, 1 / min(load for count, load in every if count == n)) for n in {count for count, _ in every}]


def _even(costs: MoveCosts) -> MoveCosts:
    return MoveCosts(costs.expert_bytes, costs.inside_s_per_byte, costs.inside_s_per_byte)


def replay(running: ExpertSlots, answer: Rebalanced, layout: ExpertLayout) -> None:
    """Do the moves: each source has the expert, each expert a copy at any moment, and the new map comes out."""
    size = layout.slots_per_rank
    rows = {layer: list(row) for layer, row in zip(running.layers, running.slots, strict=True)}
    buffers: dict[tuple[int, int], int] = {}

    def ranks_with(layer: int, expert: int) -> set[int]:
        held = {slot // size for slot, other in enumerate(rows[layer]) if other == expert}
        return held | {slot // size for (at, slot), other in buffers.items() if at == layer and other == expert}

    def settle() -> None:
        for (layer, slot), expert in list(buffers.items()):
            if len(ranks_with(layer, rows[layer][slot])) > 1:
                rows[layer][slot] = expert
                del buffers[layer, slot]

    most = 0
    for move in answer.moves:
        assert move.rank == move.slot // size
        assert move.old == rows[move.layer][move.slot]
        assert move.source in ranks_with(move.layer, move.new)
        assert move.rank not in ranks_with(move.layer, move.new)
        width = layout.ranks_per_node
        near = {held // width for held in ranks_with(move.layer, move.new)}
        assert move.same_node == (move.rank // width in near)
        if move.buffered:
            buffers[move.layer, move.slot] = move.new
            most = max(most, sum(slot // size == move.rank for _, slot in buffers))
        else:
            assert len(ranks_with(move.layer, move.old)) > 1
            rows[move.layer][move.slot] = move.new
        settle()
        for layer, row in rows.items():
            held = set(row) | {expert for (at, _), expert in buffers.items() if at == layer}
            assert held == set(range(running.experts))
    assert not buffers
    assert most <= answer.spare_buffers
    assert tuple(map(tuple, rows.values())) == answer.slots.slots
    assert answer.bytes_inside + answer.bytes_between == pytest.approx(len(answer.moves) * COSTS.expert_bytes)


@pytest.fixture(scope="module")
def drifted() -> tuple[ExpertSlots, RoutedWorkload, ExpertLayout]:
    """A map of 6 layers of 64 experts with 8 copies on 8 ranks in 2 nodes, and counts for which it was not made."""
    layout = ExpertLayout(8, 2, 72)
    placed = place_experts([workload(skewed(1, 6, 64))], layout)
    return placed.slots, workload(skewed(1, 6, 64) + 2 * skewed(2, 6, 64)), layout


def test_few_moves_bring_a_map_back_to_balance(
    drifted: tuple[ExpertSlots, RoutedWorkload, ExpertLayout],
) -> None:
    """Targets are reached with a small part of all slots, most of it inside nodes, higher ones with more."""
    running, counts, layout = drifted
    answers = [
        rebalance(running, counts, layout, costs=COSTS, pace=PACE, target=target) for target in (0.8, 0.9, 0.97)
    ]
    for answer in answers:
        replay(running, answer, layout)
        assert answer.reached
        assert answer.least_moves is not None
        assert answer.least_moves <= len(answer.moves) < 0.3 * 6 * 72
        assert answer.bytes_inside > answer.bytes_between
        rows = np.array(answer.slots.slots)
        assert answer.balancedness == balancedness(rows, counts.loads, layout)
    again = rebalance(running, counts, layout, costs=COSTS, pace=PACE, target=0.97)
    assert again.moves == answers[-1].moves
    assert [len(answer.moves) for answer in answers] == sorted(len(answer.moves) for answer in answers)


def test_nothing_is_gained_below_what_reading_weights_takes(
    drifted: tuple[ExpertSlots, RoutedWorkload, ExpertLayout],
) -> None:
    """With few tokens a rank reads its weights as long as it would compute: even loads save no time."""
    running, counts, layout = drifted
    plain = rebalance(running, counts, layout, costs=COSTS, pace=Pace(1e-3, 1000))
    assert plain.moves
    bound = rebalance(running, counts, layout, costs=COSTS, pace=Pace(1e-3, 1000, least_s=1.0))
    assert (bound.moves, bound.gain_s_per_step, bound.pays) == ((), 0.0, False)
    between = rebalance(running, counts, layout, costs=COSTS, pace=Pace(1e-3, 1000, least_s=1.2e-3))
    assert 0 < between.gain_s_per_step < plain.gain_s_per_step


def test_a_map_is_left_alone_where_moves_do_not_pay(
    drifted: tuple[ExpertSlots, RoutedWorkload, ExpertLayout],
) -> None:
    """Without steps ahead nothing moves; more steps gain more; a target that costs too much is said."""
    running, counts, layout = drifted
    worth = []
    for steps in (0, 1, 10, 1000):
        answer = rebalance(running, counts, layout, costs=COSTS, pace=Pace(1e-3, steps))
        worth.append(answer.gain_s_per_step * steps - answer.move_s)
        assert bool(answer.moves) == answer.pays
    assert worth[0] == 0
    assert worth == sorted(worth)
    forced = rebalance(running, counts, layout, costs=COSTS, pace=Pace(1e-3, 1e-3), target=0.95)
    assert forced.moves
    assert not forced.pays
    assert forced.break_even_steps > 1e-3
    balanced = rebalance(running, counts, layout, costs=COSTS, pace=PACE, target=0.1)
    assert (balanced.moves, balanced.least_moves, balanced.move_s, balanced.break_even_steps) == ((), 0, 0.0, 0.0)


def test_a_pure_swap_waits_in_one_spare_buffer() -> None:
    """Two experts without copies that change places: one is loaded beside the other, which is read meanwhile."""
    running = ExpertSlots((4,), ((0, 1, 2, 3),), 4, 2)
    counts = RoutedWorkload("a", (4,), np.array([[4.0, 3.0, 2.0, 1.0]]))
    answer = rebalance(running, counts, ExpertLayout(2, 1, 4), costs=COSTS, pace=PACE, target=1.0)
    assert [move.buffered for move in answer.moves] == [True, False]
    assert (answer.spare_buffers, answer.balancedness, answer.least_moves) == (1, 1.0, 2)
    assert answer.move_s == pytest.approx(1e-3)
    assert answer.gain_s_per_step == pytest.approx(1e-3 * (1.4 - 1.0))
    assert {move.layer for move in answer.moves} == {4}


def test_a_target_out_of_reach_is_said() -> None:
    """One hot expert without room for copies: the least moves are unknown, and the nearest map is given."""
    running = ExpertSlots((0,), ((0, 1, 2, 3),), 4, 2)
    counts = RoutedWorkload("a", (0,), np.array([[97.0, 1.0, 1.0, 1.0]]))
    answer = rebalance(running, counts, ExpertLayout(2, 1, 4), costs=COSTS, pace=PACE, target=0.9)
    assert not answer.reached
    assert answer.least_moves is None
    assert least_moves_in_all([[(0.0, 0.5), (2.0, 0.6)]], 0.9) is None


def test_wrong_input_is_named() -> None:
    """Counts of other layers, other layouts and figures out of range are refused."""
    running = ExpertSlots((0,), ((0, 1, 2, 3),), 4, 2)
    layout = ExpertLayout(2, 1, 4)
    with pytest.raises(InvalidInput, match="counts of the layers"):
        rebalance(running, workload(np.ones((2, 4))), layout, costs=COSTS, pace=PACE)
    with pytest.raises(InvalidInput, match="2 ranks and 4 slots"):
        rebalance(running, workload(np.ones((1, 4))), ExpertLayout(2, 1, 6), costs=COSTS, pace=PACE)
    with pytest.raises(InvalidInput, match="above 0"):
        rebalance(running, workload(np.ones((1, 4))), layout, costs=COSTS, pace=PACE, target=0.0)
    with pytest.raises(InvalidInput, match="expert_bytes"):
        MoveCosts(0.0, 1.0, 1.0)
    with pytest.raises(InvalidInput, match="steps"):
        Pace(1.0, math.inf)
