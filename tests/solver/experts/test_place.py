"""Maps of experts by their loads: against every map of small cases, and by what must hold in all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from benchmarks.eplb import eplb_global
from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from solver.candidates import FloatArray
from solver.experts.bounds import least_slowest_load, partner_program
from solver.experts.compiled_exact import best_map
from solver.experts.layout import ExpertLayout
from solver.experts.loads import layer_balancedness
from solver.experts.place import place_experts
from solver.ilp import solve_relaxation
from tests.solver.experts.brute_force import least_slowest

SMALL = [
    ExpertLayout(2, 1, 4),
    ExpertLayout(2, 1, 6),
    ExpertLayout(3, 1, 6),
    ExpertLayout(4, 2, 8),
    ExpertLayout(2, 2, 8),
    ExpertLayout(3, 1, 6, (1.0, 2.0, 3.0)),
    ExpertLayout(4, 1, 4),
    ExpertLayout(6, 1, 6),
]
COUNTS = st.integers(1, 100)


def workload(rows: FloatArray, name: str = "a") -> RoutedWorkload:
    """A workload with ``rows`` of counts."""
    return RoutedWorkload(name, tuple(range(len(rows))), np.array(rows, dtype=np.float64))


def skewed(seed: int, layers: int, experts: int) -> FloatArray:
    """Counts with a few hot experts."""
    return np.round(1000 * np.exp(np.random.default_rng(seed).normal(0, 0.8, (layers, experts)))) + 1


@st.composite
def small_cases(draw: st.DrawFn) -> tuple[ExpertLayout, FloatArray]:
    """A layout of at most 8 slots and the counts of one layer that fit."""
    layout = draw(st.sampled_from(SMALL))
    experts = draw(st.integers(max(2, layout.slots_per_rank), min(6, layout.slots)))
    return layout, np.array([draw(st.lists(COUNTS, min_size=experts, max_size=experts))], dtype=np.float64)


@example((ExpertLayout(4, 2, 8), np.array([[45.0, 48.0, 2.0]])))
@example((ExpertLayout(3, 1, 9), np.array([[26.0, 36.0, 91.0, 91.0, 92.0]])))
@example((ExpertLayout(4, 2, 8), np.array([[52.0, 98.0, 50.0, 19.0]])))
@given(small_cases())
@settings(max_examples=30, derandomize=True)
def test_small_maps_are_the_best_of_all_and_proven(case: tuple[ExpertLayout, FloatArray]) -> None:
    """Map and bound are what trying every map gives; annealing alone misses the examples by 3 to 9 points."""
    layout, counts = case
    placed = place_experts([workload(counts)], layout, steps=2_000)
    shares = counts[0] / counts[0].sum() * layout.ranks
    optimum = 1 / least_slowest(shares, layout)
    assert placed.worth == pytest.approx(optimum, rel=1e-9)
    assert placed.bound == pytest.approx(optimum, rel=1e-8)


def test_a_search_that_ends_early_claims_nothing() -> None:
    """With a single node to look at, the map stays as it was and is not called the best."""
    shares = np.array([1.6, 1.2, 0.8, 0.4])
    held = np.array([[0, 1], [0, 2], [1, 3], [2, 3]])
    assert not best_map(shares, held, np.ones(4), 0.0, 1)
    assert held.tolist() == [[0, 1], [0, 2], [1, 3], [2, 3]]
    assert best_map(shares, held, np.ones(4), 0.0, 10_000)


@pytest.mark.parametrize(("seed", "layer"), [(1, 0), (2, 1), (5, 0)])
def test_a_few_very_hot_experts_are_split_so_that_lumps_fit(seed: int, layer: int) -> None:
    """Copies are few and heavy: other counts than those of the thinnest copies win, also against EPLB."""
    layout = ExpertLayout(12, 1, 72)
    counts = np.round(1000 * np.exp(np.random.default_rng(seed).normal(0, 2, (2, 60))))[layer : layer + 1] + 1
    reached = place_experts([workload(counts)], layout).worth
    assert reached > 0.998
    assert reached > layer_balancedness(eplb_global(counts, layout), counts, layout)[0]


@given(small_cases(), st.floats(0.3, 1.0))
@settings(max_examples=30, derandomize=True)
def test_a_bound_made_with_any_map_in_hand_holds(case: tuple[ExpertLayout, FloatArray], factor: float) -> None:
    """Whatever load was reached, no proof goes beyond the best of all maps."""
    layout, counts = case
    shares = counts[0] / counts[0].sum() * layout.ranks
    optimum = least_slowest(shares, layout)
    assert least_slowest_load(shares, layout, optimum / factor) <= optimum * (1 + 1e-9)
    assert least_slowest_load(shares, layout, optimum) <= optimum * (1 + 1e-9)


@given(st.data())
@settings(max_examples=20, derandomize=True)
def test_the_program_of_partners_needs_no_more_slots_than_there_are_at_the_optimum(data: st.DataObject) -> None:
    """At a load that a map of two slots a rank reaches, the linear program fits into the slots."""
    layout = data.draw(st.sampled_from([ExpertLayout(3, 1, 6), ExpertLayout(4, 1, 8)]))
    experts = data.draw(st.integers(3, layout.slots - 1))
    counts = np.array(data.draw(st.lists(COUNTS, min_size=experts, max_size=experts)), dtype=np.float64)
    shares = counts / counts.sum() * layout.ranks
    program = partner_program(shares, layout.slots, least_slowest(shares, layout) * (1 + 1e-9))
    assume(program is not None)
    assert program is not None
    assert solve_relaxation(program).bound <= layout.slots + 1e-6


@pytest.mark.parametrize(
    "layout",
    [
        ExpertLayout(8, 2, 32),
        ExpertLayout(8, 2, 40),
        ExpertLayout(20, 5, 40),
        ExpertLayout(8, 1, 40, (1.0,) * 4 + (2.0,) * 4),
        ExpertLayout(40, 1, 40),
        ExpertLayout(4, 1, 128),
    ],
)
def test_maps_hold_every_expert_and_no_twins(layout: ExpertLayout) -> None:
    """The map is checked by ``ExpertSlots``; its worth is what the evaluators say, and the bound is above it."""
    counts = skewed(1, 3, 32)
    placed = place_experts([workload(counts)], layout, steps=500)
    assert set(placed.rows().ravel()) == set(range(32))
    assert layer_balancedness(placed.rows(), counts, layout).mean() == pytest.approx(placed.worth)
    assert (placed.layer_bounds[0] >= layer_balancedness(placed.rows(), counts, layout) - 1e-12).all()
    assert placed.worth <= placed.bound <= 1 + 1e-8


def test_the_same_seed_gives_the_same_map() -> None:
    """Twice the same arguments, twice the same slots."""
    counts = skewed(2, 4, 32)
    layout = ExpertLayout(20, 1, 40)
    first, second = (place_experts([workload(counts)], layout, steps=2000, seed=5) for _ in range(2))
    assert first.slots == second.slots


def test_copies_of_cold_experts_make_partners_for_hot_ones() -> None:
    """Two copies of the hot expert and one more of a cold one beat three of the hot expert."""
    counts = np.array([[10.0, 10.0, 10.0, 6.0, 6.0, 1.0]])
    layout = ExpertLayout(4, 1, 8)
    placed = place_experts([workload(counts)], layout, steps=4000)
    assert placed.worth == pytest.approx(1 / least_slowest(counts[0] / counts.sum() * 4, layout))


def test_a_map_for_a_set_serves_its_worst_member_better() -> None:
    """Planned on both, the worst keeps more than under the plan made for the other alone."""
    first, second = workload(skewed(3, 6, 32), "first"), workload(skewed(4, 6, 32), "second")
    layout = ExpertLayout(20, 1, 40)
    alone = place_experts([first], layout, steps=2000).rows()
    both = place_experts([first, second], layout, steps=4000)
    assert min(both.balancedness.values()) == both.worth
    assert both.balancedness["second"] > 1.3 * layer_balancedness(alone, second.loads, layout).mean()
    assert both.worth <= both.bound


def test_a_workload_with_all_the_weight_is_served_alone() -> None:
    """With weight on one member only, that member is served better than as one of two."""
    first, second = workload(skewed(3, 3, 32), "first"), workload(skewed(4, 3, 32), "second")
    layout = ExpertLayout(16, 1, 48)
    all_on_first = place_experts([first, second], layout, weights={"first": 1.0, "second": 0.0}, steps=4000)
    worst = place_experts([first, second], layout, steps=4000)
    assert all_on_first.worth == pytest.approx(all_on_first.balancedness["first"])
    assert all_on_first.balancedness["first"] > worst.balancedness["first"]


def test_sets_must_be_of_one_model() -> None:
    """Workloads of other layers or experts, of the same name, and odd weights are refused."""
    layout = ExpertLayout(2, 1, 4)
    four, three = workload(np.ones((1, 4))), workload(np.ones((1, 3)), "b")
    for workloads, weights in (
        ([], None),
        ([four, three], None),
        ([four, four], None),
        ([four], {"b": 1.0}),
        ([four], {"a": -1.0}),
        ([four], {"a": 0.0}),
        ([workload(np.ones((1, 5)))], None),
    ):
        with pytest.raises(InvalidInput):
            place_experts(workloads, layout, weights=weights)
