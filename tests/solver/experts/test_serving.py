"""Balance where the nearest copy serves: the rule token by token, the search under it, and its bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.routing.counts import RoutedWorkload
from solver.candidates import FloatArray, IntArray
from solver.experts.balance import annealed, layer_case, slowest_load
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, balancedness, layer_balancedness, rank_loads, slot_parts
from solver.experts.near_bounds import least_busiest_parts, least_near_load
from solver.experts.place import place_experts

NEAREST = CopyChoice.NEAREST
LAYOUTS = [
    ExpertLayout(4, 2, 12),
    ExpertLayout(6, 3, 12),
    ExpertLayout(4, 1, 12),
    ExpertLayout(4, 4, 8),
    ExpertLayout(4, 2, 8, (1.0, 2.0, 1.0, 1.0)),
]


def workload(rows: FloatArray, name: str = "a") -> RoutedWorkload:
    """A workload with ``rows`` of counts."""
    return RoutedWorkload(name, tuple(range(len(rows))), rows)


def skewed(seed: int, layers: int, experts: int) -> FloatArray:
    """Counts with a few hot experts."""
    return np.round(1000 * np.exp(np.random.default_rng(seed).normal(0, 0.8, (layers, experts)))) + 1


def parts_by_rule(row: IntArray, layout: ExpertLayout) -> FloatArray:
    """(S,) what each slot serves of its expert, rank by rank as SGLang's static dispatch assigns copies."""
    size, width = layout.slots_per_rank, layout.ranks_per_node
    parts = np.zeros(layout.slots)
    for expert in set(row.tolist()):
        copies = np.flatnonzero(row == expert)
        for rank in range(layout.ranks):
            own = [copy for copy in copies if copy // size == rank]
            beside = [copy for copy in copies if copy // size // width == rank // width]
            serving = own[:1] or beside[:1] or list(copies)
            parts[serving] += 1 / layout.ranks / len(serving)
    return parts


@st.composite
def maps(draw: st.DrawFn) -> tuple[ExpertLayout, IntArray]:
    """A layout, and (G, s) experts of its ranks without twins on any."""
    layout = draw(st.sampled_from(LAYOUTS))
    experts = draw(st.integers(layout.slots_per_rank + 1, layout.slots))
    order = draw(st.permutations(range(experts)))
    held = [[order[slot % experts] for slot in range(layout.slots)]]
    return layout, np.array(held).reshape(layout.ranks, layout.slots_per_rank)


@given(maps(), st.integers(0, 1000))
@settings(max_examples=60, derandomize=True)
def test_who_serves_is_what_the_rule_says_rank_by_rank(case: tuple[ExpertLayout, IntArray], seed: int) -> None:
    """The own rank's copy, else the first of the node, else any; the search never loses."""
    layout, held = case
    row = held.reshape(1, -1)
    experts = int(row.max()) + 1
    parts = slot_parts(row, experts, layout, NEAREST)
    assert parts[0] == pytest.approx(parts_by_rule(row[0], layout))
    shares = skewed(seed, 2, experts)
    shares *= layout.ranks / shares.sum(axis=1, keepdims=True)
    for choices in ([NEAREST, NEAREST], [NEAREST, CopyChoice.ANY]):
        case = layer_case(shares, choices, layout)
        found = annealed(case, held, np.array([0.5, 0.5]), steps=200, seed=seed, hots=(0.05, 0.01))
        assert all(len(set(rank)) == len(rank) for rank in found.tolist())
        assert set(found.ravel().tolist()) == set(range(experts))
        before, after = (
            sum(
                1 / slowest_load(one[None, :], each, layout, choice)[0]
                for one, choice in zip(shares, choices, strict=True)
            )
            for each in (held, found)
        )
        assert after >= before * (1 - 1e-9)


def test_exchanges_inside_nodes_leave_nodes_as_they_were() -> None:
    """Which experts a node holds does not change, so that as many tokens cross."""
    layout = ExpertLayout(8, 2, 40)
    shares = skewed(3, 1, 32)
    shares *= 8 / shares.sum()
    held = np.arange(40).reshape(8, 5) % 32
    case = layer_case(shares, [NEAREST], layout)
    found = annealed(case, held, np.ones(1), steps=3000, seed=1, hots=(0.01,), inside=True)
    for before, after in zip(held.reshape(2, -1), found.reshape(2, -1), strict=True):
        assert sorted(before) == sorted(after)
    before_s, after_s = (slowest_load(shares, each, layout, NEAREST)[0] for each in (held, found))
    assert after_s < before_s


@pytest.mark.parametrize("layout", [ExpertLayout(4, 2, 8), ExpertLayout(4, 1, 8), ExpertLayout(4, 4, 8)])
@pytest.mark.parametrize("seed", range(4))
def test_no_map_beats_the_bound_and_the_search_comes_near_the_best(layout: ExpertLayout, seed: int) -> None:
    """Five experts in eight slots, all 10,000 maps, in which the order of ranks counts."""
    counts = skewed(seed, 1, 5)
    ranks = list(itertools.combinations(range(5), 2))
    rows = np.array([np.ravel(each) for each in itertools.product(ranks, repeat=4) if len(set(sum(each, ()))) == 5])
    best = layer_balancedness(rows, np.repeat(counts, len(rows), axis=0), layout, NEAREST).max()
    placed = place_experts([workload(counts)], layout, choice=NEAREST, steps=4000)
    assert placed.worth == pytest.approx(best, rel=1e-9)
    assert placed.bound >= best * (1 - 1e-9)


def test_the_busiest_copy_serves_no_less_than_the_bound_says() -> None:
    """Every way to put copies on ranks: the least busiest part of each number of copies."""
    for layout in (ExpertLayout(4, 2, 4), ExpertLayout(6, 2, 6), ExpertLayout(4, 1, 4), ExpertLayout(4, 4, 4)):
        least = least_busiest_parts(layout)
        for copies in range(1, layout.ranks + 1):
            busiest = min(
                rank_loads(
                    np.array([[0 if rank in at else 1 for rank in range(layout.ranks)]]),
                    np.array([[1.0, 0.0]]),
                    layout,
                    NEAREST,
                ).max()
                for at in itertools.combinations(range(layout.ranks), copies)
            )
            assert least[copies - 1] <= busiest * (1 + 1e-12)


def test_one_hot_expert_on_one_node_is_bounded_by_who_serves() -> None:
    """On one node the first copy serves all ranks without one: copies help far less than if all were as likely."""
    layout = ExpertLayout(8, 1, 16)
    shares = np.array([4.0] + [4 / 11] * 11)
    assert least_near_load(shares, layout) == pytest.approx(4.0 * 4 / 8, rel=1e-6)


@pytest.mark.parametrize("layout", [ExpertLayout(16, 2, 80), ExpertLayout(8, 1, 72)])
def test_a_map_for_the_nearest_copy_runs_better_there(layout: ExpertLayout) -> None:
    """The best map for even copies loses much of its balance where the nearest serves; one made for it does not."""
    one = workload(skewed(5, 4, 64))
    even, near = (place_experts([one], layout, choice=choice) for choice in (CopyChoice.ANY, NEAREST))
    assert balancedness(even.rows(), one.loads, layout, NEAREST) < 0.93
    assert near.worth > 0.98
    assert near.worth == pytest.approx(balancedness(near.rows(), one.loads, layout, NEAREST))
    assert near.worth <= near.bound <= 1


def test_the_worst_of_a_set_counts_where_the_nearest_copy_serves() -> None:
    """Planned on both, the worst has more than under the map made for the other alone."""
    first, second = workload(skewed(3, 3, 32), "first"), workload(skewed(4, 3, 32), "second")
    layout = ExpertLayout(8, 2, 40)
    alone = place_experts([first], layout, choice=NEAREST, steps=2000).rows()
    both = place_experts([first, second], layout, choice=NEAREST, steps=2000)
    assert both.worth == min(both.balancedness.values())
    assert both.worth > balancedness(alone, second.loads, layout, NEAREST) + 0.05
