"""Layers of other mixers: their kernels against published timings, their parts against hand counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_model
from cluster_models.model.experts import Experts
from cluster_models.model.layer_kinds import LayerKind, Mixer, Mlp
from cluster_models.model.mixers import LatentAttention, LinearAttention, LinearRule, SparseAttention, StateSpace
from cluster_models.training.frameworks import framework
from cluster_models.training.plan import Configuration, Degrees, RankOrder
from cluster_models.training.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import CandidateBatch, FloatArray
from solver.check import check_plan
from solver.check.configuration import configuration_violations
from solver.costs.activations import kept_activations, layer_tensors
from solver.costs.calibration import calibration_of
from solver.costs.compute import processor
from solver.costs.layer_counts import all_layers
from solver.costs.local_sizes import LocalSizes, local_sizes
from solver.costs.parameters import local_parameters
from solver.costs.recomputation import RecomputePolicies
from solver.costs.recurrent import recurrent_core
from solver.costs.step_costs import step_costs
from solver.degrees.enumeration import enumerate_candidates
from solver.search import plan
from tests.solver.cost_cases import H100, LLAMA_70B, candidates
from tests.solver.problems import DENSE, EXACT, nodes, planned, problem

H200 = gpu_kind("H200-SXM-141GB")
BRIDGE = framework("megatron-bridge-26.06")
WORKLOAD = TrainingWorkload(8192, 64, framework=BRIDGE)
HYBRIDS = ("qwen3-next-80b-a3b", "nemotron-h-8b", "nemotron-3-nano-30b-a3b", "jamba-v0.1", "falcon-h1-7b")


def sizes(workload: TrainingWorkload = WORKLOAD, **row: int) -> LocalSizes:
    """Sizes of one candidate under Megatron-Bridge."""
    return local_sizes(candidates(row), workload, calibration_of(H200, BRIDGE))


def with_delta(heads: int) -> Architecture:
    """A model whose layers are a gated delta net with ``heads`` heads of 128 and no convolution."""
    linear = LinearAttention(LinearRule.GATED_DELTA, heads, heads, 128, 128)
    return replace(LLAMA_70B, mixers=(Mixer.LINEAR,), linear_attention=linear)


def kept_bytes(model: Architecture, batch: CandidateBatch) -> FloatArray:
    """(n, K) bytes that a layer of each kind keeps of a micro-batch."""
    calibration = calibration_of(H100, BRIDGE)
    sizes = local_sizes(batch, WORKLOAD, calibration)
    policies = RecomputePolicies.of(batch, calibration.framework)
    return kept_activations(model, sizes, calibration, layer_tensors(model, sizes, calibration), policies).layers


# FlashQLA's benchmark_results_H200.txt: flash-linear-attention 0.5.1, milliseconds forward and backward.
@pytest.mark.parametrize(
    ("heads", "tokens", "forward_ms", "backward_ms"),
    [
        (64, 8192, 0.814, None),
        (32, 8192, 0.472, 1.444),
        (16, 8192, 0.316, 0.957),
        (8, 8192, 0.234, 0.722),
        (8, 32768, 0.902, 2.743),
        (16, 32768, 1.241, 3.701),
        (32, 32768, 1.885, 5.697),
    ],
)
def test_a_gated_delta_rule_takes_what_its_kernels_were_timed_at(
    heads: int, tokens: int, forward_ms: float, backward_ms: float | None
) -> None:
    """Few heads wait for chunk after chunk, many for memory; what surrounds the rule adds some."""
    chip = processor(H200, Precision.BF16, calibration_of(H200, BRIDGE))
    found = recurrent_core(chip, with_delta(heads), sizes(replace(WORKLOAD, sequence_length=tokens)), Mixer.LINEAR)
    around = 1e3 * (14.0 * 128 * heads * tokens / chip.memory_bytes_per_s)
    assert 1e3 * found.forward[0] - around == pytest.approx(forward_ms, rel=0.15)
    if backward_ms is not None:
        assert 1e3 * found.backward[0] - 2 * around == pytest.approx(backward_ms, rel=0.15)


@pytest.mark.parametrize("name", HYBRIDS)
def test_what_ranks_hold_adds_up_to_the_model(name: str) -> None:
    """On one GPU all parameters; over tensor ranks matrices split and the rest is held on each."""
    model = catalogue_model(name)
    whole = local_parameters(candidates({}), all_layers(model)[None], model)
    assert whole.common[0, 0] + whole.routed[0, 0] == pytest.approx(model.parameters())
    split = local_parameters(candidates({"tensor": 2}), all_layers(model)[None], model)
    assert whole.common[0, 0] / 2 <= split.common[0, 0] < 0.55 * whole.common[0, 0]


@pytest.mark.parametrize("name", HYBRIDS[:-1])
def test_tensor_and_context_ranks_share_out_the_work(name: str) -> None:
    """Two tensor or two context ranks take less time and memory than one, and no less than half.

    Falcon-H1's single group of states is not cut, nor are rows of half its projection's width aligned.
    """
    model = catalogue_model(name)
    batch = candidates({}, {"tensor": 2}, {"context": 2})
    found = step_costs(
        batch,
        all_layers(model)[None],
        architecture=model,
        workload=WORKLOAD,
        gpu=H100,
        gpus_per_domain=8,
        gpus_per_node=8,
    )
    whole, by_tensor, by_context = found.compute_s[:, 0]
    assert 0.5 * whole <= by_tensor < whole
    assert 0.5 * whole <= by_context < whole
    kept = kept_bytes(model, batch)
    assert (kept[0] >= kept[1]).all()
    assert kept[0] == pytest.approx(2 * kept[2])


def test_a_block_alone_is_half_of_a_layer() -> None:
    """An attention block and an MLP block together take what a layer of both does, and keep as much."""
    both = replace(LLAMA_70B, layers=2)
    apart = replace(both, layers=4, mixers=(Mixer.FULL, Mixer.NONE), mlps=(Mlp.NONE, Mlp.DENSE))
    assert apart.layer_kinds == (LayerKind(Mixer.FULL, Mlp.NONE), LayerKind(Mixer.NONE, Mlp.DENSE))
    assert apart.parameters() == both.parameters()
    batch = candidates({"tensor": 2})
    priced = [
        step_costs(
            batch,
            all_layers(model)[None],
            architecture=model,
            workload=WORKLOAD,
            gpu=H100,
            gpus_per_domain=8,
            gpus_per_node=8,
        )
        for model in (both, apart)
    ]
    for part in ("forward_s", "backward_s", "tensor_s"):
        one, other = (getattr(costs, part)[0, 0] for costs in priced)
        assert other == pytest.approx(one)
    kept = [kept_bytes(model, batch)[0] for model in (both, apart)]
    assert kept[1].sum() == pytest.approx(kept[0].sum())


def test_context_ranks_swap_sequence_for_heads_across_nodes() -> None:
    """Without softmax attention nothing goes round a ring: two all-to-alls a pass and layer."""
    model = with_delta(64)
    found = step_costs(
        candidates({"tensor": 8, "context": 4}),
        np.array([[80]]),
        architecture=model,
        workload=WORKLOAD,
        gpu=H100,
        gpus_per_domain=8,
        gpus_per_node=8,
    ).context_traffic
    linear = model.linear_attention
    assert linear is not None
    width = linear.in_width + linear.value_width
    assert found.message_bytes[0] == pytest.approx(2 * width * 8192 / 4 / 8 * (1 - 1 / 4))
    assert found.forward_count[0, 0] == found.backward_count[0, 0] == 80
    assert found.forward_hidden_s[0] == 0


def test_an_indexer_makes_long_sequences_cheap_but_for_its_own_scores() -> None:
    """DeepSeek-V3.2 at 128 K tokens takes less than V3; at 4 K, where it attends to half, not much less."""
    sparse = catalogue_model("deepseek-v3.2")
    full = replace(sparse, sparse_attention=None)

    def forward_s(model: Architecture, length: int) -> float:
        found = step_costs(
            candidates({"expert": 64, "data": 64}),
            all_layers(model)[None],
            architecture=model,
            workload=replace(WORKLOAD, sequence_length=length),
            gpu=H100,
            gpus_per_domain=8,
            gpus_per_node=8,
        )
        return float(found.compute_s[0, 0])

    assert forward_s(sparse, 131072) < 0.5 * forward_s(full, 131072)
    assert forward_s(sparse, 4096) > 0.9 * forward_s(full, 4096)


TINY_DELTA = replace(
    DENSE,
    name="tiny-delta",
    mixers=(Mixer.LINEAR, Mixer.LINEAR, Mixer.LINEAR, Mixer.FULL),
    linear_attention=LinearAttention(LinearRule.GATED_DELTA, 4, 8, 128, 128, convolution=4),
)
TINY_BLOCKS = replace(
    DENSE,
    name="tiny-blocks",
    experts=Experts(count=4, active=2, hidden=2816, latent=512),
    mixers=(Mixer.STATE_SPACE, Mixer.NONE, Mixer.FULL, Mixer.NONE),
    mlps=(Mlp.NONE, Mlp.DENSE, Mlp.NONE, Mlp.EXPERTS),
    state_space=StateSpace(heads=32, head_size=64, state=128, groups=2),
)
TINY_INDEX = replace(
    DENSE,
    name="tiny-index",
    kv_heads=16,
    head_size=192,
    latent_attention=LatentAttention(256, 128, 64, 128, 128),
    sparse_attention=SparseAttention(16, 64, 512),
)


@pytest.mark.parametrize("model", [TINY_DELTA, TINY_BLOCKS, TINY_INDEX], ids=lambda model: model.name)
def test_the_checker_allows_what_is_listed_and_no_more(model: Architecture) -> None:
    """The list holds the degrees of a plain model of as many heads that no rule speaks against."""
    asked = problem(nodes(2, gpus=4), model=model, framework=BRIDGE, pinned={"pipeline": 1, "expert": 1})
    plain = enumerate_candidates(replace(DENSE, heads=64, kv_heads=64), asked.workload, gpus_per_node=4, nodes=2)
    own = enumerate_candidates(model, asked.workload, gpus_per_node=4, nodes=2)
    listed = set(zip(own.tensor.tolist(), own.context.tolist(), own.data.tolist(), strict=True))
    for tensor, context, data in zip(
        *(each.tolist() for each in (plain.tensor, plain.context, plain.data)), strict=True
    ):
        degrees = Degrees(tensor=tensor, context=context, data=data)
        configuration = Configuration(
            degrees, 1, Recompute.NONE, Sharding.OPTIMIZER, RankOrder.DATA_BEFORE_PIPELINE, ((model.layers,),)
        )
        legal = not list(configuration_violations(configuration, asked))
        assert ((tensor, context, data) in listed) == legal


@pytest.mark.parametrize("model", [TINY_DELTA, TINY_BLOCKS, TINY_INDEX], ids=lambda model: model.name)
def test_a_plan_of_such_a_model_passes_the_check_and_says_what_was_never_measured(model: Architecture) -> None:
    """From the search to the independent checker, which the search runs."""
    asked = problem(nodes(2, gpus=2), model=model, framework=BRIDGE, pinned={"micro_batch": 1})
    found = planned(asked)
    assert check_plan(found, asked) == ()
    assert any(warning.code == "untrained_parts" for warning in found.warnings)


def test_a_framework_without_a_part_is_refused_with_those_that_have_it() -> None:
    """The field, the part and the remedy."""
    asked = problem(nodes(2, gpus=2), model=TINY_DELTA, framework=framework("megatron-core-0.12"))
    with pytest.raises(InvalidWorkload, match="trains no gated delta net") as refused:
        plan(asked, EXACT)
    assert refused.value.field == "workload.framework"
    assert "megatron-bridge-26.06" in refused.value.remedy
