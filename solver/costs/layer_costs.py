"""Seconds of one decoder layer on one GPU, by part, for one micro-batch.

Letters: T tokens of a context rank, h hidden width, t tensor ranks.  Widths of the model are in elements.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import ATTENDING, Mixer
from cluster_models.model.mixers import LatentAttention, SparseAttention, StateSpace
from solver.candidates import FloatArray
from solver.costs.compute import (
    AttentionShape,
    Extent,
    Processor,
    attention_s,
    casts_scores,
    elementwise_s,
    linear_forward_s,
    linear_s,
    quantise_s,
    streaming_s,
)
from solver.costs.local_sizes import LocalSizes
from solver.costs.recurrent import recurrent_core
from solver.costs.seconds import Seconds

Extents = tuple[FloatArray, Extent, Extent]
"""m, n and k of a matrix product."""


def projections(architecture: Architecture, sizes: LocalSizes, mixer: Mixer) -> tuple[Extents, ...]:
    """(m, n, k) of the linear layers around a mixer's core, column parallel in, row parallel out.

    Linear attention and state spaces split their heads over tensor ranks; what a low rank compresses is made on
    every one of them for its own share of the sequence, as with latent attention.
    """
    h, t, tokens = float(architecture.hidden), sizes.tensor, sizes.tokens
    match mixer:
        case Mixer.LINEAR if linear := architecture.linear_attention:
            ranks = [(linear.gate_rank, linear.value_width), (linear.decay_rank, linear.key_width)]
            low = [(rank, width) for rank, width in ranks if rank]
            direct = (linear.in_width - sum(rank for rank, _ in low)) / t
            return (
                (tokens, direct, h),
                *((sizes.shard_tokens, float(rank), h) for rank, _ in low),
                *((tokens, width / t, float(rank)) for rank, width in low),
                (tokens, h, linear.value_width / t),
            )
        case Mixer.STATE_SPACE if space := architecture.state_space:
            return _state_space_projections(space, sizes, h)
        case Mixer.PARALLEL if space := architecture.state_space:
            return (*_attention_projections(architecture, sizes), *_state_space_projections(space, sizes, h))
        case Mixer.CONVOLUTION:
            return ((tokens, 3.0 * h / t, h), (tokens, h, h / t))
        case Mixer.NONE:
            return ()
        case _:
            return _attention_projections(architecture, sizes)


def _state_space_projections(space: StateSpace, sizes: LocalSizes, h: float) -> tuple[Extents, ...]:
    tokens, inner = sizes.tokens, space.inner / sizes.tensor
    selecting: tuple[Extents, ...] = ()
    if space.step_rank:
        rank = float(space.step_rank)
        selecting = ((tokens, rank + 2.0 * space.state, inner), (tokens, inner, rank))
    return ((tokens, space.in_width / sizes.tensor, h), *selecting, (tokens, h, inner))


def _attention_projections(architecture: Architecture, sizes: LocalSizes) -> tuple[Extents, ...]:
    """Projections of softmax attention.

    Latent attention compresses queries and keys/values on every rank for its own share of the sequence and
    expands them over the tensor ranks (arXiv 2405.04434, section 2.1; Megatron-Core MLA).  Those of an indexer run
    whole on every tensor rank.
    """
    h, t = architecture.hidden, sizes.tensor
    key, value = architecture.head_widths
    gate = architecture.gate_width / t
    indexer: tuple[Extents, ...] = ()
    if (sparse := architecture.sparse_attention) is not None:
        mla = architecture.latent_attention
        rank = float((mla.query_rank if mla else 0) or h)
        indexer = (
            (sizes.tokens, float(sparse.heads * sparse.head_size), rank),
            (sizes.tokens, float(sparse.head_size + sparse.heads), float(h)),
        )
    if (mla := architecture.latent_attention) is not None:
        compress: tuple[Extents, ...] = ((sizes.shard_tokens, mla.query_rank, h),) if mla.query_rank else ()
        gated: tuple[Extents, ...] = ((sizes.tokens, gate, h),) if architecture.gate_width else ()
        return (
            *compress,
            (sizes.shard_tokens, mla.key_value_rank + mla.rope_head_size, h),
            *_up_projections(architecture, mla, sizes),
            *indexer,
            *gated,
            (sizes.tokens, h, architecture.heads * value / t),
        )
    query = architecture.heads * key / t
    key_value = local_kv_heads(architecture, sizes) * (key + value)
    return (
        (sizes.tokens, query + key_value + gate, h),
        *indexer,
        (sizes.tokens, h, architecture.heads * value / t),
    )


def _up_projections(architecture: Architecture, mla: LatentAttention, sizes: LocalSizes) -> tuple[Extents, ...]:
    """Queries of their latents or of the input, keys and values of theirs."""
    heads = architecture.heads / sizes.tensor
    query, expand = heads * architecture.head_widths[0], heads * (mla.nope_head_size + mla.value_head_size)
    return (
        (sizes.tokens, query, float(mla.query_rank or architecture.hidden)),
        (sizes.tokens, expand, float(mla.key_value_rank)),
    )


def local_kv_heads(architecture: Architecture, sizes: LocalSizes) -> FloatArray:
    """(n,) key/value heads of one tensor rank; at least one, repeated where tensor ranks outnumber them."""
    return np.maximum(architecture.kv_heads / sizes.tensor, 1.0)


def core_widths(architecture: Architecture) -> tuple[float, float]:
    """Widths of a key and of a value as the attention core sees them.

    Where an indexer picks tokens, latent attention reads them as they are compressed, one key and value for all
    heads (DeepSeek-V3.2, arXiv 2512.02556, section 2.1).
    """
    mla = architecture.latent_attention
    if mla is not None and architecture.sparse_attention is not None:
        return float(mla.key_value_rank + mla.rope_head_size), float(mla.key_value_rank)
    key, value = architecture.head_widths
    return float(key), float(value)


def attention_core(gpu: Processor, architecture: Architecture, sizes: LocalSizes, mixer: Mixer) -> Seconds:
    """Attention core of a layer; zero where its mixer is none.

    Behind an indexer the window is the number of tokens that it picks.
    """
    if mixer not in ATTENDING:
        return Seconds(np.zeros_like(sizes.tokens), np.zeros_like(sizes.tokens))
    shape = attention_shape(gpu, architecture, sizes, mixer)
    core = attention_s(gpu, shape) + _merged_blocks(gpu, architecture, sizes)
    if mixer is Mixer.WINDOW or architecture.sparse_attention is None:
        return core
    return core + _indexing(gpu, architecture.sparse_attention, sizes, picked_pairs=shape.pairs)


def attention_shape(
    gpu: Processor, architecture: Architecture, sizes: LocalSizes, mixer: Mixer = Mixer.FULL
) -> AttentionShape:
    """Shape of the attention core of a layer that attends."""
    s = sizes.sequence
    window, chunked = None, False
    if mixer is Mixer.WINDOW:
        window, chunked = architecture.sliding_window, architecture.chunked_window
    elif (sparse := architecture.sparse_attention) is not None:
        window = sparse.top_k
    pairs = sizes.attended.pairs(window, chunked=chunked)
    key, value = core_widths(architecture)
    ranks = sizes.micro_batch / sizes.context
    return AttentionShape(
        heads=architecture.heads / sizes.tensor,
        key_width=key,
        value_width=value,
        pairs=pairs * ranks,
        full_pairs=s * s * ranks,
        sequence=sizes.attended.span(window),
        casts_scores=casts_scores(gpu, sizes.micro_batch * architecture.heads / sizes.tensor),
    )


def _indexing(gpu: Processor, sparse: SparseAttention, sizes: LocalSizes, *, picked_pairs: FloatArray) -> Seconds:
    """Scores of an indexer for all earlier tokens, on every tensor rank; choosing the highest reads them twice.

    Its loss compares only the tokens that were picked with attention's own weights, and so does its backward pass.
    """
    pairs = sizes.attended.pairs() * sizes.micro_batch / sizes.context
    one, span = np.ones_like(sizes.tokens), sizes.attended.span()
    shape = AttentionShape(sparse.heads * one, sparse.head_size, 0.0, pairs, 2.0 * pairs, span)
    chosen = AttentionShape(sparse.heads * one, sparse.head_size, 0.0, picked_pairs, picked_pairs, span)
    choice = streaming_s(gpu, 12.0 * pairs, kernels=2)
    return Seconds(attention_s(gpu, shape).forward + choice, attention_s(gpu, chosen).backward)


def _merged_blocks(gpu: Processor, architecture: Architecture, sizes: LocalSizes) -> Seconds:
    """Seconds that context ranks take to join the results of the blocks that come round; zero on a single rank.

    Each of as many steps as a ring has ranks reads a block's output in 16 bits and corrects the sum in FP32 (10
    bytes an element); backward it adds gradients of queries, keys and values likewise (6 bytes; Transformer
    Engine's context parallel attention).  Where heads or whole keys and values travel, these are put in order.
    """
    key, value = core_widths(architecture)
    outputs = value * architecture.heads / sizes.tensor * sizes.tokens
    pairs = (key + value) * local_kv_heads(architecture, sizes) * sizes.tokens
    inputs = key * architecture.heads / sizes.tensor * sizes.tokens + pairs
    ranks = sizes.context / sizes.head_ranks
    steps = np.where((ranks > 1) & ~np.asarray(sizes.gathers), ranks, 0.0)
    joined = Seconds(
        steps * elementwise_s(gpu, 10.0 * outputs, kernels=3), steps * elementwise_s(gpu, 6.0 * inputs, kernels=4)
    )
    if not np.any(sizes.gathers | (np.asarray(sizes.head_ranks) > 1)):
        return joined
    return joined + _reordered(gpu, sizes, heads=inputs + outputs, whole=sizes.context * pairs)


def _reordered(gpu: Processor, sizes: LocalSizes, *, heads: FloatArray, whole: FloatArray) -> Seconds:
    """Seconds of the copies around an all-to-all of ``heads`` elements or a gather of keys and values ``whole``.

    Heads take three copies of 4 bytes an element each way.  Gathered tensors are sorted and cut into the two pieces
    that queries meet, 8 bytes; backward also its gradients are cleared, added and sorted, 24 (counted in
    Transformer Engine's ``flash_attn_a2a_communicate`` and ``AttnFuncWithCPAndKVAllGather``).
    """
    swapped = np.where(np.asarray(sizes.head_ranks) > 1, 1.0, 0.0)
    gathered = np.where(sizes.gathers, 1.0, 0.0)
    swap = swapped * elementwise_s(gpu, 12.0 * heads, kernels=12)
    return Seconds(
        swap + gathered * elementwise_s(gpu, 8.0 * whole, kernels=8),
        swap + gathered * elementwise_s(gpu, 24.0 * whole, kernels=20),
    )


def mixer_block(gpu: Processor, architecture: Architecture, sizes: LocalSizes, mixer: Mixer) -> Seconds:
    """Parts around a mixer's attention core: projections, rotation, norm and residual addition, other kernels.

    Bytes in 16 bits: norm and residual 5 passes over the h-wide stream (split over the sequence), rotation
    reads and writes queries and keys; backward moves twice as many.
    """
    if mixer is Mixer.NONE:
        return Seconds(np.zeros_like(sizes.tokens), np.zeros_like(sizes.tokens))
    shapes = projections(architecture, sizes, mixer)
    casts = _projection_casts(gpu, shapes, architecture.hidden, sizes)
    key, value = architecture.head_widths
    rotated = 0.0 if architecture.learned_positions or mixer not in ATTENDING else 1.0
    heads = architecture.heads / sizes.tensor + local_kv_heads(architecture, sizes)
    nbytes = 10.0 * architecture.hidden * sizes.stream_tokens + rotated * 4.0 * key * heads * sizes.tokens
    if architecture.gate_width and mixer in ATTENDING:  # gate read, output read and written
        nbytes = nbytes + (2.0 * architecture.gate_width + 4.0 * architecture.heads * value) * sizes.shard_tokens
    memory = Seconds(elementwise_s(gpu, nbytes, kernels=4), elementwise_s(gpu, 2.0 * nbytes, kernels=6))
    products = reduce(add, (linear_s(gpu, *shape) for shape in shapes), casts + memory)
    return products + recurrent_core(gpu, architecture, sizes, mixer)


def up_projection_s(gpu: Processor, architecture: Architecture, sizes: LocalSizes) -> FloatArray:
    """(n,) seconds in which latent attention makes queries, keys and values of their latents, rotation included.

    Megatron-Core's ``qkv_up_proj_and_rope_apply``, which also projects queries that are not compressed; zero
    without latent attention.
    """
    if (mla := architecture.latent_attention) is None:
        return np.zeros_like(sizes.tokens)
    inputs = _up_projections(architecture, mla, sizes)
    key, _ = architecture.head_widths
    rotated = elementwise_s(gpu, 8.0 * key * architecture.heads / sizes.tensor * sizes.tokens)
    casts = quantise_s(gpu, sum(k for _, _, k in inputs) * sizes.tokens, kernels=len(inputs))
    return np.asarray(sum(linear_forward_s(gpu, *shape) for shape in inputs) + rotated + casts)


def _projection_casts(gpu: Processor, shapes: tuple[Extents, ...], hidden: int, sizes: LocalSizes) -> Seconds:
    """Casts of the linear layers' inputs forward and of their outputs' gradients backward.

    Tensors that are ``hidden`` wide are cast before they are gathered over the tensor ranks.
    """
    inputs, gradients = np.zeros_like(sizes.tokens), np.zeros_like(sizes.tokens)
    for m, n, k in shapes:
        inputs = inputs + k * (np.minimum(m, sizes.stream_tokens) if np.all(k == hidden) else m)
        gradients = gradients + n * (np.minimum(m, sizes.stream_tokens) if np.all(n == hidden) else m)
    count = float(len(shapes))
    return Seconds(quantise_s(gpu, inputs, kernels=count), quantise_s(gpu, gradients, kernels=count))


def dense_mlp(gpu: Processor, architecture: Architecture, sizes: LocalSizes) -> Seconds:
    """A dense layer's MLP, its norm and residual addition."""
    norm = elementwise_s(gpu, 10.0 * architecture.hidden * sizes.stream_tokens, kernels=2)
    width = architecture.mlp_hidden / sizes.tensor
    product = mlp(gpu, architecture, tokens=sizes.tokens, width=width, stream_tokens=sizes.stream_tokens)
    return product + Seconds(norm, 2.0 * norm)


def mlp(
    gpu: Processor,
    architecture: Architecture,
    *,
    tokens: FloatArray,
    width: Extent,
    stream_tokens: FloatArray | None = None,
) -> Seconds:
    """Two products and the activation between them; gated ones read 2 widths and write 1, others 1 and 1.

    ``stream_tokens`` (default: ``tokens``) are those whose input and output gradient are cast on this rank.
    """
    fan = 2.0 if architecture.gated_mlp else 1.0
    h = float(architecture.hidden)
    products = linear_s(gpu, tokens, fan * width, h) + linear_s(gpu, tokens, h, width)
    activation = 2.0 * (fan + 1.0) * width * tokens
    stream = h * (tokens if stream_tokens is None else stream_tokens)
    return products + Seconds(
        elementwise_s(gpu, activation) + quantise_s(gpu, stream + width * tokens, kernels=2),
        elementwise_s(gpu, activation * (2.0 * fan + 1.0) / (fan + 1.0))
        + quantise_s(gpu, stream + fan * width * tokens, kernels=2),
    )
