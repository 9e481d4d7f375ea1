"""Maps for known transitions: against every chain of small cases, and by what must hold in all."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from solver.candidates import FloatArray, IntArray
from solver.experts.chain_bounds import pair_bound, partners_bound, spectral_bound, worth_bound
from solver.experts.chain_splits import best_chain, splits_of
from solver.experts.chain_sweeps import Chain, annealed, best_exchange, forward, searched
from solver.experts.chains import chain_experts
from solver.experts.layout import ExpertLayout
from solver.experts.loads import balancedness
from solver.experts.transitions import (
    EVERY_CHANGE,
    ChangePrices,
    node_stay_share,
    stay_share,
    transition_tables,
)

SMALL = [
    ExpertLayout(2, 1, 4),
    ExpertLayout(2, 1, 6),
    ExpertLayout(3, 1, 6),
    ExpertLayout(4, 2, 4),
    ExpertLayout(2, 1, 4, (1.0, 2.0)),
    ExpertLayout(4, 2, 4, (1.0, 2.0, 2.0, 1.0)),
]
PRICES = [EVERY_CHANGE, ChangePrices(0.25, 1.0)]


def traced(seed: int, tokens: int, layers: int, experts: int, *, top: int = 2) -> RoutedWorkload:
    """Tokens that mostly follow one of a few paths through the layers, two experts in each."""
    generator = np.random.default_rng(seed)
    paths = generator.integers(experts, size=(5, layers, top))
    chosen = paths[generator.integers(5, size=tokens)]
    strays = generator.random((tokens, layers, top)) < 0.4
    chosen = np.where(strays, generator.integers(experts, size=chosen.shape), chosen)
    loads = np.array([np.bincount(chosen[:, layer].ravel(), minlength=experts) for layer in range(layers)])
    tables = {}
    for layer in range(layers - 1):
        tables[layer] = np.zeros((experts, experts))
        for a, b in itertools.product(range(top), repeat=2):
            np.add.at(tables[layer], (chosen[:, layer, a], chosen[:, layer + 1, b]), 1.0)
    return RoutedWorkload("traced", tuple(range(layers)), loads + 0.5, tables)


def every_split(layout: ExpertLayout) -> list[IntArray]:
    """The rank of each expert in every map of one layer."""
    order = itertools.permutations(np.repeat(np.arange(layout.ranks), layout.slots_per_rank).tolist())
    return [np.array(ranks) for ranks in sorted(set(order))]


def best_of_all(chain: Chain) -> float:
    """The best value of any chain of maps, layer after layer over all pairs of them."""
    splits = every_split(chain.layout)
    best = {tuple(split): 0.0 for split in splits}
    for layer in range(len(chain.shares)):
        load = {
            tuple(split): chain.price * chain.priced(0).slowest(np.tile(split, (len(chain.shares), 1)))[layer]
            for split in splits
        }
        if layer == 0:
            best = {key: -load[key] for key in best}
            continue
        best = {
            tuple(there): max(
                best[tuple(here)] + float((chain.tables[layer - 1] * chain.worth[here[:, None], there]).sum())
                for here in splits
            )
            - load[tuple(there)]
            for there in splits
        }
    return max(best.values())


@given(st.sampled_from(SMALL), st.sampled_from(PRICES), st.integers(0, 10**6), st.sampled_from([0.0, 0.02]))
@settings(max_examples=20)
def test_the_exact_chain_is_the_best_of_all_chains(
    layout: ExpertLayout, prices: ChangePrices, seed: int, price: float
) -> None:
    """Over classes of splits alone, the value is that of the best over all labelled splits, loads included."""
    workload = traced(seed, 40, 3, layout.slots)
    worth = prices.worth(layout)
    chain = Chain(transition_tables(workload), workload.shares() * layout.ranks, worth, layout, price)
    splits = splits_of(workload.experts, 3, layout, worth)
    assert splits is not None
    slowest = np.array([splits.slowest(shares, layout) for shares in chain.shares])
    optimum = best_of_all(chain)
    assert chain.value(best_chain(chain.tables, price * slowest, splits)) == pytest.approx(optimum, abs=1e-12)
    assert chain.value(searched(chain, starts=4, steps=2000, seed=seed)) <= optimum + 1e-12
    if not price:
        assert worth_bound(chain.tables, worth, layout) >= optimum - 1e-12


@pytest.mark.parametrize("layout", [ExpertLayout(2, 1, 8), ExpertLayout(4, 1, 8), ExpertLayout(4, 2, 8)])
@pytest.mark.parametrize("seed", range(4))
def test_searching_comes_within_3_percent_of_the_exact_chain(layout: ExpertLayout, seed: int) -> None:
    """Where both can be done, sweeps and annealing find at least 97 % of the optimum, and the bound lies above."""
    prices = ChangePrices(0.2, 1.0)
    workload = traced(seed, 300, 12, 8)
    worth = prices.worth(layout)
    chain = Chain(transition_tables(workload), workload.shares() * layout.ranks, worth, layout)
    exact = chain_experts(workload, layout, prices=prices, least_locality=1.0)
    assert exact.exact
    assert exact.worth == pytest.approx(exact.bound)
    found = chain.value(searched(chain, starts=4, steps=400 * chain.shares.size, seed=seed))
    assert 0.97 * exact.worth <= found <= exact.worth + 1e-12
    assert worth_bound(chain.tables, worth, layout) >= exact.worth


@given(
    st.sampled_from([ExpertLayout(4, 2, 12), ExpertLayout(2, 1, 8), ExpertLayout(3, 1, 9, (1.0, 2.0, 3.0))]),
    st.sampled_from(PRICES),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 0.02]),
)
@settings(max_examples=15)
def test_searching_ends_where_no_exchange_of_two_experts_helps(
    layout: ExpertLayout, prices: ChangePrices, seed: int, price: float
) -> None:
    """Whatever was left out because it could not help: any exchange of any layer lowers the value, or keeps it."""
    workload = traced(seed, 60, 4, layout.slots)
    shares = workload.shares() * layout.ranks
    chain = Chain(transition_tables(workload), shares, prices.worth(layout), layout, price)
    ranks = forward(chain, seed)
    start = chain.value(ranks)
    annealed(chain, ranks, 0, 1.0, seed)
    reached = chain.value(ranks)
    assert reached >= start - 1e-9
    for layer in range(len(ranks)):
        for e, f in itertools.combinations(range(layout.slots), 2):
            other = ranks.copy()
            other[layer, [e, f]] = ranks[layer, [f, e]]
            assert chain.value(other) <= reached + 1e-9


@given(st.integers(0, 10**6), st.sampled_from([(4, 2), (6, 2), (6, 3), (4, 4)]))
@settings(max_examples=20)
def test_no_pair_of_splits_exceeds_any_bound_of_a_pair(seed: int, size: tuple[int, int]) -> None:
    """Each of the bounds holds for all pairs of splits, of tables with and without order."""
    experts, parts = size
    generator = np.random.default_rng(seed)
    table = generator.random((experts, experts)) ** generator.integers(1, 12)
    splits = every_split(ExpertLayout(parts, 1, experts))
    optimum = max(table[here[:, None] == there].sum() for here in splits for there in splits)
    for bound in (pair_bound, partners_bound, spectral_bound):
        assert bound(table, parts) >= optimum * (1 - 1e-12)


@given(
    st.integers(0, 10**6), st.sampled_from([ExpertLayout(4, 2, 4), ExpertLayout(4, 1, 4), ExpertLayout(4, 4, 4)])
)
@settings(max_examples=20)
def test_ranks_are_exchanged_in_the_best_way_that_keeps_nodes_together(seed: int, layout: ExpertLayout) -> None:
    """The exchange found saves as much as the best of all that lead nodes to nodes."""
    masses = np.random.default_rng(seed).random((4, 4))
    worth = ChangePrices(0.3, 1.0).worth(layout)
    chain = Chain(np.zeros((1, 4, 4)), np.ones((2, 4)), worth, layout)
    saved, order = best_exchange(masses, chain)
    width = layout.ranks_per_node

    def kept(new: tuple[int, ...]) -> bool:
        return all(len({new[n * width + i] // width for i in range(width)}) == 1 for n in range(layout.nodes))

    best = max((masses * worth[:, list(new)]).sum() for new in itertools.permutations(range(4)) if kept(new))
    assert saved == pytest.approx(best)
    assert (masses * worth[:, order]).sum() == pytest.approx(best)


@pytest.mark.parametrize("layout", [ExpertLayout(4, 1, 8), ExpertLayout(4, 2, 16), ExpertLayout(2, 1, 8, (1, 2))])
def test_balance_is_bought_with_little_locality(layout: ExpertLayout) -> None:
    """With 5 % of the locality to spend ranks are balanced better, and at least 95 % is kept."""
    workload = traced(7, 400, 10, layout.slots)
    strict = chain_experts(workload, layout, least_locality=1.0, steps=100)
    loose = chain_experts(workload, layout, least_locality=0.95, steps=100)
    assert loose.most_worth == strict.most_worth
    assert loose.worth >= 0.95 * strict.most_worth * (1 - 1e-9)
    assert loose.balancedness > strict.balancedness
    assert loose.bound >= loose.most_worth >= loose.worth
    for answer in (strict, loose):
        assert answer.stay_share == stay_share(answer.rows(), workload.transitions, layout)
        assert answer.node_stay_share == node_stay_share(answer.rows(), workload.transitions, layout)
        assert answer.balancedness == balancedness(answer.rows(), workload.loads, layout)
        assert answer.stay_share <= answer.node_stay_share <= 1


def test_tokens_that_never_leave_their_group_of_experts_stay() -> None:
    """Experts that are always visited one after the other come onto one rank in all layers."""
    generator = np.random.default_rng(3)
    order = [generator.permutation(64) for _ in range(6)]
    tables = {}
    for layer in range(5):
        tables[layer] = np.zeros((64, 64))
        group = np.arange(64) // 8
        tables[layer][np.ix_(order[layer], order[layer + 1])] = group[:, None] == group
    workload = RoutedWorkload("groups", tuple(range(6)), np.ones((6, 64)), tables)
    answer = chain_experts(workload, ExpertLayout(8, 2, 64))
    assert answer.stay_share == pytest.approx(1.0)
    assert answer.exact
    assert answer.balancedness == pytest.approx(1.0)


def test_the_same_arguments_give_the_same_map() -> None:
    """Searching is repeatable, and layers without counted transitions do no harm."""
    workload = traced(1, 200, 6, 16)
    partial = RoutedWorkload(
        "partial", workload.layers, workload.loads, {i: t for i, t in workload.transitions.items() if i != 2}
    )
    answers = [chain_experts(partial, ExpertLayout(4, 2, 16), steps=50, seed=4) for _ in range(2)]
    assert answers[0].slots == answers[1].slots
    assert not answers[0].exact


def _plain(loads: FloatArray) -> RoutedWorkload:
    return RoutedWorkload("plain", (0, 1), loads)


def test_wrong_input_is_named() -> None:
    """Copies, missing transitions, prices and shares out of range are refused."""
    workload = traced(1, 20, 2, 4)
    with pytest.raises(InvalidInput, match="hold no copies"):
        chain_experts(workload, ExpertLayout(2, 1, 6))
    with pytest.raises(InvalidInput, match="no transition"):
        chain_experts(_plain(np.ones((2, 4))), ExpertLayout(2, 1, 4))
    with pytest.raises(InvalidInput, match="from 0 to 1"):
        chain_experts(workload, ExpertLayout(2, 1, 4), least_locality=1.5)
    with pytest.raises(InvalidInput, match="not below the one inside"):
        ChangePrices(2.0, 1.0)
    with pytest.raises(InvalidInput, match="without copies"):
        stay_share(np.zeros((2, 6), dtype=np.int64), {}, ExpertLayout(2, 1, 4))
