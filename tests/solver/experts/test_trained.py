"""Maps of experts for training: against tokens that are drawn and counted one by one, and against every map."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import combinations
from typing import Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.errors import InvalidInput
from cluster_models.model.experts import Experts
from cluster_models.routing.counts import ExpertLoads, RoutedWorkload, loads_of_model
from solver.candidates import FloatArray, IntArray
from solver.experts.grouped import keeps_groups
from solver.experts.trained import TrainedMap, trained_map
from tests.readers.real_files import real
from tests.solver.problems import DENSE, SPARSE

EIGHT: Final = Experts(count=8, active=2, hidden=64)


def drawn(weights: FloatArray, tokens: int, active: int, seed: int = 0) -> IntArray:
    """(tokens, active) different experts of each token, drawn one after the other by weight."""
    keys = np.random.default_rng(seed).gumbel(size=(tokens, len(weights))) + np.log(weights)
    return np.argsort(-keys, axis=1)[:, :active]


def loads(
    counts: IntArray | FloatArray, *, name: str = "counted", weight: float = 1.0, first: int = 0
) -> ExpertLoads:
    """The loads of layers from ``first`` on."""
    layers = tuple(range(first, first + len(counts)))
    return RoutedWorkload(name, layers, np.asarray(counts, dtype=np.float64)).plain(weight)


@st.composite
def small_loads(draw: st.DrawFn) -> ExpertLoads:
    """One layer of six experts."""
    return loads(np.array([draw(st.lists(st.integers(1, 100), min_size=6, max_size=6))]))


def on_ranks(found: TrainedMap, ranks: int, layer: int = 0) -> IntArray:
    """The rank of each expert."""
    row = found.rows[layer]
    return np.argsort(row) // (len(row) // ranks)


@pytest.mark.parametrize(("ranks", "domains"), [(4, 1), (4, 2), (8, 2), (2, 2)])
def test_figures_are_those_of_tokens_counted_one_by_one(ranks: int, domains: int) -> None:
    """Every token goes to its experts' ranks, and once to each other domain."""
    tokens = 40_000
    chosen = drawn(np.array([8.0, 5.0, 1.0, 1.0, 2.0, 3.0, 1.0, 4.0]), tokens, EIGHT.active)
    counts = np.bincount(chosen.ravel(), minlength=8)
    found = trained_map((loads(counts[None, :]),), EIGHT, ranks, domains)
    rank = on_ranks(found, ranks)[chosen]
    carried = np.bincount(rank.ravel(), minlength=ranks)
    assert found.weighted[0] == pytest.approx(carried.max() / carried.mean())
    needs = np.zeros((tokens, ranks), dtype=bool)
    np.put_along_axis(needs, rank, values=True, axis=1)
    assert found.rank_copies[0] == pytest.approx(needs.sum(axis=0).max() * ranks / tokens, rel=0.03)
    home = np.arange(tokens) % domains
    visits = np.asarray(needs.reshape(tokens, domains, -1).any(axis=2))
    visits[np.arange(tokens), home] = False
    received = visits.sum(axis=0).max()
    sent = max(visits[home == domain].sum() for domain in range(domains))
    expected = max(received, sent) * domains / tokens if domains > 1 else 0.0
    assert found.domain_copies[0] == pytest.approx(expected, rel=0.04)


@given(small_loads())
def test_no_map_is_below_the_bound_and_ours_is_the_best(given_loads: ExpertLoads) -> None:
    """Three ranks with two experts each: all maps are tried."""
    experts = Experts(count=6, active=1, hidden=64)
    found = trained_map((given_loads,), experts, 3, 1)
    row = np.array(given_loads.loads[0])
    best = min(
        max(row[list(first)].sum(), row[list(second)].sum(), row.sum() - row[[*first, *second]].sum())
        for first in combinations(range(6), 2)
        for second in combinations(sorted(set(range(6)) - set(first)), 2)
    )
    optimum = best * 3 / row.sum()
    assert 1.0 <= found.least[0] <= optimum * (1 + 1e-9)
    assert optimum * (1 - 1e-9) <= found.weighted[0] <= found.contiguous[0, 0] * (1 + 1e-9)
    assert found.weighted[0] <= optimum * 1.0011 + 1e-9


def test_even_loads_leave_experts_where_they_are() -> None:
    """Nothing is gained by moving them, so no checkpoint is permuted."""
    found = trained_map((loads(np.full((3, 8), 7)),), EIGHT, 4, 2)
    assert (found.rows == np.arange(8)).all()
    assert found.largest == 1.0


def test_the_order_is_kept_where_it_must_be() -> None:
    """The figures then are those of contiguous blocks, and what could be reached is still told."""
    counts = np.array([[9, 9, 1, 1, 1, 1, 1, 1]])
    kept = trained_map((loads(counts),), EIGHT, 4, 1, True)
    assert (kept.rows == np.arange(8)).all()
    assert kept.weighted[0] == kept.contiguous[0, 0] == pytest.approx(3.0)
    assert kept.least[0] <= trained_map((loads(counts),), EIGHT, 4, 1).weighted[0] == pytest.approx(10 / 6)


def test_workloads_without_weight_are_judged_and_not_placed_for() -> None:
    """Their counts change no row of the map."""
    counts, others = np.array([[9, 9, 1, 1, 1, 1, 5, 1]]), np.array([[1, 1, 9, 9, 9, 1, 1, 1]])
    alone = trained_map((loads(counts),), EIGHT, 4, 1)
    judged = trained_map((loads(counts), loads(others, name="others", weight=0.0)), EIGHT, 4, 1)
    assert (alone.rows == judged.rows).all()
    assert judged.weights.tolist() == [1.0, 0.0]
    carried = np.bincount(on_ranks(judged, 4), weights=others[0])
    assert judged.imbalance[1, 0] == pytest.approx(carried.max() / carried.mean())
    assert judged.largest == pytest.approx(judged.imbalance[0].max())


@pytest.mark.parametrize(
    ("groups", "ranks", "domains", "contiguous", "imbalance", "over_least"),
    [
        (1, 8, 1, 1.67, 1.0001, 1.0001),
        (1, 16, 2, 1.93, 1.005, 1.005),
        (1, 32, 4, 2.29, 1.15, 1.05),
        (8, 4, 1, 1.44, 1.17, 1.001),
        (8, 8, 1, 1.67, 1.68, 1.001),
        (8, 16, 2, 1.93, 1.68, 1.001),
        (8, 32, 4, 2.29, 1.72, 1.003),
    ],
)
def test_real_counts_are_balanced_near_their_bound(
    groups: int, ranks: int, domains: int, contiguous: float, imbalance: float, over_least: float
) -> None:
    """DeepSeek-R1's prefill, 58 layers of 256 experts: contiguous blocks have a rank with twice the mean.

    With the router's 8 groups together, the hottest group keeps the slowest rank at 1.67 times the mean and more.
    """
    file = real("moe_routing/deepseek_r1_sglang_lmsys/prefill_in1024.json")
    counts = np.array(json.loads(file.text)["logical_count"], dtype=np.float64)
    experts = Experts(
        count=256, active=8, hidden=2048, dense_layers=3, router_groups=groups, active_groups=4 if groups > 1 else 1
    )
    found = trained_map((loads(counts[3:], first=3),), experts, ranks, domains)
    assert found.contiguous.mean() == pytest.approx(contiguous, abs=0.01)
    assert found.weighted.mean() <= imbalance
    assert found.weighted.mean() <= over_least * found.least.mean()
    assert all(keeps_groups(row, groups) for row in found.rows.tolist())


@given(st.integers(0, 2**32 - 1), st.sampled_from([(2, 1), (4, 1), (4, 2), (8, 2), (16, 4)]))
@settings(max_examples=15)
def test_tokens_select_the_same_experts_after_the_order_is_applied(seed: int, ranks: tuple[int, int]) -> None:
    """A router that keeps the best 2 of 4 groups, formed by position, as Megatron-Core's does."""
    random = np.random.default_rng(seed)
    experts = Experts(count=16, active=3, hidden=64, router_groups=4, active_groups=2)
    scores = random.normal(random.normal(0, 1, 16), 1.0, (500, 16))

    def selected(scores: FloatArray) -> IntArray:
        groups = np.sort(scores.reshape(-1, 4, 4), axis=2)[:, :, -2:].sum(axis=2)
        open_groups = np.argsort(-groups, axis=1)[:, :2]
        allowed = np.zeros((len(scores), 4), dtype=bool)
        np.put_along_axis(allowed, open_groups, values=True, axis=1)
        return np.argsort(-np.where(np.repeat(allowed, 4, axis=1), scores, -np.inf), axis=1)[:, :3]

    before = selected(scores)
    row = trained_map((loads(np.bincount(before.ravel(), minlength=16)[None, :]),), experts, *ranks).rows[0]
    after = row[selected(scores[:, row])]
    assert (np.sort(after, axis=1) == np.sort(before, axis=1)).all()


def test_groups_that_do_not_fit_the_ranks_stay_where_they_are() -> None:
    """Six groups on four ranks: no order is known to be better, and none mixes groups."""
    experts = Experts(count=12, active=1, hidden=64, router_groups=6, active_groups=6)
    found = trained_map((loads(np.arange(1, 13)[None, :]),), experts, 4, 1)
    assert (found.rows == np.arange(12)).all()


def test_weights_decide_between_workloads() -> None:
    """The workload with nearly all of the weight is the better balanced."""
    one, two = np.array([[9, 9, 1, 1, 1, 1, 5, 1]]), np.array([[9, 1, 9, 9, 9, 1, 1, 1]])
    for heavy in (0, 1):
        weights = (0.99, 0.01) if heavy == 0 else (0.01, 0.99)
        given_loads = tuple(
            loads(each, name=str(index), weight=weight)
            for index, (each, weight) in enumerate(zip((one, two), weights, strict=True))
        )
        found = trained_map(given_loads, EIGHT, 4, 1)
        alone = trained_map((given_loads[heavy],), EIGHT, 4, 1)
        assert found.imbalance[heavy, 0] == pytest.approx(alone.imbalance[0, 0], rel=0.02)


def test_loads_take_the_layer_numbers_of_the_model() -> None:
    """Rows without the dense layers are accepted just where there is one for each layer with experts."""
    late = Experts(count=4, active=2, hidden=64, dense_layers=2)
    model = replace(SPARSE, mlp_hidden=5632, layers=6, experts=late)
    rows = np.ones((4, 4))
    assert loads_of_model(model, [loads(rows)])[0].layers == (2, 3, 4, 5)
    assert loads_of_model(model, [loads(rows, first=2)])[0].layers == (2, 3, 4, 5)
    assert loads_of_model(model, [loads(rows[:2], first=3)])[0].layers == (3, 4)
    assert loads_of_model(model, []) == ()


WRONG: Final = {
    "dense model": (DENSE, [loads(np.ones((2, 4)))], "tiny-dense has no experts"),
    "other experts": (SPARSE, [loads(np.ones((2, 8)))], "tiny-sparse has 4 experts in a layer"),
    "layer beyond": (
        SPARSE,
        [loads(np.ones((2, 4)), first=3)],
        "is not a layer with experts: tiny-sparse has 4 of them, 0 to 3",
    ),
    "same name": (SPARSE, [loads(np.ones((2, 4)))] * 2, "is given twice"),
    "one expert more often than once a token": (
        SPARSE,
        [loads(np.array([[7.0, 1.0, 1.0, 1.0]] * 4))],
        r"expert 0 of layer 0 got 70\.0% of the selections",
    ),
    "experts of one token in too many groups": (
        replace(SPARSE, experts=Experts(4, 2, 64, router_groups=2)),
        [loads(np.array([[1.0, 0.0, 1.0, 0.0]] * 4))],
        r"layer 0 needs 2\.00 of 2 router groups open for a token",
    ),
    "no weight": (SPARSE, [loads(np.ones((2, 4)), weight=0.0)], "is 0 for all workloads"),
    "other layers": (
        SPARSE,
        [loads(np.ones((2, 4))), loads(np.ones((2, 4)), name="b", first=1)],
        "are not those of counted: 2 and 2 layers",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_loads_that_are_not_of_the_model_are_refused(what: str) -> None:
    """Each with the field and what is wrong about it."""
    model, given_loads, sentence = WRONG[what]
    with pytest.raises(InvalidInput, match=sentence) as error:
        loads_of_model(model, given_loads)
    assert error.value.field.startswith("routing")


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_a_weight_is_a_number_from_0_on(weight: float) -> None:
    """Anything else is refused where it is read."""
    with pytest.raises(InvalidInput, match=r"routing\.weight"):
        loads(np.ones((1, 4)), weight=weight)


def test_rows_of_different_lengths_are_refused() -> None:
    """A row a layer, a count an expert."""
    with pytest.raises(InvalidInput, match="equally many counts"):
        ExpertLoads("counted", (0, 1), ((1.0, 2.0), (1.0,)))
