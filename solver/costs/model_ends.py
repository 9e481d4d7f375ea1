"""Seconds of what sits before the first and after the last decoder layer, for one micro-batch."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.architecture import Architecture
from cluster_models.gpus import Precision
from solver.costs.compute import Processor, linear_s, matmul_s, streaming_s
from solver.costs.local_sizes import LocalSizes
from solver.costs.seconds import Seconds

_VOCABULARY_MULTIPLE: Final = 128.0


def end_precision(precision: Precision) -> Precision:
    """What embedding and head are computed in: 16 bits where the layers between run in 8 or 4.

    Megatron-Core's output layer is no Transformer Engine module, so that no FP8 recipe reaches it.
    """
    return precision if precision.operand_bytes >= Precision.BF16.operand_bytes else Precision.BF16


def embedding(gpu: Processor, architecture: Architecture, sizes: LocalSizes) -> Seconds:
    """Table look-up: rows read and written in 16 bits; backward scatters into the FP32 gradient."""
    rows = architecture.hidden * sizes.tokens
    return Seconds(streaming_s(gpu, 4.0 * rows, kernels=2), streaming_s(gpu, 10.0 * rows, kernels=2))


def head_and_loss(gpu: Processor, architecture: Architecture, sizes: LocalSizes, *, pipelined: bool) -> Seconds:
    """Output projection over this tensor rank's vocabulary, and vocabulary parallel cross-entropy.

    The vocabulary is padded to a multiple of 128 on each rank (``--make-vocab-size-divisible-by``).
    Passes over the logits counted from Megatron's cross-entropy: cast to FP32 (6 bytes), maximum (4), shift and
    exponential (8), sum (4) forward; softmax minus target in FP32 (8) and cast back (6) backward.  The fused one
    of Transformer Engine reads twice and writes once (6), and scales by the loss's gradient (4).  Where the
    framework defers the weight gradient to the flush of the pipeline, it fills idle time there and costs nothing
    here (``--defer-embedding-wgrad-compute``).
    """
    hidden = float(architecture.hidden)
    vocabulary = np.ceil(architecture.vocabulary / (_VOCABULARY_MULTIPLE * sizes.tensor)) * _VOCABULARY_MULTIPLE
    head = linear_s(gpu, sizes.tokens, vocabulary, hidden)
    if pipelined and gpu.calibration.framework.defer_head_gradient:
        head = Seconds(head.forward, matmul_s(gpu, sizes.tokens, hidden, vocabulary))
    fused = gpu.calibration.framework.fused_loss
    logits = vocabulary * sizes.tokens
    return head + Seconds(
        streaming_s(gpu, (6.0 if fused else 22.0) * logits, kernels=2 if fused else 8),
        streaming_s(gpu, (4.0 if fused else 14.0) * logits, kernels=1 if fused else 4),
    )
