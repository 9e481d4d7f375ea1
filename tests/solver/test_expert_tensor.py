"""Experts cut over ranks: rank by rank simulation, brute force over all cuts, bounds, and the checker."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_models.cluster.measurements import Collective
from cluster_models.errors import InvalidWorkload
from cluster_models.model.experts import Experts
from cluster_models.training.framework_choices import ExpertBalance, ExpertDispatch
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Degrees, RankOrder
from cluster_models.training.workload import Sharding
from solver.check import check_plan
from solver.compiled import step_seconds
from solver.costs.collectives import domain_collective_s
from solver.costs.local_sizes import gathered_tokens, local_sizes, routed_tokens
from solver.costs.parameters import data_ranks
from solver.costs.straggling import straggling
from solver.degrees.legality import check_workload
from solver.degrees.priced import price_candidates
from solver.placement.bounds import placement_bound_s
from solver.placement.geometry import geometry
from tests.solver.cost_cases import H100, MIXTRAL, WORKLOAD, behaviour, candidates, costs, memory
from tests.solver.naive import NaiveStep, best_plan
from tests.solver.problems import (
    DENSE,
    EXACT,
    SPARSE,
    candidate,
    every_candidate,
    fabrics_of,
    nodes,
    planned,
    problem,
)
from tests.solver.test_search import ONE_EACH, measured

PER_NODE = 8
FEW = replace(SPARSE, name="few experts", experts=Experts(count=2, active=1, hidden=2816))
"""Two experts: on more GPUs they can only be copied or cut."""
SLACK = 1 + 1e-9


@dataclass(frozen=True)
class Simulated:
    """Weights and tokens that the ranks of one stage hold, receive and send in one sparse layer, rank by rank."""

    received: dict[int, int]
    worked: dict[int, int]
    elements: dict[int, float]
    leaving: dict[int, int]
    holders: dict[tuple[int, int], list[int]]


def simulate(degrees: Degrees, experts: Experts, tokens: int) -> Simulated:
    """Every token of every rank walks to its experts: all-to-all in its block, then gathered by its peers.

    Ranks as Megatron-Core numbers its expert grid: expert tensor fastest, then expert, then copies.  Token i of a
    rank takes the ``active`` experts from i * active on, so that loads are even.
    """
    cut, expert = degrees.expert_tensor, degrees.expert
    stage = degrees.tensor * degrees.context * degrees.data
    local = experts.count // expert
    place = {
        rank: np.unravel_index(rank, (cut, expert, stage // (cut * expert)), order="F") for rank in range(stage)
    }
    rank_of = {tuple(map(int, where)): rank for rank, where in place.items()}
    arrived: dict[int, list[int]] = defaultdict(list)
    leaving: dict[int, int] = defaultdict(int)
    for rank, (part, _, copy) in place.items():
        for token in range(tokens):
            for choice in range(experts.active):
                chosen = (token * experts.active + choice) % experts.count
                target = rank_of[int(part), chosen // local, int(copy)]
                arrived[target].append(chosen)
                leaving[rank] += target // PER_NODE != rank // PER_NODE
    worked: dict[int, list[int]] = {}
    for rank, (_, row, copy) in place.items():
        peers = [rank_of[part, int(row), int(copy)] for part in range(cut)]
        assert len({peer // PER_NODE for peer in peers}) == 1
        worked[rank] = [chosen for peer in peers for chosen in arrived[peer]]
        assert {chosen // local for chosen in worked[rank]} <= {int(row)}
    holders: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, (part, row, _) in place.items():
        for held in range(int(row) * local, (int(row) + 1) * local):
            holders[held, int(part)].append(rank)
    width = experts.hidden / cut
    return Simulated(
        {rank: len(found) for rank, found in arrived.items()},
        {rank: len(found) for rank, found in worked.items()},
        {rank: len(found) * width for rank, found in worked.items()},
        dict(leaving),
        holders,
    )


SHAPES = st.sampled_from(
    [
        (Degrees(tensor=2, data=8, expert=4, expert_tensor=2), Experts(4, 2, 64)),
        (Degrees(tensor=4, data=4, expert=2, expert_tensor=8), Experts(8, 2, 64)),
        (Degrees(data=32, expert=8, expert_tensor=4), Experts(8, 3, 64)),
        (Degrees(tensor=2, context=2, data=8, expert=8, expert_tensor=2), Experts(16, 4, 48)),
        (Degrees(tensor=2, data=8, expert=1, expert_tensor=2), Experts(4, 1, 64)),
        (Degrees(data=16, expert=8), Experts(8, 2, 64)),
    ]
)


@settings(max_examples=12)
@given(SHAPES)
def test_tokens_and_holders_are_those_of_ranks_told_one_by_one(shape: tuple[Degrees, Experts]) -> None:
    """Copies received, gathered and leaving a node, elements of the experts' width, and who shares gradients."""
    degrees, experts = shape
    batch = candidates({name: getattr(degrees, name) for name in Degrees.__slots__})
    calibration = replace(behaviour(), expert_imbalance=1.0)
    sizes = local_sizes(batch, WORKLOAD, calibration)
    tokens = int(sizes.shard_tokens[0])
    scale = tokens // (experts.count * 4)
    told = simulate(degrees, experts, experts.count * 4)
    assert set(told.received.values()) == {routed_tokens(experts, sizes)[0] / scale}
    assert set(told.worked.values()) == {gathered_tokens(experts, sizes)[0] / scale}
    whole = experts.active * experts.hidden * experts.count * 4  # what a rank computes whatever the cut
    assert set(told.elements.values()) == {whole}
    assert {len(ranks) for ranks in told.holders.values()} == {data_ranks(batch)[1][0]}
    model = replace(MIXTRAL, experts=experts)
    priced = costs(batch, model, calibration=calibration)
    element = 2 * model.hidden
    assert {copies * scale * element for copies in told.leaving.values()} == {
        priced.expert_traffic.message_bytes[0]
    }


@pytest.mark.parametrize("cut", [2, 4, 8])
def test_weights_gradients_and_states_of_experts_are_cut(cut: int) -> None:
    """A rank holds its share of the width of each; the optimizer is shared out over fewer copies as before."""
    whole, shared = (memory(candidates({"data": 64, "expert": 8, "expert_tensor": x}), MIXTRAL) for x in (1, cut))
    experts = 32 * MIXTRAL.expert_parameters()
    assert whole.weights_bytes[0, 0] - shared.weights_bytes[0, 0] == pytest.approx(2 * experts * (1 - 1 / cut))
    assert whole.gradients_bytes[0, 0] - shared.gradients_bytes[0, 0] == pytest.approx(4 * experts * (1 - 1 / cut))
    assert shared.optimizer_bytes[0, 0] == pytest.approx(whole.optimizer_bytes[0, 0])
    tokens = 2 * 8192 * behaviour().expert_imbalance
    more = shared.activations_bytes[0, 0] - whole.activations_bytes[0, 0]
    assert more == pytest.approx(2 * 4096 * tokens * (cut - 1) * (32 + 1))  # kept of 32 layers, once more at work


def test_gathering_takes_two_collectives_each_way_on_links_of_one_node() -> None:
    """Each layer and pass gathers what peers received and scatters the sums, whatever the expert group spans."""
    calibration = replace(behaviour(expert_dispatch=ExpertDispatch.ALL_TO_ALL), expert_imbalance=1.0)
    calibration = replace(calibration, collective_skew_s=0.0, domain_share=1.0)
    row = {"data": 32, "expert": 8, "expert_tensor": 4}
    found = costs(candidates(row), MIXTRAL, calibration=calibration)
    buffer = np.array([4.0 * 2 * 8192 * 2 * 4096])
    each = sum(
        float(domain_collective_s(H100, kind, np.array([4.0]), buffer)[0])
        for kind in (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    )
    slow = float(straggling(np.array([4.0]), calibration)[0])
    assert found.expert_s[0, 0] == pytest.approx(2 * 32 * each * slow)


def test_dispatchers_that_send_once_per_rank_send_to_every_peer_instead() -> None:
    """Two experts in two groups: a token needs 1.5 of them, all 4 ranks of each get a copy, nothing is gathered."""
    calibration = replace(behaviour(expert_dispatch=ExpertDispatch.DEEPEP), expert_imbalance=1.0)
    model = replace(MIXTRAL, experts=Experts(count=2, active=2, hidden=14336))
    found = costs(candidates({"data": 8, "expert": 2, "expert_tensor": 4}), model, calibration=calibration)
    sent = np.array([4 * 1.5 * 8192 * 2 * 4096])
    each = float(domain_collective_s(H100, Collective.ALL_TO_ALL, np.array([8.0]), sent)[0])
    assert found.expert_s[0, 0] == pytest.approx(2 * 32 * 2 * each)


@settings(max_examples=20)
@given(
    st.sampled_from([(8, 2, 14336), (64, 6, 1408), (16, 1, 8192)]),
    st.sampled_from(list(ExpertDispatch)),
    st.sampled_from([2, 4, 8, 16, 32]),
    st.sampled_from([1, 4]),
)
def test_cutting_further_over_as_many_ranks_never_pays(
    shape: tuple[int, int, int], dispatch: ExpertDispatch, block: int, micro_batch: int
) -> None:
    """The rule of the search space: among grids over equally many ranks, with several expert ranks."""
    count, active, hidden = shape
    model = replace(MIXTRAL, experts=Experts(count, active, hidden))
    grids = [
        (block // x, x) for x in (1, 2, 4, 8) if block % x == 0 and block // x > 1 and count % (block // x) == 0
    ]
    seconds = []
    for expert, cut in grids:
        row = {"data": 32, "expert": expert, "expert_tensor": cut, "micro_batch": micro_batch}
        found = costs(candidates(row), model, calibration=behaviour(expert_dispatch=dispatch))
        seconds.append(float((found.forward_s + found.backward_s)[0, 0]))
    assert seconds == sorted(seconds)


CASES = {
    "fewer experts than GPUs": problem(nodes(1, gpus=4), model=FEW, global_batch=4, forbidden=ONE_EACH),
    "fewer experts than GPUs, two nodes": problem(
        nodes(2, gpus=4),
        measured(2, "10", 4),
        model=FEW,
        global_batch=8,
        forbidden=ONE_EACH,
        pinned={"pipeline": 1},
    ),
    "cut in two": problem(
        nodes(3, gpus=2),
        measured(3, "4 20 40", 2),
        model=SPARSE,
        global_batch=6,
        forbidden=ONE_EACH,
        pinned={"expert_tensor": 2},
        sharding=(Sharding.NONE, Sharding.OPTIMIZER),
    ),
    "never whole": problem(
        nodes(2, gpus=4), measured(2, "10", 4), model=SPARSE, forbidden=ONE_EACH | {"expert_tensor": (1,)}
    ),
    "uneven loads": problem(
        nodes(2, gpus=2),
        measured(2, "40", 2),
        model=replace(SPARSE, experts=Experts(count=4, active=1, hidden=16384)),
        forbidden=ONE_EACH,
        pinned={"pipeline": 1},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_the_best_of_all_cuts(case: str) -> None:
    """Trying every legal cut, also those that the search space leaves out, finds nothing better."""
    asked = CASES[case]
    best, _ = best_plan(asked, every_cut=True)
    found = planned(asked, EXACT)
    assert found.certificate.objective == pytest.approx(best, rel=1e-9)
    assert found.certificate.bound <= best * (1 + 1e-6)
    assert check_plan(found, asked) == ()


@settings(max_examples=15)
@given(
    st.sampled_from([(2, 2), (3, 2), (2, 4), (3, 4)]),
    st.sampled_from([{"expert_tensor": 2}, {"expert": 1}, {"expert": 2}]),
    st.sampled_from([SPARSE, FEW]),
    st.sampled_from([(Sharding.NONE, Sharding.PARAMETERS), (Sharding.OPTIMIZER,)]),
    st.integers(0, 6),
)
def test_prices_and_bounds_stay_below_every_placement(
    shape: tuple[int, int], pinned: dict[str, int], model: object, sharding: tuple[Sharding, ...], first: int
) -> None:
    """Optimistic price <= bound of the placement <= each placement, which the plain step tells alike."""
    count, gpus = shape
    links = measured(count, "4 20 40" if count == 3 else "10", gpus)
    asked = problem(
        nodes(count, gpus=gpus),
        links,
        model=model,
        pinned=pinned,
        forbidden=ONE_EACH,
        sharding=sharding,
        global_batch=6,
    )  # type: ignore[arg-type]  # sampled
    price = price_candidates(asked, fabrics_of(asked)).bound_s
    for index, placed in every_candidate(asked, first, 7).items():
        naive, bound_s = NaiveStep(placed), placement_bound_s(placed.placement)
        for order in permutations(range(placed.fabric.nodes), placed.placement.slots):
            step = step_seconds(np.array(order), placed.placement.arrays)[0]
            assert step == pytest.approx(naive(order), rel=1e-12)
            assert price[index] <= step * SLACK
            assert bound_s <= step * SLACK


def test_copies_of_cut_experts_ring_over_the_nodes_that_hold_the_same_share() -> None:
    """Blocks of 4 x 2 ranks on nodes of 4: two nodes hold all experts, the other two their copies."""
    shape = geometry(Degrees(data=16, expert=4, expert_tensor=2), RankOrder.DATA_BEFORE_PIPELINE, 4)
    pairs = {tuple(pair) for pair in shape.ring_pairs[1, 0].tolist() if pair[0] >= 0}
    assert pairs == {(0, 2), (2, 0), (1, 3), (3, 1)}
    assert shape.expert_ring_members.tolist() == [1]
    assert shape.expert_ring_nodes.tolist() == [2]
    meetings = {tuple(pair) for pair in shape.cross_pairs[1, 0, 0].tolist() if pair[0] >= 0}
    assert meetings == {(0, 1), (1, 0)}


WRONG = {
    "dense": (DENSE, {}, 2, "no experts"),
    "width": (replace(SPARSE, experts=Experts(count=4, active=2, hidden=2815)), {}, 2, "width 2815"),
    "biases": (replace(SPARSE, mlp_bias=True), {}, 2, "biases"),
    "framework": (SPARSE, {"framework": framework("torchtitan-2025")}, 2, "no tensor size of their own"),
    "sequence": (
        SPARSE,
        {"framework": replace(framework("megatron-core-0.12"), sequence_parallel=False)},
        2,
        "sequence parallelism",
    ),
    "node": (SPARSE, {}, 4, "inside a node"),
}


@pytest.mark.parametrize("case", WRONG)
def test_cuts_that_no_plan_can_have_are_named(case: str) -> None:
    """The field, and why."""
    model, changes, size, words = WRONG[case]
    asked = problem(nodes(2, gpus=2), model=model, pinned={"expert_tensor": size}, **changes)
    with pytest.raises(InvalidWorkload, match=words) as caught:
        check_workload(asked, fabrics_of(asked))
    assert caught.value.field == "workload.pinned.expert_tensor"


def test_the_checker_finds_cuts_that_break_a_rule() -> None:
    """Width, stage, biases, framework and NVLink domain."""
    asked = problem(nodes(2, gpus=2), model=SPARSE, pinned={"expert_tensor": 2, "data": 4})
    found = planned(asked)
    assert check_plan(found, asked) == ()

    def broken(**changes: int) -> str:
        configuration = replace(found.configuration, degrees=replace(found.configuration.degrees, **changes))
        return " ".join(check_plan(replace(found, configuration=configuration), asked))

    assert "does not divide the width" in broken(expert_tensor=3)
    assert "x expert tensor 4 does not divide" in broken(expert=2, expert_tensor=4)
    assert "spans NVLink domains" in broken(expert=1, expert_tensor=4)
    biased = replace(asked, architecture=replace(SPARSE, mlp_bias=True))
    assert "have biases" in " ".join(check_plan(found, biased))
    whole = replace(asked, workload=replace(asked.workload, framework=framework("torchtitan-2025")))
    assert "does not cut experts on their own" in " ".join(check_plan(found, whole))


def test_pinned_cuts_are_kept_inside_and_over_nodes() -> None:
    """Four experts on four nodes of two, each cut in two: the expert group spans all nodes."""
    asked = problem(nodes(4, gpus=2), model=SPARSE, pinned={"expert_tensor": 2, "expert": 4, "data": 8})
    found = planned(asked)
    assert found.configuration.degrees == Degrees(data=8, expert=4, expert_tensor=2)
    assert check_plan(found, asked) == ()
    placed = candidate(asked, data=8, expert=4, expert_tensor=2)
    assert placed.costs.expert_traffic.message_bytes[0] > 0


@given(st.floats(1.0, 4.0))
def test_experts_of_one_capacity_are_equally_busy(imbalance: float) -> None:
    """Where every expert works on its mean share no rank is busier, however unevenly the router chooses."""
    batch = candidates({"expert": 8, "data": 8})
    sizes = [
        local_sizes(batch, WORKLOAD, replace(behaviour(expert_balance=each), expert_imbalance=imbalance))
        for each in (ExpertBalance.CAPACITY, ExpertBalance.NATURAL)
    ]
    assert [each.imbalance.item() for each in sizes] == [1.0, imbalance]
