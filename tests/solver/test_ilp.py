"""Traps of the integer programming back ends: statuses that lie, limits without a solution, bounds to believe."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.ilp import IlpStatus, LinearModel, ModelBuilder, solve_integer, solve_relaxation
from solver.problem import Backend

BOTH = pytest.mark.parametrize("backend", Backend)


def assignment(jobs: int, machines: int, seed: int, *, room: float = 1.3) -> LinearModel:
    """Generalised assignment: each job on one machine, the machines' capacity scarce."""
    random = np.random.default_rng(seed)
    size = random.integers(5, 25, (jobs, machines)).astype(float)
    cost = 111.0 - size + random.integers(-10, 10, (jobs, machines))
    builder = ModelBuilder()
    place = [[int(builder.add_columns(1, upper=1.0, cost=c, integer=True)[0]) for c in row] for row in cost]
    for job in range(jobs):
        builder.add_row([(x, 1.0) for x in place[job]], lower=1.0, upper=1.0)
    for machine in range(machines):
        terms = [(place[job][machine], float(size[job, machine])) for job in range(jobs)]
        builder.add_row(terms, upper=room * float(size[:, machine].mean()) * jobs / machines)
    return builder.build()


def makespan(loads: list[float], machines: int) -> LinearModel:
    """Loads onto equal machines, the fullest as empty as can be: symmetric, with a continuous objective."""
    builder = ModelBuilder()
    longest = int(builder.add_columns(1, cost=1.0)[0])
    place = [builder.add_columns(machines, upper=1.0, integer=True) for _ in loads]
    for row in place:
        builder.add_row([(int(x), 1.0) for x in row], lower=1.0, upper=1.0)
    for machine in range(machines):
        terms = [(int(row[machine]), -load) for row, load in zip(place, loads, strict=True)]
        builder.add_row([(longest, 1.0), *terms], lower=0.0)
    return builder.build()


@BOTH
def test_optimum_is_proved_by_our_own_gap(backend: Backend) -> None:
    """Loads 3, 3, 2, 2, 2 on two machines: six."""
    outcome = solve_integer(makespan([3, 3, 2, 2, 2], 2), backend=backend, time_limit_s=10, node_limit=1000)
    assert outcome.status is IlpStatus.OPTIMAL
    assert outcome.objective == pytest.approx(6.0)
    assert outcome.bound == pytest.approx(6.0, rel=1e-5)


@BOTH
@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_small_and_large_seconds_are_solved_alike(backend: Backend, scale: float) -> None:
    """The optimum scales with the loads, as ``expected`` says their size."""
    loads = [scale * load for load in (3.01, 3.02, 2.03, 2.04, 2.05, 1.01)]
    outcome = solve_integer(
        makespan(loads, 2), backend=backend, time_limit_s=10, node_limit=10_000, expected=6.0 * scale
    )
    best = min(
        max(sum(np.array(loads)[mask]), sum(np.array(loads)[~mask]))
        for mask in (np.array([bool(code >> bit & 1) for bit in range(6)]) for code in range(64))
    )
    assert outcome.objective == pytest.approx(best, rel=1e-6)
    assert outcome.bound <= best * (1 + 1e-9)


@BOTH
def test_infeasible_is_said_and_has_no_values(backend: Backend) -> None:
    """A job that no machine can take."""
    builder = ModelBuilder()
    x = int(builder.add_columns(1, upper=1.0, cost=1.0, integer=True)[0])
    builder.add_row([(x, 2.0)], lower=1.0, upper=1.0)
    outcome = solve_integer(builder.build(), backend=backend, time_limit_s=5, node_limit=100)
    assert outcome.status is IlpStatus.INFEASIBLE
    assert outcome.values is None
    assert outcome.bound == np.inf


@BOTH
def test_a_limit_never_passes_for_a_proof(backend: Backend) -> None:
    """A hard program, stopped at once: no leftover fractions are read, and the bound lies below any solution."""
    model = assignment(60, 20, 0, room=1.05)
    outcome = solve_integer(model, backend=backend, time_limit_s=0.05, node_limit=1)
    assert outcome.status in {IlpStatus.NO_SOLUTION, IlpStatus.FEASIBLE}
    if outcome.values is None:
        assert outcome.objective == np.inf
    else:
        assert np.array_equal(outcome.values, np.round(outcome.values))
        assert outcome.bound < outcome.objective


@BOTH
def test_a_wide_gap_is_reported_as_one(backend: Backend) -> None:
    """Allowed to stop at 15 %, the back end's bound still is one: the relaxation's, not its solution's."""
    model = assignment(20, 5, 1, room=1.05)
    outcome = solve_integer(model, backend=backend, time_limit_s=20, node_limit=100_000, gap=0.15)
    exact = solve_integer(model, backend=Backend.HIGHS, time_limit_s=20, node_limit=100_000, gap=1e-4)
    assert outcome.values is not None
    assert outcome.bound <= exact.objective * (1 + 1e-6)
    if outcome.objective > exact.objective * (1 + 1e-3):
        assert outcome.status is IlpStatus.FEASIBLE


@settings(max_examples=15)
@given(st.lists(st.integers(1, 40), min_size=2, max_size=6), st.integers(2, 3), st.sampled_from(list(Backend)))
def test_bounds_enclose_the_optimum(loads: list[int], machines: int, backend: Backend) -> None:
    """Relaxation <= bound <= optimum by brute force = objective."""
    model = makespan([float(load) for load in loads], machines)
    outcome = solve_integer(model, backend=backend, time_limit_s=10, node_limit=10_000, expected=float(sum(loads)))
    fullest = [
        np.bincount([code // machines**job % machines for job in range(len(loads))], loads).max()
        for code in range(machines ** len(loads))
    ]
    assert outcome.objective == pytest.approx(min(fullest), rel=1e-6)
    assert outcome.bound <= min(fullest) * (1 + 1e-9)
    assert solve_relaxation(model).bound <= min(fullest) * (1 + 1e-9)


def test_a_relaxation_out_of_iterations_proves_nothing() -> None:
    """Its bound is minus infinity, not a leftover value."""
    outcome = solve_relaxation(assignment(60, 20, 0), iteration_limit=1)
    assert outcome.status is IlpStatus.NO_SOLUTION
    assert outcome.bound == -np.inf
    assert outcome.values is None


def test_an_infeasible_relaxation_is_said() -> None:
    """One column cannot be 1 and 2."""
    builder = ModelBuilder()
    x = int(builder.add_columns(1)[0])
    builder.add_row([(x, 1.0)], lower=1.0, upper=1.0)
    builder.add_row([(x, 1.0)], lower=2.0, upper=2.0)
    assert solve_relaxation(builder.build()).status is IlpStatus.INFEASIBLE


def test_a_column_named_twice_counts_twice() -> None:
    """Terms of one row add up: x + x >= 3 needs 1.5."""
    builder = ModelBuilder()
    x = int(builder.add_columns(1, cost=1.0)[0])
    builder.add_row([(x, 1.0), (x, 1.0)], lower=3.0)
    assert solve_relaxation(builder.build()).objective == pytest.approx(1.5)
