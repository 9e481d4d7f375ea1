"""The model as Megatron-LM's arguments: widths, heads, attention, experts, as far as the catalogue knows them."""

from __future__ import annotations

from collections.abc import Iterator

from app.exports.megatron_flags import Flag, pattern
from app.exports.megatron_hybrid import is_hybrid, refuse_untold, variant_flags
from app.exports.megatron_releases import has
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.training.workload import TrainingWorkload

HYBRID_SCRIPT = "pretrain_mamba.py (pretrain_hybrid.py from 0.18 on)"
_ROTATION = "the base of the rotation (--rotary-base)"


def model_flags(model: Architecture, workload: TrainingWorkload, release: int) -> list[Flag]:
    """Arguments that make the model what it is; its experts are in ``expert_flags``."""
    refuse_untold(model)
    flags = [
        *([] if is_hybrid(model) else [Flag("--num-layers", model.layers)]),
        Flag("--hidden-size", model.hidden),
        Flag("--num-attention-heads", model.heads),
        Flag("--vocab-size", model.vocabulary),
        Flag("--seq-length", workload.sequence_length),
        Flag("--max-position-embeddings", model.learned_positions or workload.sequence_length),
        Flag("--position-embedding-type", "learned_absolute" if model.learned_positions else "rope"),
        Flag("--normalization", "LayerNorm" if model.norm_vectors > 1 else "RMSNorm"),
    ]
    width = _dense_width(model, release)
    flags += [Flag("--ffn-hidden-size", width)] * bool(width)
    flags += [Flag("--swiglu")] * model.gated_mlp
    flags += [Flag("--untie-embeddings-and-output-weights")] * (not model.tied_embeddings)
    if not model.mlp_bias:
        flags.append(Flag("--disable-bias-linear"))
        flags += [Flag("--add-qkv-bias")] * model.attention_bias
    if not (workload.framework.dropout and model.learned_positions):
        flags += [Flag("--hidden-dropout", "0.0"), Flag("--attention-dropout", "0.0")]
    flags += [Flag("--qk-layernorm")] * (model.query_key_norm_parameters > 0)
    flags += [Flag("--mtp-num-layers", model.prediction_layers)] * (model.prediction_layers > 0)
    return [*flags, *_attention(model), *variant_flags(model)]


def expert_flags(experts: Experts, model: Architecture, release: int) -> list[Flag]:
    """Flags of the experts of a layer, and of the layers that have them."""
    flags = [Flag("--num-experts", experts.count), Flag("--moe-router-topk", experts.active)]
    if has(release, "--moe-ffn-hidden-size") or experts.hidden != _dense_width(model, release):
        flags.append(Flag("--moe-ffn-hidden-size", experts.hidden))
    if not all(model.sparse_pattern) and not is_hybrid(model):
        flags.append(Flag("--moe-layer-freq", pattern(model.sparse_pattern)))
    if experts.shared_hidden:
        flags.append(Flag("--moe-shared-expert-intermediate-size", experts.shared_hidden))
    if experts.shared_gate:
        flags.append(Flag("--moe-shared-expert-gate", priced="the gate of shared experts"))
    if experts.router_groups > 1:
        flags += [
            Flag("--moe-router-num-groups", experts.router_groups),
            Flag("--moe-router-group-topk", experts.active_groups),
        ]
    return flags


def beside_the_model(model: Architecture) -> tuple[str, ...]:
    """Features of a model that no argument states, or only its owner knows."""
    found = [] if model.learned_positions else [_ROTATION]
    if is_hybrid(model):
        found.append(f"{HYBRID_SCRIPT} in place of pretrain_gpt.py, with the specification of its layers (--spec)")
    if model.chunked_window:
        found.append(f"attention in blocks of {model.sliding_window} tokens")
    if model.norms_per_block > 1:
        found.append(f"{model.norms_per_block} norms around each block")
    if model.norm_vectors == 0:
        found.append("norms without weights")
    if model.attention_output_bias and not model.mlp_bias:
        found.append("the bias of the attention output alone")
    if model.mlp_bias and not (model.attention_bias and model.attention_output_bias):
        found.append("biases of the MLP without those of attention")
    if model.experts is not None and model.experts.router_bias:
        found.append("the bias of the router")
    return tuple(found)


def _dense_width(model: Architecture, release: int) -> int:
    """The width of a dense MLP; where experts have no argument of their own, theirs stands for it."""
    if model.mlp_hidden or model.experts is None or has(release, "--moe-ffn-hidden-size"):
        return model.mlp_hidden
    return model.experts.hidden


def _attention(model: Architecture) -> Iterator[Flag]:
    if (latent := model.latent_attention) is not None:
        yield Flag("--multi-latent-attention")
        if latent.query_rank:
            yield Flag("--q-lora-rank", latent.query_rank)
        yield Flag("--kv-lora-rank", latent.key_value_rank)
        yield Flag("--qk-head-dim", latent.nope_head_size)
        yield Flag("--qk-pos-emb-head-dim", latent.rope_head_size)
        yield Flag("--v-head-dim", latent.value_head_size)
    else:
        yield Flag("--kv-channels", model.head_size)
        if model.kv_heads < model.heads:
            yield Flag("--group-query-attention")
            yield Flag("--num-query-groups", model.kv_heads)
    if model.sliding_window is not None and not model.chunked_window:
        # Megatron counts the tokens before the one that attends; 0 after it.
        window = "attention within a window"
        yield Flag("--window-size", f"{model.sliding_window - 1},0", priced=window)
        if not all(model.windowed_pattern):
            yield Flag("--window-attn-skip-freq", pattern(model.windowed_pattern), priced=window)
    if model.attention_sinks:
        yield Flag("--softmax-type", "learnable", priced="attention sinks")
