"""Families of dense models: how each ``model_type`` spells its architecture.

One row a family.  Where a configuration class has a default that its files leave out (tied embeddings,
biases), the row states it; where that default is a number of one particular model, the key is required
instead.  Source: the configuration and model classes of the transformers library (models/<model_type>), up to 5.24.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cluster_models.model.huggingface_keys import Family, Flag, QueryKeyNorm, WindowKeys

BIAS: Final = Flag("attention_bias", default=False)
_QWEN_WINDOW: Final = WindowKeys(
    switch=Flag("use_sliding_window", default=False), first_layer_key="max_window_layers"
)
LLAMA: Final = Family(
    "llama",
    ("LlamaForCausalLM",),
    kv_heads_default_to_heads=True,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    mlp_bias=Flag("mlp_bias", default=False),
)
MISTRAL: Final = Family("mistral", ("MistralForCausalLM",), window=WindowKeys(required=True))
QWEN2: Final = Family(
    "qwen2",
    ("Qwen2ForCausalLM", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni_text"),
    attention_bias=True,
    window=_QWEN_WINDOW,
)
QWEN3: Final = Family(
    "qwen3",
    ("Qwen3ForCausalLM", "qwen3_vl", "qwen3_vl_text"),
    head_size_required=True,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    query_key_norm=QueryKeyNorm.PER_HEAD,
    window=_QWEN_WINDOW,
)
_OLMO: Final = Family(
    "olmo",
    ("OlmoForCausalLM",),
    kv_heads_default_to_heads=True,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    norm_vectors=0,
)
OLMO2: Final = replace(
    _OLMO,
    model_type="olmo2",
    aliases=("Olmo2ForCausalLM",),
    norm_vectors=1,
    query_key_norm=QueryKeyNorm.WHOLE,
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
NEOX_BIAS: Final = Flag("attention_bias", default=True)
_GPT_NEOX: Final = Family(
    "gpt_neox",
    ("GPTNeoXForCausalLM",),
    kv_heads=None,
    gated_mlp=False,
    attention_bias=NEOX_BIAS,
    attention_output_bias=NEOX_BIAS,
    mlp_bias=True,
    norm_vectors=2,
)
_GEMMA: Final = Family(
    "gemma",
    ("GemmaForCausalLM",),
    head_size_required=True,
    tied_embeddings=True,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
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
PHI3: Final = Family("phi3", ("Phi3ForCausalLM",), kv_heads_default_to_heads=True, window=WindowKeys())
_USE_BIAS: Final = Flag("use_bias", default=False)

_SMOLLM3: Final = replace(
    LLAMA,
    model_type="smollm3",
    aliases=("SmolLM3ForCausalLM",),
    tied_embeddings=True,
    window=WindowKeys(switch=Flag("use_sliding_window", default=False)),
)
_SEED_OSS: Final = replace(
    LLAMA,
    model_type="seed_oss",
    aliases=("SeedOssForCausalLM",),
    head_size_required=True,
    attention_bias=Flag("attention_bias", default=True),
    attention_output_bias=Flag("attention_out_bias", default=False),
)
ERNIE: Final = Family(
    "ernie4_5",
    ("Ernie4_5ForCausalLM",),
    tied_embeddings=True,
    attention_bias=_USE_BIAS,
    attention_output_bias=_USE_BIAS,
    mlp_bias=_USE_BIAS,
)
HUNYUAN: Final = Family(
    "hunyuan_v1_dense",
    ("HunYuanDenseV1ForCausalLM",),
    kv_heads_default_to_heads=True,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    query_key_norm=QueryKeyNorm.PER_HEAD,
)
_GLM: Final = Family("glm", ("GlmForCausalLM",), head_size_required=True, attention_bias=BIAS)
_GLM4: Final = replace(_GLM, model_type="glm4", aliases=("Glm4ForCausalLM", "glm4v_text"), norms_per_block=2)
_EXAONE4: Final = Family(
    "exaone4",
    ("Exaone4ForCausalLM", "exaone4_5_text"),
    kv_heads_default_to_heads=True,
    query_key_norm=QueryKeyNorm.PER_HEAD,
    window=WindowKeys(period=4, period_key="sliding_window_pattern"),
)
_COHERE2: Final = Family(
    "cohere2",
    ("Cohere2ForCausalLM",),
    kv_heads_default_to_heads=True,
    tied_embeddings=True,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    window=WindowKeys(required=True, period=4, period_key="sliding_window_pattern"),
    assumed="attention and MLP run one after the other, each behind a norm",
)
_APERTUS: Final = Family(
    "apertus",
    ("ApertusForCausalLM",),
    kv_heads_default_to_heads=True,
    gated_mlp=False,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    query_key_norm=QueryKeyNorm.PER_HEAD,
)
_ARCEE: Final = replace(LLAMA, model_type="arcee", aliases=("ArceeForCausalLM",), gated_mlp=False)
_NEMOTRON: Final = replace(_ARCEE, model_type="nemotron", aliases=("NemotronForCausalLM",), norm_vectors=2)
_GRANITE: Final = replace(LLAMA, model_type="granite", aliases=("GraniteForCausalLM",))
_STARCODER2: Final = Family(
    "starcoder2",
    ("Starcoder2ForCausalLM",),
    gated_mlp=False,
    tied_embeddings=True,
    attention_bias=Flag("use_bias", default=True),
    attention_output_bias=Flag("use_bias", default=True),
    mlp_bias=Flag("use_bias", default=True),
    norm_vectors=2,
    window=WindowKeys(),
)
_OLMO3: Final = replace(
    OLMO2, model_type="olmo3", aliases=("Olmo3ForCausalLM",), window=WindowKeys(required=True, period=4)
)
_MINISTRAL: Final = replace(
    MISTRAL,
    model_type="ministral3",
    aliases=("Ministral3ForCausalLM", "ministral", "MinistralForCausalLM"),
    window=WindowKeys(),
)

_OLDER: Final = (LLAMA, MISTRAL, QWEN2, QWEN3, _OLMO, OLMO2, _GPT2, _GPT_NEOX, PHI3, _GEMMA, _GEMMA2, _GEMMA3)
_NEWER: Final = (_SMOLLM3, _SEED_OSS, ERNIE, HUNYUAN, _GLM, _GLM4, _EXAONE4, _COHERE2, _APERTUS, _ARCEE)
_OTHERS: Final = (_NEMOTRON, _GRANITE, _STARCODER2, _OLMO3, _MINISTRAL)

DENSE: Final = _OLDER + _NEWER + _OTHERS
"""Every family of dense models that can be read."""
