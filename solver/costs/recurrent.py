"""Seconds of linear attention, state spaces and short convolutions on one GPU, for one micro-batch.

Their kernels stream chunks of a sequence through memory; only those of linear attention pass a state from chunk to
chunk, one after the other.  Context ranks swap sequence for heads by an all-to-all before and after them
(Megatron-Core's ``MambaContextParallel``), so that each runs whole sequences with its share of the heads: the work
is that of its own tokens with all heads of its tensor rank.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.layer_kinds import Mixer
from cluster_models.model.mixers import LinearAttention, LinearRule, StateSpace
from solver.candidates import FloatArray
from solver.costs.compute import Processor, elementwise_s
from solver.costs.local_sizes import LocalSizes
from solver.costs.seconds import Seconds

_CHUNK: Final = 64
"""Tokens of a chunk of linear attention (flash-linear-attention's)."""
_STREAMED: Final = {
    LinearRule.GATED_DELTA: (9.7, 28.0),
    LinearRule.CHANNEL_DELTA: (17.5, 59.0),
    LinearRule.DECAY: (4.9, 18.0),
}
"""Passes, forward and backward, over 16-bit keys and values of every value head that the kernels of each rule make.

Solved for from flash-linear-attention 0.5 on an H200 with heads of 128 (FlashQLA's
``benchmark_results_H200.txt``): of 8,192 to 32,768 tokens on 8 to 64 heads, 1.25 ns a token and head forward and
3.6 ns backward besides the state, at the rate that our memory-bound kernels reach.  The other rules by their times
over the gated delta rule's on a B200 (Helion's ``examples/linear/BENCHMARKS.md``: 1.8 and 2.1, 0.5 and 0.64)."""
_STATE_BYTES: Final = (4.7, 16.0)
"""Bytes moved for an element of the state and chunk, from 64 heads of the same table."""
_CHUNK_S: Final = (1.1e-6, 3.8e-6)
"""Seconds from chunk to chunk where too few heads keep the GPU busy: 8 heads of the same table."""
_TRITON_BYTES_PER_S: Final = 4.3e12
"""Rate that these kernels do not exceed: a GB200, with 1.7 times an H200's, takes 0.93 of its time."""

_SCAN_CHUNK: Final = 256
"""Tokens of a chunk of Mamba-2's kernels."""
_SCAN_RATE: Final = 0.1
"""Share of the 16-bit peak of their products, forward; TileLang's scan alone reaches 0.135 on an H800
(tilelang's ``benchmark/mamba2``), the other four kernels are estimated."""
_SCAN_BACKWARD: Final = 3.0
"""Backward pass over forward: the states are computed again, and five gradients (counted kernel by kernel)."""
_SELECTIVE_BYTES: Final = (1.4, 3.5)
"""Mamba's scan, forward and backward, in bytes for each channel, token and element of its state: the exponentials
of a multiprocessor set the pace, about 2e12 a second on an H100 (estimated)."""


def recurrent_core(gpu: Processor, architecture: Architecture, sizes: LocalSizes, mixer: Mixer) -> Seconds:
    """Kernels between the projections of a layer of ``mixer``; zero for attention and where there is no mixer."""
    nothing = Seconds(np.zeros_like(sizes.tokens), np.zeros_like(sizes.tokens))
    match mixer:
        case Mixer.LINEAR if architecture.linear_attention:
            return _linear(gpu, architecture.linear_attention, sizes)
        case Mixer.STATE_SPACE | Mixer.PARALLEL if architecture.state_space:
            return _state_space(gpu, architecture.state_space, sizes)
        case Mixer.CONVOLUTION:  # two gates around it: three streams read and one written, then one more gate
            return _elementwise(gpu, 12.0 * architecture.hidden * sizes.shard_tokens, kernels=3)
        case _:
            return nothing


def _elementwise(gpu: Processor, nbytes: FloatArray, *, kernels: float) -> Seconds:
    """Forward; backward moves twice as many bytes."""
    return Seconds(elementwise_s(gpu, nbytes, kernels=kernels), elementwise_s(gpu, 2.0 * nbytes, kernels=kernels))


def _linear(gpu: Processor, linear: LinearAttention, sizes: LocalSizes) -> Seconds:
    """Convolution, norms of queries and keys, the rule itself, and the gated norm of its output."""
    widths = sizes.shard_tokens
    before = 4.0 * linear.convolved_width * (linear.convolution > 0) + 8.0 * linear.key_width
    around = _elementwise(gpu, (before + 6.0 * linear.value_width) * widths, kernels=4)
    rate = min(gpu.memory_bytes_per_s, _TRITON_BYTES_PER_S)
    heads = linear.value_heads * widths
    streamed = 2.0 * (linear.key_head_size + linear.value_head_size) * heads / rate
    states = linear.key_head_size * linear.value_head_size / _CHUNK * heads / rate
    chunks = sizes.attended.span() / _CHUNK
    passes = [
        each * streamed + np.maximum(nbytes * states, step * chunks)
        for each, nbytes, step in zip(_STREAMED[linear.rule], _STATE_BYTES, _CHUNK_S, strict=True)
    ]
    launch = gpu.calibration.kernel_s
    return around + Seconds(passes[0] + 6.0 * launch, passes[1] + 10.0 * launch)


def _state_space(gpu: Processor, space: StateSpace, sizes: LocalSizes) -> Seconds:
    """Convolution, the scan, and the gated norm of its output."""
    widths = sizes.shard_tokens
    around = _elementwise(gpu, (4.0 * space.convolved_width + 6.0 * space.inner) * widths, kernels=3)
    launch = gpu.calibration.kernel_s
    if space.step_rank:
        forward, backward = (
            nbytes * space.inner * space.state * widths / gpu.memory_bytes_per_s for nbytes in _SELECTIVE_BYTES
        )
        return around + Seconds(forward + launch, backward + launch)
    p, n, q = space.head_size, space.state, _SCAN_CHUNK
    # steps; x read twice and y written; states written, passed on and read; products of what reads and writes them
    nbytes = 12.0 + 6.0 * p + 16.0 * p * n / q + 2.0 * q
    flops = q * p + 4.0 * n * p
    heads = space.heads * widths
    forward = heads * np.maximum(nbytes / gpu.memory_bytes_per_s, flops / (_SCAN_RATE * gpu.peak_flops))
    return around + Seconds(forward + 5.0 * launch, _SCAN_BACKWARD * forward + 10.0 * launch)
