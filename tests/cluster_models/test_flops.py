"""FLOPs against hand counts, brute force and the closed formulas of the papers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.model.catalogue import catalogue_model, catalogue_models
from cluster_models.model.experts import Experts
from cluster_models.model.flops import (
    AttentionCount,
    forward_flops_per_token,
    head_forward_flops,
    layer_forward_flops,
    mean_attention_span,
    model_flops_per_token,
)
from cluster_models.model.layer_kinds import LayerKind, Mixer, Mlp
from tests.cluster_models.test_architecture import TINY as SIX_LAYERS

TINY = replace(SIX_LAYERS, layers=4)
DENSE, SPARSE = LayerKind(Mixer.FULL, Mlp.DENSE), LayerKind(Mixer.FULL, Mlp.EXPERTS)


@given(
    sequence=st.integers(1, 60),
    window=st.integers(1, 60),
    chunked=st.booleans(),
)
def test_mean_span_equals_counting_the_mask(*, sequence: int, window: int, chunked: bool) -> None:
    """Counting the allowed keys of every query gives the closed formula, sliding or in blocks."""
    model = replace(TINY, sliding_window=window, chunked_window=chunked)
    allowed = sum(
        key <= query and (key // window == query // window if chunked else query - key < window)
        for query in range(sequence)
        for key in range(sequence)
    )
    span = mean_attention_span(model, sequence, windowed=True)
    assert span == pytest.approx(allowed / sequence)
    assert mean_attention_span(model, sequence, windowed=False) == pytest.approx((sequence + 1) / 2)


def test_full_count_takes_the_whole_sequence_or_window() -> None:
    """The convention of the papers ignores the causal mask but not the window."""
    model = replace(TINY, sliding_window=16)
    full = AttentionCount.FULL
    assert mean_attention_span(model, 64, windowed=False, attention=full) == 64
    assert mean_attention_span(model, 64, windowed=True, attention=full) == 16


def test_parts_of_a_dense_layer_equal_the_hand_count() -> None:
    """Twice the products of the dimensions of every matrix, by hand."""
    layer = layer_forward_flops(TINY, 9, DENSE)
    assert layer.attention_projections == 2 * (8 * 12 + 2 * 8 * 6 + 12 * 8)
    assert layer.attention_scores == 5 * 2 * (4 * 3 + 4 * 3)
    assert layer.dense_mlp == 2 * 3 * 8 * 20
    assert layer.router == layer.routed_experts == layer.shared_experts == layer.head == 0


def test_parts_of_a_sparse_layer_count_active_experts_only() -> None:
    """Two of four experts, the shared one with its gate, and the router over all four."""
    experts = Experts(count=4, active=2, hidden=5, shared_hidden=7, shared_gate=True)
    layer = layer_forward_flops(replace(TINY, experts=experts), 9, SPARSE)
    assert layer.dense_mlp == 0
    assert layer.router == 2 * 8 * 4
    assert layer.routed_experts == 2 * (2 * 3 * 8 * 5)
    assert layer.shared_experts == 2 * 3 * 8 * 7 + 2 * 8


def test_latent_attention_scores_use_its_own_head_sizes() -> None:
    """DeepSeek-V3: queries and keys are 192 wide, values 128, in 128 heads."""
    layer = layer_forward_flops(catalogue_model("deepseek-v3"), 1, DENSE)
    assert layer.attention_scores == 2 * 128 * (192 + 128)


@pytest.mark.parametrize("name", ["gpt3-175b", "megatron-gpt-1t"])
def test_full_count_equals_the_megatron_formula(name: str) -> None:
    """Three quarters of 96 B s l h^2 (1 + s/6h + V/16lh), which includes one recomputed forward."""
    model, sequence = catalogue_model(name), 2048
    layers, hidden, vocabulary = model.layers, model.hidden, model.vocabulary
    blocks = 96 * layers * hidden**2 * (1 + sequence / (6 * hidden)) * 3 / 4
    logits = 6 * hidden * vocabulary
    assert model_flops_per_token(model, sequence, attention=AttentionCount.FULL) == pytest.approx(blocks + logits)


@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b", "qwen3-235b-a22b", "deepseek-v3"])
def test_full_count_is_close_to_the_palm_formula(name: str) -> None:
    """6N + 12LHQT, where N are the active weights in matrices (vectors are under a thousandth of them)."""
    model, sequence = catalogue_model(name), 4096
    mla = model.latent_attention
    head_width = (model.head_size + mla.value_head_size) / 2 if mla else model.head_size
    weights = model.active_parameters() - model.embedding_parameters()
    palm = 6 * weights + 12 * model.layers * model.heads * head_width * sequence
    flops = model_flops_per_token(model, sequence, attention=AttentionCount.FULL)
    assert flops == pytest.approx(palm, rel=1e-3)


@pytest.mark.parametrize("name", sorted(catalogue_models()))
def test_model_total_is_the_sum_over_its_layers(name: str) -> None:
    """Layer by layer, each with its own kind, and the head once; backward costs twice the forward."""
    model = catalogue_model(name)
    layers = sum(layer_forward_flops(model, 4096, kind).total for kind in model.layer_pattern)
    forward = forward_flops_per_token(model, 4096).total
    assert forward == pytest.approx(layers + head_forward_flops(model))
    assert model_flops_per_token(model, 4096) == 3 * forward


@given(sequence=st.integers(1, 10_000), longer=st.integers(1, 10_000))
def test_longer_sequences_never_cost_less_per_token(sequence: int, longer: int) -> None:
    """More keys to meet, same projections; and the causal count never exceeds the full one."""
    model = catalogue_model("gpt-oss-20b")
    here, there = (model_flops_per_token(model, length) for length in (sequence, sequence + longer))
    assert here <= there
    assert here <= model_flops_per_token(model, sequence, attention=AttentionCount.FULL)
