"""Families of models with experts; see ``huggingface_dense``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cluster_models.model.huggingface_dense import BIAS, ERNIE, HUNYUAN, LLAMA, NEOX_BIAS, OLMO2, QWEN2, QWEN3
from cluster_models.model.huggingface_keys import ExpertKeys, Family, Flag, QueryKeyNorm, WindowKeys
from cluster_models.model.layer_kinds import AttentionGate

_LLAMA4: Final = Family(
    "llama4_text",
    ("llama4", "Llama4ForCausalLM", "Llama4ForConditionalGeneration"),
    mlp_hidden="intermediate_size_mlp",
    head_size_required=True,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
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
_MIXTRAL: Final = Family(
    "mixtral",
    ("MixtralForCausalLM",),
    mlp_hidden=None,
    window=WindowKeys(),
    experts=ExpertKeys("num_local_experts", "num_experts_per_tok", "intermediate_size"),
)
QWEN_EXPERTS: Final = ExpertKeys(
    "num_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    step_key="decoder_sparse_step",
    dense_list_key="mlp_only_layers",
)
_QWEN2_MOE: Final = replace(
    QWEN2,
    model_type="qwen2_moe",
    aliases=("Qwen2MoeForCausalLM",),
    experts=replace(QWEN_EXPERTS, shared_hidden="shared_expert_intermediate_size", shared_gate=True),
)
QWEN3_MOE: Final = replace(
    QWEN3,
    model_type="qwen3_moe",
    aliases=("Qwen3MoeForCausalLM", "qwen3_vl_moe", "qwen3_vl_moe_text"),
    experts=QWEN_EXPERTS,
)
DEEPSEEK_EXPERTS: Final = ExpertKeys(
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
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    latent_attention=True,
    experts=DEEPSEEK_EXPERTS,
)
DEEPSEEK_V3: Final = replace(
    _DEEPSEEK_V2,
    model_type="deepseek_v3",
    aliases=("DeepseekV3ForCausalLM", "kimi_k2", "kimi_k25"),
    experts=replace(DEEPSEEK_EXPERTS, router_bias=True),
)
_OLMOE: Final = replace(
    OLMO2,
    model_type="olmoe",
    aliases=("OlmoeForCausalLM",),
    mlp_hidden=None,
    experts=ExpertKeys("num_experts", "num_experts_per_tok", "intermediate_size"),
)
_GPT_OSS: Final = Family(
    "gpt_oss",
    ("GptOssForCausalLM",),
    mlp_hidden=None,
    head_size_required=True,
    attention_bias=NEOX_BIAS,
    attention_output_bias=NEOX_BIAS,
    mlp_bias=True,
    attention_sinks=True,
    window=WindowKeys(required=True, period=2),
    experts=ExpertKeys("num_local_experts", "num_experts_per_tok", "intermediate_size", router_bias=True),
)
ROUTED: Final = replace(DEEPSEEK_EXPERTS, router_bias=True)
"""Experts as DeepSeek-V3 keeps them, which many families do."""

_GLM4_MOE: Final = Family(
    "glm4_moe",
    ("Glm4MoeForCausalLM", "glm4v_moe_text"),
    attention_bias=BIAS,
    query_key_norm=Flag("use_qk_norm", default=False),
    experts=ROUTED,
)
_GLM4_MOE_LITE: Final = replace(
    DEEPSEEK_V3,
    model_type="glm4_moe_lite",
    aliases=("Glm4MoeLiteForCausalLM",),
    experts=replace(ROUTED, first_key=None, first=1),
)
_DOTS1: Final = Family(
    "dots1",
    ("Dots1ForCausalLM",),
    kv_heads_default_to_heads=True,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    query_key_norm=QueryKeyNorm.PER_HEAD,
    window=WindowKeys(first_layer_key="max_window_layers"),
    experts=ROUTED,
)
_MINIMAX_M2: Final = Family(
    "minimax_m2",
    ("MiniMaxM2ForCausalLM",),
    mlp_hidden=None,
    head_size_required=True,
    query_key_norm=QueryKeyNorm.WHOLE,
    experts=ExpertKeys("num_local_experts", "num_experts_per_tok", "intermediate_size", router_bias=True),
)
_ERNIE_MOE: Final = replace(
    ERNIE,
    model_type="ernie4_5_moe",
    aliases=("Ernie4_5_MoeForCausalLM",),
    experts=ExpertKeys(
        "moe_num_experts",
        "moe_k",
        "moe_intermediate_size",
        shared_count="moe_num_shared_experts",
        router_bias=True,
        first_key="moe_layer_start_index",
        step_key="moe_layer_interval",
    ),
)
_HUNYUAN_MOE: Final = replace(
    HUNYUAN,
    model_type="hunyuan_v1_moe",
    aliases=("HunYuanMoEV1ForCausalLM",),
    mlp_hidden=None,
    experts=ExpertKeys("num_experts", "moe_topk", "intermediate_size", one_shared=True),
    assumed="every layer has one shared expert as wide as a routed one",
)
_HUNYUAN3: Final = Family(
    "hy_v3",
    ("HYV3ForCausalLM",),
    head_size_required=True,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    query_key_norm=QueryKeyNorm.PER_HEAD,
    experts=ExpertKeys(
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        shared_count="num_shared_experts",
        router_bias=True,
        first=1,
    ),
)
_GRANITE_MOE: Final = replace(
    LLAMA,
    model_type="granitemoe",
    aliases=("GraniteMoeForCausalLM",),
    mlp_hidden=None,
    experts=ExpertKeys("num_local_experts", "num_experts_per_tok", "intermediate_size"),
)
_PHIMOE: Final = Family(
    "phimoe",
    ("PhimoeForCausalLM", "PhiMoEForCausalLM"),
    mlp_hidden=None,
    attention_bias=BIAS,
    attention_output_bias=BIAS,
    norm_vectors=2,
    window=WindowKeys(),
    experts=ExpertKeys("num_local_experts", "num_experts_per_tok", "intermediate_size"),
)
_SOLAR_OPEN: Final = Family(
    "solar_open",
    ("SolarOpenForCausalLM",),
    mlp_hidden=None,
    head_size_required=True,
    attention_bias=BIAS,
    experts=replace(ROUTED, first_key=None, frequency_key=None),
)
_AFMOE: Final = Family(
    "afmoe",
    ("AfmoeForCausalLM",),
    kv_heads_default_to_heads=True,
    head_size_required=True,
    norms_per_block=2,
    query_key_norm=QueryKeyNorm.PER_HEAD,
    attention_gate=AttentionGate.ELEMENT,
    window=WindowKeys(required=True, period=4, period_key="global_attn_every_n_layers"),
    experts=ExpertKeys(
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        shared_count="num_shared_experts",
        router_bias=True,
        first_key="num_dense_layers",
    ),
)
_BAILING: Final = Family(
    "bailing_moe_v2",
    ("bailing_moe", "BailingMoeV2ForCausalLM", "BailingMoeForCausalLM"),
    head_size_required=True,
    attention_bias=Flag("use_qkv_bias", default=False),
    attention_output_bias=Flag("use_bias", default=False),
    mlp_bias=Flag("use_bias", default=False),
    query_key_norm=Flag("use_qk_norm", default=False),
    experts=ExpertKeys(
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        shared_count="num_shared_experts",
        shared_each_key="moe_shared_expert_intermediate_size",
        router_bias=True,
        groups="n_group",
        active_groups="topk_group",
        first_key="first_k_dense_replace",
    ),
)

_OLDER: Final = (_LLAMA4, _MIXTRAL, _QWEN2_MOE, QWEN3_MOE, _DEEPSEEK_V2, DEEPSEEK_V3, _OLMOE, _GPT_OSS)
_NEWER: Final = (_GLM4_MOE, _GLM4_MOE_LITE, _DOTS1, _MINIMAX_M2, _ERNIE_MOE, _HUNYUAN_MOE, _HUNYUAN3)
_OTHERS: Final = (_GRANITE_MOE, _PHIMOE, _SOLAR_OPEN, _AFMOE, _BAILING)

SPARSE: Final = _OLDER + _NEWER + _OTHERS
"""Every family of plain transformers with experts that can be read."""
