"""Options of Megatron-LM for layers that are not those of a plain transformer.

Gated delta net and an indexer are variants of attention in ``GPTModel`` (from 0.16 on).  State spaces need
``HybridModel`` (``MambaModel`` before 0.18), whose layers are blocks that one symbol each stands for, stage by
stage from 0.17 on (``megatron/core/models/hybrid/hybrid_layer_allocation.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Final

from app.exports.contract import unsupported
from app.exports.megatron_flags import Flag, pattern
from app.exports.megatron_releases import SINCE, generation_with, has, release_name
from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import AttentionGate, Mixer, ModelPart
from cluster_models.model.patterns import blocks_of
from cluster_models.training.layer_splits import LayerSplit, split_of
from cluster_models.training.plan import Configuration

_PATTERN, _OLD_PATTERN = "--hybrid-layer-pattern", "--hybrid-override-pattern"
_EXPERTS_SINCE: Final = 16
"""Release from which blocks of hybrid models may be experts."""
UNTOLD: Final = frozenset(ModelPart) - {
    ModelPart.MAMBA_2,
    ModelPart.GATED_DELTA_NET,
    ModelPart.ATTENTION_GATE,
    ModelPart.SPARSE_ATTENTION,
    ModelPart.LATENT_EXPERTS,
}
"""Parts of models that no release is told."""


def is_hybrid(model: Architecture) -> bool:
    """Whether the model's layers are written as a pattern of blocks."""
    return model.state_space is not None


def refuse_untold(model: Architecture) -> None:
    """Raise ``InvalidConfiguration`` for a model with parts that Megatron-LM has not."""
    parts = sorted(model.parts & UNTOLD)
    if parts:
        raise unsupported(
            "Megatron-LM",
            "model",
            model.name,
            f"it has no {', '.join(parts).replace('_', ' ')}",
            "plan with framework transformers-2025",
        )


def variant_flags(model: Architecture) -> Iterator[Flag]:
    """Arguments of linear attention, of the gate on attention, of an indexer and of latent experts."""
    if (linear := model.linear_attention) is not None:
        yield Flag("--experimental-attention-variant", "gated_delta_net")
        yield Flag("--linear-attention-freq", pattern(kind.mixer is Mixer.LINEAR for kind in model.layer_pattern))
        yield Flag("--linear-conv-kernel-dim", linear.convolution)
        yield Flag("--linear-key-head-dim", linear.key_head_size)
        yield Flag("--linear-value-head-dim", linear.value_head_size)
        yield Flag("--linear-num-key-heads", linear.key_heads)
        yield Flag("--linear-num-value-heads", linear.value_heads)
    if model.attention_gate is AttentionGate.ELEMENT:
        yield Flag("--attention-output-gate")
    if (sparse := model.sparse_attention) is not None:
        yield Flag("--experimental-attention-variant", "dsa")
        yield Flag("--dsa-indexer-n-heads", sparse.heads)
        yield Flag("--dsa-indexer-head-dim", sparse.head_size)
        yield Flag("--dsa-indexer-topk", sparse.top_k)
    if model.experts is not None and model.experts.latent:
        yield Flag("--moe-latent-size", model.experts.latent)
    if (space := model.state_space) is not None:
        yield Flag("--mamba-state-dim", space.state)
        yield Flag("--mamba-head-dim", space.head_size)
        yield Flag("--mamba-num-groups", space.groups)
        if space.inner != 2 * model.hidden:
            yield Flag("--mamba-num-heads", space.heads)


def pattern_flags(model: Architecture, configuration: Configuration, release: int) -> list[Flag]:
    """The pattern of blocks, cut into stages; raises ``InvalidConfiguration`` where the release has none.

    Before 0.17 every rank holds as many blocks as any other, without virtual stages.
    """
    name, rows, blocks = release_name(release), configuration.stage_layers, blocks_of(model)
    if blocks is None:
        remedy = "plan with framework transformers-2025"
        raise unsupported(name, "model", model.name, "its layers are not single blocks as Nemotron-H's", remedy)
    if "E" in blocks and release < _EXPERTS_SINCE:
        remedy = f"plan with framework {generation_with(_EXPERTS_SINCE)}, or a newer one"
        raise unsupported(name, "model", model.name, f"blocks of experts came with 0.{_EXPERTS_SINCE}", remedy)
    if model.prediction_layers:
        problem = "the pattern of multi-token prediction is the owner's to give"
        raise unsupported(name, "model.prediction_layers", model.prediction_layers, problem, "set it to 0")
    if has(release, _PATTERN):
        ends = list(accumulate((count for row in rows for count in row), initial=0))
        return [Flag(_PATTERN, "|".join(blocks[first:end] for first, end in pairwise(ends)))]
    if split_of(rows) is not LayerSplit.EVEN or len(rows) > 1:
        problem = f"uneven and virtual stages of hybrid models came with 0.{SINCE[_PATTERN]}"
        remedy = f"plan with framework {generation_with(SINCE[_PATTERN])}, or with even stages"
        raise unsupported(name, "stage_layers", rows, problem, remedy)
    return [Flag("--num-layers", model.layers), Flag(_OLD_PATTERN, blocks), Flag("--is-hybrid-model")]
