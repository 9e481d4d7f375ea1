"""Reading config.json files of every known family, and refusing what cannot be read."""

from __future__ import annotations

import contextlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cluster_models.errors import InvalidModel
from cluster_models.model.catalogue import catalogue_model
from cluster_models.model.experts import Experts
from cluster_models.model.huggingface import architecture_from_config, known_model_types
from cluster_models.model.huggingface_families import UNREADABLE
from cluster_models.model.layer_kinds import AttentionGate, Mixer, Mlp
from cluster_models.model.mixers import (
    LatentAttention,
    LinearAttention,
    LinearRule,
    SparseAttention,
    StateSpace,
    WindowHeads,
)
from tests.cluster_models.huggingface_configs import BASE, CONFIGS, PUBLISHED, read
from tests.cluster_models.published_hybrids import MODELS

EXAMPLES = Path(__file__).parents[2] / "examples" / "models"


@pytest.mark.parametrize("name", ["llama-3-70b", "mixtral-8x7b", "deepseek-v3", "gpt-oss-20b"])
def test_example_files_equal_the_catalogue(name: str) -> None:
    """The shipped config.json files and the catalogue describe the same models, field by field."""
    config = json.loads((EXAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    read_model = architecture_from_config(config, name=name)
    assert replace(read_model, source="") == replace(catalogue_model(name), source="")


@pytest.mark.parametrize("name", PUBLISHED)
def test_families_outside_the_catalogue_hold_the_published_weights(name: str) -> None:
    """Every weight of the published checkpoint is accounted for."""
    config, parameters = PUBLISHED[name]
    assert architecture_from_config(config).parameters() == parameters


@pytest.mark.parametrize("name", MODELS)
def test_popular_models_have_the_parameters_that_their_publishers_state(name: str) -> None:
    """All within 1 %; of a token's own, whose embedding some count, within a tenth."""
    config, billions, active = MODELS[name]
    model = architecture_from_config(config, name=name)
    assert model.parameters() == pytest.approx(1e9 * billions, rel=0.01)
    if active is not None:
        table = model.hidden * model.vocabulary
        counts = [model.active_parameters(), model.active_parameters() - table]
        assert min(abs(count / 1e9 / active - 1.0) for count in counts) < 0.1


def test_every_known_family_has_a_small_config_here() -> None:
    """A family that is added must be tested."""
    assert set(CONFIGS) == set(known_model_types())


@pytest.mark.parametrize("model_type", sorted(CONFIGS))
def test_every_family_reads_its_dimensions(model_type: str) -> None:
    """Layers, widths, heads and vocabulary arrive, whatever the family calls them."""
    model = read(model_type)
    assert (model.layers, model.hidden, model.heads, model.vocabulary) == (4, 64, 4, 500)
    assert model.name == model_type
    assert model_type in model.source


# What distinguishes the families, as their model classes define it.
TRAITS: dict[str, dict[str, object]] = {
    "llama": {"gated_mlp": True, "attention_bias": False, "sliding_window": None},
    "llama4_text": {
        "chunked_window": True,
        "sliding_window": 32,
        "window_period": 4,
        "mlp_hidden": 128,
        "experts": Experts(count=8, active=2, hidden=96, shared_hidden=96),
    },
    "mistral": {"sliding_window": 32, "window_period": 1},
    "mixtral": {"experts": Experts(count=8, active=2, hidden=96), "mlp_hidden": 0},
    "qwen2": {"attention_bias": True, "attention_output_bias": False},
    "qwen3": {"attention_bias": False, "query_key_norm_parameters": 2 * 16},
    "qwen2_moe": {
        "experts": Experts(count=8, active=2, hidden=10, shared_hidden=40, shared_gate=True),
        "attention_bias": True,
    },
    "qwen3_moe": {"experts": Experts(count=8, active=2, hidden=10), "query_key_norm_parameters": 2 * 16},
    "deepseek_v2": {
        "latent_attention": LatentAttention(24, 12, 4, 8, 6),
        "head_size": 12,
        "kv_heads": 4,
        "experts": Experts(count=8, active=2, hidden=10, dense_layers=1),
    },
    "deepseek_v3": {"experts": Experts(count=8, active=2, hidden=10, dense_layers=1, router_bias=True)},
    "olmo": {"norm_vectors": 0},
    "olmo2": {"norm_vectors": 1, "query_key_norm_parameters": (4 + 2) * 16},
    "olmoe": {"query_key_norm_parameters": (4 + 2) * 16, "mlp_hidden": 0},
    "gpt2": {
        "mlp_hidden": 256,
        "learned_positions": 32,
        "tied_embeddings": True,
        "gated_mlp": False,
        "norm_vectors": 2,
        "attention_output_bias": True,
    },
    "gpt_neox": {"kv_heads": 4, "tied_embeddings": False, "mlp_bias": True, "attention_bias": True},
    "gpt_oss": {"attention_sinks": True, "window_period": 2, "mlp_bias": True, "attention_bias": True},
    "gemma": {"tied_embeddings": True, "norms_per_block": 1},
    "gemma2": {"norms_per_block": 2, "window_period": 2},
    "gemma3_text": {"query_key_norm_parameters": 2 * 16, "sliding_window": 32, "window_period": 1},
    "phi3": {"attention_bias": False, "sliding_window": None},
    "smollm3": {"tied_embeddings": True},
    "seed_oss": {"attention_bias": True, "attention_output_bias": False, "head_size": 16},
    "glm4": {"norms_per_block": 2},
    "exaone4": {"window_period": 4, "query_key_norm_parameters": 2 * 16},
    "cohere2": {"window_period": 4, "tied_embeddings": True},
    "apertus": {"gated_mlp": False, "query_key_norm_parameters": 2 * 16},
    "nemotron": {"gated_mlp": False, "norm_vectors": 2},
    "olmo3": {"window_period": 4, "query_key_norm_parameters": (4 + 2) * 16},
    "glm4_moe": {"experts": Experts(count=8, active=2, hidden=10, dense_layers=1, router_bias=True)},
    "hunyuan_v1_moe": {"experts": Experts(count=8, active=2, hidden=96, shared_hidden=96)},
    "hy_v3": {"experts": Experts(count=8, active=2, hidden=10, shared_hidden=10, dense_layers=1, router_bias=True)},
    "afmoe": {"attention_gate": AttentionGate.ELEMENT, "norms_per_block": 2},
    "qwen3_next": {
        "mixers": (Mixer.LINEAR,) * 3 + (Mixer.FULL,),
        "attention_gate": AttentionGate.ELEMENT,
        "linear_attention": LinearAttention(LinearRule.GATED_DELTA, 2, 4, 8, 16, convolution=4),
        "mlp_hidden": 96,
    },
    "kimi_linear": {
        "mixers": (Mixer.LINEAR,) * 3 + (Mixer.FULL,),
        "linear_attention": LinearAttention(LinearRule.CHANNEL_DELTA, 4, 4, 16, 16, 4, gate_rank=16, decay_rank=16),
        "latent_attention": LatentAttention(24, 12, 4, 8, 6),
    },
    "bailing_hybrid": {
        "mixers": (Mixer.LINEAR, Mixer.FULL),
        "linear_attention": LinearAttention(LinearRule.CHANNEL_DELTA, 4, 4, 16, 16, convolution=4),
        "attention_gate": AttentionGate.HEAD,
    },
    "minimax": {"linear_attention": LinearAttention(LinearRule.DECAY, 4, 4, 16, 16)},
    "deepseek_v32": {"sparse_attention": SparseAttention(4, 8, 64)},
    "falcon_h1": {
        "mixers": (Mixer.PARALLEL,),
        "state_space": StateSpace(heads=4, head_size=8, state=16, groups=2, norm=False),
    },
    "granitemoehybrid": {
        "mixers": (Mixer.STATE_SPACE, Mixer.STATE_SPACE, Mixer.FULL, Mixer.STATE_SPACE),
        "state_space": StateSpace(heads=8, head_size=16, state=16, groups=2),
        "experts": Experts(count=8, active=2, hidden=96, shared_hidden=20),
    },
    "jamba": {
        "state_space": StateSpace(heads=128, head_size=1, state=8, step_rank=4),
        "mixers": (Mixer.STATE_SPACE, Mixer.STATE_SPACE, Mixer.FULL, Mixer.STATE_SPACE),
        "mlps": (Mlp.DENSE, Mlp.EXPERTS),
    },
    "nemotron_h": {
        "mixers": (Mixer.STATE_SPACE, Mixer.NONE, Mixer.FULL, Mixer.NONE),
        "mlps": (Mlp.NONE, Mlp.DENSE, Mlp.NONE, Mlp.EXPERTS),
        "state_space": StateSpace(heads=8, head_size=8, state=16, groups=2),
        "gated_mlp": False,
    },
    "lfm2": {"mixers": (Mixer.CONVOLUTION, Mixer.FULL), "short_convolution": 3, "mlp_hidden": 256},
    "step3p5": {"window_heads": WindowHeads(8, 2, 16), "attention_gate": AttentionGate.HEAD},
    "mimo_v2_flash": {"window_heads": WindowHeads(4, 4, 16), "value_head_size": 8},
}


@pytest.mark.parametrize("model_type", sorted(TRAITS))
def test_families_differ_where_their_model_classes_do(model_type: str) -> None:
    """Biases, norms, windows and experts are those of the family's published implementation."""
    model = read(model_type)
    assert {name: getattr(model, name) for name in TRAITS[model_type]} == TRAITS[model_type]


def test_head_size_is_stated_or_the_hidden_width_shared_out() -> None:
    """head_dim wins; without it the hidden width is divided by the heads."""
    assert read("llama", head_dim=24).head_size == 24
    assert read("llama", head_dim=None).head_size == 16
    with pytest.raises(InvalidModel, match="not a multiple of 6 heads"):
        read("llama", head_dim=None, num_attention_heads=6)


def test_old_llama_files_without_key_value_heads_have_one_each() -> None:
    """Multi-head attention: as many key-value heads as heads."""
    config = {key: value for key, value in BASE.items() if key != "num_key_value_heads"}
    assert architecture_from_config(config | {"model_type": "llama"}).kv_heads == 4


def test_stated_flags_win_over_the_family() -> None:
    """Files may state biases and tied embeddings."""
    model = read("llama", attention_bias=True, mlp_bias=True, tie_word_embeddings=True)
    assert (model.attention_bias, model.attention_output_bias, model.mlp_bias) == (True, True, True)
    assert model.tied_embeddings


def test_null_query_rank_means_uncompressed_queries() -> None:
    """DeepSeek-V2-Lite."""
    latent = read("deepseek_v2", q_lora_rank=None).latent_attention
    assert latent is not None
    assert latent.query_rank == 0


def test_prediction_layers_are_recorded_and_not_counted() -> None:
    """Multi-token prediction changes neither layers nor parameters."""
    without, with_one = read("deepseek_v3"), read("deepseek_v3", num_nextn_predict_layers=1)
    assert with_one.prediction_layers == 1
    assert with_one.parameters() == without.parameters()


def test_limited_routing_is_read_where_stated() -> None:
    """DeepSeek-V3 has eight groups, of which a token uses four; without the keys there is no limit."""
    limited, free = read("deepseek_v3", n_group=4, topk_group=2).experts, read("deepseek_v3").experts
    assert limited is not None
    assert free is not None
    assert (limited.router_groups, limited.active_groups) == (4, 2)
    assert (free.router_groups, free.active_groups) == (1, 1)


def test_shared_experts_are_counted_in_units_of_their_width() -> None:
    """Two shared experts of 10 are one of 20; null is none."""
    shared = [read("deepseek_v2", n_shared_experts=number).experts for number in (2, None)]
    assert [experts.shared_hidden for experts in shared if experts] == [20, 0]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", "4096"),
        ("hidden_size", -1),
        ("hidden_size", 0),
        ("hidden_size", True),
        ("hidden_size", 4096.5),
        ("hidden_size", math.nan),
        ("hidden_size", math.inf),
        ("hidden_size", 10**30),
        ("hidden_size", [4096]),
        ("num_hidden_layers", 10**6),
        ("vocab_size", {}),
        ("num_key_value_heads", 0),
        ("max_position_embeddings", "long"),
        ("tie_word_embeddings", "yes"),
        ("attention_bias", 1),
    ],
)
def test_nonsense_names_the_key_as_the_file_spells_it(key: str, value: object) -> None:
    """Texts, fractions, zeros, NaN and the like are refused by name."""
    with pytest.raises(InvalidModel) as refused:
        read("llama", **{key: value})
    assert refused.value.field == f"model.{key}"


def test_all_missing_keys_are_named_at_once() -> None:
    """One error is enough to complete the file."""
    with pytest.raises(InvalidModel) as refused:
        architecture_from_config({"model_type": "deepseek_v2", "hidden_size": 64, "n_routed_experts": 8})
    for key in ("vocab_size", "kv_lora_rank", "first_k_dense_replace", "q_lora_rank (may be null)"):
        assert key in refused.value.problem
    assert "hidden_size" not in refused.value.problem


@pytest.mark.parametrize("key", ["vocab_size", "num_hidden_layers", "num_key_value_heads", "sliding_window"])
def test_missing_values_are_never_guessed(key: str) -> None:
    """Not even where the configuration class has a default, which belongs to one particular model."""
    config = {name: value for name, value in CONFIGS["mistral"].items() if name != key}
    with pytest.raises(InvalidModel, match=key):
        architecture_from_config(config | {"model_type": "mistral"})


def test_unknown_model_types_are_refused_with_what_to_do() -> None:
    """The error says what was found, what lacks, what is known and how to give the numbers by hand."""
    with pytest.raises(InvalidModel) as refused:
        architecture_from_config({"model_type": "mamba", "architectures": ["LlamaForCausalLM"], "hidden_size": 64})
    error = refused.value
    assert (error.field, error.value) == ("model.model_type", "mamba")
    assert "hidden 64" in error.problem
    assert "layers, heads" in error.problem
    assert "deepseek_v3" in error.remedy
    assert '"layers"' in error.remedy


@pytest.mark.parametrize("model_type", sorted(UNREADABLE))
def test_models_known_to_be_unlike_are_refused_by_what_they_have(model_type: str) -> None:
    """Not by a list of keys that would not help."""
    with pytest.raises(InvalidModel, match=UNREADABLE[model_type]):
        architecture_from_config(BASE | {"model_type": model_type})


@pytest.mark.parametrize(
    ("model_type", "changes", "field"),
    [
        ("glm_moe_dsa", {"indexer_types": ["full", "shared"] * 2}, "indexer_types"),
        ("glm_moe_dsa", {"index_topk_freq": 2}, "index_topk_freq"),
        ("nemotron_h", {"hybrid_override_pattern": "M-?E"}, "hybrid_override_pattern"),
        ("minimax", {"layer_types": ["linear_attention"] * 3}, "layer_types"),
        ("qwen3_next", {"layer_types": ["linear_attention", "mamba"] * 2}, "layer_types"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_key(model_type: str, changes: dict[str, Any], field: str) -> None:
    """Layers that share an indexer, unknown symbols and kinds, and lists of another length."""
    with pytest.raises(InvalidModel) as refused:
        read(model_type, **changes)
    assert refused.value.field == f"model.{field}"


def test_a_complete_looking_unknown_model_is_not_guessed_either() -> None:
    """All the usual keys say nothing about biases, norms or the kind of MLP."""
    with pytest.raises(InvalidModel, match="gated_mlp, tied_embeddings"):
        architecture_from_config(BASE | {"model_type": "brand_new"})


def test_architectures_name_the_family_where_model_type_is_missing() -> None:
    """Old files state only the class of the model."""
    model = architecture_from_config(BASE | {"architectures": ["Qwen2ForCausalLM"]})
    assert model.attention_bias


def test_language_model_of_a_multimodal_file_is_read() -> None:
    """Its text_config counts; what that leaves to the whole file is taken from there."""
    config = {
        "model_type": "gemma3",
        "tie_word_embeddings": False,
        "vision_config": {"hidden_size": 7},
        "text_config": CONFIGS["gemma3_text"],
    }
    model = architecture_from_config(config, name="mine")
    assert (model.name, model.hidden, model.norms_per_block, model.tied_embeddings) == ("mine", 64, 2, False)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(CONFIGS)), st.data())
def test_any_json_is_read_or_refused(model_type: str, data: st.DataObject) -> None:
    """Whatever stands under a key, the answer is an architecture or an InvalidModel, never a crash."""
    keys = [*CONFIGS[model_type], "layer_types", "model_type", "mlp_only_layers", "tie_word_embeddings"]
    change = {data.draw(st.sampled_from(keys)): data.draw(JSON)}
    with contextlib.suppress(InvalidModel):
        model = read(model_type, **change) if "model_type" not in change else architecture_from_config(change)
        assert model.parameters() > 0


@given(JSON)
def test_anything_that_is_no_config_is_refused(content: Any) -> None:
    """A list, a number or an object of other things is an InvalidModel."""
    with pytest.raises(InvalidModel):
        architecture_from_config(content)
