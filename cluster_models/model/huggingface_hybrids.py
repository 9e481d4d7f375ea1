"""Families with linear attention, indexers or heads that differ between layers.

Facts that no single key gives are read by a function of the file and the number of layers.  Source: as in
``huggingface_dense``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.huggingface_dense import BIAS, OLMO2, QWEN3
from cluster_models.model.huggingface_keys import Config, ExpertKeys, Family, Parts, QueryKeyNorm, WindowKeys
from cluster_models.model.huggingface_layers import mixers_of
from cluster_models.model.huggingface_sparse import DEEPSEEK_V3, QWEN3_MOE, QWEN_EXPERTS, ROUTED
from cluster_models.model.huggingface_values import count, whole_numbers
from cluster_models.model.layer_kinds import AttentionGate, Mixer, Mlp
from cluster_models.model.mixers import LinearAttention, LinearRule, SparseAttention, WindowHeads


def _delta_net(config: Config, layers: int) -> Parts:
    period = count(config, "full_attention_interval", default=4)
    return Parts(
        mixers=mixers_of(config, layers, {"linear_attention": Mixer.LINEAR}, period=period),
        linear_attention=LinearAttention(
            LinearRule.GATED_DELTA,
            key_heads=count(config, "linear_num_key_heads"),
            value_heads=count(config, "linear_num_value_heads"),
            key_head_size=count(config, "linear_key_head_dim"),
            value_head_size=count(config, "linear_value_head_dim"),
            convolution=count(config, "linear_conv_kernel_dim", default=4),
        ),
    )


_QWEN3_NEXT: Final = replace(
    QWEN3_MOE,
    model_type="qwen3_next",
    aliases=("Qwen3NextForCausalLM", "qwen3_5_moe", "qwen3_5_moe_text"),
    mlp_hidden="intermediate_size",
    mlp_hidden_optional=True,
    attention_gate=AttentionGate.ELEMENT,
    window=None,
    experts=replace(QWEN_EXPERTS, shared_hidden="shared_expert_intermediate_size", shared_gate=True),
    parts=_delta_net,
    prediction_layers="mtp_num_hidden_layers",
)
_QWEN3_5: Final = replace(
    QWEN3,
    model_type="qwen3_5",
    aliases=("qwen3_5_text", "Qwen3_5ForCausalLM"),
    attention_gate=AttentionGate.ELEMENT,
    window=None,
    parts=_delta_net,
    prediction_layers="mtp_num_hidden_layers",
)
_OLMO_HYBRID: Final = replace(
    OLMO2,
    model_type="olmo_hybrid",
    aliases=("OlmoHybridForCausalLM",),
    parts=_delta_net,
)


def _kimi_delta(config: Config, layers: int) -> Parts:
    own = config.get("linear_attn_config")
    linear: Config = own if isinstance(own, dict) else config
    mixers = [Mixer.LINEAR] * layers
    if config.get("layer_types") is not None:
        mixers = list(mixers_of(config, layers, {"linear_attention": Mixer.LINEAR}))
    else:
        for layer in whole_numbers(linear, "full_attn_layers") or range(4, layers + 1, 4):
            if 1 <= layer <= layers:
                mixers[layer - 1] = Mixer.FULL
    heads = count(linear, "num_heads" if own else "linear_num_heads")
    size = count(linear, "head_dim" if own else "linear_head_dim")
    taps = count(linear, "short_conv_kernel_size" if own else "linear_conv_kernel_dim", default=4)
    return Parts(
        mixers=tuple(mixers),
        linear_attention=LinearAttention(
            LinearRule.CHANNEL_DELTA, heads, heads, size, size, convolution=taps, gate_rank=size, decay_rank=size
        ),
    )


_KIMI_LINEAR: Final = replace(
    DEEPSEEK_V3,
    model_type="kimi_linear",
    aliases=("KimiLinearForCausalLM",),
    experts=ExpertKeys(
        "num_experts",
        "num_experts_per_token",
        "moe_intermediate_size",
        shared_count="num_shared_experts",
        router_bias=True,
        groups="num_expert_group",
        active_groups="topk_group",
        first_key="first_k_dense_replace",
    ),
    parts=_kimi_delta,
)


def _bailing_delta(config: Config, layers: int) -> Parts:
    heads, size = count(config, "num_attention_heads"), count(config, "head_dim")
    period = count(config, "layer_group_size")
    taps = count(config, "short_conv_kernel_size", default=4)
    return Parts(
        mixers=mixers_of(config, layers, {"linear_attention": Mixer.LINEAR}, period=period),
        linear_attention=LinearAttention(LinearRule.CHANNEL_DELTA, heads, heads, size, size, convolution=taps),
    )


_BAILING_HYBRID: Final = replace(
    _KIMI_LINEAR,
    model_type="bailing_hybrid",
    aliases=("BailingHybridForCausalLM",),
    attention_gate=AttentionGate.HEAD,
    experts=replace(
        ROUTED,
        count="num_experts",
        active="num_experts_per_tok",
        shared_count="num_shared_experts",
        frequency_key=None,
    ),
    parts=_bailing_delta,
)


def _lightning(config: Config, layers: int) -> Parts:
    listed = whole_numbers(config, "attn_type_list")
    if listed is not None and len(listed) == layers:
        mixers = tuple(Mixer.FULL if one else Mixer.LINEAR for one in listed)
    else:
        mixers = mixers_of(config, layers, {"linear_attention": Mixer.LINEAR})
    heads = count(config, "num_attention_heads")
    size = count(config, "head_dim", default=count(config, "hidden_size") // heads)
    return Parts(mixers=mixers, linear_attention=LinearAttention(LinearRule.DECAY, heads, heads, size, size))


_MINIMAX: Final = Family(
    "minimax",
    ("minimax_m1", "minimax_text_01", "MiniMaxForCausalLM", "MiniMaxM1ForCausalLM", "MiniMaxText01ForCausalLM"),
    mlp_hidden=None,
    experts=ExpertKeys("num_local_experts", "num_experts_per_tok", "intermediate_size"),
    parts=_lightning,
)


def _indexed(config: Config, layers: int) -> Parts:
    kinds = config.get("indexer_types")
    if isinstance(kinds, list) and set(kinds) != {"full"}:
        raise InvalidModel("model.indexer_types", sorted(set(kinds)), "has layers that share an indexer")
    freq = count(config, "index_topk_freq", default=1)
    if freq > 1 or config.get("index_topk_pattern"):
        raise InvalidModel("model.index_topk_freq", freq, "has layers that share an indexer")
    del layers
    return Parts(
        sparse_attention=SparseAttention(
            heads=count(config, "index_n_heads"),
            head_size=count(config, "index_head_dim"),
            top_k=count(config, "index_topk"),
        )
    )


_DEEPSEEK_V32: Final = replace(
    DEEPSEEK_V3, model_type="deepseek_v32", aliases=("DeepseekV32ForCausalLM",), parts=_indexed
)
_GLM_DSA: Final = replace(
    DEEPSEEK_V3,
    model_type="glm_moe_dsa",
    aliases=("GlmMoeDsaForCausalLM",),
    experts=ROUTED,
    parts=_indexed,
)


def _step(config: Config, layers: int) -> Parts:
    other = config.get("attention_other_setting")
    own: Config = other if isinstance(other, dict) else config
    heads = count(own, "num_attention_heads")
    if config.get("num_sliding_attention_heads") is not None:
        heads = count(config, "num_sliding_attention_heads")
    groups = next(key for key in ("num_attention_groups", "num_key_value_heads") if config.get(key) is not None)
    size = count(config, "head_dim")
    mixers = mixers_of(config, layers, {})
    return Parts(
        mixers=mixers,
        window_heads=WindowHeads(heads, count(own, groups, default=count(config, groups)), size)
        if Mixer.WINDOW in mixers
        else None,
        mlps=_listed_experts(config, layers),
    )


def _listed_experts(config: Config, layers: int) -> tuple[Mlp, ...]:
    """Layers with experts of ``moe_layers_enum``, a text of numbers; empty where ``mlp_layer_types`` tells them."""
    listed = config.get("moe_layers_enum")
    if config.get("mlp_layer_types") is not None:
        return ()
    if not isinstance(listed, str):
        return (*[Mlp.DENSE] * min(3, layers), *[Mlp.EXPERTS] * (layers - 3))
    numbers = {int(one) for one in listed.split(",") if one.strip().isdigit()}
    return tuple(Mlp.EXPERTS if layer in numbers else Mlp.DENSE for layer in range(layers))


_STEP: Final = Family(
    "step3p5",
    ("Step3p5ForCausalLM", "step3p7_text"),
    kv_heads="num_attention_groups",
    head_size_required=True,
    query_key_norm=QueryKeyNorm.PER_HEAD,
    attention_gate=AttentionGate.HEAD,
    window=WindowKeys(),
    experts=ExpertKeys(
        "moe_num_experts",
        "moe_top_k",
        "moe_intermediate_size",
        shared_hidden="share_expert_dim",
        router_bias=True,
    ),
    parts=_step,
)


def _mimo(config: Config, layers: int) -> Parts:
    pattern = whole_numbers(config, "hybrid_layer_pattern")
    if pattern is not None and len(pattern) == layers:
        mixers = tuple(Mixer.WINDOW if one else Mixer.FULL for one in pattern)
    else:
        mixers = mixers_of(config, layers, {})
    sparse = whole_numbers(config, "moe_layer_freq")
    mlps: tuple[Mlp, ...] = ()
    if sparse is not None and len(sparse) == layers:
        mlps = tuple(Mlp.EXPERTS if one else Mlp.DENSE for one in sparse)
    size = count(config, "head_dim")
    return Parts(
        mixers=mixers,
        mlps=mlps,
        window_heads=WindowHeads(
            count(config, "swa_num_attention_heads", default=count(config, "num_attention_heads")),
            count(config, "swa_num_key_value_heads", default=count(config, "num_key_value_heads")),
            count(config, "swa_head_dim", default=size),
        ),
        value_head_size=count(config, "v_head_dim", default=size),
    )


_MIMO: Final = Family(
    "mimo_v2_flash",
    ("MiMoV2FlashForCausalLM", "mimo_v2"),
    head_size_required=True,
    attention_bias=BIAS,
    window=WindowKeys(),
    experts=replace(ROUTED, first_key=None, frequency_key=None, first=1),
    parts=_mimo,
    assumed="windowed attention has no sinks (a weight a head)",
)

_DELTA: Final = (_QWEN3_NEXT, _QWEN3_5, _OLMO_HYBRID, _KIMI_LINEAR, _BAILING_HYBRID, _MINIMAX)
_OTHERS: Final = (_DEEPSEEK_V32, _GLM_DSA, _STEP, _MIMO)

HYBRIDS: Final = _DELTA + _OTHERS
"""Every family of this page."""
