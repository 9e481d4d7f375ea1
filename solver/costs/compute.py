"""Seconds of kernels on one GPU.  Letters: m, n, k extents of a matrix product (m x k) @ (k x n)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import CLOCK_POWER, UNTHROTTLED_SHARE, GpuKind, Precision
from cluster_models.errors import InvalidWorkload
from cluster_models.training.adapters import NF4_BYTES, FrozenFormat
from cluster_models.training.framework_choices import AttentionKernels, Float8Scaling
from solver.candidates import BoolArray, FloatArray
from solver.costs.calibration import Calibration
from solver.costs.seconds import Seconds
from solver.costs.tiles import is_misaligned, quantisation

Extent = FloatArray | float


_SCORE_BYTES: Final = (9.0, 11.0)
_FP32_SCORE_BYTES: Final = (34.0, 38.0)
"""In FP32 scaling, masking and softmax are passes of their own, each reading and writing 4 bytes a score."""
_CAST_SCORE_BYTES: Final = (42.0, 46.0)
"""The same passes in FP32 of scores in 16 bits, which are cast before and after (6 bytes each)."""
_CAST_SCORE_KERNELS: Final = 6.0
_FUSED_MATRICES: Final = 4
"""Score matrices that a fused softmax takes at a time (Megatron's ``FusedScaleMaskSoftmax``)."""


@dataclass(frozen=True, slots=True)
class Processor:
    """One GPU kind at one precision: the rates that the formulas below divide by.

    ``multiprocessors`` compute tiles side by side (``None``: not known, tiles are then not rounded up).
    ``quantise_bytes`` is what casting one 16-bit element to the matrix products' format moves through memory.
    ``score_bytes`` are the bytes that unfused attention moves for each score, forward and backward;
    ``element_bytes`` is the width of activations and weights as products read them from memory: 4 in FP32 training
    (TF32 tensor cores read FP32 operands and drop bits), else 2.
    ``splits_backward``: seconds state the part of backward passes for weights.
    ``is_frozen``: weights are not trained, so that no product computes their gradients; ``widening_bytes``: what
    making a 16-bit weight of a quantised one moves through memory, for each product that reads it.
    ``matmul_flops`` is the rate of a very large matrix product in a long run, ``unthrottled_flops`` that of one
    which no power limit holds back, ``peak_flops`` the 16-bit data sheet peak (attention runs in 16 bits also in
    FP8 training), ``memory_bytes_per_s`` what kernels reach.
    """

    matmul_flops: float
    unthrottled_flops: float
    peak_flops: float
    memory_bytes_per_s: float
    calibration: Calibration
    quantise_bytes: float = 0.0
    score_bytes: tuple[float, float] = _SCORE_BYTES
    multiprocessors: int | None = None
    element_bytes: float = 2.0
    splits_backward: bool = False
    is_frozen: bool = False
    widening_bytes: float = 0.0


_QUANTISE_BYTES: Final = {Precision.MXFP8: 4.1, Precision.NVFP4: 5.2}
"""Bytes per element: read (2), written along rows and along columns in 8 bits; MXFP8 with a scale byte per 32
elements; NVFP4 reads once more for the tensor's maximum and writes 4 bits and a scale byte per 16."""
_FLOAT8_BYTES: Final = {
    Float8Scaling.DELAYED: 4.0,
    Float8Scaling.CURRENT: 6.0,
    Float8Scaling.ROW: 8.0,
    Float8Scaling.BLOCK: 4.1,
}
"""The same in FP8: a tensor's own maximum takes one more reading (2).  Rows fit into a multiprocessor and are read
once (2 + 1), columns twice (4 + 1).  One kernel casts blocks both ways, with a 4-byte scale per 128 elements."""
_WIDENING_BYTES: Final = NF4_BYTES + 2.0
"""Read in four bits and written in 16 (bitsandbytes' ``dequantize_4bit``)."""
_ROW_SHARE: Final = 0.8
"""Share of the rate of products with one scale a tensor (cuBLAS) that those with a scale a row (CUTLASS) keep.

Llama 3 8B on eight H100, without tensor ranks, then reaches the published 0.89 of its pace (6,412 and 7,186 tokens
a second and GPU, torchtitan commit 7a04053).
"""


def processor(
    gpu: GpuKind,
    precision: Precision,
    calibration: Calibration,
    *,
    splits_backward: bool = False,
    frozen: FrozenFormat | None = None,
) -> Processor:
    """Rates of ``gpu``; raises ``InvalidWorkload`` where it does not know ``precision``.

    ``frozen``: format of weights that are not trained; ``None``: they are.
    """
    peak = gpu.peak_flops.get(precision)
    if peak is None:
        known = ", ".join(sorted(str(name) for name in gpu.peak_flops))
        raise InvalidWorkload(
            "workload.precision", str(precision), f"{gpu.name} does not support it", f"use one of {known}"
        )
    share = {
        Precision.FP8: calibration.fp8_share,
        Precision.MXFP8: calibration.mxfp8_share,
        Precision.NVFP4: calibration.nvfp4_share,
        Precision.FP32: calibration.fp32_share,
    }.get(precision, calibration.sustained_share)
    scaling = calibration.framework.float8_scaling
    eight = precision is Precision.FP8
    if eight and scaling is Float8Scaling.ROW:
        share = share * _ROW_SHARE
    unthrottled = gpu.clock_flops(precision) * _unthrottled(calibration.kernel_share)
    half = gpu.peak_flops.get(Precision.BF16) or gpu.peak_flops.get(Precision.FP16) or peak
    return Processor(
        matmul_flops=np.minimum(peak * gpu.achievable_fraction * share * calibration.kernel_share, unthrottled),
        unthrottled_flops=unthrottled,
        peak_flops=half,
        memory_bytes_per_s=gpu.memory_bytes_per_s * calibration.memory_share,
        calibration=calibration,
        quantise_bytes=_FLOAT8_BYTES[scaling] if eight else _QUANTISE_BYTES.get(precision, 0.0),
        score_bytes=_FP32_SCORE_BYTES if precision is Precision.FP32 else _SCORE_BYTES,
        multiprocessors=gpu.multiprocessors,
        element_bytes=precision.activation_bytes,
        splits_backward=splits_backward,
        is_frozen=frozen is not None,
        widening_bytes=_WIDENING_BYTES * (frozen is FrozenFormat.NF4),
    )


def _unthrottled(kernel_share: float) -> float:
    """Share of peak of products in kernels that keep ``kernel_share`` where the clock is at its end.

    Kernels whose multiprocessors are busy for a share u of the time draw u of the dynamic power, so that a power
    limit that holds a busy GPU at the clock f lets theirs rise to f u^(-1/2.5), as far as it goes: they keep
    u^(3/5) of what the GPU sustains, and where the clock is at its end u alone, under a power cap as without.
    """
    busy: float = kernel_share ** (CLOCK_POWER / (CLOCK_POWER - 1.0))
    return UNTHROTTLED_SHARE * busy


def undrawn_slowdown(gpu: Processor, drawn: float) -> float:
    """Time of a large product that draws a share ``drawn`` of the dynamic power, over that of one that draws all.

    Rows of zeros switch no transistors, so that the clock rises as for kernels that are busy for that share alone.
    """
    slowdown: float = np.maximum(drawn ** (1.0 / CLOCK_POWER), gpu.matmul_flops / gpu.unthrottled_flops)
    return slowdown


def matmul_s(
    gpu: Processor,
    m: Extent,
    n: Extent,
    k: Extent,
    *,
    output_bytes: float | None = None,
    groups: Extent = 1.0,
    slowdown: Extent = 1.0,
) -> FloatArray:
    """Roofline of ``groups`` equal matrix products in one kernel: arithmetic or memory, and the launch.

    Arithmetic takes 2mnk FLOP at the sustained rate, times what tiles and waves round up (``tiles.quantisation``),
    a prologue worth ``k_half`` steps of the contraction included (fitted), times ``slowdown``.
    The result takes ``output_bytes`` an element, by default as many as the operands.
    Roofline: Williams et al., CACM 2009.
    """
    c = gpu.calibration
    m, n, k, groups = (np.asarray(extent, np.float64) for extent in (m, n, k, groups))
    count = gpu.multiprocessors
    if count is None:
        slowdown = slowdown * (1.0 + c.k_half / k)
    else:
        slowdown = slowdown * quantisation(m, n, k, groups=groups, multiprocessors=count, prologue=c.k_half)
    arithmetic = 2.0 * m * n * k * slowdown / gpu.matmul_flops
    width = gpu.element_bytes
    memory = (width * (m * k + k * n) + (output_bytes or width) * m * n) / gpu.memory_bytes_per_s
    return np.asarray(groups * np.maximum(arithmetic, memory) + c.kernel_s)


def linear_s(
    gpu: Processor, m: Extent, n: Extent, k: Extent, *, groups: Extent = 1.0, drawn: float = 1.0
) -> Seconds:
    """``groups`` linear layers with an m x k input and k x n weights each.

    Backward is the product for the input's gradient and the one for the weight's, which adds into the gradient
    buffer, in the same kernel or in one more that also reads the product.  Frozen weights have no gradient.
    ``drawn``: share of the rows of the output's gradient that are not zero.
    """
    framework = gpu.calibration.framework
    slowdown = _alignment_slowdown(gpu, n, k)
    forward = linear_forward_s(gpu, m, n, k, groups=groups)
    slowdown = slowdown * undrawn_slowdown(gpu, drawn)
    backward = matmul_s(gpu, m, k, n, groups=groups, slowdown=slowdown)
    if gpu.is_frozen:
        return Seconds(forward, backward + _widening_s(gpu, n, k, groups=groups))
    passes = 2.0 * max(framework.gradient_bytes, gpu.element_bytes)
    if framework.fused_accumulation:
        written = matmul_s(gpu, k, n, m, output_bytes=passes, groups=groups, slowdown=slowdown)
    else:
        written = matmul_s(gpu, k, n, m, groups=groups, slowdown=slowdown)
        written = written + streaming_s(gpu, np.asarray((gpu.element_bytes + passes) * k * n * groups))
    return Seconds(forward, backward + written, written if gpu.splits_backward else None)


def linear_forward_s(gpu: Processor, m: Extent, n: Extent, k: Extent, *, groups: Extent = 1.0) -> FloatArray:
    """Their forward pass alone."""
    product = matmul_s(gpu, m, n, k, groups=groups, slowdown=_alignment_slowdown(gpu, n, k))
    return product + _widening_s(gpu, n, k, groups=groups)


def _widening_s(gpu: Processor, n: Extent, k: Extent, *, groups: Extent) -> FloatArray | float:
    """Seconds in which quantised n x k weights are written in 16 bits; 0 where they lie so."""
    if not gpu.widening_bytes:
        return 0.0
    return streaming_s(gpu, np.asarray(gpu.widening_bytes * n * k * groups))


def _alignment_slowdown(gpu: Processor, *widths: Extent) -> FloatArray:
    """Time of a product whose rows are ``widths`` wide, over that of the same with rows on 16-byte boundaries."""
    return np.where(is_misaligned(*widths), 1.0 / gpu.calibration.misaligned_share, 1.0)


def streaming_s(gpu: Processor, nbytes: FloatArray, *, kernels: Extent = 1.0) -> FloatArray:
    """Seconds of memory-bound kernels that move ``nbytes`` in all; more where they are not fused."""
    passes = 1.0 if gpu.calibration.framework.fused_kernels else gpu.calibration.unfused_passes
    return np.asarray(passes * nbytes / gpu.memory_bytes_per_s + kernels * gpu.calibration.kernel_s)


def elementwise_s(gpu: Processor, nbytes: FloatArray, *, kernels: float = 1.0) -> FloatArray:
    """``streaming_s`` of kernels that move ``nbytes`` where all tensors have 16 bits; FP32 moves twice as many."""
    return streaming_s(gpu, gpu.element_bytes / 2.0 * nbytes, kernels=kernels)


def quantise_s(gpu: Processor, elements: FloatArray, *, kernels: float = 1.0) -> FloatArray:
    """Seconds in which inputs of matrix products are cast to a narrow format, along rows and along columns.

    The second copy serves the weight gradient, which contracts over tokens (Transformer Engine's quantizers; the
    random Hadamard transform of NVFP4 is not counted).  Zero in 16 bits.
    """
    if gpu.quantise_bytes == 0.0:
        return np.zeros_like(elements)
    return streaming_s(gpu, gpu.quantise_bytes * elements, kernels=kernels)


_TRITON_SHARE: Final = 0.6
"""FlashAttention-2 is 1.3 to 2.5 times faster than FlashAttention in Triton (arXiv 2307.08691, section 4.1), which
gains nothing from heads wider than 64."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The attention core of one layer on one GPU: ``heads`` (n,) per GPU, widths of keys and of values.

    ``pairs`` (n,) counts the query-key pairs a head really visits, ``full_pairs`` those of the whole square,
    both for all sequences of the micro-batch; ``sequence`` is the span a query sees at most.  ``casts_scores``
    (n,): as ``casts_scores`` has it.
    """

    heads: FloatArray
    key_width: float
    value_width: float
    pairs: FloatArray
    full_pairs: FloatArray
    sequence: float
    casts_scores: BoolArray | bool = False


def casts_scores(gpu: Processor, matrices: FloatArray) -> BoolArray | bool:
    """() or (n,) where so many score ``matrices`` in 16 bits, one a head and sequence, are too odd to be fused.

    Scaling, masking and softmax then run one by one in FP32, where they are one kernel otherwise.
    """
    framework = gpu.calibration.framework
    if framework.fused_attention or not framework.fused_kernels or gpu.score_bytes != _SCORE_BYTES:
        return False
    return np.asarray(matrices % _FUSED_MATRICES != 0)


def attention_s(gpu: Processor, shape: AttentionShape) -> Seconds:
    """The attention core.

    Fused: 2 (key + value width) FLOP a visited pair and head forward, 2.5 times that backward
    (FlashAttention-2, arXiv 2307.08691, section 3.1: five products instead of two).  Unfused: the whole square.
    """
    c = gpu.calibration
    if not c.framework.fused_attention:
        return _unfused_attention_s(gpu, shape)
    flops = 2.0 * (shape.key_width + shape.value_width) * shape.heads * shape.pairs
    width = shape.key_width / (shape.key_width + c.head_half)
    rate = gpu.peak_flops * width * shape.sequence / (shape.sequence + c.sequence_half)
    if c.framework.attention_kernels is not AttentionKernels.VENDOR:
        rate = rate * c.ampere_attention
    if c.framework.attention_kernels is AttentionKernels.FLASH_TRITON:
        rate = rate / width * _TRITON_SHARE
    forward = flops / (rate * c.attention_forward_share)
    backward = 2.5 * flops / (rate * c.attention_backward_share)
    return Seconds(forward + c.kernel_s, backward + c.kernel_s)


def _unfused_attention_s(gpu: Processor, shape: AttentionShape) -> Seconds:
    """Batched products over the whole square of scores, which travel through memory in between.

    A head's rows are as wide as it.
    """
    s, key, value = shape.sequence, shape.key_width, shape.value_width
    scores = shape.heads * shape.full_pairs
    narrow = _alignment_slowdown(gpu, key, value)

    def products_s(m: float, n: float, k: float) -> FloatArray:
        return matmul_s(gpu, m, n, k, groups=scores / s**2, slowdown=narrow)

    mixed = products_s(s, value, s)
    products = Seconds(products_s(s, s, key) + mixed, products_s(s, s, value) + mixed + 2.0 * products_s(s, key, s))
    return products + score_passes_s(gpu, shape)


def score_passes_s(gpu: Processor, shape: AttentionShape) -> Seconds:
    """Softmax, and what else reads and writes the scores between the products of unfused attention.

    In 16 bits forward: softmax reads and writes the scores, dropout too and writes a byte of mask; backward:
    dropout reads gradient and mask and writes, softmax reads twice and writes (counted from Megatron's unfused
    path, whose scaling, masking and softmax are one kernel in 16 bits only).
    """
    scores = shape.heads * shape.full_pairs
    forward_bytes, backward_bytes = (
        np.where(shape.casts_scores, cast, usual)
        for cast, usual in zip(_CAST_SCORE_BYTES, gpu.score_bytes, strict=True)
    )
    kernels = np.where(shape.casts_scores, _CAST_SCORE_KERNELS, 2.0)
    return Seconds(
        streaming_s(gpu, forward_bytes * scores, kernels=kernels),
        streaming_s(gpu, backward_bytes * scores, kernels=kernels),
    )
