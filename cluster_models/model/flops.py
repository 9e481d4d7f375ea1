"""FLOPs of the matrix products of a transformer, per token.

A product of (m, k) by (k, n) costs 2mkn FLOPs; what is left out (norms, softmax, activations, rotary
embedding, optimizer) is bound by memory.  Same terms as Narayanan et al. 2021 (arXiv 2104.04473, appendix),
generalised to grouped-query and latent attention, gated MLPs and experts.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Final

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import LayerKind, Mixer, Mlp
from cluster_models.model.mixers import LinearRule

BACKWARD_TO_FORWARD: Final = 2
"""The backward pass multiplies twice per forward product: for the inputs and for the weights."""


class AttentionCount(StrEnum):
    """How many keys a query meets by this count."""

    CAUSAL = "causal"
    """Only the earlier ones, as fused attention kernels compute it: the convention for time."""
    FULL = "full"
    """All of the sequence (or window), masked or not: the convention of the Megatron papers
    (arXiv 2104.04473, appendix) and of PaLM's MFU (arXiv 2204.02311, appendix B), for comparison with
    published figures."""


@dataclass(frozen=True, slots=True)
class ForwardFlops:
    """Forward FLOPs of one token by part; ``routed_experts`` counts the active experts only."""

    attention_projections: float = 0.0
    """The products around any mixer."""
    attention_scores: float = 0.0
    """FLOPs of queries, keys and values; where an indexer picks tokens, its own too."""
    recurrence: float = 0.0
    """Updates and reads of the states of linear attention and state spaces, and convolutions."""
    dense_mlp: float = 0.0
    router: float = 0.0
    routed_experts: float = 0.0
    shared_experts: float = 0.0
    head: float = 0.0

    @property
    def total(self) -> float:
        """Sum of the parts."""
        return float(sum(getattr(self, part.name) for part in fields(self)))


def mean_attention_span(
    architecture: Architecture,
    sequence_length: int,
    *,
    windowed: bool,
    attention: AttentionCount = AttentionCount.CAUSAL,
) -> float:
    """Keys that a query meets, itself included, averaged over a sequence.

    Causal, by summing over positions: (s+1)/2 without a window; w - w(w-1)/(2s) with a window w < s that
    slides; in fixed blocks of w tokens, each block is a short sequence of its own.
    """
    window = architecture.sliding_window if windowed else None
    chunked = architecture.chunked_window and window is not None
    return _mean_span(sequence_length, window or sequence_length, chunked=chunked, attention=attention)


def _mean_span(sequence_length: int, window: int, *, chunked: bool, attention: AttentionCount) -> float:
    span = min(window, sequence_length)
    if attention is AttentionCount.FULL:
        return float(span)
    if chunked:
        blocks, rest = divmod(sequence_length, span)
        return (blocks * span * (span + 1) + rest * (rest + 1)) / (2 * sequence_length)
    return span - span * (span - 1) / (2 * sequence_length)


def attention_score_flops_per_key(architecture: Architecture) -> float:
    """Forward FLOPs of one layer for one query and one key: q·k and the weighted sum of values, all heads."""
    return 2.0 * architecture.heads * sum(architecture.head_widths)


def score_flops(
    architecture: Architecture,
    sequence_length: int,
    mixer: Mixer,
    attention: AttentionCount = AttentionCount.CAUSAL,
) -> float:
    """Forward FLOPs of one token's queries against keys and values in one layer of ``mixer``.

    Behind an indexer a query meets no more than ``top_k`` tokens, as in a window of so many, but the indexer's own
    queries meet all earlier ones.
    """
    own = architecture.of_mixer(mixer)
    windowed = mixer is Mixer.WINDOW
    span = mean_attention_span(architecture, sequence_length, windowed=windowed, attention=attention)
    if windowed or (sparse := architecture.sparse_attention) is None:
        return span * attention_score_flops_per_key(own)
    met = _mean_span(sequence_length, sparse.top_k, chunked=False, attention=attention)
    return met * attention_score_flops_per_key(own) + span * 2.0 * sparse.heads * sparse.head_size


def recurrence_flops(architecture: Architecture, mixer: Mixer) -> float:
    """Forward FLOPs per token of the states and convolutions of one layer of ``mixer``.

    Counted as recurrences, whatever kernels do: four products of key by value width for the delta rule, two for a
    sum that decays, 7 a channel and element of the state for state spaces, two a tap (Megatron-LM's
    ``num_floating_point_operations``).
    """
    total = 0.0
    if mixer is Mixer.LINEAR and (linear := architecture.linear_attention) is not None:
        products = 2.0 if linear.rule is LinearRule.DECAY else 4.0
        total += 2.0 * products * linear.state + 2.0 * linear.convolution * linear.convolved_width
    if mixer in (Mixer.STATE_SPACE, Mixer.PARALLEL) and (space := architecture.state_space) is not None:
        total += 7.0 * space.inner * space.state + 2.0 * space.convolution * space.convolved_width
    if mixer is Mixer.CONVOLUTION:
        total += 2.0 * architecture.short_convolution * architecture.hidden
    return total


def layer_forward_flops(
    architecture: Architecture,
    sequence_length: int,
    kind: LayerKind,
    *,
    attention: AttentionCount = AttentionCount.CAUSAL,
) -> ForwardFlops:
    """Forward FLOPs per token of one layer of ``kind``."""
    projections = 2.0 * architecture.mixer_matrix_parameters(kind.mixer)
    scores = score_flops(architecture, sequence_length, kind.mixer, attention) if kind.attends else 0.0
    recurrence = recurrence_flops(architecture, kind.mixer)
    per_width = 2.0 * architecture.mlp_matrices * architecture.hidden
    experts = architecture.experts
    if experts is None or not kind.sparse:
        width = architecture.mlp_hidden if kind.mlp is Mlp.DENSE else 0
        return ForwardFlops(projections, scores, recurrence, dense_mlp=per_width * width)
    return ForwardFlops(
        projections,
        scores,
        recurrence,
        router=2.0 * architecture.hidden * experts.count,
        routed_experts=experts.active
        * 2.0
        * (architecture.mlp_matrices * architecture.expert_width * experts.hidden)
        + 4.0 * architecture.hidden * experts.latent,
        shared_experts=per_width * experts.shared_hidden + 2.0 * architecture.hidden * experts.shared_gate,
    )


def head_forward_flops(architecture: Architecture) -> float:
    """Forward FLOPs per token of the logits over the vocabulary."""
    return 2.0 * architecture.hidden * architecture.vocabulary


def forward_flops_per_token(
    architecture: Architecture,
    sequence_length: int,
    *,
    attention: AttentionCount = AttentionCount.CAUSAL,
) -> ForwardFlops:
    """Forward FLOPs of one token through the whole model, by part."""
    parts = dict.fromkeys((part.name for part in fields(ForwardFlops)), 0.0)
    for kind, layers in Counter(architecture.layer_pattern).items():
        layer = layer_forward_flops(architecture, sequence_length, kind, attention=attention)
        for name in parts:
            parts[name] += layers * getattr(layer, name)
    parts["head"] = head_forward_flops(architecture)
    return ForwardFlops(**parts)


def model_flops_per_token(
    architecture: Architecture,
    sequence_length: int,
    *,
    attention: AttentionCount = AttentionCount.CAUSAL,
) -> float:
    """FLOPs that training needs per token: forward and backward, without recomputation.

    This is the numerator of model FLOP/s utilisation (Chowdhery et al. 2022, arXiv 2204.02311, appendix B).
    PaLM and Megatron count attention as ``AttentionCount.FULL``.  Multi-token prediction layers are left out.
    """
    forward = forward_flops_per_token(architecture, sequence_length, attention=attention)
    return (1 + BACKWARD_TO_FORWARD) * forward.total
