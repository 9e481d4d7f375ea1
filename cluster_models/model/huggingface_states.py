"""Families with state spaces or short convolutions; see ``huggingface_hybrids``."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cluster_models.errors import InvalidModel
from cluster_models.model.huggingface_dense import HUNYUAN, LLAMA
from cluster_models.model.huggingface_keys import Config, ExpertKeys, Family, Flag, Parts
from cluster_models.model.huggingface_layers import mixers_of
from cluster_models.model.huggingface_values import count, flag, whole_numbers
from cluster_models.model.layer_kinds import Mixer, Mlp
from cluster_models.model.mixers import StateSpace


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
    mixers = mixers_of(config, layers, others)
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
        mixers = mixers_of(config, layers, {"conv": Mixer.CONVOLUTION})
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

STATES: Final = (_FALCON_H1, _GRANITE_HYBRID, _BAMBA, _JAMBA, _NEMOTRON_H, _LFM2, _LFM2_MOE)
"""Every family of this page."""
