"""Small config.json contents, one a family."""

from __future__ import annotations

from typing import Any

from cluster_models.architecture import Architecture
from cluster_models.huggingface import architecture_from_config

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
}


def read(model_type: str, **changes: object) -> Architecture:
    """The small model of a family, with some keys changed."""
    return architecture_from_config({"model_type": model_type, **CONFIGS[model_type], **changes})
