"""Which layers have windows and which have experts, as each family's config.json says it."""

from __future__ import annotations

from typing import Any

import pytest

from cluster_models.errors import InvalidModel
from tests.cluster_models.huggingface_configs import read


@pytest.mark.parametrize(
    ("model_type", "changes", "sparse"),
    [
        ("deepseek_v3", {"first_k_dense_replace": 2}, "0011"),
        ("deepseek_v3", {"first_k_dense_replace": 1, "moe_layer_freq": 2}, "0010"),
        ("deepseek_v3", {"n_routed_experts": None}, "0000"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "0101"),
        ("qwen3_moe", {"mlp_only_layers": [0, 1]}, "0011"),
        ("qwen2_moe", {"decoder_sparse_step": 5}, "0000"),
        ("llama4_text", {"interleave_moe_layer_step": 2}, "0101"),
        ("llama4_text", {"moe_layers": [1, 3]}, "0101"),
    ],
)
def test_layers_with_experts_follow_the_family_rule(model_type: str, changes: dict[str, Any], sparse: str) -> None:
    """Leading dense layers, periods and lists all end in one pattern."""
    assert read(model_type, **changes).sparse_pattern == tuple(mark == "1" for mark in sparse)


FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("model_type", "changes", "windowed"),
    [
        ("mistral", {"sliding_window": None}, "0000"),
        ("qwen2", {"sliding_window": 32, "max_window_layers": 0}, "0000"),
        ("qwen2", {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 0}, "1111"),
        ("qwen2", {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 4}, "0000"),
        ("gpt_oss", {"layer_types": [SLIDING, FULL] * 2}, "1010"),
        ("gpt_oss", {"layer_types": [FULL] * 4}, "0000"),
        ("gemma3_text", {"sliding_window_pattern": 3}, "1101"),
        ("llama4_text", {"no_rope_layers": [1, 0, 1, 0]}, "1010"),
        ("llama4_text", {"attention_chunk_size": None}, "0000"),
        ("llama", {"layer_types": [FULL] * 4}, "0000"),
    ],
)
def test_windowed_layers_follow_the_family_rule(model_type: str, changes: dict[str, Any], windowed: str) -> None:
    """Spans, switches, periods and lists all end in one pattern."""
    assert read(model_type, **changes).windowed_pattern == tuple(mark == "1" for mark in windowed)


@pytest.mark.parametrize(
    ("model_type", "changes", "sparse"),
    [
        ("qwen3_moe", {"mlp_only_layers": [2]}, "1101"),
        ("llama4_text", {"moe_layers": [0, 1, 3]}, "1101"),
        ("hy_v3", {"mlp_layer_types": ["dense", "sparse", "sparse", "dense"]}, "0110"),
    ],
)
def test_irregular_layers_with_experts_are_held_one_by_one(
    model_type: str, changes: dict[str, Any], sparse: str
) -> None:
    """Layers without a period are a list."""
    model = read(model_type, **changes)
    assert model.sparse_pattern == tuple(mark == "1" for mark in sparse)
    assert model.mlps


@pytest.mark.parametrize(
    ("model_type", "changes", "windowed"),
    [
        ("gpt_oss", {"layer_types": [FULL, SLIDING, FULL, SLIDING]}, "0101"),
        ("llama4_text", {"no_rope_layers": [0, 1, 1, 0]}, "0110"),
        ("qwen2", {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 2}, "0011"),
        ("mimo_v2_flash", {}, "0110"),
    ],
)
def test_irregular_windowed_layers_are_held_one_by_one(
    model_type: str, changes: dict[str, Any], windowed: str
) -> None:
    """Layers without a period are a list."""
    model = read(model_type, **changes)
    assert model.windowed_pattern == tuple(mark == "1" for mark in windowed)
    assert model.mixers


@pytest.mark.parametrize(
    ("model_type", "changes", "field"),
    [
        ("qwen3_moe", {"mlp_only_layers": ["2"]}, "mlp_only_layers"),
        ("gpt_oss", {"layer_types": [SLIDING, FULL]}, "layer_types"),
        ("gpt_oss", {"layer_types": [SLIDING, FULL, "linear_attention", FULL]}, "layer_types"),
        ("llama", {"layer_types": [SLIDING, FULL] * 2}, "layer_types"),
        ("llama4_text", {"no_rope_layers": [1, 2, 1, 0]}, "no_rope_layers"),
    ],
)
def test_lists_that_cannot_be_read_are_refused(model_type: str, changes: dict[str, Any], field: str) -> None:
    """Lists of another length, of something else, or with windows that the file gives no span."""
    with pytest.raises(InvalidModel) as refused:
        read(model_type, **changes)
    assert refused.value.field == f"model.{field}"
