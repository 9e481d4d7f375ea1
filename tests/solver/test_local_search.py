"""The local search keeps its books right, whatever moves it makes, and finds what brute force finds."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.placement_grid import Training, grid_problem
from solver.compiled import step_seconds, violations
from solver.compiled_search import anneal_round
from solver.placement.local_search import (
    _gathered,
    bad_nodes_together,
    improve_placement,
    pairs_per_move,
    search_placement,
)
from solver.placement.problem import PlacementProblem, placed_times
from solver.placement.search_tables import search_state, search_tables
from tests.solver.placement_cases import placement_problems


@given(
    placement_problems(), st.randoms(use_true_random=False), st.integers(0, 300), st.sampled_from([0.01, 0.3, 9.0])
)
@settings(max_examples=40)
def test_after_any_moves_the_books_are_those_of_a_fresh_start(
    problem: PlacementProblem, random: Random, moves: int, hot: float
) -> None:
    """Terms, ends, rings and violations that moves have renewed equal those worked out from the order alone."""
    order = np.array(random.sample(range(problem.nodes), problem.nodes))
    tables = search_tables(problem)
    state = search_state(tables, order)
    if problem.nodes > 1:
        anneal_round(tables, state, moves, random.randrange(2**32), hot, hot / 10)
    assert sorted(state.order.tolist()) == list(range(problem.nodes))
    assignment = state.order[: problem.slots]
    times = placed_times(problem, assignment)
    assert state.ends == pytest.approx(times.end_s)
    assert state.rings == pytest.approx(np.stack([times.reduce_s, times.gather_s]))
    assert state.cost == pytest.approx((times.end_s + times.reduce_s).max(axis=1))
    fresh = search_state(tables, state.order)
    assert state.value == pytest.approx(fresh.value)
    assert state.work == pytest.approx(fresh.work)
    assert state.scores[0] == pytest.approx(fresh.scores[0])
    assert state.scores[1] == violations(assignment, problem.arrays.rules)
    best = state.best[: problem.slots]
    assert state.scores[3] == violations(best, problem.arrays.rules)
    assert state.scores[4] == pytest.approx(step_seconds(best, problem.arrays)[0])


@given(placement_problems())
@settings(max_examples=30)
def test_bad_nodes_together_are_an_assignment_as_good_as_the_best_chain(problem: PlacementProblem) -> None:
    """Of different nodes, whatever slots the ranks share."""
    start = bad_nodes_together(problem)
    assert len(set(start.tolist())) == problem.slots
    broken, step_s = violations(start, problem.arrays.rules), step_seconds(start, problem.arrays)[0]
    chain = search_placement(problem, moves=0, seed=0)
    assert (broken, step_s) <= (chain.violations, chain.step_s)


def test_bad_nodes_start_on_the_rank_with_least_to_do() -> None:
    """Four of sixteen nodes compute slowly: two are spare, and the others serve the rank whose layers are few."""
    training = Training(
        2, 7, forward_s=0.03, backward_s=0.06, activation_bytes=1e6, gradient_bytes=1e6, micro_batches=9
    )
    problem = grid_problem(np.full((16, 16), 46e9), training)
    work, slowdown = np.ones(7), np.ones(16)
    work[4], slowdown[[2, 9, 11, 14]] = 0.5, 1.3
    arrays = problem.arrays._replace(duration_s=problem.arrays.duration_s * work, slowdown=slowdown)
    start = bad_nodes_together(replace(problem, arrays=arrays))
    own = start[np.unique(arrays.cell_slots[:, 4])]
    assert len(set(start.tolist()) & {2, 9, 11, 14}) == 2
    assert set(own.tolist()) < {2, 9, 11, 14}


@given(placement_problems(), st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_what_is_found_is_as_good_as_said_and_found_again(problem: PlacementProblem, seed: int) -> None:
    """The step and the violations are those of the assignment; the same seed and moves find it again."""
    found = search_placement(problem, moves=500, seed=seed)
    assert len(set(found.assignment.tolist())) == problem.slots
    assert found.step_s == step_seconds(found.assignment, problem.arrays)[0]
    assert found.violations == violations(found.assignment, problem.arrays.rules)
    again = search_placement(problem, moves=500, seed=seed)
    assert again.assignment.tolist() == found.assignment.tolist()


@given(placement_problems())
@settings(max_examples=20)
def test_a_move_looks_up_the_pairs_of_what_it_changes(problem: PlacementProblem) -> None:
    """Counted slot by slot; all of them, where switches are shared."""
    tables = search_tables(problem)
    pairs = np.split(tables.terms.pairs, tables.terms.first[1:-1])
    touched = [sum(len(term) for term in pairs if (term == slot).any()) for slot in range(problem.slots)]
    every = problem.slots * len(tables.terms.pairs)
    shared = len(tables.sharing.bytes_per_s) > 0
    assert pairs_per_move(problem) == 2 * (every if shared else sum(touched)) // problem.slots


@given(placement_problems(ruled=False).filter(lambda problem: problem.nodes <= 6))
@settings(max_examples=15)
def test_small_problems_are_solved_as_by_brute_force(problem: PlacementProblem) -> None:
    """No assignment is faster."""
    orders = permutations(range(problem.nodes), problem.slots)
    best = min(step_seconds(np.array(order), problem.arrays)[0] for order in orders)
    assert search_placement(problem, moves=20_000, seed=1).step_s == pytest.approx(best)


@given(placement_problems().filter(lambda problem: problem.nodes <= 6))
@settings(max_examples=15)
def test_small_problems_with_rules_are_solved_as_by_brute_force(problem: PlacementProblem) -> None:
    """No assignment breaks fewer rules, and of those that break as few none is faster."""
    orders = [np.array(order) for order in permutations(range(problem.nodes), problem.slots)]
    rules, arrays = problem.arrays.rules, problem.arrays
    fewest, best = min((violations(order, rules), step_seconds(order, arrays)[0]) for order in orders)
    found = search_placement(problem, moves=20_000, seed=1)
    assert found.violations == fewest
    assert found.step_s == pytest.approx(best)


@given(placement_problems(), st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_a_start_is_never_lost(problem: PlacementProblem, seed: int) -> None:
    """The result is no worse than the start of the search, also when it is stopped at once."""
    start = np.random.default_rng(seed).permutation(problem.nodes)[: problem.slots]
    before = violations(start, problem.arrays.rules), step_seconds(start, problem.arrays)[0]
    for stopped in (True, False):
        found = search_placement(problem, moves=50, seed=seed, start=start, stopped=lambda now=stopped: now)
        assert (found.violations, found.step_s) <= before


@given(placement_problems(), st.integers(0, 2**32 - 1))
@settings(max_examples=20)
def test_improving_loses_nothing_and_gives_the_same_again(problem: PlacementProblem, seed: int) -> None:
    """The step and violations are those of the assignment, no worse than the start's, also when stopped at once."""
    start = np.random.default_rng(seed).permutation(problem.nodes)[: problem.slots]
    before = violations(start, problem.arrays.rules), step_seconds(start, problem.arrays)[0]
    for stopped in (True, False):
        found, again = (
            improve_placement(problem, start, moves=900, seed=seed, stopped=lambda now=stopped: now)
            for _ in range(2)
        )
        assert found.assignment.tolist() == again.assignment.tolist()
        assert len(set(found.assignment.tolist())) == problem.slots
        assert (found.violations, found.step_s) <= before
        assert found.violations == violations(found.assignment, problem.arrays.rules)
        assert found.step_s == step_seconds(found.assignment, problem.arrays)[0]


@given(st.integers(0, 2**32 - 1), st.integers(1, 9), st.integers(0, 4))
def test_gathering_brings_the_nearest_to_the_slots(seed: int, slots: int, others: int) -> None:
    """Every node stands somewhere once, those nearest on the slots, and others move no more than they must."""
    random = np.random.default_rng(seed)
    order = random.permutation(slots + others)
    chosen, away_s = random.permutation(slots + others)[:slots], random.uniform(size=slots + others)
    gathered = _gathered(order, chosen, away_s)
    assert sorted(gathered.tolist()) == list(range(slots + others))
    assert set(gathered[chosen].tolist()) == set(np.argsort(away_s)[:slots].tolist())
    moved = int((gathered != order).sum())
    assert moved == 2 * len(set(gathered[chosen].tolist()) - set(order[chosen].tolist()))
