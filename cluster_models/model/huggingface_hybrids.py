"""Families with linear attention, state spaces, convolutions, indexers or heads that differ between layers.

What no single key tells is read by a function of the file and the number of layers.  Source: as in
``huggingface_dense``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.huggingface_dense import BIAS, HUNYUAN, LLAMA, OLMO2, QWEN3
from cluster_models.model.huggingface_keys import Config, ExpertKeys, Family, Flag, Parts, QueryKeyNorm, WindowKeys
from cluster_models.model.huggingface_sparse import DEEPSEEK_V3, QWEN3_MOE, QWEN_EXPERTS, ROUTED
from cluster_models.model.huggingface_values import count, flag, layer_types, whole_numbers
from cluster_models.model.layer_kinds import AttentionGate, Mixer, Mlp
from cluster_models.model.mixers import LinearAttention, LinearRule, SparseAttention, StateSpace, WindowHeads

_ATTENTION: Final = {
    "full_attention": Mixer.FULL,
    "attention": Mixer.FULL,
    "sliding_attention": Mixer.WINDOW,
}


def _mixers(
    config: Config, layers: int, others: dict[str, Mixer], *, key: str = "layer_types", period: int = 0
) -> tuple[Mixer, ...]:
    """The mixer of each layer by the list under ``key``, or without it attention every ``period`` layers.

    Raises ``InvalidModel`` for a kind of layer that is neither attention nor one of ``others``.
    """
    if config.get(key) is not None:
        return tuple((_ATTENTION | others)[kind] for kind in layer_types(config, layers, _ATTENTION | others, key))
    if not period:
        raise InvalidModel(f"model.{key}", None, f"must list the kind of each of the {layers} layers")
    other = next(iter(others.values()))
    return tuple(Mixer.FULL if (layer + 1) % period == 0 else other for layer in range(layers))


def _delta_net(config: Config, layers: int) -> Parts:
    period = count(config, "full_attention_interval", default=4)
    return Parts(
        mixers=_mixers(config, layers, {"linear_attention": Mixer.LINEAR}, period=period),
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
        mixers = list(_mixers(config, layers, {"linear_attention": Mixer.LINEAR}))
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
        mixers=_mixers(config, layers, {"linear_attention": Mixer.LINEAR}, period=period),
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
        mixers = _mixers(config, layers, {"linear_attention": Mixer.LINEAR})
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


def _mamba2(config: Config, prefix: str, *, inner: int, norm: bool) -> StateSpace:
    """A Mamba-2 mixer whose keys begin with ``prefix``."""
    heads = count(config, f"{prefix}n_heads")
    size = config.get(f"{prefix}d_head")
    return StateSpace(
        heads=heads,
        head_size=inner // heads if size in (None, "auto") else count(config, f"{prefix}d_head"),
        state=count(config, f"{prefix}d_state"),
        groups=count(config, f"{prefix}n_groups", default=1),
        convolution=count(config, f"{prefix}d_conv", default=4),
        convolution_bias=flag(config, Flag(f"{prefix}conv_bias", default=True)),
        projection_bias=flag(config, Flag(f"{prefix}proj_bias", default=False)),
        norm=norm,
    )


def _falcon_h1(config: Config, layers: int) -> Parts:
    del layers
    own = config.get("mamba_d_ssm")
    expanded = count(config, "mamba_expand", default=2) * count(config, "hidden_size")
    inner = expanded if own is None else count(config, "mamba_d_ssm")
    norm = flag(config, Flag("mamba_rms_norm", default=False))
    return Parts(mixers=(Mixer.PARALLEL,), state_space=_mamba2(config, "mamba_", inner=inner, norm=norm))


_FALCON_H1: Final = replace(LLAMA, model_type="falcon_h1", aliases=("FalconH1ForCausalLM",), parts=_falcon_h1)


def _granite_hybrid(config: Config, layers: int) -> Parts:
    others = {"mamba": Mixer.STATE_SPACE, "linear_attention": Mixer.STATE_SPACE}
    mixers = _mixers(config, layers, others)
    inner = count(config, "mamba_expand", default=2) * count(config, "hidden_size")
    space = _mamba2(config, "mamba_", inner=inner, norm=True) if Mixer.STATE_SPACE in mixers else None
    return Parts(mixers=mixers, state_space=space, mlp_hidden=count(config, "shared_intermediate_size"))


_GRANITE_HYBRID: Final = replace(
    LLAMA,
    model_type="granitemoehybrid",
    aliases=("GraniteMoeHybridForCausalLM",),
    mlp_hidden=None,
    mlp_bias=False,
    experts=ExpertKeys(
        "num_local_experts",
        "num_experts_per_tok",
        "intermediate_size",
        optional=True,
        shared_hidden="shared_intermediate_size",
    ),
    parts=_granite_hybrid,
)


def _bamba(config: Config, layers: int) -> Parts:
    attending = whole_numbers(config, "attn_layer_indices") or ()
    mixers = tuple(Mixer.FULL if layer in attending else Mixer.STATE_SPACE for layer in range(layers))
    inner = count(config, "mamba_expand", default=2) * count(config, "hidden_size")
    return Parts(mixers=mixers, state_space=_mamba2(config, "mamba_", inner=inner, norm=True))


_BAMBA: Final = replace(LLAMA, model_type="bamba", aliases=("BambaForCausalLM",), parts=_bamba)


def _jamba(config: Config, layers: int) -> Parts:
    period, offset = count(config, "attn_layer_period"), count(config, "attn_layer_offset", least=0)
    each, first = count(config, "expert_layer_period"), count(config, "expert_layer_offset", least=0)
    inner = count(config, "mamba_expand", default=2) * count(config, "hidden_size")
    rank = config.get("mamba_dt_rank")
    numbers = range(layers)
    return Parts(
        mixers=tuple(Mixer.FULL if layer % period == offset else Mixer.STATE_SPACE for layer in numbers),
        mlps=tuple(Mlp.EXPERTS if layer % each == first else Mlp.DENSE for layer in numbers),
        state_space=StateSpace(
            heads=inner,
            head_size=1,
            state=count(config, "mamba_d_state"),
            convolution=count(config, "mamba_d_conv", default=4),
            convolution_bias=flag(config, Flag("mamba_conv_bias", default=True)),
            projection_bias=flag(config, Flag("mamba_proj_bias", default=False)),
            step_rank=-(-count(config, "hidden_size") // 16)
            if rank in (None, "auto")
            else count(config, "mamba_dt_rank"),
        ),
    )


_JAMBA: Final = Family(
    "jamba",
    ("JambaForCausalLM",),
    experts=ExpertKeys("num_experts", "num_experts_per_tok", "intermediate_size"),
    parts=_jamba,
)
_BLOCKS: Final = {
    "M": (Mixer.STATE_SPACE, Mlp.NONE),
    "*": (Mixer.FULL, Mlp.NONE),
    "-": (Mixer.NONE, Mlp.DENSE),
    "E": (Mixer.NONE, Mlp.EXPERTS),
}
"""Symbols of ``hybrid_override_pattern``: each layer is a mixer or an MLP alone."""
_BLOCK_NAMES: Final = {
    "mamba": "M",
    "linear_attention": "M",
    "attention": "*",
    "full_attention": "*",
    "mlp": "-",
    "moe": "E",
}


def _nemotron_h(config: Config, layers: int) -> Parts:
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        symbols = list(pattern)
    else:
        named = config.get("layers_block_type") or config.get("layer_types")
        symbols = [_BLOCK_NAMES.get(str(one), str(one)) for one in named] if isinstance(named, list) else []
    unknown = sorted(set(symbols) - set(_BLOCKS))
    if unknown or not symbols:
        raise InvalidModel(
            "model.hybrid_override_pattern", unknown or None, f"must be made of {' '.join(_BLOCKS)}, one a layer"
        )
    del layers
    prefixed = {"n_groups": "mamba_n_groups", "conv_kernel": "mamba_d_conv"}
    own = {key: old if config.get(old) is not None else key for key, old in prefixed.items()}
    return Parts(
        layers=len(symbols),
        mixers=tuple(_BLOCKS[symbol][0] for symbol in symbols),
        mlps=tuple(_BLOCKS[symbol][1] for symbol in symbols),
        state_space=StateSpace(
            heads=count(config, "mamba_num_heads"),
            head_size=count(config, "mamba_head_dim"),
            state=count(config, "ssm_state_size"),
            groups=count(config, own["n_groups"]),
            convolution=count(config, own["conv_kernel"], default=4),
            convolution_bias=flag(config, Flag("use_conv_bias", default=True)),
            projection_bias=flag(config, Flag("use_bias", default=False)),
        )
        if "M" in symbols
        else None,
    )


_NEMOTRON_H: Final = Family(
    "nemotron_h",
    ("NemotronHForCausalLM",),
    layers_optional=True,
    head_size="head_dim",
    gated_mlp=False,
    mlp_bias=Flag("mlp_bias", default=False),
    experts=ExpertKeys(
        "n_routed_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        optional=True,
        shared_count="n_shared_experts",
        shared_each_key="moe_shared_expert_intermediate_size",
        router_bias=True,
        groups="n_group",
        active_groups="topk_group",
        latent_key="moe_latent_size",
    ),
    parts=_nemotron_h,
)


def _short_convolution(config: Config, layers: int) -> Parts:
    attending = whole_numbers(config, "full_attn_idxs")
    if config.get("layer_types") is None and attending is not None:
        mixers = tuple(Mixer.FULL if layer in attending else Mixer.CONVOLUTION for layer in range(layers))
    else:
        mixers = _mixers(config, layers, {"conv": Mixer.CONVOLUTION})
    return Parts(mixers=mixers, short_convolution=count(config, "conv_L_cache"), mlp_hidden=_liquid_width(config))


def _liquid_width(config: Config) -> int:
    """Width of LFM2's MLP: two thirds of what is stated, rounded up, unless the file says not to."""
    stated = count(config, "block_ff_dim" if config.get("block_ff_dim") is not None else "intermediate_size")
    adjusts = flag(config, Flag("block_auto_adjust_ff_dim", default=config.get("num_experts") is None))
    if not adjusts:
        return stated
    factor = config.get("block_ffn_dim_multiplier")
    width = 2 * stated // 3
    width = int(float(factor) * width) if isinstance(factor, int | float) else width
    multiple = count(config, "block_multiple_of", default=256)
    return -(-width // multiple) * multiple


_LFM2: Final = replace(
    HUNYUAN,
    model_type="lfm2",
    aliases=("Lfm2ForCausalLM",),
    attention_bias=False,
    attention_output_bias=False,
    tied_embeddings=Flag("tie_embedding", default=True),
    mlp_hidden=None,
    parts=_short_convolution,
)
_LFM2_MOE: Final = replace(
    _LFM2,
    model_type="lfm2_moe",
    aliases=("Lfm2MoeForCausalLM",),
    experts=ExpertKeys(
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        router_bias=True,
        first_key="num_dense_layers",
    ),
)


def _step(config: Config, layers: int) -> Parts:
    other = config.get("attention_other_setting")
    own: Config = other if isinstance(other, dict) else config
    heads = count(own, "num_attention_heads")
    if config.get("num_sliding_attention_heads") is not None:
        heads = count(config, "num_sliding_attention_heads")
    groups = next(key for key in ("num_attention_groups", "num_key_value_heads") if config.get(key) is not None)
    size = count(config, "head_dim")
    mixers = _mixers(config, layers, {})
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
        mixers = _mixers(config, layers, {})
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
_SPACES: Final = (_FALCON_H1, _GRANITE_HYBRID, _BAMBA, _JAMBA, _NEMOTRON_H)
_OTHERS: Final = (_DEEPSEEK_V32, _GLM_DSA, _LFM2, _LFM2_MOE, _STEP, _MIMO)

HYBRIDS: Final = _DELTA + _SPACES + _OTHERS
"""Every family of this page."""
