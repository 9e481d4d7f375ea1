"""Peak memory of every pipeline rank, by part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.architecture import Architecture
from cluster_models.gpus import GpuKind
from cluster_models.workload import Optimizer, Sharding, TrainingWorkload
from solver.candidates import CandidateBatch, FloatArray, IntArray
from solver.costs.activations import layer_activations
from solver.costs.calibration import Calibration, calibration_of
from solver.costs.local_sizes import LocalSizes, is_sharded, local_sizes
from solver.costs.parameters import LocalParameters, local_parameters, sharing_ranks

OPTIMIZER_BYTES: Final = {Optimizer.ADAM: 12.0, Optimizer.SGD: 8.0}
"""Bytes per parameter: FP32 master weight, and two FP32 moments (Adam) or one (SGD with momentum).

Megatron-LM's distributed optimizer documentation: 18 bytes with BF16 weights and FP32 gradients in all.
"""
_WEIGHT_BYTES: Final = 2.0
"""A 16-bit weight; in FP8 training an 8-bit weight and its transpose (Transformer Engine with FP8 parameters,
Megatron's ``--fp8-param-gather``, which NVIDIA's FP8 recipes set)."""


@dataclass(frozen=True, slots=True)
class StageMemoryParts:
    """Peak bytes on each GPU of every pipeline rank, all (n, P); fields as in ``plan.StageMemory``."""

    weights_bytes: FloatArray
    gradients_bytes: FloatArray
    optimizer_bytes: FloatArray
    activations_bytes: FloatArray
    logits_bytes: FloatArray
    communication_bytes: FloatArray
    runtime_bytes: FloatArray
    fragmentation_bytes: FloatArray
    limit_bytes: FloatArray

    @property
    def total_bytes(self) -> FloatArray:
        """(n, P) sum of all parts."""
        states = self.weights_bytes + self.gradients_bytes + self.optimizer_bytes
        passing = self.activations_bytes + self.logits_bytes + self.communication_bytes
        return states + passing + self.runtime_bytes + self.fragmentation_bytes


def stage_memory(
    batch: CandidateBatch,
    layers: IntArray,
    *,
    architecture: Architecture,
    workload: TrainingWorkload,
    gpu: GpuKind,
    micro_batches: IntArray,
    calibration: Calibration | None = None,
) -> StageMemoryParts:
    """Memory of candidates that share their pipeline and virtual pipeline sizes.

    ``layers`` (C, 2) counts dense and sparse layers of every chunk, ``micro_batches`` (n,) those of a step.
    """
    calibration = calibration_of(gpu, workload.framework) if calibration is None else calibration
    sizes = local_sizes(batch, workload, calibration)
    parameters = local_parameters(batch, layers, architecture)
    kept = layer_activations(architecture, sizes, calibration)
    stages = int(batch.pipeline[0])
    per_chunk = layers[:, 0] * kept.dense[:, None] + layers[:, 1] * kept.sparse[:, None]
    in_flight = chunks_in_flight(batch, micro_batches)
    activations = (per_chunk.reshape(in_flight.shape) * in_flight).sum(axis=1) + kept.working[:, None]
    logits = np.zeros_like(activations)
    logits[:, -1] = calibration.framework.logit_bytes * sizes.shard_tokens * architecture.vocabulary
    communication = _communication(batch, sizes, architecture, calibration)[:, None]
    weights, gradients, optimizer = _states(batch, parameters, workload, calibration)
    passing = activations + logits
    return StageMemoryParts(
        weights_bytes=weights,
        gradients_bytes=gradients,
        optimizer_bytes=optimizer,
        activations_bytes=activations,
        logits_bytes=logits,
        communication_bytes=np.broadcast_to(communication, activations.shape),
        runtime_bytes=np.full((len(batch), stages), calibration.runtime_bytes),
        fragmentation_bytes=calibration.fragmentation_share * passing,
        limit_bytes=np.full((len(batch), stages), gpu.memory_bytes * (1.0 - workload.memory_headroom)),
    )


def chunks_in_flight(batch: CandidateBatch, micro_batches: IntArray) -> FloatArray:
    """(n, v, P) micro-batches whose activations chunk ``v * P + rank`` holds at the peak.

    1F1B keeps P - s on rank s (PipeDream-Flush, arXiv 2104.04473, section 2.2.1); the interleaved schedule
    warms up with 2(P - s - 1) + (v - 1)P forwards and one more, P micro-batches of a chunk before the next
    chunk (the same paper, section 2.2.2, and Megatron-Core's schedule).
    """
    stages, virtual = int(batch.pipeline[0]), int(batch.virtual_pipeline[0])
    rank = np.arange(stages)
    warm = stages - rank if virtual == 1 else 2 * (stages - rank - 1) + (virtual - 1) * stages + 1
    forwards = np.minimum(warm[None, :], (micro_batches * virtual)[:, None])
    group = np.minimum(stages, micro_batches)[:, None]
    rounds, rest = forwards // (group * virtual), forwards % (group * virtual)
    chunk = np.arange(virtual)[None, :, None]
    partial = np.clip(rest[:, None, :] - chunk * group[:, None, :], 0, group[:, None, :])
    return np.asarray(rounds[:, None, :] * group[:, None, :] + partial, dtype=np.float64)


def _states(
    batch: CandidateBatch, parameters: LocalParameters, workload: TrainingWorkload, calibration: Calibration
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Weights, gradients and optimizer states (n, P); ZeRO-3 adds two gathered layers and one's gradients."""
    common_ranks, routed_ranks = (ranks[:, None] for ranks in sharing_ranks(batch))
    whole = parameters.common + parameters.routed
    shared = parameters.common / common_ranks + parameters.routed / routed_ranks
    layer = np.maximum(parameters.layer, parameters.sparse_layer + parameters.experts)[:, None]
    zero3 = is_sharded(batch, Sharding.PARAMETERS)[:, None]
    weights = _WEIGHT_BYTES * np.where(zero3, np.minimum(whole, shared + 2.0 * layer), whole)
    gradients = calibration.framework.gradient_bytes * np.where(zero3, np.minimum(whole, shared + layer), whole)
    return weights, gradients, OPTIMIZER_BYTES[workload.optimizer] * shared


def _communication(
    batch: CandidateBatch, sizes: LocalSizes, architecture: Architecture, calibration: Calibration
) -> FloatArray:
    """(n,) buffers of communicators, gathered sequences and pipeline transfers (two each way)."""
    degrees = (batch.tensor, batch.pipeline, batch.data, batch.context, batch.expert)
    groups = sum((degree > 1).astype(np.float64) for degree in degrees)
    boundary = 2.0 * architecture.hidden * sizes.stream_tokens
    gathered = np.where(batch.tensor > 1, 2.0 * architecture.hidden * sizes.tokens, 0.0)
    transfers = np.where(batch.pipeline > 1, 4.0 * boundary, 0.0)
    return np.asarray(calibration.group_bytes * groups + gathered + transfers)
