"""Seconds and bytes of what sits before the first and after the last decoder layer, for one micro-batch."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.cluster.measurements import Collective
from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import Framework
from solver.candidates import FloatArray
from solver.costs.collectives import domain_collective_s
from solver.costs.compute import Extent, Processor, elementwise_s, linear_s, matmul_s, streaming_s
from solver.costs.local_sizes import LocalSizes, chunk_share
from solver.costs.seconds import Seconds

_VOCABULARY_MULTIPLE: Final = 128.0
_LOSS_BYTES: Final = 4.0
"""Width in which the loss is computed where no kernel fuses it."""


def end_precision(precision: Precision) -> Precision:
    """Precision of embedding and head: 16 bits where the layers between run in 8 or 4.

    Megatron-Core's output layer is not a Transformer Engine module, so that no FP8 recipe reaches it.
    """
    return precision if precision.operand_bytes >= Precision.BF16.operand_bytes else Precision.BF16


def embedding(gpu: Processor, architecture: Architecture, sizes: LocalSizes) -> Seconds:
    """Table look-up: rows read and written; backward scatters into the FP32 gradient, if there is one."""
    rows = architecture.hidden * sizes.tokens
    forward = elementwise_s(gpu, 4.0 * rows, kernels=2)
    if gpu.is_frozen:
        return Seconds(forward, np.zeros_like(forward))
    return Seconds(forward, streaming_s(gpu, (gpu.element_bytes + 8.0) * rows, kernels=2))


def head_and_loss(
    gpu: Processor, architecture: Architecture, sizes: LocalSizes, *, deferred: FloatArray | float = 0.0
) -> Seconds:
    """Output projection over this tensor rank's vocabulary, and vocabulary parallel cross-entropy.

    The vocabulary is padded to a multiple of 128 on each rank (``--make-vocab-size-divisible-by``).
    Passes over the logits counted from Megatron's cross-entropy: cast of 16 bits to FP32 (6 bytes), maximum (4),
    shift and exponential (8), sum (4) forward; softmax minus target in FP32 (8) and cast back (6) backward.  The
    fused one of Transformer Engine reads twice and writes once (6), and scales by the loss's gradient (4).  A share
    ``deferred`` of the weight's gradients waits for the pipeline's flush (``deferred_products``).
    """
    rows, columns, hidden = _extents(architecture, sizes)
    head = linear_s(gpu, rows, columns, hidden)
    now = head.backward - deferred * (head.backward - matmul_s(gpu, rows, hidden, columns))
    framework = gpu.calibration.framework
    fused, width = framework.fused_loss, gpu.element_bytes
    cast = 0.0 if width == _LOSS_BYTES else width + _LOSS_BYTES
    passes = (3.0 * width, 2.0 * width) if fused else (16.0 + cast, 8.0 + cast)
    logits = columns * rows * (sizes.tensor if framework.whole_logits else 1.0)
    return Seconds(head.forward, now, head.weight) + Seconds(
        streaming_s(gpu, passes[0] * logits, kernels=2 if fused else 8),
        streaming_s(gpu, passes[1] * logits, kernels=1 if fused else 4),
    )


def deferred_products(
    framework: Framework, architecture: Architecture, micro_batches: FloatArray, *, pipelined: bool
) -> FloatArray:
    """(n,) weight gradients of the head, of ``micro_batches`` (n,), that wait for the flush.

    One a micro-batch and head, multi-token prediction's included, until the list is ``head_gradient_limit`` long
    (``--defer-embedding-wgrad-compute``, ``--wgrad-deferral-limit``; Megatron-Core's ``layers.py``).
    """
    if not (pipelined and framework.defer_head_gradient):
        return np.zeros_like(micro_batches)
    every = (1.0 + architecture.prediction_layers) * micro_batches
    return np.minimum(every, framework.head_gradient_limit or np.inf)


def deferred_head_s(
    gpu: Processor, architecture: Architecture, sizes: LocalSizes, products: FloatArray
) -> FloatArray:
    """(n,) seconds of deferred ``products`` (n,), which follow the last pass of the last pipeline rank."""
    rows, columns, hidden = _extents(architecture, sizes)
    whole, kept = linear_s(gpu, rows, columns, hidden).backward, matmul_s(gpu, rows, hidden, columns)
    return np.asarray(products * (whole - kept))


def deferred_head_bytes(architecture: Architecture, sizes: LocalSizes, products: FloatArray) -> FloatArray:
    """(n,) bytes that deferred ``products`` (n,) hold: the logits' gradient and the head's input, in 16 bits."""
    rows, columns, hidden = _extents(architecture, sizes)
    return np.asarray(products * sizes.element_bytes * (columns * rows + hidden * sizes.stream_tokens))


def gathered_logits_s(
    gpu: GpuKind, framework: Framework, architecture: Architecture, sizes: LocalSizes
) -> FloatArray:
    """(n,) seconds in which tensor ranks gather the logits in 16 bits, where they do."""
    if not framework.whole_logits:
        return np.zeros_like(sizes.tokens)
    rows, columns, _ = _extents(architecture, sizes)
    return domain_collective_s(
        gpu, Collective.ALL_GATHER, sizes.tensor, sizes.element_bytes * rows * columns * sizes.tensor
    )


def _extents(architecture: Architecture, sizes: LocalSizes) -> tuple[FloatArray, FloatArray, Extent]:
    """Rows, columns and contraction of the head on one tensor rank."""
    multiple = _VOCABULARY_MULTIPLE * sizes.tensor
    columns = np.ceil(architecture.vocabulary / multiple) * _VOCABULARY_MULTIPLE
    return sizes.tokens, columns, float(architecture.hidden)


def logit_bytes(architecture: Architecture, sizes: LocalSizes, framework: Framework) -> FloatArray:
    """(n,) bytes of the logits that one head holds: of a micro-batch, or of a chunk of it.

    Ranks that gather them hold their own columns and a copy beside (measured: 5 to 7 GB of 16,384 tokens).
    """
    tokens = np.minimum(chunk_share(sizes, framework) * sizes.tokens, framework.loss_chunk_tokens or np.inf)
    logits = tokens * architecture.vocabulary
    if not framework.whole_logits:
        return np.asarray(framework.logit_bytes * logits / sizes.tensor)
    gathered = np.where(sizes.tensor > 1, sizes.element_bytes * (1.0 + 1.0 / sizes.tensor), 0.0)
    return np.asarray((framework.logit_bytes + gathered) * logits)
