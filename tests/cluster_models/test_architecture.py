"""Parameter counts and layer patterns of architectures."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.errors import InvalidModel
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.model.mixers import LatentAttention

TINY = Architecture(
    name="tiny",
    layers=6,
    hidden=8,
    heads=4,
    kv_heads=2,
    head_size=3,
    mlp_hidden=20,
    vocabulary=50,
    gated_mlp=True,
    tied_embeddings=False,
)
EXPERTS = Experts(count=4, active=2, hidden=5)


def elements(shapes: list[tuple[int, ...]]) -> int:
    """How many numbers the tensors of these shapes hold."""
    return sum(math.prod(shape) for shape in shapes)


def test_grouped_query_layers_count_every_tensor() -> None:
    """A Llama-like model has q, k, v, o, gate, up, down and two norms a layer, embedding, norm and head."""
    layer = [(12, 8), (6, 8), (6, 8), (8, 12), (8,), (20, 8), (20, 8), (8, 20), (8,)]
    assert TINY.parameters() == elements(layer * 6 + [(50, 8), (8,), (50, 8)])


def test_biases_shifted_norms_and_positions_are_counted() -> None:
    """A GPT-2-like model adds a bias to every matrix, a shift to every norm and a position table."""
    gpt = replace(
        TINY,
        kv_heads=4,
        head_size=2,
        gated_mlp=False,
        tied_embeddings=True,
        attention_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        norm_vectors=2,
        learned_positions=16,
    )
    attention = [(24, 8), (24,), (8, 8), (8,), (8,), (8,)]
    mlp = [(20, 8), (20,), (8, 20), (8,), (8,), (8,)]
    assert gpt.parameters() == elements((attention + mlp) * 6 + [(50, 8), (16, 8), (8,), (8,)])


def test_latent_attention_counts_both_compressions() -> None:
    """DeepSeek's attention has two down projections with norms, two up projections, and the output."""
    latent = LatentAttention(query_rank=7, key_value_rank=5, rope_head_size=2, nope_head_size=3, value_head_size=4)
    model = replace(TINY, kv_heads=4, head_size=5, latent_attention=latent)
    query, key_value = [(7, 8), (7,), (20, 7)], [(7, 8), (5,), (28, 5)]
    assert model.attention_parameters() == elements([*query, *key_value, (8, 16), (8,)])
    plain_query = replace(model, latent_attention=replace(latent, query_rank=0))
    assert plain_query.attention_parameters() == elements([(20, 8), *key_value, (8, 16), (8,)])


def test_sparse_layers_count_router_biases_gate_and_shared_experts() -> None:
    """A layer with experts holds all of them, the router with its bias, and gated shared experts."""
    experts = replace(EXPERTS, shared_hidden=9, shared_gate=True, router_bias=True, dense_layers=2)
    model = replace(TINY, experts=experts, mlp_bias=True)
    expert = [(5, 8), (5,), (5, 8), (5,), (8, 5), (8,)]
    shared = [(9, 8), (9,), (9, 8), (9,), (8, 9), (8,), (1, 8)]
    assert model.expert_parameters() == elements(expert)
    assert model.sparse_common_parameters() == elements([*shared, (4, 8), (4,), (8,)])
    idle = 4 * 2 * elements(expert)
    assert model.parameters() - model.active_parameters() == idle


def test_query_key_norms_sinks_and_double_norms_are_counted_once_a_layer() -> None:
    """Each small extra adds exactly its own weights to every layer."""
    extra = replace(TINY, query_key_norm_parameters=6, attention_sinks=True, norms_per_block=2)
    assert extra.parameters() - TINY.parameters() == 6 * (6 + 4 + 2 * 8)


@pytest.mark.parametrize(
    ("experts", "sparse"),
    [
        (EXPERTS, "111111"),
        (replace(EXPERTS, dense_layers=2), "001111"),
        (replace(EXPERTS, dense_layers=1, layer_period=2), "010101"),
        (replace(EXPERTS, layer_period=4), "100010"),
    ],
)
def test_sparse_pattern_follows_leading_layers_and_period(experts: Experts, sparse: str) -> None:
    """The first sparse layer comes after the leading dense ones, then one every period."""
    model = replace(TINY, experts=experts)
    assert model.sparse_pattern == tuple(mark == "1" for mark in sparse)
    assert model.sparse_layers == sparse.count("1")


@pytest.mark.parametrize(("period", "windowed"), [(1, "111111"), (2, "101010"), (6, "111110"), (4, "111011")])
def test_last_layer_of_a_window_period_attends_fully(period: int, windowed: str) -> None:
    """A period of one windows every layer; otherwise each period ends with full attention."""
    model = replace(TINY, sliding_window=4, window_period=period)
    assert model.windowed_pattern == tuple(mark == "1" for mark in windowed)
    assert not any(replace(model, sliding_window=None).windowed_pattern)


@given(
    layers=st.integers(1, 40),
    dense=st.integers(0, 39),
    period=st.integers(1, 5),
    tied=st.booleans(),
)
def test_parts_add_up_to_the_whole(*, layers: int, dense: int, period: int, tied: bool) -> None:
    """Attention, MLPs, experts, embedding and head make up all parameters, tied weights once."""
    experts = replace(EXPERTS, dense_layers=min(dense, layers - 1), layer_period=period)
    model = replace(TINY, layers=layers, experts=experts, tied_embeddings=tied)
    total = model.embedding_parameters() + model.head_parameters() - 50 * 8 * tied
    for sparse in model.sparse_pattern:
        total += model.attention_parameters()
        total += (
            model.sparse_common_parameters() + 4 * model.expert_parameters()
            if sparse
            else model.dense_mlp_parameters()
        )
    assert model.parameters() == total


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"layers": 0}, "model.layers"),
        ({"layers": 10**9}, "model.layers"),
        ({"hidden": 10**12}, "model.hidden"),
        ({"vocabulary": 10**12}, "model.vocabulary"),
        ({"kv_heads": 3}, "model.kv_heads"),
        ({"mlp_hidden": 0}, "model.mlp_hidden"),
        ({"mlp_hidden": 0, "experts": replace(EXPERTS, layer_period=2)}, "model.mlp_hidden"),
        ({"experts": replace(EXPERTS, dense_layers=6)}, "model.experts.dense_layers"),
        ({"sliding_window": 0}, "model.sliding_window"),
        ({"window_period": 0}, "model.window_period"),
        ({"norm_vectors": -1}, "model.norm_vectors"),
    ],
)
def test_impossible_architectures_name_the_field(change: dict[str, Any], field: str) -> None:
    """A value that no model can have is refused with the name of its field."""
    with pytest.raises(InvalidModel) as refused:
        replace(TINY, **change)
    assert refused.value.field == field


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"active": 5}, "model.experts.active"),
        ({"count": 0}, "model.experts.count"),
        ({"count": 10**12}, "model.experts.count"),
        ({"hidden": 0}, "model.experts.hidden"),
        ({"layer_period": 0}, "model.experts.layer_period"),
        ({"shared_hidden": -1}, "model.experts.shared_hidden"),
        ({"router_groups": 3}, "model.experts.router_groups"),
        ({"active_groups": 2}, "model.experts.active_groups"),
    ],
)
def test_impossible_experts_name_the_field(change: dict[str, Any], field: str) -> None:
    """Expert counts, widths and periods have their own ranges."""
    with pytest.raises(InvalidModel) as refused:
        replace(EXPERTS, **change)
    assert refused.value.field == field


def test_latent_widths_must_be_positive() -> None:
    """Only the query rank may be 0, which means uncompressed queries."""
    with pytest.raises(InvalidModel, match="key_value_rank"):
        LatentAttention(query_rank=0, key_value_rank=0, rope_head_size=2, nope_head_size=3, value_head_size=4)
