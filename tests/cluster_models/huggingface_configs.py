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
