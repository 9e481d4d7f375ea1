"""The time of sparse layers: needs of nodes by enumeration and by drawn tokens, parts of the time by hand."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.errors import InvalidInput
from cluster_models.model.catalogue import catalogue_model
from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_node_time import Reach, node_state, renewed
from solver.experts.compiled_reach import router_weights, served_shares
from solver.experts.dispatch import LayerRates, RouterRule, Routing, layer_times, routing, token_bytes
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, node_local_share

DEEPSEEK = RouterRule(8, 8, 4)
RATES = LayerRates(1e-7, 7_392.0, 14_336.0, 25e9, 300e9)


BOTH = (1.0, 1.0)
"""References under which both choices of copies count."""


def reach_of(slots: IntArray, routed: Routing, layout: ExpertLayout) -> tuple[Reach, Reach]:
    """Tokens that nodes serve and need in the first layer: copies of the own node preferred, and all as likely."""
    state = node_state(slots[0].reshape(layout.nodes, -1), routed.shares.shape[1])
    renewed(routed.case(0, layout, (0.0, 1.0, 0.0), 0.0, BOTH), state)
    return state.near, state.even


def node_needs_of(slots: IntArray, routed: Routing, layout: ExpertLayout) -> FloatArray:
    """(N, N) how likely a token of one node needs another, in the first layer."""
    return reach_of(slots, routed, layout)[0].needs


def skewed(experts: int, seed: int, spread: float = 0.7) -> FloatArray:
    """(1, E) loads as uneven as those counted of DeepSeek-R1."""
    return np.random.default_rng(seed).lognormal(0.0, spread, (1, experts))


def scattered(experts: int, layout: ExpertLayout, seed: int) -> IntArray:
    """(1, S) every expert once, then copies of random ones, in random slots (ranks may hold an expert twice)."""
    random = np.random.default_rng(seed)
    slots = np.concatenate([np.arange(experts), random.integers(experts, size=layout.slots - experts)])
    random.shuffle(slots)
    return slots[None, :]


@given(st.lists(st.integers(0, 3), min_size=2, max_size=5).filter(any))
def test_copies_serve_their_own_node_and_others_equally(copies: list[int]) -> None:
    """Tokens of a node are served in full: there where it has a copy, else by all copies equally."""
    counts = np.array(copies, dtype=np.int64)
    served = np.zeros((len(counts), len(counts)))
    served_shares(counts, served)
    assert served.sum(axis=1) == pytest.approx(np.ones(len(counts)))
    assert np.diag(served) == pytest.approx(np.minimum(counts, 1))
    for row in served[counts == 0]:
        assert row == pytest.approx(counts / counts.sum())


def test_what_stays_in_nodes_is_the_local_share() -> None:
    """The needs and the share of selections inside nodes follow from one rule of serving."""
    layout, loads = ExpertLayout(8, 4, 40), skewed(32, 1)
    slots = scattered(32, layout, 2)
    state = node_state(slots[0].reshape(4, -1), 32)
    inside = np.einsum("e,emm->", loads[0] / loads.sum(), state.near.served) / 4
    assert inside == pytest.approx(node_local_share(slots, loads, layout))


@pytest.mark.parametrize(
    ("experts", "rule"), [(8, RouterRule(3)), (12, RouterRule(3, 4, 2)), (6, RouterRule(2, 3, 3))]
)
def test_needs_are_exact_sums_over_all_sets(experts: int, rule: RouterRule) -> None:
    """Generating functions give what summing over every set of experts that a token can select gives."""
    layout = ExpertLayout(3, 3, experts + 3 + -experts % 3)
    routed = routing(skewed(experts, 3, 0.3), rule)
    slots = scattered(experts, layout, 4)
    near, even = reach_of(slots, routed, layout)
    weights, size = routed.weights[0], experts // rule.groups
    everything, missed, missed_even, likely = 0.0, np.zeros((3, 3)), np.zeros((1, 3)), np.zeros(experts)
    for groups in combinations(range(rule.groups), rule.active_groups):
        allowed = [expert for expert in range(experts) if expert // size in groups]
        for chosen in map(list, combinations(allowed, rule.active)):
            weight = weights[chosen].prod()
            everything += weight
            missed += weight * (1.0 - near.served[chosen]).prod(axis=0)
            missed_even += weight * (1.0 - even.served[chosen]).prod(axis=0)
            likely[chosen] += weight
    expected = 1.0 - missed / everything
    np.fill_diagonal(expected, 0.0)
    assert near.needs == pytest.approx(expected)
    assert even.needs == pytest.approx(1.0 - missed_even / everything)
    assert likely / everything == pytest.approx(rule.active * routed.shares[0], rel=2e-3)


@pytest.mark.parametrize("rule", [RouterRule(2), RouterRule(4, 4, 2)])
def test_loads_that_no_router_draws_have_weights_all_the_same(rule: RouterRule) -> None:
    """One expert of each group for every token: weights stay finite, and the check names the layer."""
    row = np.zeros((1, 8))
    row[0, :: 2 if rule.groups > 1 else 8] = 1.0
    weights = routing(row, rule).weights
    assert np.isfinite(weights).all()
    assert (weights > 0).all()
    with pytest.raises(InvalidInput, match="layer 5"):
        rule.check_shares(row / row.sum(), (5,), "loads")


def test_weights_reproduce_uneven_loads() -> None:
    """An expert that most tokens select keeps a finite weight; one that none selects gets nearly none."""
    shares = np.array([0.48, 0.3, 0.2, 0.02, 0.0, 0.0])
    weights = router_weights(shares, 2, 1, 1, 60)
    assert np.isfinite(weights).all()
    assert (np.diff(weights[:5]) < 0).all()
    assert weights[5] < 1e-4 * weights[0]


@pytest.mark.parametrize("layout", [ExpertLayout(32, 4, 288), ExpertLayout(16, 2, 256)])
@pytest.mark.parametrize("rule", [DEEPSEEK, RouterRule(8)])
@pytest.mark.parametrize("choice", CopyChoice)
def test_needs_agree_with_tokens_drawn_one_by_one(
    layout: ExpertLayout, rule: RouterRule, choice: CopyChoice
) -> None:
    """A router that adds noise to its preferences and keeps the best is predicted from its counts within 2 %."""
    random = np.random.default_rng(5)
    tokens, experts, size = 40_000, 256, 256 // rule.groups
    scores = skewed(experts, 6)[0]
    noisy = np.log(scores) + random.gumbel(size=(tokens, experts))
    group_scores = np.log(scores.reshape(rule.groups, -1).sum(axis=1)) + random.gumbel(size=(tokens, rule.groups))
    kept = np.argsort(-group_scores, axis=1)[:, : rule.active_groups]
    allowed = np.zeros((tokens, rule.groups), dtype=bool)
    np.put_along_axis(allowed, kept, values=True, axis=1)
    noisy[~np.repeat(allowed, size, axis=1)] = -np.inf
    chosen = np.argsort(-noisy, axis=1)[:, : rule.active]
    loads = np.bincount(chosen.ravel(), minlength=experts)[None, :].astype(float)
    slots = scattered(experts, layout, 7)
    source = random.integers(layout.nodes, size=tokens)
    if choice is CopyChoice.NEAREST:
        served = node_state(slots[0].reshape(layout.nodes, -1), experts).near.served
        shares = served[chosen, source[:, None]].cumsum(axis=2)
        goes_to = (random.random((tokens, rule.active, 1)) > shares[:, :, :-1]).sum(axis=2)
    else:
        copies = [np.flatnonzero(slots[0] == expert) for expert in range(experts)]
        drawn = random.random((tokens, rule.active))
        counts = np.array([len(each) for each in copies])[chosen]
        table = np.zeros((experts, max(map(len, copies))), dtype=np.int64)
        for expert, each in enumerate(copies):
            table[expert, : len(each)] = layout.node_of_slot()[each]
        goes_to = table[chosen, (drawn * counts).astype(np.int64)]
    needed = np.zeros((tokens, layout.nodes))
    np.put_along_axis(needed, goes_to, 1.0, axis=1)
    needed[np.arange(tokens), source] = 0.0
    times = layer_times(slots, routing(loads, rule), layout, RATES, choice)
    assert times.crossing[0] == pytest.approx(needed.sum(axis=1).mean(), rel=0.02)
    pairs = np.zeros((layout.nodes, layout.nodes))
    np.add.at(pairs, source, needed / np.bincount(source)[source][:, None])
    busiest = max(pairs.sum(axis=0).max(), pairs.sum(axis=1).max())
    assert times.busiest_crossing[0] == pytest.approx(busiest, rel=0.02)


def test_measured_pairs_take_the_place_of_the_rule() -> None:
    """With two experts a token, counts of pairs say exactly which nodes tokens needed."""
    random = np.random.default_rng(8)
    experts, layout = 8, ExpertLayout(4, 2, 8)
    first = random.integers(experts, size=5_000)
    # partners are mostly neighbours: not what independent draws would do
    second = np.where(random.random(5_000) < 0.8, first ^ 1, (first + random.integers(1, experts, 5_000)) % experts)
    pairs = np.zeros((experts, experts))
    np.add.at(pairs, (first, second), 1.0)
    pairs += pairs.T
    loads = pairs.sum(axis=1)[None, :]
    slots = np.arange(experts)[None, :]
    in_second_node = (first >= 4) | (second >= 4)
    routed = routing(loads, RouterRule(2), {0: pairs})
    assert node_needs_of(slots, routed, layout)[0, 1] == pytest.approx(in_second_node.mean(), rel=1e-9)
    unmeasured = routing(loads, RouterRule(2))
    assert node_needs_of(slots, unmeasured, layout)[0, 1] > 1.1 * in_second_node.mean()


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=12)
def test_slopes_are_how_needs_change(seed: int) -> None:
    """The need of a node changes with what it serves of one expert by the slope, with measured pairs too."""
    random = np.random.default_rng(seed)
    experts, layout = 8, ExpertLayout(2, 2, 12)
    tokens = np.argsort(random.random((200, experts)) * np.linspace(1, 2, experts), axis=1)[:, :3]
    selected = np.zeros((200, experts))
    np.put_along_axis(selected, tokens, 1.0, axis=1)
    pairs = selected.T @ selected
    slots = scattered(experts, layout, seed)
    for coactivation in ({}, {0: pairs}):
        routed = routing(selected.sum(axis=0)[None, :], RouterRule(3), coactivation)
        case = routed.case(0, layout, (0.0, 1.0, 0.0), 0.0, BOTH)
        state = node_state(slots[0].reshape(2, -1), experts)
        for reach in (state.near, state.even):
            reach.served[:] = 0.2 + 0.6 * random.random(reach.served.shape)
            renewed(case, state)
            before, expert, step = reach.needs[0, 1], int(random.integers(experts)), 1e-6
            slope = reach.slopes[expert, 0, 1]
            reach.served[expert, 0, 1] += step
            renewed(case, state)
            assert (reach.needs[0, 1] - before) / step == pytest.approx(slope, rel=1e-3, abs=1e-6)


def test_parts_of_the_time_by_hand() -> None:
    """Two nodes of two ranks; four experts of one slot each; one expert a token."""
    layout = ExpertLayout(4, 2, 4)
    rates = LayerRates(1e-3, 100.0, 200.0, 1e3, 1e4, tokens=10.0)
    loads = np.array([[0.4, 0.3, 0.2, 0.1]])
    times = layer_times(np.array([[0, 1, 2, 3]]), routing(loads, RouterRule(1)), layout, rates)
    assert times.compute_s[0] == pytest.approx(1e-3 * 40 * 0.4)
    # the second node sends 0.7 of its 20 tokens to the first, over the links of two ranks, there and back
    assert times.busiest_crossing[0] == pytest.approx(0.7, rel=1e-3)
    assert times.between_s[0] == pytest.approx(14 * 300 / 2e3, rel=1e-3)
    assert times.crossing[0] == pytest.approx(0.5, rel=1e-3)
    assert times.inside_s[0] == pytest.approx(40 * 0.4 * 300 / 1e4, rel=1e-3)
    assert times.total_s == pytest.approx(times.compute_s + times.between_s + times.inside_s)


@pytest.mark.parametrize("choice", list(CopyChoice))
def test_traffic_of_one_expert_a_token_is_what_nodes_serve(choice: CopyChoice) -> None:
    """By hand: a token goes to the node of its expert; rows add up to the nodes that a token of each crosses."""
    loads = np.array([[4.0, 3.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    slots = np.array([[0, 1, 2, 3], [0, 1, 2, 3]])
    times = layer_times(slots, routing(loads, RouterRule(1)), ExpertLayout(4, 2, 4), RATES, choice)
    assert times.traffic == pytest.approx(np.array([[0.0, (0.3 + 0.5) / 2], [(0.7 + 0.5) / 2, 0.0]]))
    assert times.traffic.sum(axis=1).mean() == pytest.approx(times.crossing.mean())


def test_copies_in_every_node_leave_nothing_to_send() -> None:
    """Where each node holds all experts, no token leaves it."""
    layout = ExpertLayout(4, 2, 8)
    slots = np.tile(np.arange(4), 2)[None, :]
    times = layer_times(slots, routing(skewed(4, 9), RouterRule(2)), layout, RATES)
    assert times.crossing[0] == pytest.approx(0.0, abs=1e-12)
    assert times.between_s[0] == pytest.approx(0.0, abs=1e-12)


def test_bytes_of_a_token_are_those_of_deepep() -> None:
    """FP8 with a scale per 128 elements there, BF16 back."""
    assert token_bytes(7_168) == (7_168 + 56 * 4, 14_336)
    experts = catalogue_model("deepseek-v3").experts
    assert experts is not None
    assert RouterRule.of(experts) == DEEPSEEK


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (RouterRule(8, 3, 1), "router.groups"),
        (RouterRule(8, 8, 9), "router.active_groups"),
        (RouterRule(9, 8, 1), "router.active"),
        (RouterRule(0), "router.active"),
    ],
)
def test_rules_that_no_token_can_keep_are_refused(rule: RouterRule, field: str) -> None:
    """The message names what is wrong."""
    with pytest.raises(InvalidInput, match=field):
        routing(skewed(64, 1), rule)


@pytest.mark.parametrize("field", ["selection_s", "tokens", "between_bytes_per_s"])
def test_rates_must_be_numbers_that_make_sense(field: str) -> None:
    """Negative rates are refused by name."""
    values = {"selection_s": 1.0, "dispatch_bytes": 1.0, "combine_bytes": 1.0, "inside_bytes_per_s": 1.0}
    with pytest.raises(InvalidInput, match=field):
        LayerRates(**({"between_bytes_per_s": 1.0} | values | {field: -1.0}))
