"""Relocation of slow nodes on grids small enough to count every excess in plain Python."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.placement_clusters import steep_links, steep_training
from benchmarks.placement_grid import Training, grid_problem
from solver.candidates import IntArray
from solver.compiled import step_seconds
from solver.compiled_excess import GridLimits, cool, excesses
from solver.placement import search_rounds
from solver.placement.local_search import Found
from solver.placement.problem import NO_SLOT, PlacementProblem, placed_times
from solver.placement.relocation import (
    MOST_NODES,
    excess_s,
    grid_limits,
    grid_slots,
    relocate_slow_nodes,
    relocated,
    relocates,
)

MOVES = 15_000
"""Enough for the fewest relocations on 16 slots."""


def steep(seed: int) -> PlacementProblem:
    """16 nodes as 4 replicas of 4 ranks."""
    return grid_problem(steep_links(16, seed), steep_training(16))


def found_of(problem: PlacementProblem, assignment: IntArray) -> Found:
    """An assignment and its step; nothing here has rules."""
    return Found(assignment, float(step_seconds(assignment, problem.arrays)[0]), 0)


def limits_of(problem: PlacementProblem, step_s: float) -> GridLimits:
    """The limits of one trial step."""
    at = grid_limits(problem, step_s)
    assert at is not None
    return at(step_s)


def counted(grid: IntArray, limits: GridLimits) -> tuple[list[float], list[list[float]]]:
    """The largest excess of a stretch of each route, and the excesses of the links of each ring."""
    ranks, routes = grid.shape[1], []
    for route in grid.tolist():
        worst = 0.0
        for a in range(ranks):
            for b in range(a, ranks):
                seconds = sum(limits.work_s[s, route[s]] for s in range(a, b + 1))
                seconds += sum(limits.both_s[route[s], route[s + 1]] for s in range(a, b))
                worst = max(worst, (seconds - limits.most_s[a, b]) * limits.rounds[a, b])
        routes.append(worst)
    rings = [
        [
            max(0.0, limits.link_s[limits.matrix[s], n, m] - limits.ring_s[s])
            for n, m in zip(grid[:, s], np.roll(grid[:, s], -1), strict=True)
        ]
        for s in range(ranks)
    ]
    return routes, rings


@given(st.integers(0, 99), st.floats(0.8, 1.6))
@settings(max_examples=8)
def test_excesses_are_those_counted_and_none_where_all_limits_are_kept(seed: int, share: float) -> None:
    """A trial step far above the grid's own leaves nothing, one below it something."""
    problem = steep(seed)
    grid = np.random.default_rng(seed).permutation(16).reshape(4, 4)
    limits = limits_of(problem, share * float(step_seconds(grid.ravel(), problem.arrays)[0]))
    routes, rings = counted(grid, limits)
    cost, ring_cost = excesses(grid, limits, 0.0)
    assert cost.tolist() == pytest.approx([e + limits.curve * e * e for e in routes], abs=1e-12)
    expected = [sum(e + limits.curve * e * e for e in ring) for ring in rings]
    assert ring_cost.tolist() == pytest.approx(expected, abs=1e-12)
    kept = max(routes) == 0 and max(map(max, rings)) == 0
    assert (excess_s(grid, limits) == 0) == kept
    assert excesses(grid, limits, 1.0)[0].sum() > cost.sum()


@given(st.integers(0, 99))
@settings(max_examples=8)
def test_a_grid_keeps_the_limits_of_its_own_step(seed: int) -> None:
    """Routes keep them where the first rank's ring takes as long as supposed or longer; slower nodes count."""
    problem = steep(seed)
    slowdown = np.random.default_rng(seed).uniform(1.0, 1.2, 16)
    problem = replace(problem, arrays=problem.arrays._replace(slowdown=slowdown))
    assignment = np.random.default_rng(seed).permutation(16)
    times = placed_times(problem, assignment)
    limits = limits_of(problem, times.step_s)
    assume(times.reduce_s[0] >= limits.ring_s[0])
    assert excesses(assignment.reshape(4, 4), limits, 0.0)[0].max() <= 1e-9


@given(st.integers(0, 99))
@settings(max_examples=5)
def test_cooling_keeps_all_nodes_and_loses_nothing(seed: int) -> None:
    """Each node stands somewhere once, the cost is at most the start's, and the same seed gives the same grid."""
    problem = steep(seed)
    start = np.random.default_rng(seed).permutation(16).reshape(4, 4)
    limits = limits_of(problem, 0.9 * float(step_seconds(start.ravel(), problem.arrays)[0]))
    near = np.argsort(limits.both_s, axis=1)[:, 1:4]
    first, second = start.copy(), start.copy()
    for grid in (first, second):
        cool(grid, limits, near, 0.05, 500, (0.01, 0.001), seed)
    assert sorted(first.ravel().tolist()) == list(range(16))
    assert first.tolist() == second.tolist()
    assert (
        sum(map(np.sum, excesses(first, limits, 0.05))) <= sum(map(np.sum, excesses(start, limits, 0.05))) + 1e-12
    )


@given(st.integers(0, 99))
@settings(max_examples=8)
def test_a_slow_node_moves_with_the_nodes_nearest_to_it(seed: int) -> None:
    """All nodes stay; where a slow node stands now, no other slow one moved beside it."""
    problem, random = steep(seed), np.random.default_rng(seed)
    grid = random.permutation(16).reshape(4, 4)
    limits = limits_of(problem, 0.9 * float(step_seconds(grid.ravel(), problem.arrays)[0]))
    slow = np.zeros(16, dtype=bool)
    slow[grid[1, 1]] = True
    assume(excesses(grid, limits, 0.0)[0][1] > 0)
    moved = relocated(grid, limits, slow, random)
    assert sorted(moved.ravel().tolist()) == list(range(16))
    ((r, s),) = np.argwhere(moved == grid[1, 1]).tolist()
    beside = [moved[r, t] for t in (s - 1, s + 1) if 0 <= t < 4] + [moved[(r + 1) % 4, s], moved[r - 1, s]]
    nearest = np.argsort(limits.both_s[grid[1, 1]])[1 : len(beside) + 1]
    assert set(beside) == set(nearest.tolist())


@pytest.mark.parametrize("seed", [1, 2])
def test_the_result_is_never_worse_and_found_again(seed: int) -> None:
    """From a random grid it is better, stopped at once it is no worse."""
    problem = steep(seed)
    start = found_of(problem, np.random.default_rng(seed).permutation(16))
    first, second = (relocate_slow_nodes(problem, start, moves=MOVES, seed=seed) for _ in range(2))
    assert first.assignment.tolist() == second.assignment.tolist()
    assert first.step_s == step_seconds(first.assignment, problem.arrays)[0] < start.step_s
    assert sorted(first.assignment.tolist()) == list(range(16))
    again = relocate_slow_nodes(problem, first, moves=MOVES, seed=seed, stopped=lambda: True)
    assert again.step_s <= first.step_s


def test_replicas_are_taken_in_the_order_of_their_rings() -> None:
    """Rings that skip a replica and come back; none where one rank's ring goes another way, or with two kinds."""
    problem = steep(1)
    slots = grid_slots(problem)
    assert slots is not None
    assert slots.tolist() == np.arange(16).reshape(4, 4).tolist()
    order = slots[[0, 2, 1, 3]]
    pairs = np.stack([order, np.roll(order, -1, axis=0)], axis=-1).swapaxes(0, 1)
    other = replace(problem, arrays=problem.arrays._replace(ring_pairs=pairs[None]))
    ordered = grid_slots(other)
    assert ordered is not None
    assert ordered.tolist() == order.tolist()
    mixed, none = problem.arrays.ring_pairs.copy(), np.full_like(problem.arrays.ring_pairs, NO_SLOT)
    mixed[0, 1] = pairs[1]
    for rings in (mixed, none, np.concatenate([problem.arrays.ring_pairs, pairs[None]])):
        assert grid_slots(replace(problem, arrays=problem.arrays._replace(ring_pairs=rings))) is None


def test_only_enough_work_on_few_enough_nodes_is_spent() -> None:
    """Too few moves, or too many nodes, and the start comes back as it is."""
    problem = steep(1)
    start = found_of(problem, np.arange(16))
    assert relocates(problem, MOVES)
    assert not relocates(problem, 1000)
    assert relocate_slow_nodes(problem, start, moves=1000, seed=1) is start
    assert not relocates(replace(problem, nodes=MOST_NODES + 1), MOVES)


@pytest.mark.parametrize(("large", "gain", "quarters"), [(7, 0.99, 0), (6, 1.0, 1), (6, 0.99, 2)])
def test_rounds_relocate_on_large_grids_as_long_as_it_helps(
    large: int, gain: float, quarters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quarter of the moves of a round, and another one where the first found something better."""
    shape = Training(2, 3, 0.02, 0.04, 6.7e7, 3e9, 8)
    problem, asked = grid_problem(steep_links(8, 1)[:6, :6], shape), []

    def relocate(problem: PlacementProblem, start: Found, *, moves: int, **_: object) -> Found:
        asked.append(moves)
        return start._replace(step_s=start.step_s * gain)

    monkeypatch.setattr("solver.placement.relocation.relocate_slow_nodes", relocate)
    monkeypatch.setattr("solver.placement.relocation.relocates", lambda *_: True)
    monkeypatch.setattr(search_rounds, "LARGE", large)
    known = [found_of(problem, np.arange(6))]
    search_rounds.search_round(problem, 0, seed=1, known=known, stopped=lambda: False)
    assert asked == [search_rounds.moves_of_round(problem, 0) // 4] * quarters
