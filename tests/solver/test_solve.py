"""Solving one placement problem: optimum and proof by brute force, work that repeats, time that only cuts short."""

from __future__ import annotations

from threading import Event

import numpy as np
import pytest

from benchmarks.placement_clusters import made_up_links, training_on
from benchmarks.placement_grid import grid_problem, rank_orders
from solver.compiled import step_seconds
from solver.placement.branch_and_price import BranchAndPrice
from solver.placement.problem import PlacementProblem
from solver.placement.program import _relaxation, _ruled_out, _seeded_model, branch, relax
from solver.placement.solve import PlacementOutcome, SolveOptions, solve_placement
from solver.problem import Backend
from tests.solver.test_placement import SHAPES, all_steps, placement


def uneven(nodes: int, shape: tuple[int, int], seed: int = 0) -> PlacementProblem:
    """A grid on a made-up cluster."""
    return grid_problem(made_up_links(nodes, seed), training_on(shape, 4e10))


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("shape", SHAPES)
def test_small_problems_are_solved_and_proven(shape: str, seed: int) -> None:
    """Every kind of candidate: brute force's step, and a bound that meets it."""
    asked = placement(shape, seed)
    best = min(all_steps(asked).values())
    found = solve_placement(asked, remaining_s=lambda: 60.0)
    assert found.step_s == pytest.approx(best, rel=1e-12)
    assert found.bound_s == pytest.approx(best, rel=1e-12)
    assert found.gap == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize(
    ("nodes", "shape"), [(12, (3, 4)), (16, (4, 4)), (12, (12, 1)), (12, (1, 12)), (14, (2, 6))]
)
def test_the_same_work_gives_the_same_answer(nodes: int, shape: tuple[int, int]) -> None:
    """Two solves of a few rounds agree in assignment, step and bound, and the bound lies below the step."""
    asked = uneven(nodes, shape)
    first, second = (
        solve_placement(asked, remaining_s=lambda: 600.0, options=SolveOptions(seed=3, rounds=3)) for _ in range(2)
    )
    assert first.assignment.tolist() == second.assignment.tolist()
    assert (first.step_s, first.bound_s) == (second.step_s, second.bound_s)
    assert 0 < first.bound_s <= first.step_s


def test_without_time_the_better_start_is_the_answer() -> None:
    """Nothing is lost that was known, and the bound is still one."""
    asked = uneven(16, (4, 4))
    starts = rank_orders(training_on((4, 4), 4e10))
    found = solve_placement(asked, remaining_s=lambda: 0.0, starts=starts)
    given_s = min(step_seconds(order, asked.arrays)[0] for order in starts)
    assert found.step_s <= given_s
    assert found.bound_s <= solve_placement(asked, remaining_s=lambda: 60.0, options=SolveOptions(rounds=4)).step_s


def test_improvements_are_heard_of_one_by_one() -> None:
    """Steps only fall, bounds only rise, and the last word is the answer."""
    heard: list[PlacementOutcome] = []
    asked = uneven(16, (4, 4), seed=2)
    found = solve_placement(
        asked, remaining_s=lambda: 60.0, options=SolveOptions(rounds=4), on_outcome=heard.append
    )
    steps, bounds = [each.step_s for each in heard], [each.bound_s for each in heard]
    assert steps == sorted(steps, reverse=True)
    assert bounds == sorted(bounds)
    assert heard[-1].step_s == found.step_s
    assert heard[-1].bound_s == found.bound_s


def test_a_bound_above_the_target_is_proof_enough() -> None:
    """Asked only for something faster than is possible, it stops after the first bound."""
    asked = uneven(16, (4, 4))
    found = solve_placement(asked, remaining_s=lambda: 60.0, options=SolveOptions(target_s=1e-3))
    assert found.bound_s >= 1e-3


def test_solving_goes_on_from_what_is_known() -> None:
    """A known optimum is kept, whatever the search finds."""
    asked = uneven(7, (3, 2))
    best = solve_placement(asked, remaining_s=lambda: 60.0)
    again = solve_placement(asked, remaining_s=lambda: 0.0, known=best)
    assert again.step_s == best.step_s
    assert again.bound_s == best.bound_s


@pytest.mark.parametrize("share", [1.0, 1.01, 1.05, 1.2])
@pytest.mark.parametrize("shape", ["pipeline and data", "straddling stages", "pipeline", "interleaved"])
def test_no_fast_assignment_uses_a_column_that_is_ruled_out(shape: str, share: float) -> None:
    """By reduced costs, at cutoffs from the optimum upwards: brute force knows the nodes of all faster ones."""
    asked = placement(shape, 1)
    steps = all_steps(asked)
    cutoff_s = min(steps.values()) * share
    model = _seeded_model(asked)
    relaxed = _relaxation(model, np.inf, 1, lambda: 60.0)
    ruled_out = set(_ruled_out(model, relaxed, cutoff_s).tolist())
    first = asked.arrays.cell_slots[:, 0, 0]
    rotated = "data" in shape or "straddling" in shape
    for order, step_s in steps.items():
        leads = order[first[0]] == min(order[slot] for slot in first)
        if step_s < cutoff_s and (leads or not rotated):
            assert not {int(model.place[k, n]) for k, n in enumerate(order)} & ruled_out


@pytest.mark.parametrize("backend", Backend)
@pytest.mark.parametrize("shape", ["pipeline", "pipeline and data", "experts over nodes", "context over nodes"])
def test_branching_on_what_is_left_finds_the_optimum(shape: str, backend: Backend) -> None:
    """From the worst assignment, with all columns but those ruled out."""
    asked = placement(shape, 0)
    steps = all_steps(asked)
    worst = max(steps, key=steps.__getitem__)
    best = PlacementOutcome(np.array(worst), steps[worst], 0.0)
    best = relax(asked, best, target_s=np.inf, effort=1, remaining_s=lambda: 60.0)
    assert best.bound_s <= min(steps.values()) * (1 + 1e-6)
    for _ in range(4):
        best = branch(asked, best, target_s=best.step_s, effort=1, backend=backend, remaining_s=lambda: 60.0)
    assert best.step_s == pytest.approx(min(steps.values()), rel=1e-6)
    assert best.bound_s == pytest.approx(min(steps.values()), rel=1e-6)


def test_what_is_proven_is_kept_where_time_ends_before_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step found impossible is in the bound, though the round of proof that found it never comes to its end."""
    asked, over, told = uneven(10, (2, 5)), Event(), Event()
    proven_s = 0.999 * float(step_seconds(np.arange(10), asked.arrays)[0])

    def unending(*_: object, search: BranchAndPrice, **__: object) -> float:
        search.bound_s = proven_s
        over.set()
        told.wait(10.0)
        return 0.0

    monkeypatch.setattr("solver.placement.branch_and_price.priced_bound_s", unending)
    known = PlacementOutcome(np.arange(10), proven_s / 0.999, 0.0)
    found = solve_placement(asked, remaining_s=lambda: 0.0 if over.is_set() else 60.0, known=known)
    told.set()
    assert over.is_set()
    assert found.bound_s == min(proven_s, found.step_s)
