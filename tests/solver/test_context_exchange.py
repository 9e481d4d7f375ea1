"""Exchanges of context ranks: ring, gather, all-to-all of heads, and that inside nodes with a ring over them."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from cluster_models.cluster.measurements import Collective
from cluster_models.errors import InvalidConfiguration, InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.training.context_exchange import GATHERED, RING, exchange_code, exchange_codes, exchange_of
from cluster_models.training.framework_choices import ContextExchange
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.check import check_plan
from solver.costs.collectives import domain_collective_s
from solver.predict import predict
from tests.solver.cost_cases import H100, LLAMA_70B, WORKLOAD, candidates, costs, memory
from tests.solver.problems import DENSE, EXACT, nodes, pair_samples, planned, problem, rates_of

EVERY = tuple(ContextExchange)
LAYERS, KV, HEADS, WIDTH = 80, 8, 64, 128


def sent_between_nodes(context: int, per_node: int, *, heads_too: bool) -> float:
    """16-bit elements of a pass that a rank sends to other nodes, each told apart by its owner and its readers.

    Every rank owns a piece of the sequence.  Where ``heads_too``, queries, keys, values and output move to the rank
    of their head, else keys and values of all heads to a rank of each other node, which hands them on.
    """
    tokens = WORKLOAD.sequence_length / context
    node = [rank // per_node for rank in range(context)]
    moved = 0.0
    for owner, reader in itertools.product(range(context), repeat=2):
        if node[owner] == node[reader]:
            continue
        if heads_too:  # a reader has a share of the heads
            moved += tokens * 2 * (HEADS + KV) * WIDTH / context
        elif reader % per_node == owner % per_node:
            moved += tokens * 2 * KV * WIDTH
    return moved / context


@pytest.mark.parametrize(("exchange", "heads_too"), [(GATHERED, False), (16, True)])
def test_bytes_between_nodes_are_those_of_every_pair_of_ranks(exchange: int, heads_too: bool) -> None:
    """16 context ranks on two nodes: counted pair by pair; backward, what is gathered is also scattered."""
    kv = KV if exchange == GATHERED else 16
    model = replace(LLAMA_70B, kv_heads=kv)
    traffic = costs(candidates({"context": 16, "exchange": exchange}), model).context_traffic
    sent = 2.0 * sent_between_nodes(16, 8, heads_too=heads_too)
    if heads_too:
        sent *= (HEADS + kv) / (HEADS + KV)
    assert traffic.message_bytes[0] * traffic.forward_count[0, 0] == pytest.approx(LAYERS * sent)
    backward = 1.0 if heads_too else 2.0
    assert traffic.backward_count[0, 0] == pytest.approx(backward * traffic.forward_count[0, 0])
    assert traffic.forward_hidden_s[0] == traffic.backward_hidden_s[0] == 0.0


def test_a_ring_over_nodes_has_as_many_steps_as_other_nodes() -> None:
    """Eight ranks of a node exchange heads: one step to the other node, of the same bytes, beside all the more."""
    ring, both = candidates({"context": 16}), candidates({"context": 16, "exchange": 8})
    alone, inside = costs(ring).context_traffic, costs(both).context_traffic
    assert inside.message_bytes == pytest.approx(alone.message_bytes)
    assert (alone.forward_count[0, 0], inside.forward_count[0, 0]) == (15 * LAYERS, LAYERS)
    assert inside.forward_hidden_s[0] > 3.0 * alone.forward_hidden_s[0]
    assert costs(both).context_s[0, 0] > costs(ring).context_s[0, 0] == 0.0


def test_heads_cross_a_node_in_four_exchanges_each_way() -> None:
    """Queries, keys, values and output of a rank, each a quarter of the bytes."""
    found = costs(candidates({"context": 8, "exchange": 8}))
    nbytes = 2.0 * (8192 / 8) * 2 * (HEADS + KV) * WIDTH
    once = 4.0 * domain_collective_s(H100, Collective.ALL_TO_ALL, np.array([8.0]), np.array([nbytes / 4]))
    assert found.context_s[0, 0] == pytest.approx(2.0 * LAYERS * once[0])


def test_gathered_keys_and_values_stand_whole_while_a_layer_runs() -> None:
    """Memory counts 8 key/value heads of the whole sequence in 16 bits, and their gradients."""
    ring, gathered, swapped = (
        memory(candidates({"context": 8, "exchange": code})).activations_bytes[0, 0] for code in (RING, GATHERED, 8)
    )
    assert gathered - ring == pytest.approx(2 * 2.0 * 8192 * KV * 2 * WIDTH)
    assert swapped == ring


def test_codes_say_the_exchange() -> None:
    """There and back, whatever the group."""
    for exchange, heads in ((ContextExchange.HIERARCHICAL, 4), *((each, 0) for each in EVERY[:3])):
        assert exchange_of(exchange_code(exchange, heads, 8), 8) == (exchange, heads)
        assert exchange_code(exchange, heads, 1) == RING


def asked(**changes: object) -> TrainingWorkload:
    return replace(TrainingWorkload(sequence_length=8192, global_batch=16, context_exchange=EVERY), **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("model", "changes", "found"),
    [
        (LLAMA_70B, {}, [RING, GATHERED, 8, 4]),
        (LLAMA_70B, {"pinned": {"head_ranks": 2}}, [2]),
        (LLAMA_70B, {"forbidden": {"head_ranks": (4,)}}, [RING, GATHERED, 8, 2]),
        (replace(LLAMA_70B, kv_heads=4), {}, [RING, GATHERED, 4]),
        (LLAMA_70B, {"framework": framework("torchtitan-2025")}, [RING]),
        (replace(LLAMA_70B, sliding_window=1024), {}, [GATHERED, 8]),
        (replace(LLAMA_70B, sliding_window=1024, attention_sinks=True), {}, [8]),
        (replace(LLAMA_70B, sliding_window=1024), {"context_exchange": (ContextExchange.RING,)}, []),
    ],
)
def test_the_search_tries_what_transformer_engine_can(
    model: Architecture, changes: dict[str, object], found: list[int]
) -> None:
    """Eight context ranks on a node; the checker refuses the others."""
    workload = asked(**changes)
    assert exchange_codes(model, workload, tensor=1, context=8, together=8) == found


def test_the_plan_has_the_exchange_that_is_fastest() -> None:
    """Over a slow network heads that fill a node beat a ring; each exchange pinned is no faster, and checked."""
    model = replace(DENSE, heads=8, kv_heads=4)
    case = problem(
        nodes(2, gpus=4),
        pair_samples(rates_of(2, [4.0]), flows=4),
        model=model,
        pinned={"context": 8, "tensor": 1},
        sharding=(Sharding.NONE,),
        recompute=(Recompute.NONE,),
    )
    times = {}
    for allowed in (EVERY, EVERY[:1], EVERY[3:]):
        own = replace(case, workload=replace(case.workload, context_exchange=allowed))
        found = planned(own, EXACT)
        assert check_plan(found, own) == ()
        times[allowed] = found.time.step_s
        other = replace(own, workload=replace(own.workload, context_exchange=(ContextExchange.ALL_TO_ALL,)))
        assert any("is not among all_to_all" in each for each in check_plan(found, other))
    given = predict(case, found.configuration, hosts=found.placement.hosts)  # whatever the search may do
    assert given.time == found.time
    assert times[EVERY] == pytest.approx(times[EVERY[3:]])
    assert times[EVERY] < times[EVERY[:1]]


@pytest.mark.parametrize(
    ("context", "exchange", "heads", "field"),
    [
        (1, ContextExchange.GATHER, 0, "context_exchange"),
        (8, ContextExchange.HIERARCHICAL, 0, "head_ranks"),
        (8, ContextExchange.HIERARCHICAL, 3, "head_ranks"),
        (8, ContextExchange.RING, 2, "head_ranks"),
    ],
)
def test_sizes_that_are_no_exchange_are_refused(
    context: int, exchange: ContextExchange, heads: int, field: str
) -> None:
    """Groups that exchange heads cut the context ranks, and go with a hierarchical exchange alone."""
    order = RankOrder.DATA_BEFORE_PIPELINE
    with pytest.raises(InvalidConfiguration) as refused:
        Configuration(
            Degrees(context=context),
            1,
            Recompute.NONE,
            Sharding.NONE,
            order,
            ((6,),),
            context_exchange=exchange,
            head_ranks=heads,
        )
    assert refused.value.field == field


def test_windows_want_another_exchange_than_a_ring() -> None:
    """Pinned context ranks are refused with the exchanges that go."""
    case = problem(
        nodes(1),
        model=replace(DENSE, sliding_window=8),
        pinned={"context": 2},
        framework=framework("megatron-core-0.12"),
    )
    with pytest.raises(InvalidWorkload, match=r"windows of attention.*allow gather or all_to_all"):
        planned(case, EXACT)
