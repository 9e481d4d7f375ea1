"""Small config.json contents, one a family."""

from __future__ import annotations

from typing import Any

from cluster_models.model.architecture import Architecture
from cluster_models.model.huggingface import architecture_from_config

BASE: dict[str, Any] = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 96,
    "vocab_size": 500,
    "max_position_embeddings": 256,
}
LATENT = {
    "q_lora_rank": 24,
    "kv_lora_rank": 12,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 8,
    "v_head_dim": 6,
}
DEEPSEEK = BASE | LATENT | {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
QWEN_MOE = BASE | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
MIXTRAL = BASE | {"num_local_experts": 8, "num_experts_per_tok": 2}
EXPERTS = BASE | {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 10}
INDEX = {"index_n_heads": 4, "index_head_dim": 8, "index_topk": 64}
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 16,
}
MAMBA = {"mamba_n_heads": 4, "mamba_d_state": 16, "mamba_n_groups": 2}
GPT2 = {"n_layer": 4, "n_embd": 64, "n_head": 4, "n_positions": 32, "vocab_size": 500}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": BASE,
    "llama4_text": MIXTRAL | {"intermediate_size_mlp": 128, "attention_chunk_size": 32},
    "mistral": BASE | {"sliding_window": 32},
    "mixtral": MIXTRAL,
    "qwen2": BASE,
    "qwen3": BASE,
    "qwen2_moe": QWEN_MOE | {"shared_expert_intermediate_size": 40},
    "qwen3_moe": QWEN_MOE,
    "deepseek_v2": DEEPSEEK | {"first_k_dense_replace": 1},
    "deepseek_v3": DEEPSEEK | {"first_k_dense_replace": 1},
    "olmo": BASE,
    "olmo2": BASE,
    "olmoe": BASE | {"num_experts": 8, "num_experts_per_tok": 2},
    "gpt2": GPT2,
    "gpt_neox": BASE,
    "gpt_oss": MIXTRAL | {"sliding_window": 32},
    "gemma": BASE,
    "gemma2": BASE | {"sliding_window": 32},
    "gemma3_text": BASE | {"sliding_window": 32},
    "phi3": BASE,
    "smollm3": BASE,
    "seed_oss": BASE,
    "ernie4_5": BASE,
    "hunyuan_v1_dense": BASE,
    "glm": BASE,
    "glm4": BASE,
    "exaone4": BASE | {"sliding_window": 32, "sliding_window_pattern": "LLLG"},
    "cohere2": BASE | {"sliding_window": 32},
    "apertus": BASE,
    "arcee": BASE,
    "nemotron": BASE,
    "granite": BASE,
    "starcoder2": BASE,
    "olmo3": BASE | {"sliding_window": 32},
    "ministral3": BASE,
    "glm4_moe": EXPERTS | {"first_k_dense_replace": 1},
    "glm4_moe_lite": DEEPSEEK,
    "dots1": EXPERTS | {"first_k_dense_replace": 1},
    "minimax_m2": MIXTRAL,
    "ernie4_5_moe": BASE
    | {"moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 10, "moe_num_shared_experts": 1}
    | {"moe_layer_start_index": 1},
    "hunyuan_v1_moe": BASE | {"num_experts": 8, "moe_topk": [2] * 4},
    "hy_v3": QWEN_MOE | {"num_shared_experts": 1},
    "granitemoe": MIXTRAL,
    "phimoe": MIXTRAL,
    "solar_open": EXPERTS,
    "afmoe": QWEN_MOE | {"num_dense_layers": 1, "sliding_window": 32},
    "bailing_moe_v2": QWEN_MOE | {"first_k_dense_replace": 1},
    "qwen3_next": QWEN_MOE | DELTA | {"shared_expert_intermediate_size": 40},
    "qwen3_5": BASE | DELTA,
    "olmo_hybrid": BASE | DELTA,
    "kimi_linear": BASE
    | LATENT
    | {"num_experts": 8, "num_experts_per_token": 2, "moe_intermediate_size": 10, "first_k_dense_replace": 1}
    | {"linear_attn_config": {"full_attn_layers": [4], "num_heads": 4, "head_dim": 16}},
    "bailing_hybrid": QWEN_MOE | LATENT | {"first_k_dense_replace": 1, "layer_group_size": 2},
    "minimax": MIXTRAL | {"layer_types": ["linear_attention", "full_attention"] * 2},
    "deepseek_v32": DEEPSEEK | INDEX | {"first_k_dense_replace": 1},
    "glm_moe_dsa": DEEPSEEK | INDEX | {"first_k_dense_replace": 1},
    "falcon_h1": BASE | MAMBA | {"mamba_d_ssm": 32},
    "granitemoehybrid": MIXTRAL
    | MAMBA
    | {"mamba_n_heads": 8, "shared_intermediate_size": 20, "layer_types": ["mamba", "mamba", "attention", "mamba"]},
    "bamba": BASE | MAMBA | {"mamba_n_heads": 8, "attn_layer_indices": [2]},
    "jamba": BASE
    | {"num_experts": 8, "num_experts_per_tok": 2, "mamba_d_state": 8}
    | {"attn_layer_period": 4, "attn_layer_offset": 2, "expert_layer_period": 2, "expert_layer_offset": 1},
    "nemotron_h": EXPERTS
    | {"hybrid_override_pattern": "M-*E", "mamba_num_heads": 8, "mamba_head_dim": 8}
    | {"ssm_state_size": 16, "n_groups": 2},
    "lfm2": BASE | {"conv_L_cache": 3, "full_attn_idxs": [1, 3]},
    "lfm2_moe": QWEN_MOE | {"conv_L_cache": 3, "full_attn_idxs": [1, 3], "num_dense_layers": 1},
    "step3p5": BASE
    | {"num_attention_groups": 2, "sliding_window": 32, "layer_types": ["full_attention", "sliding_attention"] * 2}
    | {"moe_num_experts": 8, "moe_top_k": 2, "moe_intermediate_size": 10, "share_expert_dim": 10}
    | {"attention_other_setting": {"num_attention_heads": 8, "num_attention_groups": 2}},
    "mimo_v2_flash": EXPERTS
    | {"v_head_dim": 8, "sliding_window": 32, "hybrid_layer_pattern": [0, 1, 1, 0], "swa_num_key_value_heads": 4},
}


def read(model_type: str, **changes: object) -> Architecture:
    """The small model of a family, with some keys changed."""
    return architecture_from_config({"model_type": model_type, **CONFIGS[model_type], **changes})


def published(model_type: str, shape: tuple[int, int, int, int, int, int], **more: object) -> dict[str, Any]:
    """A config.json by layers, hidden width, heads, key-value heads, MLP width and vocabulary."""
    keys = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads")
    return {
        "model_type": model_type,
        **dict(zip((*keys, "intermediate_size", "vocab_size"), shape, strict=True)),
        **more,
    }


QWEN1_5_MOE = {
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
}
PUBLISHED: dict[str, tuple[dict[str, Any], int]] = {
    "gemma-7b": (published("gemma", (28, 3072, 16, 16, 24576, 256000), head_dim=256), 8_537_680_896),
    "gemma-2-9b": (
        published("gemma2", (42, 3584, 16, 8, 14336, 256000), head_dim=256, sliding_window=4096),
        9_241_705_984,
    ),
    "gemma-3-1b": (
        published("gemma3_text", (26, 1152, 4, 1, 6912, 262144), head_dim=256, sliding_window=512),
        999_885_952,
    ),
    "qwen1.5-moe": (published("qwen2_moe", (24, 2048, 16, 16, 5632, 151936), **QWEN1_5_MOE), 14_315_784_192),
    "olmo-2-7b": (published("olmo2", (32, 4096, 32, 32, 11008, 100352)), 7_298_617_344),
    "phi-4": (published("phi3", (40, 5120, 40, 10, 17920, 100352)), 14_659_507_200),
}
"""Models outside the catalogue, and how many weights their published checkpoints hold."""
