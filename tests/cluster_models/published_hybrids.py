"""Published models that are not plain transformers; see ``published_models``."""

from __future__ import annotations

from tests.cluster_models.huggingface_configs import published
from tests.cluster_models.published_models import DENSE_AND_SPARSE, Published, delta, experts, latent, qwen_experts

_NEMOTRON_NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
_NEMOTRON_9B = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
_NEMOTRON_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
_GRANITE_SMALL = (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4

HYBRIDS: dict[str, Published] = {
    # windows with heads of their own
    "step-3.5-flash": Published(
        published(
            "step3p5",
            (45, 4096, 64, 8, 11264, 128896),
            head_dim=128,
            num_attention_groups=8,
            layer_types=(["full_attention"] + ["sliding_attention"] * 3) * 11 + ["full_attention"],
            sliding_window=512,
            attention_other_setting={"num_attention_heads": 96, "num_attention_groups": 8, "head_dim": 128},
            moe_num_experts=288,
            moe_top_k=8,
            moe_intermediate_size=1280,
            share_expert_dim=1280,
            moe_layers_enum=",".join(map(str, range(3, 45))),
        ),
        196.0,
        11.0,
    ),
    "mimo-v2-flash": Published(
        published(
            "mimo_v2_flash",
            (48, 4096, 64, 4, 16384, 152576),
            head_dim=192,
            v_head_dim=128,
            sliding_window=128,
            swa_num_key_value_heads=8,
            hybrid_layer_pattern=[int(layer > 0 and (layer + 1) % 6 != 0) for layer in range(48)],
            moe_layer_freq=[0] + [1] * 47,
            **experts(256, 8, 2048),
        ),
        309.0,
        15.0,
    ),
    # linear attention
    "qwen3-next-80b-a3b": Published(
        published(
            "qwen3_next",
            (48, 2048, 16, 2, 5120, 151936),
            head_dim=256,
            **delta(16, 32),
            **qwen_experts(512, 10, 512, shared_expert_intermediate_size=512),
        ),
        79.7,
        3.9,
    ),
    "qwen3.5-397b-a17b": Published(
        published(
            "qwen3_5_moe_text",
            (60, 4096, 32, 2, 0, 248320),
            head_dim=256,
            **delta(16, 64),
            **qwen_experts(512, 10, 1024, shared_expert_intermediate_size=1024),
        )
        | {"intermediate_size": None},
        397.0,
        17.0,
    ),
    "qwen3.5-27b": Published(
        published("qwen3_5_text", (64, 5120, 24, 4, 17408, 248320), head_dim=256, **delta(16, 48)), 27.0
    ),
    "kimi-linear-48b-a3b": Published(
        published(
            "kimi_linear",
            (27, 2304, 32, 32, 9216, 163840),
            **latent(None, 512, 64, 128, 128),
            num_experts=256,
            num_experts_per_token=8,
            moe_intermediate_size=1024,
            num_shared_experts=1,
            first_k_dense_replace=1,
            linear_attn_config={
                "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
                "num_heads": 32,
                "head_dim": 128,
                "short_conv_kernel_size": 4,
            },
        ),
        49.1,
        3.0,
    ),
    "minimax-text-01": Published(
        published(
            "minimax_text_01",
            (80, 6144, 64, 8, 9216, 200064),
            head_dim=128,
            attn_type_list=([0] * 7 + [1]) * 10,
            num_local_experts=32,
            num_experts_per_tok=2,
        ),
        456.0,
        45.9,
    ),
    # state spaces
    "nemotron-h-8b": Published(
        published(
            "nemotron_h",
            (52, 4096, 32, 8, 21504, 131072),
            head_dim=128,
            hybrid_override_pattern=_NEMOTRON_8B,
            mamba_num_heads=128,
            mamba_head_dim=64,
            ssm_state_size=128,
            n_groups=8,
            conv_kernel=4,
        ),
        8.1,
    ),
    "nemotron-nano-9b-v2": Published(
        published(
            "nemotron_h",
            (56, 4480, 40, 8, 15680, 131072),
            head_dim=128,
            hybrid_override_pattern=_NEMOTRON_9B,
            mamba_num_heads=128,
            mamba_head_dim=80,
            ssm_state_size=128,
            n_groups=8,
            conv_kernel=4,
        ),
        8.89,
    ),
    "nemotron-3-nano-30b-a3b": Published(
        published(
            "nemotron_h",
            (52, 2688, 32, 2, 1856, 131072),
            head_dim=128,
            hybrid_override_pattern=_NEMOTRON_NANO,
            mamba_num_heads=64,
            mamba_head_dim=64,
            ssm_state_size=128,
            n_groups=8,
            conv_kernel=4,
            **experts(128, 6, 1856, n_shared_experts=1, moe_shared_expert_intermediate_size=3712),
        ),
        31.6,
        3.6,
    ),
    "falcon-h1-7b": Published(
        published(
            "falcon_h1",
            (44, 3072, 12, 2, 12288, 130049),
            head_dim=128,
            mamba_d_ssm=3072,
            mamba_n_heads=24,
            mamba_d_head=128,
            mamba_d_state=256,
            mamba_n_groups=1,
        ),
        7.59,
    ),
    "falcon-h1-34b": Published(
        published(
            "falcon_h1",
            (72, 5120, 20, 4, 21504, 261120),
            head_dim=128,
            mamba_d_ssm=4096,
            mamba_n_heads=32,
            mamba_d_head=128,
            mamba_d_state=256,
            mamba_n_groups=2,
        ),
        33.6,
    ),
    "jamba-v0.1": Published(
        published(
            "jamba",
            (32, 4096, 32, 8, 14336, 65536),
            num_experts=16,
            num_experts_per_tok=2,
            attn_layer_period=8,
            attn_layer_offset=4,
            expert_layer_period=2,
            expert_layer_offset=1,
            mamba_d_state=16,
            mamba_dt_rank=256,
        ),
        51.6,
        12.0,
    ),
    "granite-4.0-h-small": Published(
        published(
            "granitemoehybrid",
            (40, 4096, 32, 8, 768, 100352),
            tie_word_embeddings=True,
            layer_types=_GRANITE_SMALL,
            mamba_n_heads=128,
            mamba_d_head=64,
            mamba_d_state=128,
            mamba_n_groups=1,
            num_local_experts=72,
            num_experts_per_tok=10,
            shared_intermediate_size=1536,
        ),
        32.2,
        9.0,
    ),
    "granite-4.0-h-micro": Published(
        published(
            "granitemoehybrid",
            (40, 2048, 32, 8, 8192, 100352),
            tie_word_embeddings=True,
            layer_types=_GRANITE_SMALL,
            mamba_n_heads=64,
            mamba_d_head=64,
            mamba_d_state=128,
            mamba_n_groups=1,
            num_local_experts=0,
            shared_intermediate_size=8192,
        ),
        3.19,
    ),
    # convolutions
    "lfm2-1.2b": Published(
        published(
            "lfm2",
            (16, 2048, 32, 8, 12288, 65536),
            block_ff_dim=12288,
            conv_L_cache=3,
            block_multiple_of=256,
            block_ffn_dim_multiplier=1.0,
            full_attn_idxs=[2, 5, 8, 10, 12, 14],
        ),
        1.17,
    ),
    "lfm2-8b-a1b": Published(
        published(
            "lfm2_moe",
            (24, 2048, 32, 8, 7168, 65536),
            conv_L_cache=3,
            num_dense_layers=2,
            layer_types=["full_attention" if layer in (2, 6, 10, 14, 18, 21) else "conv" for layer in range(24)],
            **qwen_experts(32, 4, 1792),
        ),
        8.3,
        1.5,
    ),
}
MODELS = DENSE_AND_SPARSE | HYBRIDS
