"""The period bound never exceeds brute force, and what it is made of holds for every assignment."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.placement_clusters import made_up_links, made_up_training, steep_links, steep_training
from benchmarks.placement_grid import grid_problem
from solver.compiled import violations
from solver.pipeline.simulation import simulate
from solver.placement.bounds import placement_bound_s
from solver.placement.branch_and_price import tail_bound_s
from solver.placement.chains import chains_of
from solver.placement.local_search import search_placement
from solver.placement.period_bound import period_bound_s
from solver.placement.period_limits import bucket, period_limits
from solver.placement.problem import PlacementProblem, placed_times
from solver.placement.ring_floors import forced_floors, in_and_out
from tests.solver.test_placement_bounds import best_step_s, grids


@settings(max_examples=15)
@given(grids())
def test_no_assignment_is_faster(problem: PlacementProblem) -> None:
    best = best_step_s(problem)
    assume(np.isfinite(best))
    bound = period_bound_s(problem, upper_s=2.0 * best, work=1e9)
    assert bound <= best * (1 + 1e-9)
    assert bound >= placement_bound_s(problem) * (1 - 1e-9)
    known = period_bound_s(problem, upper_s=2.0 * best, work=1e9, known_s=best)
    assert known == pytest.approx(best)


@settings(max_examples=20)
@given(grids(), st.integers(0, 2**32 - 1), st.sampled_from([0.9, 1.0, 1.1]))
def test_every_assignment_keeps_the_limits_of_its_step(problem: PlacementProblem, seed: int, above: float) -> None:
    """Whichever step near to it they are made for."""
    found = chains_of(problem)
    assume(problem.nodes > 1)
    assert found is not None
    order = np.random.default_rng(seed).permutation(problem.nodes)[: problem.slots]
    assume(not violations(order, problem.arrays.rules))
    times, tail_s = placed_times(problem, order), tail_bound_s(problem)
    forced_s = forced_floors(found.ring_s, found.count, problem.nodes - problem.slots)
    assert (times.end_s.max(axis=0) + forced_s + tail_s <= times.step_s * (1 + 1e-9)).all()
    after_s = np.maximum(found.ring_s.min(axis=1), forced_s) + tail_s
    limits = period_limits(problem, found, after_s, above * times.step_s, lambda: False)
    assert limits is not None
    limit_s = limits.at(times.step_s)
    rows = bucket(limit_s)
    assert rows is not None
    slots = problem.arrays.cell_slots
    hop_s, slow = problem.arrays.hop_s + problem.arrays.hop_s.T, problem.arrays.slowdown
    for route in order[slots.swapaxes(1, 2).reshape(-1, slots.shape[1])]:
        for a in range(len(route)):
            for b in range(a, len(route)):
                stretch = float((limits.unit_s[a : b + 1] * slow[route[a : b + 1]]).sum())
                stretch += float(hop_s[route[a:b], route[a + 1 : b + 1]].sum())
                assert stretch <= limit_s[a, b] * (1 + 1e-9)
                formed = rows.rate_s * (b - a + 1) + rows.start_s[a] + rows.end_s[b]
                assert formed >= limit_s[a, b] - 1e-9 * abs(limit_s[a, b])


def test_limits_of_stretches_are_near_what_the_schedule_allows() -> None:
    """Each at its limit, all else at its best, the schedule takes hardly longer than the step they are made for."""
    problem, step_s = grid_problem(steep_links(256, 11), steep_training(256)), 5.95
    found = chains_of(problem)
    assert found is not None
    after_s = np.maximum(found.ring_s.min(axis=1), forced_floors(found.ring_s, found.count, 0))
    limits = period_limits(problem, found, after_s, step_s, lambda: False)
    assert limits is not None
    limit_s, schedule = limits.at(step_s), problem.schedule
    least_s = problem.arrays.hop_s[~np.eye(problem.nodes, dtype=bool)].min()
    for a, b in combinations(range(schedule.pipeline), 2):
        delay_s = np.full((2, schedule.pipeline), least_s)
        transfers_s = limit_s[a, b] - limits.unit_s[a : b + 1].sum()
        delay_s[0, a:b] = delay_s[1, a + 1 : b + 1] = transfers_s / (2 * (b - a))
        ends = simulate(schedule, problem.arrays.duration_s, delay_s)[schedule.last]
        assert (ends + after_s).max() < 1.03 * step_s


@given(st.integers(3, 7), st.integers(0, 2**32 - 1))
def test_a_node_hears_from_one_and_sends_to_another(nodes: int, seed: int) -> None:
    between_s = np.random.default_rng(seed).random((nodes, nodes))
    expected = [
        min(max(between_s[a, n], between_s[n, b]) for a, b in permutations([m for m in range(nodes) if m != n], 2))
        for n in range(nodes)
    ]
    assert in_and_out(between_s) == pytest.approx(expected)


def test_many_nodes_are_bounded_well() -> None:
    problem = grid_problem(made_up_links(64, 0), made_up_training(64))
    step_s = search_placement(problem, moves=20_000, seed=0).step_s
    before_s = placement_bound_s(problem)
    bound_s = period_bound_s(problem, upper_s=step_s, work=2e9)
    assert before_s * 1.0005 < bound_s <= step_s
    assert period_bound_s(problem, upper_s=step_s, work=2e9) == bound_s


def test_nothing_is_claimed_once_time_is_over() -> None:
    problem = grid_problem(made_up_links(64, 0), made_up_training(64))
    bound_s = period_bound_s(problem, upper_s=10.0, work=1e9, out_of_time=lambda: True)
    assert bound_s == placement_bound_s(problem)
