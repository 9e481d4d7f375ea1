"""Imbalance of expert ranks after counts of a router, with copies in redundant slots."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.errors import InvalidWorkload
from cluster_models.model.catalogue import catalogue_model
from cluster_models.routing.counts import ExpertLoads
from cluster_models.serving.goal import ServedModel, ServingMode
from cluster_models.serving.routing import ServedRouting
from cluster_models.serving.workload import Worker
from solver.experts.dispatch import RouterRule
from solver.serving.cases import imbalance_of
from solver.serving.crossing import even_crossing
from solver.serving.expert_balance import routed_crossing, routed_imbalance
from solver.serving.loads import WorkerLinks
from solver.serving.predict import predict_serving
from tests.solver.serving.cases import case
from tests.solver.serving.planning.problems import nodes, problem, served, sound_plan

QWEN = catalogue_model("qwen3-30b-a3b")


def _routing(*loads: tuple[str, list[float]], redundant: int = 0) -> ServedRouting:
    return ServedRouting(tuple(ExpertLoads(name, (0,), (tuple(own),)) for name, own in loads), redundant)


def _counts(name: str, seed: int) -> ExpertLoads:
    """Skewed counts of every layer of a model of 128 experts."""
    loads = np.random.default_rng(seed).gamma(2.0, 1.0, (QWEN.layers, 128)) + 0.1
    return ExpertLoads(name, tuple(range(QWEN.layers)), tuple(map(tuple, loads.tolist())))


def test_experts_are_placed_by_hand() -> None:
    """Selections 4, 2, 1, 1 on two ranks of two slots leave 5 and 3; of three, two copies of the hottest even them.

    Of 6, 2, 1, 1, 1 with two copies of the hottest three ranks get 4, 4 and 3.
    """
    uneven = [4.0, 2.0, 1.0, 1.0]
    assert routed_imbalance(_routing(("a", uneven)), "decode", 2, split=True) == pytest.approx(2 * 0.25)
    for redundant in (2, 4096):  # no rank has an expert twice, however many slots there are
        copied = routed_imbalance(_routing(("a", uneven), redundant=redundant), "decode", 2, split=True)
        assert copied == pytest.approx(0.0)
    hot = _routing(("a", [6.0, 2.0, 1.0, 1.0, 1.0]), redundant=1)
    assert routed_imbalance(hot, "decode", 3, split=True) == pytest.approx(1.5 * (12 / 11 - 1))
    assert routed_imbalance(_routing(("a", [1.0] * 4)), "prefill", 2, split=False) == 0.0
    assert routed_imbalance(_routing(("a", uneven)), "decode", 1, split=True) == 0.0


def test_one_map_for_both_phases_is_less_even_than_one_for_each() -> None:
    """Phases whose hot experts differ; counts that name no phase are of both."""
    both = _routing(("prefill", [6.0, 4.0, 1.0, 1.0]), ("decode", [1.0, 1.0, 6.0, 4.0]))
    apart, shared = (routed_imbalance(both, "decode", 2, split=split) for split in (True, False))
    assert apart == pytest.approx(2 * (7 / 6 - 1))
    assert shared > apart
    plain = _routing(("chat", [6.0, 4.0, 1.0, 1.0]))
    assert routed_imbalance(plain, "decode", 2, split=False) == routed_imbalance(plain, "prefill", 2, split=True)


def test_tokens_cross_to_the_nodes_that_their_experts_need() -> None:
    """Selections 5 and 3 of 8 on two nodes of one rank: the busiest node receives 5/8 of the other's tokens.

    Two experts a token, one of which is always on the other node: all cross; copies on both nodes spare half.
    """
    uneven = _routing(("a", [4.0, 2.0, 1.0, 1.0]))
    assert routed_crossing(uneven, RouterRule(1), "decode", 2, (2, 1), split=True) == pytest.approx(5 / 8)
    even = _routing(("a", [1.0] * 4))
    one, two = (routed_crossing(even, RouterRule(active), "decode", 2, (2, 1), split=True) for active in (1, 2))
    assert (one, two) == (pytest.approx(0.5), pytest.approx(5 / 6, rel=1e-3))


@pytest.mark.parametrize("gpus", [(8, 4), (12, 8), (12, 4), (6, 4)])
@pytest.mark.parametrize("groups", [1, 2, 3, 6])
def test_nodes_that_hold_groups_unevenly_are_needed_as_drawn_tokens_need_them(
    groups: int, gpus: tuple[int, int]
) -> None:
    """Every two of six experts alike, groups cut from the GPUs by hand: tokens need all nodes of their groups."""
    stage, node = gpus
    if stage % groups:
        return
    nodes_of = [
        {gpu // node for gpu in range(group * stage // groups, (group + 1) * stage // groups)}
        for group in range(groups)
    ]
    sizes = np.bincount(np.arange(stage) // node)
    by_expert = [nodes_of[expert * groups // 6] for expert in range(6)]
    pairs = [by_expert[a] | by_expert[b] for a in range(6) for b in range(a)]
    needs = np.array([np.mean([each in pair for pair in pairs]) for each in range(len(sizes))])
    busiest = max(*(needs.sum() - needs), *(needs * (stage - sizes) / sizes))
    even = _routing(("a", [1.0] * 6))
    found = routed_crossing(even, RouterRule(2), "decode", groups, gpus, split=True)
    assert found == pytest.approx(busiest, rel=1e-3)


def test_slower_links_and_uneven_nodes_slow_steps_with_counts() -> None:
    """By the tokens that cross on the busiest node; without counts as with even ones."""
    worker = Worker(attention_data=4, expert=4)

    def exchange_s(pace: float, routing: ServedRouting | None) -> float:
        links = WorkerLinks(2, 450e9, pace, 1e-5)
        load = replace(served("qwen3-30b-a3b", concurrency=512.0).workload, routing=routing)
        return predict_serving(case("qwen3-30b-a3b", worker=worker, links=links, workload=load)).decode.collective_s

    even, uneven = (_routing(("decode", [heavy] * 9 + [1.0] * 119)) for heavy in (1.0, 14.0))
    for routing in (None, even, uneven):
        assert exchange_s(5e9, routing) > 1.5 * exchange_s(50e9, routing)
    assert exchange_s(5e9, even) == pytest.approx(exchange_s(5e9, None), rel=2e-3)
    assert exchange_s(5e9, even) < exchange_s(5e9, uneven)


def test_tokens_cross_once_to_each_of_eight_nodes() -> None:
    """Those of DeepSeek-V3 need 3.2 of 7 other nodes; more where experts are sliced over two nodes."""
    links = WorkerLinks(8, 450e9, 1.0, 0.0)  # so slow that nothing else counts
    times = []
    for expert in (64, 4):
        worker = Worker(attention_data=64, expert=expert)
        load = served("deepseek-v3", concurrency=64.0).workload
        found = predict_serving(case("deepseek-v3", gpu="H200", worker=worker, links=links, workload=load))
        times.append(found.decode.collective_s)
    experts = catalogue_model("deepseek-v3").experts
    sliced, whole = even_crossing(experts, 8, 4), even_crossing(experts, 8, 64)
    assert whole == pytest.approx(3.2, abs=0.05)
    assert times[1] / times[0] == pytest.approx(sliced / whole, rel=1e-3)


@pytest.mark.parametrize("mode", ServingMode)
def test_plans_are_priced_with_the_map_for_their_ranks(mode: ServingMode) -> None:
    """As if the imbalance that the counts leave on these ranks had been stated by hand."""
    routing = ServedRouting((_counts("prefill", 1), _counts("decode", 2)))
    load = served("qwen3-30b-a3b", concurrency=64.0)
    pinned = {"tensor": 2, "pipeline": 1, "attention_data": 1, "expert": 2}
    given = {"objective": "goodput", "modes": (mode,), "pinned": pinned}

    def with_(**changes: object) -> ServedModel:
        return replace(load, workload=replace(load.workload, **changes))

    plan = sound_plan(problem(nodes(1, gpus=4), with_(routing=routing), **given))
    worker = plan.groups[0].replicas[0].worker
    split = mode is ServingMode.SPLIT
    said = {
        f"{phase}_imbalance": imbalance_of(with_(routing=routing).workload, worker, phase, split=split)
        for phase in ("prefill", "decode")
    }
    by_hand = sound_plan(problem(nodes(1, gpus=4), with_(**said), **given))
    assert plan.certificate.objective == pytest.approx(by_hand.certificate.objective)


def test_redundant_slots_even_ranks_out_and_take_memory() -> None:
    """Steps are faster, weights larger by the copies."""
    counts = (_counts("prefill", 1), _counts("decode", 2))
    pinned = {"tensor": 4, "pipeline": 1, "attention_data": 1, "expert": 4}
    few, many = (
        sound_plan(
            problem(
                nodes(1, gpus=4),
                served("qwen3-30b-a3b", concurrency=64.0, routing=ServedRouting(counts, redundant)),
                modes=(ServingMode.AGGREGATED,),
                pinned=pinned,
            )
        )
        for redundant in (0, 32)
    )
    step_of = [plan.groups[0].replicas[0].decode for plan in (few, many)]
    assert step_of[0] is not None
    assert step_of[1] is not None
    assert step_of[1].expert_s < step_of[0].expert_s
    weights = [plan.groups[0].replicas[0].memory.weight_bytes for plan in (few, many)]
    assert weights[1] > 1.15 * weights[0]


def test_counts_of_another_model_are_refused() -> None:
    """With what the model has; so is an imbalance beside counts."""
    with pytest.raises(InvalidWorkload, match="has 128 experts in a layer"):
        sound_plan(problem(nodes(1, gpus=4), served("qwen3-30b-a3b", routing=_routing(("a", [1.0] * 8)))))
    with pytest.raises(InvalidWorkload, match="conflicts with routing"):
        served("qwen3-30b-a3b", routing=_routing(("a", [1.0] * 8)), decode_imbalance=0.1)
