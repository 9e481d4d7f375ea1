"""What is left of a micro-batch and of the model on one GPU."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_models.gpus import Precision
from cluster_models.workload import Recompute, Sharding, TrainingWorkload
from solver.candidates import RECOMPUTE_CODES, SHARDING_CODES, BoolArray, CandidateBatch, FloatArray


@dataclass(frozen=True, slots=True)
class LocalSizes:
    """Per-GPU sizes of ``n`` candidates, all (n,) floats.

    ``tokens``: tokens of a micro-batch on one context rank.  ``shard_tokens``: those of one tensor rank where
    the sequence is split as well (sequence parallelism, arXiv 2205.05198, section 4.2.2; always on here).
    ``sequence``: the full sequence.  ``element_bytes``: bytes of an activation.
    """

    sequence: float
    micro_batch: FloatArray
    tensor: FloatArray
    context: FloatArray
    expert: FloatArray
    tokens: FloatArray
    shard_tokens: FloatArray
    full_recompute: BoolArray
    selective_recompute: BoolArray
    element_bytes: float = 2.0


def local_sizes(batch: CandidateBatch, workload: TrainingWorkload) -> LocalSizes:
    """Sizes of every candidate of ``batch``."""
    tensor, context = batch.tensor.astype(np.float64), batch.context.astype(np.float64)
    micro_batch = batch.micro_batch.astype(np.float64)
    tokens = micro_batch * workload.sequence_length / context
    return LocalSizes(
        sequence=float(workload.sequence_length),
        micro_batch=micro_batch,
        tensor=tensor,
        context=context,
        expert=batch.expert.astype(np.float64),
        tokens=tokens,
        shard_tokens=tokens / tensor,
        full_recompute=batch.recompute == RECOMPUTE_CODES.index(Recompute.FULL),
        selective_recompute=batch.recompute == RECOMPUTE_CODES.index(Recompute.SELECTIVE),
    )


def is_sharded(batch: CandidateBatch, sharding: Sharding) -> BoolArray:
    """(n,) which candidates use exactly this sharding."""
    return np.asarray(batch.sharding == SHARDING_CODES.index(sharding))


def weight_bytes(precision: Precision) -> float:
    """Bytes that one parameter keeps on the GPU for the matrix products, without its master copy.

    2 for 16-bit numbers.  8-bit training with Transformer Engine keeps the 16-bit weight and an 8-bit copy and
    its transpose (its documentation, "FP8 autocasting"): 4.
    """
    return 4.0 if precision is Precision.FP8 else 2.0


GRADIENT_BYTES = 4.0
"""Megatron accumulates and reduces the gradients of 16-bit training in FP32 (DistributedDataParallel docs)."""
