"""What a step costs across the data parallel ranks, and the optimizer step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.gpus import GpuKind, Precision
from cluster_models.measurements import Collective
from cluster_models.plan import RankOrder
from cluster_models.workload import Optimizer, Sharding, TrainingWorkload
from solver.candidates import ORDER_CODES, CandidateBatch, FloatArray
from solver.costs.calibration import Calibration
from solver.costs.collectives import domain_collective_s, fits_together
from solver.costs.compute import Processor
from solver.costs.layer_costs import Seconds
from solver.costs.local_sizes import is_sharded
from solver.costs.parameters import LocalParameters, sharing_ranks
from solver.costs.traffic import LayerTraffic

_GATHERED_LAYER_BYTES: Final = 2.0
"""ZeRO-3 gathers 16-bit weights (FSDP mixed precision) and scatters FP32 gradients, twice as wide."""
_STEP_BYTES: Final = {Optimizer.ADAM: 34.0, Optimizer.SGD: 26.0}
"""Bytes moved per parameter that a GPU updates: gradient read for its norm and for the update (8), master
weight and each FP32 moment read and written (8 each), 16-bit weight written (2)."""


@dataclass(frozen=True, slots=True)
class GradientBytes:
    """Full buffers (n, P) that each GPU puts through its groups once a step; see ``StepCosts``."""

    reduce: FloatArray
    gather: FloatArray
    expert_reduce: FloatArray
    expert_gather: FloatArray


def gradient_bytes(
    batch: CandidateBatch, parameters: LocalParameters, calibration: Calibration, precision: Precision
) -> GradientBytes:
    """Buffers by sharding.

    Without sharding gradients are all-reduced, so that their buffer passes the ring twice; the distributed
    optimizer scatters gradients and gathers weights (ZeRO-1, arXiv 1910.02054, section 7); ZeRO-3 does both
    layer by layer within the micro-batches instead (``parameter_traffic``).
    """
    reduced = np.where(is_sharded(batch, Sharding.PARAMETERS), 0.0, calibration.framework.gradient_bytes)[:, None]
    gathered = np.where(is_sharded(batch, Sharding.OPTIMIZER), max(precision.operand_bytes, 1.0), 0.0)[:, None]
    return GradientBytes(
        reduce=reduced * parameters.common,
        gather=gathered * parameters.common,
        expert_reduce=reduced * parameters.routed,
        expert_gather=gathered * parameters.routed,
    )


def optimizer_s(
    gpu: Processor, batch: CandidateBatch, parameters: LocalParameters, workload: TrainingWorkload
) -> FloatArray:
    """(n, P) seconds of the optimizer step: memory traffic of owned states, gradients zeroed, fixed work."""
    common_ranks, routed_ranks = (ranks[:, None] for ranks in sharing_ranks(batch))
    owned = parameters.common / common_ranks + parameters.routed / routed_ranks
    held = parameters.common + parameters.routed
    zeroed = np.where(is_sharded(batch, Sharding.PARAMETERS)[:, None], owned, held)
    nbytes = _STEP_BYTES[workload.optimizer] * owned + gpu.calibration.framework.gradient_bytes * zeroed
    return nbytes / gpu.memory_bytes_per_s + gpu.calibration.step_overhead_s


def parameter_traffic(
    gpu: GpuKind,
    batch: CandidateBatch,
    parameters: LocalParameters,
    *,
    sparse_share: float,
    layer: Seconds,
    gpus_per_domain: int,
    gpus_per_node: int,
) -> LayerTraffic:
    """ZeRO-3: one average layer gathered forward and again backward, its gradients scattered in FP32.

    ``layer`` is the time of the layer itself, beside which the next one travels; ``sparse_share`` the share of
    sparse layers.  A node's members of the group share its traffic: of a buffer of B bytes each of r sends
    (n-1)/n * B/r over the node's edge (one ring per member, as NCCL builds them with a NIC per GPU).
    """
    zero3 = is_sharded(batch, Sharding.PARAMETERS)
    common = (1.0 - sparse_share) * parameters.layer + sparse_share * parameters.sparse_layer
    nbytes = _GATHERED_LAYER_BYTES * (common + sparse_share * parameters.experts)
    ranks = (batch.data * batch.context).astype(np.float64)
    together = fits_together(ranks * _stride(batch), gpus_per_domain=gpus_per_domain, gpus_per_node=gpus_per_node)
    inside = np.where(zero3 & together, ranks, 1.0)
    gather = domain_collective_s(gpu, Collective.ALL_GATHER, inside, nbytes)
    scatter = domain_collective_s(gpu, Collective.REDUCE_SCATTER, inside, 2.0 * nbytes)
    spans = zero3 & ~together & (ranks > 1)
    members = np.clip(gpus_per_node / _stride(batch), 1.0, ranks)
    return LayerTraffic(
        inside=Seconds(np.maximum(gather - layer.forward, 0.0), np.maximum(gather + scatter - layer.backward, 0.0)),
        message_bytes=np.where(spans, nbytes * (ranks - 1.0) / ranks / members, 0.0),
        forward_count=np.where(spans, 1.0, 0.0),
        backward_count=np.where(spans, 3.0, 0.0),
        forward_hidden_s=np.where(spans, layer.forward, 0.0),
        backward_hidden_s=np.where(spans, layer.backward / 3.0, 0.0),
    )


def _stride(batch: CandidateBatch) -> FloatArray:
    """(n,) ranks between neighbours of the data parallel group; context ranks count as neighbours.

    Megatron's ``tp-cp-ep-pp-dp`` puts the pipeline between them.
    """
    pipeline_first = batch.rank_order == ORDER_CODES.index(RankOrder.PIPELINE_BEFORE_DATA)
    between = np.where(pipeline_first & (batch.data > 1), batch.pipeline, 1)
    return (batch.tensor * between).astype(np.float64)
