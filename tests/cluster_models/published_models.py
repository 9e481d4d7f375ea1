"""The config.json of popular open models, as far as it counts, and the parameters that their publishers state."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.cluster_models.huggingface_configs import published


class Published(NamedTuple):
    """A file and the figures of its model card or report: billions of parameters, and of those a token meets."""

    config: dict[str, Any]
    billions: float
    active: float | None = None


def experts(count: int, active: int, hidden: int, **more: object) -> dict[str, object]:
    """Keys as DeepSeek spells them."""
    keys = {"n_routed_experts": count, "num_experts_per_tok": active, "moe_intermediate_size": hidden}
    return keys | more


def latent(query: int | None, key_value: int, rope: int, nope: int, value: int) -> dict[str, object]:
    names = ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    return dict(zip(names, (query, key_value, rope, nope, value), strict=True))


def delta(key_heads: int, value_heads: int) -> dict[str, object]:
    return {
        "linear_num_key_heads": key_heads,
        "linear_num_value_heads": value_heads,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "full_attention_interval": 4,
    }


def qwen_experts(count: int, active: int, hidden: int, **more: object) -> dict[str, object]:
    return {"num_experts": count, "num_experts_per_tok": active, "moe_intermediate_size": hidden} | more


_DSV3 = latent(1536, 512, 64, 128, 128)
_V32_INDEX = {"index_n_heads": 64, "index_head_dim": 128, "index_topk": 2048}

DENSE_AND_SPARSE: dict[str, Published] = {
    # dense
    "smollm3-3b": Published(published("smollm3", (36, 2048, 16, 4, 11008, 128256)), 3.08),
    "seed-oss-36b": Published(published("seed_oss", (64, 5120, 80, 8, 27648, 155136), head_dim=128), 36.2),
    "ernie-4.5-0.3b": Published(published("ernie4_5", (18, 1024, 16, 2, 3072, 103424), head_dim=128), 0.36),
    "hunyuan-7b": Published(
        published("hunyuan_v1_dense", (32, 4096, 32, 8, 14336, 128167), head_dim=128, tie_word_embeddings=True), 7.5
    ),
    "glm-4-9b-0414": Published(published("glm4", (40, 4096, 32, 2, 13696, 151552), head_dim=128), 9.4),
    "glm-4-32b-0414": Published(published("glm4", (61, 6144, 48, 2, 23040, 151552), head_dim=128), 32.6),
    "exaone-4.0-32b": Published(
        published("exaone4", (64, 5120, 40, 8, 27392, 102400), head_dim=128, sliding_window=4096), 32.0
    ),
    "command-a": Published(
        published("cohere2", (64, 12288, 96, 8, 36864, 256000), head_dim=128, sliding_window=4096), 111.0
    ),
    "apertus-8b": Published(published("apertus", (32, 4096, 32, 8, 21504, 131072)), 8.05),
    "apertus-70b": Published(published("apertus", (80, 8192, 64, 8, 43008, 131072)), 70.6),
    "afm-4.5b": Published(published("arcee", (36, 2560, 20, 4, 18432, 128004), head_dim=128), 4.62),
    "minitron-4b": Published(published("nemotron", (32, 3072, 24, 8, 9216, 256000), head_dim=128), 4.19),
    "granite-3.3-8b": Published(
        published("granite", (40, 4096, 32, 8, 12800, 49159), tie_word_embeddings=True), 8.17
    ),
    "olmo-3-7b": Published(published("olmo3", (32, 4096, 32, 32, 11008, 100278), sliding_window=4096), 7.30),
    "olmo-3-32b": Published(published("olmo3", (64, 5120, 40, 8, 27648, 100278), sliding_window=4096), 32.2),
    "mistral-small-3.2-24b": Published(
        published("mistral", (40, 5120, 32, 8, 32768, 131072), head_dim=128, sliding_window=None), 23.57
    ),
    "ministral-3-14b": Published(published("ministral3", (40, 5120, 32, 8, 16384, 131072), head_dim=128), 13.5),
    "ministral-3-8b": Published(published("ministral3", (34, 4096, 32, 8, 14336, 131072), head_dim=128), 8.49),
    "phi-4-mini": Published(published("phi3", (32, 3072, 24, 8, 8192, 200064), tie_word_embeddings=True), 3.84),
    "gemma-3-27b": Published(
        published("gemma3_text", (62, 5376, 32, 16, 21504, 262208), head_dim=128, sliding_window=1024), 27.0
    ),
    "gemma-3-12b": Published(
        published("gemma3_text", (48, 3840, 16, 8, 15360, 262208), head_dim=256, sliding_window=1024), 11.8
    ),
    "qwen3-vl-8b": Published(published("qwen3_vl_text", (36, 4096, 32, 8, 12288, 151936), head_dim=128), 8.19),
    "qwen2.5-vl-72b": Published(published("qwen2_5_vl", (80, 8192, 64, 8, 29568, 152064)), 72.7),
    # experts
    "glm-4.5": Published(
        published(
            "glm4_moe",
            (92, 5120, 96, 8, 12288, 151552),
            head_dim=128,
            attention_bias=True,
            use_qk_norm=True,
            **experts(160, 8, 1536, n_shared_experts=1, first_k_dense_replace=3),
        ),
        355.0,
        32.0,
    ),
    "glm-4.5-air": Published(
        published(
            "glm4_moe",
            (46, 4096, 96, 8, 10944, 151552),
            head_dim=128,
            attention_bias=True,
            **experts(128, 8, 1408, n_shared_experts=1, first_k_dense_replace=1),
        ),
        106.0,
        12.0,
    ),
    "glm-4.7-flash": Published(
        published(
            "glm4_moe_lite",
            (47, 2048, 20, 20, 10240, 154880),
            **latent(768, 512, 64, 192, 256),
            **experts(64, 4, 1536, n_shared_experts=1),
        ),
        30.0,
    ),
    "glm-5": Published(
        published(
            "glm_moe_dsa",
            (78, 6144, 64, 64, 12288, 154880),
            **latent(2048, 512, 64, 192, 256),
            **experts(256, 8, 2048, n_shared_experts=1, first_k_dense_replace=3),
            index_n_heads=32,
            index_head_dim=128,
            index_topk=2048,
        ),
        744.0,
        40.0,
    ),
    "deepseek-v3.2": Published(
        published(
            "deepseek_v32",
            (61, 7168, 128, 128, 18432, 129280),
            **_DSV3,
            **experts(256, 8, 2048, n_shared_experts=1, first_k_dense_replace=3, n_group=8, topk_group=4),
            **_V32_INDEX,
        ),
        671.9,
        37.0,
    ),
    "dots.llm1": Published(
        published(
            "dots1",
            (62, 4096, 32, 32, 10944, 152064),
            **experts(128, 6, 1408, n_shared_experts=2, first_k_dense_replace=1),
        ),
        142.0,
        14.0,
    ),
    "ernie-4.5-21b-a3b": Published(
        published(
            "ernie4_5_moe",
            (28, 2560, 20, 4, 12288, 103424),
            moe_num_experts=64,
            moe_k=6,
            moe_intermediate_size=1536,
            moe_num_shared_experts=2,
            moe_layer_start_index=1,
        ),
        21.8,
        3.0,
    ),
    "ernie-4.5-300b-a47b": Published(
        published(
            "ernie4_5_moe",
            (54, 8192, 64, 8, 28672, 103424),
            tie_word_embeddings=False,
            moe_num_experts=64,
            moe_k=8,
            moe_intermediate_size=3584,
            moe_num_shared_experts=0,
            moe_layer_start_index=3,
        ),
        300.0,
        47.0,
    ),
    "hunyuan-a13b": Published(
        published(
            "hunyuan_v1_moe",
            (32, 4096, 32, 8, 3072, 128167),
            head_dim=128,
            tie_word_embeddings=True,
            num_experts=64,
            moe_topk=[8] * 32,
        ),
        80.4,
        13.0,
    ),
    "phi-3.5-moe": Published(
        published(
            "phimoe",
            (32, 4096, 32, 8, 6400, 32064),
            attention_bias=True,
            sliding_window=131072,
            num_local_experts=16,
            num_experts_per_tok=2,
        ),
        41.9,
        6.6,
    ),
    "granite-3.1-3b-a800m": Published(
        published(
            "granitemoe",
            (32, 1536, 24, 8, 512, 49155),
            tie_word_embeddings=True,
            num_local_experts=40,
            num_experts_per_tok=8,
        ),
        3.3,
    ),
    "ling-1t": Published(
        published(
            "bailing_moe_v2",
            (80, 8192, 64, 8, 18432, 157184),
            head_dim=128,
            use_qk_norm=True,
            **qwen_experts(256, 8, 2048, num_shared_experts=1, first_k_dense_replace=4),
        ),
        1000.0,
        50.0,
    ),
    "qwen3-vl-235b-a22b": Published(
        published(
            "qwen3_vl_moe_text",
            (94, 4096, 64, 4, 12288, 151936),
            head_dim=128,
            **qwen_experts(128, 8, 1536),
        ),
        235.1,
        22.2,
    ),
    "mistral-large-3": Published(
        published(
            "deepseek_v3",
            (61, 7168, 128, 128, 16384, 131072),
            **_DSV3,
            **experts(128, 4, 4096, n_shared_experts=1, first_k_dense_replace=3),
        ),
        673.0,
        39.0,
    ),
}
