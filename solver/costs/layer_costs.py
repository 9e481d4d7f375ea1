"""Seconds of one decoder layer on one GPU, by part, for one micro-batch.

Letters: T tokens of a context rank, h hidden width, t tensor ranks.  Widths of the model are in elements.
"""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mixer
from solver.candidates import FloatArray
from solver.costs.compute import AttentionShape, Extent, Processor, attention_s, elementwise_s, linear_s, quantise_s
from solver.costs.local_sizes import LocalSizes
from solver.costs.seconds import Seconds

Extents = tuple[FloatArray, Extent, Extent]
"""m, n and k of a matrix product."""


def projections(architecture: Architecture, sizes: LocalSizes) -> tuple[Extents, ...]:
    """(m, n, k) of the linear layers around the attention core, column parallel in, row parallel out.

    Latent attention compresses queries and keys/values on every rank for its own share of the sequence and
    expands them over the tensor ranks (arXiv 2405.04434, section 2.1; Megatron-Core MLA).
    """
    h, t = architecture.hidden, sizes.tensor
    if (mla := architecture.latent_attention) is not None:
        query = architecture.heads * (mla.nope_head_size + mla.rope_head_size) / t
        expand = architecture.heads * (mla.nope_head_size + mla.value_head_size) / t
        value = architecture.heads * mla.value_head_size / t
        compress = mla.key_value_rank + mla.rope_head_size
        queries: tuple[Extents, ...] = ((sizes.tokens, query, h),)
        if mla.query_rank:
            queries = ((sizes.shard_tokens, mla.query_rank, h), (sizes.tokens, query, mla.query_rank))
        return (
            *queries,
            (sizes.shard_tokens, compress, h),
            (sizes.tokens, expand, mla.key_value_rank),
            (sizes.tokens, h, value),
        )
    query = architecture.heads * architecture.head_size / t
    key_value = local_kv_heads(architecture, sizes) * architecture.head_size
    return ((sizes.tokens, query + 2.0 * key_value, h), (sizes.tokens, h, query))


def local_kv_heads(architecture: Architecture, sizes: LocalSizes) -> FloatArray:
    """(n,) key/value heads of one tensor rank; at least one, repeated where tensor ranks outnumber them."""
    return np.maximum(architecture.kv_heads / sizes.tensor, 1.0)


def head_widths(architecture: Architecture) -> tuple[float, float]:
    """Widths of a key head and of a value head as the attention core sees them."""
    if (mla := architecture.latent_attention) is not None:
        return float(mla.nope_head_size + mla.rope_head_size), float(mla.value_head_size)
    return float(architecture.head_size), float(architecture.head_size)


def attention_core(gpu: Processor, architecture: Architecture, sizes: LocalSizes, mixer: Mixer) -> Seconds:
    """Attention core of a layer.

    Visited pairs: a causal query at position i sees min(i, w) keys, s*w - w*w/2 pairs in all; blocks of w
    tokens see half of each block, s*w/2.
    """
    s = span = sizes.sequence
    pairs = s * s / 2.0
    if mixer is Mixer.WINDOW and architecture.sliding_window is not None:
        span = w = min(float(architecture.sliding_window), s)
        pairs = s * w / 2.0 if architecture.chunked_window else s * w - w * w / 2.0
    key, value = head_widths(architecture)
    ranks = sizes.micro_batch / sizes.context
    shape = AttentionShape(
        heads=architecture.heads / sizes.tensor,
        key_width=key,
        value_width=value,
        pairs=pairs * ranks,
        full_pairs=s * s * ranks,
        sequence=span,
    )
    return attention_s(gpu, shape) + _merged_blocks(gpu, architecture, sizes)


def _merged_blocks(gpu: Processor, architecture: Architecture, sizes: LocalSizes) -> Seconds:
    """Seconds that context ranks take to join the results of the blocks that come round; zero on a single rank.

    Each of ``context`` steps reads a block's output in 16 bits and corrects the sum in FP32 (10 bytes an element);
    backward it adds gradients of queries, keys and values likewise (6 bytes; Transformer Engine's context
    parallel attention).
    """
    key, value = head_widths(architecture)
    outputs = value * architecture.heads / sizes.tensor * sizes.tokens
    inputs = (
        key * architecture.heads / sizes.tensor + (key + value) * local_kv_heads(architecture, sizes)
    ) * sizes.tokens
    steps = np.where(sizes.context > 1, sizes.context, 0.0)
    return Seconds(
        steps * elementwise_s(gpu, 10.0 * outputs, kernels=3), steps * elementwise_s(gpu, 6.0 * inputs, kernels=4)
    )


def attention_block(gpu: Processor, architecture: Architecture, sizes: LocalSizes) -> Seconds:
    """Projections, rotation, norm and residual addition around the attention core, without the core.

    Bytes in 16 bits: norm and residual 5 passes over the h-wide stream (split over the sequence), rotation
    reads and writes queries and keys; backward moves twice as many.
    """
    shapes = projections(architecture, sizes)
    casts = _projection_casts(gpu, shapes, architecture.hidden, sizes)
    key, _ = head_widths(architecture)
    rotated = 0.0 if architecture.learned_positions else 1.0
    heads = architecture.heads / sizes.tensor + local_kv_heads(architecture, sizes)
    nbytes = 10.0 * architecture.hidden * sizes.stream_tokens + rotated * 4.0 * key * heads * sizes.tokens
    memory = Seconds(elementwise_s(gpu, nbytes, kernels=4), elementwise_s(gpu, 2.0 * nbytes, kernels=6))
    return reduce(add, (linear_s(gpu, *shape) for shape in shapes), casts + memory)


def _projection_casts(gpu: Processor, shapes: tuple[Extents, ...], hidden: int, sizes: LocalSizes) -> Seconds:
    """Casts of the linear layers' inputs forward and of their outputs' gradients backward.

    What is ``hidden`` wide is cast before it is gathered over the tensor ranks.
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
