"""Bytes of activations on one GPU for one micro-batch, by layer kind and recomputation policy.

Formulas follow Korthikanti et al., arXiv 2205.05198, section 4 (34 s b h bytes for a GPT layer with dropout),
rewritten tensor by tensor for fused attention (which keeps no s x s scores), gated MLPs, grouped queries,
latent attention and experts; docs/cost_model.md lists the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_models.architecture import Architecture
from solver.candidates import FloatArray
from solver.costs.calibration import Calibration
from solver.costs.layer_costs import head_widths, local_kv_heads
from solver.costs.local_sizes import LocalSizes


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes (n,) per layer and micro-batch.

    ``dense`` and ``sparse``: kept from forward to backward.  ``working``: alive only while one layer runs
    (gradients of its widest tensors, and the whole layer where it is computed again).
    """

    dense: FloatArray
    sparse: FloatArray
    working: FloatArray


def layer_activations(architecture: Architecture, sizes: LocalSizes, calibration: Calibration) -> LayerActivations:
    """Kept and working bytes of every candidate's layers."""
    h = architecture.hidden
    attention, core = _attention(architecture, sizes, calibration)
    fan = 2.0 if architecture.gated_mlp else 1.0
    inputs = sizes.saved_input_bytes
    mlp = (2.0 + inputs) * h * sizes.stream_tokens + _mlp(sizes, fan, architecture.mlp_hidden)
    mlp = mlp + (h * sizes.stream_tokens if architecture.learned_positions else 0.0)
    sparse_mlp, widest = _sparse_mlp(architecture, sizes, calibration)
    dense, sparse = attention + mlp, attention + sparse_mlp
    boundary = 2.0 * h * sizes.stream_tokens
    kept_core = np.where(sizes.selective_recompute, 0.0, core)
    largest = np.maximum(
        dense if architecture.mlp_hidden else 0.0, sparse if architecture.experts is not None else 0.0
    )
    gradients = np.maximum(2.0 * (fan + 1.0) * architecture.mlp_hidden * sizes.shard_tokens, widest)
    again = np.where(sizes.full_recompute, largest + core, np.where(sizes.selective_recompute, core, 0.0))
    return LayerActivations(
        dense=np.where(sizes.full_recompute, boundary, dense + kept_core),
        sparse=np.where(sizes.full_recompute, boundary, sparse + kept_core),
        working=again + gradients + 4.0 * h * sizes.tokens,
    )


def _attention(
    architecture: Architecture, sizes: LocalSizes, calibration: Calibration
) -> tuple[FloatArray, FloatArray]:
    """Attention block without its core, and what the core alone keeps."""
    h, t, tokens, stream = architecture.hidden, sizes.tensor, sizes.tokens, sizes.stream_tokens
    key, value = head_widths(architecture)
    heads = architecture.heads / t
    kept = (2.0 + sizes.saved_input_bytes) * h * stream  # norm in and out
    kept = kept + 2.0 * heads * (key + value) * tokens  # query, core output
    if (mla := architecture.latent_attention) is not None:
        kept = kept + 2.0 * heads * (key + value) * tokens  # keys and values of every head
        kept = kept + 4.0 * (mla.query_rank + mla.key_value_rank + mla.rope_head_size) * stream
    else:
        kept = kept + 2.0 * local_kv_heads(architecture, sizes) * (key + value) * tokens
    if architecture.learned_positions:  # models of that age train with dropout: a byte of mask an element
        kept = kept + h * stream
    if calibration.framework.fused_attention:
        return kept, 4.0 * heads * tokens  # log-sum-exp in FP32
    # scores after softmax, after dropout (2 bytes each) and the mask (1 byte): 5 a s^2 b
    return kept, 5.0 * heads * sizes.sequence * tokens


def _mlp(sizes: LocalSizes, fan: float, width: float, rows: FloatArray | None = None) -> FloatArray:
    """Output of the first product(s), 16 bits, and of the activation, the second's input.

    ``rows`` tokens of the full width; by default the tensor rank's share.
    """
    rows = sizes.shard_tokens if rows is None else rows
    return np.asarray((2.0 * fan + sizes.saved_input_bytes) * width * rows)


def _sparse_mlp(
    architecture: Architecture, sizes: LocalSizes, calibration: Calibration
) -> tuple[FloatArray, FloatArray]:
    """A sparse layer's MLP, and its widest pair of tensors, on the busiest expert rank."""
    if (experts := architecture.experts) is None:
        return np.zeros_like(sizes.tokens), np.zeros_like(sizes.tokens)
    h, shard, inputs = architecture.hidden, sizes.shard_tokens, sizes.saved_input_bytes
    fan = 2.0 if architecture.gated_mlp else 1.0
    imbalance = np.where(sizes.expert > 1, calibration.expert_imbalance, 1.0)
    routed = shard * experts.active * imbalance
    widest = _mlp(sizes, fan, experts.hidden, routed)
    kept = (2.0 + inputs) * h * sizes.stream_tokens  # norm in and out
    kept = kept + 8.0 * experts.count * shard  # router logits and probabilities in FP32
    kept = kept + inputs * h * routed + widest  # permuted tokens; probabilities weigh the activation
    if experts.shared_hidden:
        kept = kept + _mlp(sizes, fan, experts.shared_hidden)
    return kept, widest
