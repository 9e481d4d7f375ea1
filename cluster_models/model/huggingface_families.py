"""How each Hugging Face ``model_type`` spells its architecture in ``config.json``.

One row a family.  Where a configuration class has a default that its files leave out (tied embeddings,
biases), the row states it; where that default is a number of one particular model, the key is required
instead.  Source: the configuration and model classes of the transformers library (models/<model_type>).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Final


@dataclass(frozen=True, slots=True)
class Flag:
    """A yes or no that the file may state under ``key``; ``default`` is the configuration class's."""

    key: str
    default: bool


class QueryKeyNorm(Enum):
    """Learned normalisation of queries and keys."""

    NONE = "none"
    PER_HEAD = "per head"
    """One weight per element of a head, shared by the heads."""
    WHOLE = "whole"
    """One weight per element of all heads."""


@dataclass(frozen=True, slots=True)
class WindowKeys:
    """Windowed attention: ``key`` holds the span (null = none).

    ``period``: the last of so many layers attends fully (1 = none does), replaced by ``period_key``.
    ``pattern_key`` lists per layer 1 for windowed and 0 for full.  With ``switch`` windows exist only where
    that flag is true, from layer ``first_layer_key`` on.
    """

    key: str = "sliding_window"
    required: bool = False
    period: int = 1
    period_key: str | None = None
    pattern_key: str | None = None
    switch: Flag | None = None
    first_layer_key: str | None = None
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class ExpertKeys:
    """Experts: number, active number and width, the shared ones, and which layers have them.

    Layers are sparse from ``first_key`` on where ``layer % frequency_key == 0`` (DeepSeek), or where
    ``(layer + 1) % step_key == 0`` (Qwen, Llama 4), except those of ``dense_list_key``; or exactly those of
    ``sparse_list_key``.  ``optional``: a null number of experts is a dense model.
    """

    count: str
    active: str
    hidden: str
    optional: bool = False
    shared_hidden: str | None = None
    shared_count: str | None = None
    one_shared: bool = False
    shared_gate: bool = False
    router_bias: bool = False
    groups: str | None = None
    active_groups: str | None = None
    first_key: str | None = None
    frequency_key: str | None = None
    step_key: str | None = None
    dense_list_key: str | None = None
    sparse_list_key: str | None = None


@dataclass(frozen=True, slots=True)
class Family:
    """One ``model_type``; ``aliases`` are other types and ``architectures`` entries that read the same."""

    model_type: str
    aliases: tuple[str, ...]
    layers: str = "num_hidden_layers"
    hidden: str = "hidden_size"
    heads: str = "num_attention_heads"
    vocabulary: str = "vocab_size"
    max_sequence: str = "max_position_embeddings"
    mlp_hidden: str | None = "intermediate_size"
    mlp_defaults_to_four_hidden: bool = False
    kv_heads: str | None = "num_key_value_heads"
    kv_heads_default_to_heads: bool = False
    head_size_required: bool = False
    gated_mlp: bool = True
    tied_embeddings: bool = False
    attention_bias: bool | Flag = False
    attention_output_bias: bool | Flag = False
    mlp_bias: bool | Flag = False
    learned_positions: bool = False
    norm_vectors: int = 1
    norms_per_block: int = 1
    query_key_norm: QueryKeyNorm = QueryKeyNorm.NONE
    attention_sinks: bool = False
    latent_attention: bool = False
    window: WindowKeys | None = None
    experts: ExpertKeys | None = None


_BIAS: Final = Flag("attention_bias", default=False)
_QWEN_WINDOW: Final = WindowKeys(
    switch=Flag("use_sliding_window", default=False), first_layer_key="max_window_layers"
)

_LLAMA: Final = Family(
    "llama",
    ("LlamaForCausalLM",),
    kv_heads_default_to_heads=True,
    attention_bias=_BIAS,
    attention_output_bias=_BIAS,
    mlp_bias=Flag("mlp_bias", default=False),
)
_LLAMA4: Final = Family(
    "llama4_text",
    ("llama4", "Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
    mlp_hidden="intermediate_size_mlp",
    head_size_required=True,
    attention_bias=_BIAS,
    attention_output_bias=_BIAS,
    window=WindowKeys(
        "attention_chunk_size",
        required=True,
        period=4,
        period_key="no_rope_layer_interval",
        pattern_key="no_rope_layers",
        chunked=True,
    ),
    experts=ExpertKeys(
        "num_local_experts",
        "num_experts_per_tok",
        "intermediate_size",
        one_shared=True,
        step_key="interleave_moe_layer_step",
        sparse_list_key="moe_layers",
    ),
)
_MISTRAL: Final = Family("mistral", ("MistralForCausalLM",), window=WindowKeys(required=True))
_MIXTRAL: Final = Family(
    "mixtral",
    ("MixtralForCausalLM",),
    mlp_hidden=None,
    window=WindowKeys(),
    experts=ExpertKeys("num_local_experts", "num_experts_per_tok", "intermediate_size"),
)
_QWEN2: Final = Family("qwen2", ("Qwen2ForCausalLM",), attention_bias=True, window=_QWEN_WINDOW)
_QWEN3: Final = Family(
    "qwen3",
    ("Qwen3ForCausalLM",),
    head_size_required=True,
    attention_bias=_BIAS,
    attention_output_bias=_BIAS,
    query_key_norm=QueryKeyNorm.PER_HEAD,
    window=_QWEN_WINDOW,
)
_QWEN_EXPERTS: Final = ExpertKeys(
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    step_key="decoder_sparse_step",
    dense_list_key="mlp_only_layers",
)
_QWEN2_MOE: Final = replace(
    _QWEN2,
    model_type="qwen2_moe",
    aliases=("Qwen2MoeForCausalLM",),
    experts=replace(_QWEN_EXPERTS, shared_hidden="shared_expert_intermediate_size", shared_gate=True),
)
_QWEN3_MOE: Final = replace(_QWEN3, model_type="qwen3_moe", aliases=("Qwen3MoeForCausalLM",), experts=_QWEN_EXPERTS)
_DEEPSEEK_EXPERTS: Final = ExpertKeys(
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    optional=True,
    shared_count="n_shared_experts",
    groups="n_group",
    active_groups="topk_group",
    first_key="first_k_dense_replace",
    frequency_key="moe_layer_freq",
)
_DEEPSEEK_V2: Final = Family(
    "deepseek_v2",
    ("DeepseekV2ForCausalLM",),
    attention_bias=_BIAS,
    attention_output_bias=_BIAS,
    latent_attention=True,
    experts=_DEEPSEEK_EXPERTS,
)
_DEEPSEEK_V3: Final = replace(
    _DEEPSEEK_V2,
    model_type="deepseek_v3",
    aliases=("DeepseekV3ForCausalLM", "kimi_k2"),
    experts=replace(_DEEPSEEK_EXPERTS, router_bias=True),
)
_OLMO: Final = Family(
    "olmo",
    ("OlmoForCausalLM",),
    kv_heads_default_to_heads=True,
    attention_bias=_BIAS,
    attention_output_bias=_BIAS,
    norm_vectors=0,
)
_OLMO2: Final = replace(
    _OLMO,
    model_type="olmo2",
    aliases=("Olmo2ForCausalLM",),
    norm_vectors=1,
    query_key_norm=QueryKeyNorm.WHOLE,
)
_OLMOE: Final = replace(
    _OLMO2,
    model_type="olmoe",
    aliases=("OlmoeForCausalLM",),
    mlp_hidden=None,
    experts=ExpertKeys("num_experts", "num_experts_per_tok", "intermediate_size"),
)
_GPT2: Final = Family(
    "gpt2",
    ("GPT2LMHeadModel",),
    layers="n_layer",
    hidden="n_embd",
    heads="n_head",
    max_sequence="n_positions",
    mlp_hidden="n_inner",
    mlp_defaults_to_four_hidden=True,
    kv_heads=None,
    gated_mlp=False,
    tied_embeddings=True,
    attention_bias=True,
    attention_output_bias=True,
    mlp_bias=True,
    learned_positions=True,
    norm_vectors=2,
)
_NEOX_BIAS: Final = Flag("attention_bias", default=True)
_GPT_NEOX: Final = Family(
    "gpt_neox",
    ("GPTNeoXForCausalLM",),
    kv_heads=None,
    gated_mlp=False,
    attention_bias=_NEOX_BIAS,
    attention_output_bias=_NEOX_BIAS,
    mlp_bias=True,
    norm_vectors=2,
)
_GPT_OSS: Final = Family(
    "gpt_oss",
    ("GptOssForCausalLM",),
    mlp_hidden=None,
    head_size_required=True,
    attention_bias=_NEOX_BIAS,
    attention_output_bias=_NEOX_BIAS,
    mlp_bias=True,
    attention_sinks=True,
    window=WindowKeys(required=True, period=2),
    experts=ExpertKeys("num_local_experts", "num_experts_per_tok", "intermediate_size", router_bias=True),
)
_GEMMA: Final = Family(
    "gemma",
    ("GemmaForCausalLM",),
    head_size_required=True,
    tied_embeddings=True,
    attention_bias=_BIAS,
    attention_output_bias=_BIAS,
)
_GEMMA2: Final = replace(
    _GEMMA,
    model_type="gemma2",
    aliases=("Gemma2ForCausalLM",),
    norms_per_block=2,
    window=WindowKeys(required=True, period=2),
)
_GEMMA3: Final = replace(
    _GEMMA2,
    model_type="gemma3_text",
    aliases=("gemma3", "Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"),
    query_key_norm=QueryKeyNorm.PER_HEAD,
    window=WindowKeys(required=True, period=6, period_key="sliding_window_pattern"),
)
_PHI3: Final = Family("phi3", ("Phi3ForCausalLM",), kv_heads_default_to_heads=True, window=WindowKeys())

_DENSE: Final = (_LLAMA, _MISTRAL, _QWEN2, _QWEN3, _OLMO, _OLMO2, _GPT2, _GPT_NEOX, _PHI3)
_GEMMAS: Final = (_GEMMA, _GEMMA2, _GEMMA3)
_SPARSE: Final = (_LLAMA4, _MIXTRAL, _QWEN2_MOE, _QWEN3_MOE, _DEEPSEEK_V2, _DEEPSEEK_V3, _OLMOE, _GPT_OSS)

FAMILIES: Final = _DENSE + _GEMMAS + _SPARSE
"""Every family that can be read."""
