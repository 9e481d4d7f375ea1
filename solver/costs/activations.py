"""Bytes of activations on one GPU for one micro-batch, by layer kind and recomputation policy.

Formulas follow Korthikanti et al., arXiv 2205.05198, section 4 (34 s b h bytes for a GPT layer with dropout),
rewritten tensor by tensor for fused attention (which keeps no s x s scores), gated MLPs, grouped queries,
latent attention and experts; docs/cost_model.md lists the tensors.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import ATTENDING, LayerKind, Mixer, Mlp
from cluster_models.model.mixers import LinearRule
from cluster_models.training.adapters import AdapterModule
from cluster_models.training.framework_choices import SelectiveRecompute
from cluster_models.training.workload import RecomputeModule
from solver.candidates import FloatArray
from solver.costs.adapters import kept_bytes, linears_of
from solver.costs.calibration import Calibration
from solver.costs.layer_costs import core_widths, local_kv_heads
from solver.costs.local_sizes import LocalSizes, chunk_share, gathered_tokens, routed_tokens
from solver.costs.recomputation import RecomputePolicies

Tensors = dict[RecomputeModule | None, FloatArray]
"""Bytes (n,) of one layer by the module whose recomputation frees them; ``None``: freed by none alone."""


@dataclass(frozen=True, slots=True)
class LayerTensors:
    """Activations of a layer of each kind, and ``passing`` bytes (n,) that live only while one runs.

    Where whole layers run again by chunks of a sequence, ``chunk`` (n,) is the share of one, which does not cut
    ``uncut`` (n,) bytes of these and ``whole`` (n,) more: keys and values with their gradients (StreamBP, arXiv
    2506.03077, section 3.2).
    """

    kinds: tuple[Tensors, ...]
    passing: FloatArray
    chunk: FloatArray
    uncut: FloatArray
    whole: FloatArray

    def streamed(self, again: FloatArray | float = 0.0) -> FloatArray:
        """Bytes alive while a layer runs of which ``again`` are computed once more, by chunks where it does so."""
        parts = self.chunk * (again + self.passing - self.uncut) + self.uncut + self.whole
        return np.asarray(np.minimum(again + self.passing, parts))


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes per layer and micro-batch.

    ``layers`` (n, K): kept from forward to backward of a layer of each kind that its policy applies to, ``whole``
    (n, K) of one beyond the first layers to which full recomputation is limited.  ``working`` (n,): alive only
    while one layer runs (gradients of its widest tensors, and what is computed again of it).
    """

    layers: FloatArray
    whole: FloatArray
    working: FloatArray


def layer_tensors(
    architecture: Architecture, sizes: LocalSizes, calibration: Calibration, *, lagging: FloatArray | float = 1.0
) -> LayerTensors:
    """All activations of a layer, before anything is recomputed.

    ``lagging`` (n,): share of the sequences gathered over tensor ranks that stays (``launching.lagging``).
    """
    gathered: Tensors = {None: _gathered(architecture, sizes, calibration) * lagging}
    adapted = linears_of(architecture, sizes.adapters, calibration.framework)
    mlps = {
        Mlp.DENSE: _joined(_dense_mlp(architecture, sizes, calibration), gathered),
        Mlp.EXPERTS: _sparse_mlp(architecture, sizes, calibration),
        Mlp.NONE: {},
    }
    kinds: list[Tensors] = []
    for kind, linears in zip(architecture.layer_kinds, adapted, strict=True):
        mixer = _mixer(architecture.of_mixer(kind.mixer), sizes, calibration, kind.mixer)
        if kind.mixer is not Mixer.NONE:
            mixer = _joined(mixer, gathered)
        layer = _joined(mixer, mlps[kind.mlp])
        kinds.append(_joined(layer, {None: kept_bytes(linears, sizes)}) if linears else layer)
    width = sizes.element_bytes * ((2.0 if architecture.gated_mlp else 1.0) + 1.0)
    gradients = width * architecture.mlp_hidden * sizes.shard_tokens
    gradients = np.maximum(gradients, sizes.element_bytes * _mixer_width(architecture) * sizes.shard_tokens)
    if (experts := architecture.experts) is not None:
        gradients = np.maximum(gradients, width * experts.hidden * routed_tokens(experts, sizes))
        # what peers that cut the same experts gather stands twice, as it arrived and sorted by expert
        more = gathered_tokens(experts, sizes) - routed_tokens(experts, sizes)
        gradients = gradients + sizes.element_bytes * architecture.expert_width * more
    stream = 2.0 * sizes.element_bytes * architecture.hidden * sizes.tokens
    key, value = core_widths(architecture)
    return LayerTensors(
        tuple(kinds),
        gradients + stream + _gathered_context(architecture, sizes),
        chunk=chunk_share(sizes, calibration.framework),
        uncut=stream,
        whole=2.0 * sizes.element_bytes * local_kv_heads(architecture, sizes) * (key + value) * sizes.tokens,
    )


def kept_activations(
    architecture: Architecture,
    sizes: LocalSizes,
    calibration: Calibration,
    tensors: LayerTensors,
    policies: RecomputePolicies,
) -> LayerActivations:
    """Kept and working bytes of every candidate's layers: ``tensors`` under its policy.

    Under (m, 1) policies for all candidates (m, n, K) and (m, n).
    """
    boundary = sizes.element_bytes * architecture.hidden * sizes.stream_tokens
    alternate = calibration.framework.selective_recompute is SelectiveRecompute.ALTERNATE_PRODUCTS

    def kept(kind: LayerKind, parts: Tensors, whole: FloatArray) -> FloatArray:
        left = whole
        if alternate:
            operators = _operators(architecture, sizes, kind) if kind.attends else parts.get(None, 0.0)
            left = np.where(policies.selective, np.minimum(boundary + operators, whole), whole)
        for module, nbytes in parts.items():
            if module is not None and (repeated := policies.frees(module)).any():
                left = left - np.where(repeated, nbytes, 0.0)
        return np.where(policies.full, boundary, left)

    kinds = architecture.layer_kinds
    wholes = [np.asarray(sum(parts.values(), np.zeros_like(sizes.tokens))) for parts in tensors.kinds]
    left = [kept(*each) for each in zip(kinds, tensors.kinds, wholes, strict=True)]
    again = np.maximum.reduce([whole - each for whole, each in zip(wholes, left, strict=True)])
    working = np.where(policies.full, tensors.streamed(again), again + tensors.passing)
    return LayerActivations(np.stack(left, axis=-1), np.stack(wholes, axis=-1), working)


def _operators(architecture: Architecture, sizes: LocalSizes, kind: LayerKind) -> FloatArray:
    """Attention output and log-sum-exp; in 16 bits also queries, values, the gate and the MLP's output."""
    model = architecture.of_mixer(kind.mixer)
    key, value = core_widths(model)
    heads = model.heads / sizes.tensor
    kept = (sizes.element_bytes * heads * value + 4.0 * heads) * sizes.tokens
    if sizes.saved_input_bytes < 2.0:  # 8-bit products are not on torchtitan's list
        return np.asarray(kept)
    projected = heads * key + local_kv_heads(model, sizes) * value
    kept = kept + sizes.element_bytes * projected * sizes.tokens
    width = model.mlp_hidden
    if kind.sparse and model.experts is not None and not width:
        width = model.experts.hidden * model.experts.active
    elements = width * sizes.shard_tokens + model.hidden * sizes.stream_tokens
    return np.asarray(kept + sizes.element_bytes * elements)


def _joined(first: Tensors, second: Tensors) -> Tensors:
    return {module: np.asarray(first.get(module, 0.0) + second.get(module, 0.0)) for module in first | second}


def _mixer(architecture: Architecture, sizes: LocalSizes, calibration: Calibration, mixer: Mixer) -> Tensors:
    """A mixer's tensors, with those of its norm."""
    if mixer is Mixer.NONE:
        return {}
    # Transformer Engine's linear layer norms its own input, which latent attention's projections share
    norm = _input(architecture, sizes, AdapterModule.QUERY_KEY_VALUE)
    kept = _of_norm(architecture, sizes, calibration, norm)
    if mixer in ATTENDING and _drops_out(architecture, calibration):  # a byte of mask an element
        kept = kept + architecture.hidden * sizes.stream_tokens
    shared = mixer in ATTENDING and architecture.latent_attention is not None
    tensors: Tensors = {RecomputeModule.LAYER_NORM: norm, None: kept} if shared else {None: kept + norm}
    if mixer in ATTENDING:
        tensors = _joined(tensors, _attention(architecture, sizes, calibration))
    return _joined(tensors, {None: _recurrent(architecture, sizes, mixer)})


def _of_norm(
    architecture: Architecture, sizes: LocalSizes, calibration: Calibration, product: FloatArray
) -> FloatArray:
    """Bytes (n,) of a norm beside the input that the ``product`` behind it keeps: its own input.

    Or its output, unless the product keeps that as it is (apex's memory-efficient LayerNorm, pull request 1715).
    """
    whole = sizes.element_bytes * architecture.hidden * sizes.stream_tokens
    shared = calibration.framework.keeps_norm_outputs & (product >= whole)
    return np.where(shared, 0.0, whole)


def _recurrent(architecture: Architecture, sizes: LocalSizes, mixer: Mixer) -> FloatArray:
    """Bytes (n,) that linear attention, a state space or a convolution keeps.

    Linear attention: queries, keys and values before and after the convolution, gate, output and what is projected
    from it; the inverse of every chunk of 64 tokens and both rates of a head (flash-linear-attention).  Mamba-2:
    what the input is projected to, output, and what is projected from it; convolution and states are computed
    again (``mamba_split_conv1d_scan_combined``).  Mamba: also what passed the convolution, and steps.
    """
    element, saved, tokens = sizes.element_bytes, sizes.saved_input_bytes, sizes.shard_tokens
    kept = np.zeros_like(tokens)
    if mixer is Mixer.LINEAR and (linear := architecture.linear_attention) is not None:
        streams = 2.0 * linear.convolved_width + 2.0 * linear.value_width
        low = element * (linear.gate_rank + linear.decay_rank) * sizes.stream_tokens
        decay = element * linear.key_width if linear.rule is LinearRule.CHANNEL_DELTA else 0.0
        heads = (2.0 * 64.0 + 8.0) * linear.value_heads * (linear.rule is not LinearRule.DECAY)
        kept = kept + (element * streams + saved * linear.value_width + heads + decay) * tokens + low
    if mixer in (Mixer.STATE_SPACE, Mixer.PARALLEL) and (space := architecture.state_space) is not None:
        streams = space.in_width + space.inner + (3.0 * space.inner if space.step_rank else 0.0)
        kept = kept + (element * streams + saved * space.inner) * tokens
    if mixer is Mixer.CONVOLUTION:
        kept = kept + (element * 5.0 + saved) * architecture.hidden * tokens
    return np.asarray(kept)


def _gathered_context(architecture: Architecture, sizes: LocalSizes) -> FloatArray:
    """Keys and values of the whole sequence where context ranks gather them, and their gradients."""
    key, value = core_widths(architecture)
    whole = sizes.context * sizes.tokens * local_kv_heads(architecture, sizes) * (key + value)
    return np.where(sizes.gathers, 2.0 * sizes.element_bytes * whole, 0.0)


def _mixer_width(architecture: Architecture) -> int:
    """The widest tensor of a recurrent mixer: what its input is projected to."""
    linear, space = architecture.linear_attention, architecture.state_space
    return max(linear.in_width if linear else 0, space.in_width if space else 0)


def _attention(architecture: Architecture, sizes: LocalSizes, calibration: Calibration) -> Tensors:
    tokens, stream, element = sizes.tokens, sizes.stream_tokens, sizes.element_bytes
    key, value = core_widths(architecture)
    heads = architecture.heads / sizes.tensor
    quantised = sizes.saved_input_bytes if sizes.saved_input_bytes < element and sizes.adapters is None else 0.0
    kept = (element + quantised) * heads * value * tokens  # output of the core, and its 8-bit copy
    queries = element * heads * key * tokens
    up_projected = np.zeros_like(tokens)
    sparse, mla = architecture.sparse_attention, architecture.latent_attention
    if mla is not None:
        compressed = 2.0 * element * (mla.query_rank + mla.key_value_rank + mla.rope_head_size) * stream
        kept = kept + compressed
        if sparse is None:
            up_projected = queries + element * heads * (key + value) * tokens  # keys and values of every head
        else:  # queries that meet compressed keys, and what the heads' values are projected from
            kept = kept + queries + element * heads * mla.value_head_size * tokens
    else:
        kept = kept + queries + element * local_kv_heads(architecture, sizes) * (key + value) * tokens
    if sparse is not None:  # queries and keys of the indexer, weights of its heads, numbers of the tokens it picked
        picked = np.minimum(float(sparse.top_k), sizes.sequence)
        kept = kept + (element * (sparse.heads + 1) * sparse.head_size + 4.0 * sparse.heads + 4.0 * picked) * tokens
    kept = kept + 2.0 * element * architecture.gate_width * sizes.shard_tokens
    core = 4.0 * heads * tokens  # log-sum-exp in FP32
    if not calibration.framework.fused_attention:
        # scores after softmax, with dropout also its mask and output: 5 a s^2 b with 2-byte elements
        copies = 2.0 * element + 1.0 if _drops_out(architecture, calibration) else element
        core = copies * heads * sizes.sequence * tokens
    return {None: kept, RecomputeModule.MLA_UP_PROJECTION: up_projected, RecomputeModule.CORE_ATTENTION: core}


def _gathered(architecture: Architecture, sizes: LocalSizes, calibration: Calibration) -> FloatArray:
    """A block's input as gathered from the tensor ranks, where it stays for the backward pass."""
    stays = calibration.framework.keeps_gathered_inputs & calibration.framework.sequence_parallel
    return np.where((sizes.tensor > 1) & stays, sizes.saved_input_bytes * architecture.hidden * sizes.tokens, 0.0)


def _drops_out(architecture: Architecture, calibration: Calibration) -> bool:
    return calibration.framework.dropout and architecture.learned_positions > 0


def _dense_mlp(architecture: Architecture, sizes: LocalSizes, calibration: Calibration) -> Tensors:
    # the norm is part of the first linear layer (Transformer Engine's LayerNormLinear)
    norm = _input(architecture, sizes, AdapterModule.MLP_IN)
    kept = _of_norm(architecture, sizes, calibration, norm)
    if _drops_out(architecture, calibration):
        kept = kept + architecture.hidden * sizes.stream_tokens
    product, activation = _mlp(architecture, sizes, calibration, architecture.mlp_hidden, sizes.shard_tokens)
    return {None: kept, RecomputeModule.MLP: norm + product + activation}


def _mlp(
    architecture: Architecture, sizes: LocalSizes, calibration: Calibration, width: float, rows: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Output of the first product(s), and of the activation, the second's input.

    Without a fused kernel a gated activation keeps what it multiplies with as well, the other factor's function.
    """
    fan = 2.0 if architecture.gated_mlp else 1.0
    factor = 1.0 if architecture.gated_mlp and not calibration.framework.fused_kernels else 0.0
    inside = sizes.element_bytes * (fan + factor) * width * rows
    return inside, _input_bytes(sizes, AdapterModule.MLP_OUT) * width * rows


def _input(architecture: Architecture, sizes: LocalSizes, module: AdapterModule) -> FloatArray:
    """(n,) bytes of a norm's output that stays for gradients of the weights that it meets, or of an adapter's.

    Adapters keep it as it was gathered over tensor ranks (``ParallelLinearAdapter``).
    """
    rows = sizes.stream_tokens if sizes.adapters is None else sizes.tokens
    return np.asarray(_input_bytes(sizes, module) * architecture.hidden * rows)


def _input_bytes(sizes: LocalSizes, module: AdapterModule | None) -> float:
    """Bytes of an element that stays as the input of a linear layer; frozen weights alone need none."""
    if sizes.adapters is None:
        return sizes.saved_input_bytes
    return sizes.element_bytes if module in sizes.adapters.modules else 0.0


def _sparse_mlp(architecture: Architecture, sizes: LocalSizes, calibration: Calibration) -> Tensors:
    """A sparse layer's MLP on the busiest expert rank."""
    if (experts := architecture.experts) is None:
        return {}
    h, stream, inputs = architecture.hidden, sizes.stream_tokens, _input_bytes(sizes, None)
    # all tokens of the ranks that cut an expert, through a share of its width: elements of the width as without
    product, activation = _mlp(architecture, sizes, calibration, experts.hidden, routed_tokens(experts, sizes))
    activation = activation * (sizes.adapters is None)
    gathered = gathered_tokens(experts, sizes)
    router = 8.0 * experts.count * sizes.shard_tokens  # logits and probabilities in FP32
    shared = sum(_mlp(architecture, sizes, calibration, experts.shared_hidden, sizes.shard_tokens))
    if sizes.adapters is not None and experts.shared_hidden:
        shared = shared + _input(architecture, sizes, AdapterModule.MLP_IN)
    return {
        None: _of_norm(architecture, sizes, calibration, inputs * h * stream),
        RecomputeModule.LAYER_NORM: inputs * h * stream,
        # router; permuted tokens (their probabilities weigh the activation) and the first product
        RecomputeModule.MOE: router + inputs * architecture.expert_width * gathered + product,
        RecomputeModule.MOE_ACTIVATION: activation,
        RecomputeModule.SHARED_EXPERTS: np.asarray(shared),
    }
