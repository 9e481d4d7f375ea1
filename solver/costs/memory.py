"""Peak memory of every pipeline rank, by part."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.model.architecture import Architecture
from cluster_models.training.frameworks import Framework
from cluster_models.training.recompute import KEEP_ALL, ActivationSettings
from cluster_models.training.schedules import V_STAGES, PipelineSchedule
from cluster_models.training.workload import Optimizer, Sharding, TrainingWorkload
from solver.candidates import SCHEDULE_CODES, CandidateBatch, FloatArray, IntArray
from solver.costs.activations import layer_activations
from solver.costs.calibration import Calibration, calibration_of
from solver.costs.compute import processor
from solver.costs.data_parallel import reduces_each_micro_batch
from solver.costs.in_flight import held_at_peaks
from solver.costs.launching import lagging
from solver.costs.layer_counts import all_layers
from solver.costs.local_sizes import LocalSizes, is_sharded, local_sizes
from solver.costs.model_ends import deferred_head_bytes, deferred_products
from solver.costs.parameters import LocalParameters, by_rank, local_parameters, sharing_ranks
from solver.costs.routed_loads import RoutedLoads
from solver.costs.split_backward import calibration_under, waiting_bytes

MOMENT_BYTES: Final = {Optimizer.ADAM: 8.0, Optimizer.SGD: 4.0}
"""Two FP32 moments (Adam) or one (SGD with momentum) per parameter."""
MASTER_BYTES: Final = 4.0
"""An FP32 weight beside the 16-bit one; with Adam 18 bytes in all where gradients are FP32 (Megatron-LM's
distributed optimizer documentation).  FP32 training has no other weight."""
WEIGHT_BYTES: Final = {Precision.MXFP8: 2.0 * (1.0 + 1.0 / 32.0), Precision.FP32: 4.0}
"""Bytes of a weight as products read it, 2 unless listed: 16 bits, or an 8-bit weight and its transpose
(Transformer Engine with FP8 parameters, Megatron's ``--fp8-param-gather``, which NVIDIA's FP8 recipes set); MXFP8
has a scale for every 32 elements of both copies."""
_PIECES: Final = 0.1
"""Share of memory lost in pieces: it rejects 7 of nanotron's 1,027 runs, and 84 % of those that failed."""


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


def stage_memory(  # noqa: PLR0913 - each a fact of its own
    batch: CandidateBatch,
    layers: IntArray,
    *,
    architecture: Architecture,
    workload: TrainingWorkload,
    gpu: GpuKind,
    micro_batches: IntArray,
    calibration: Calibration | None = None,
    settings: ActivationSettings = KEEP_ALL,
    routed: RoutedLoads | None = None,
) -> StageMemoryParts:
    """Memory of candidates that share their pipeline and virtual pipeline sizes and their schedule.

    ``layers``, (C, K) or by candidate (n, C, K), counts layers of each kind in every chunk, ``micro_batches`` (n,)
    those of a step.  With ``routed`` counts, tokens of the busiest expert rank in the worst layer stay.
    The peak is either in a backward pass or, where the optimizer's step takes more than activations had taken, in
    that step, which then counts as optimizer.
    """
    calibration = calibration_of(gpu, workload.framework) if calibration is None else calibration
    calibration = calibration_under(calibration, batch.runs)
    imbalance = None if routed is None else routed.worst(calibration)
    sizes = local_sizes(batch, workload, calibration, imbalance=imbalance, most=True)
    parameters = local_parameters(batch, layers, architecture)
    stages = int(batch.pipeline[0])
    peaks = list(held_at_peaks(batch, micro_batches, calibration.framework))
    in_flight = peaks[0].activations
    wait = _weight_bytes(batch, layers, architecture, sizes) if batch.runs.splits_backward else None
    on_rank = np.maximum(by_rank(np.atleast_2d(layers.sum(axis=-1)), stages), 1.0)
    stays = np.maximum(1.0 - settings.offloaded_layers / on_rank, 0.0)

    def held(lagging: FloatArray | float) -> FloatArray:
        kept = layer_activations(architecture, sizes, calibration, settings.modules, lagging=lagging)
        per_chunk = (layers * kept.layers[:, None, :]).sum(axis=-1)
        if calibration.framework.keeps_stage_outputs and stages > 1:
            per_chunk = per_chunk + (sizes.element_bytes * architecture.hidden * sizes.stream_tokens)[:, None]
        by_chunk = per_chunk.reshape(in_flight.shape)
        moments = [(by_chunk * peak.activations).sum(axis=1) * stays for peak in peaks]
        if wait is not None:
            waits = [(wait.reshape(in_flight.shape) * peak.waiting).sum(axis=1) for peak in peaks]
            moments = [held + waiting for held, waiting in zip(moments, waits, strict=True)]
        return np.asarray(np.maximum.reduce(moments) + kept.working[:, None])

    activations = held(0.0)
    logits = np.zeros_like(activations)
    heads = 1 + architecture.prediction_layers
    last = batch.last_column(layers.shape[-2]) % stages
    logits[:, last] = heads * _logit_bytes(architecture, sizes, calibration.framework)
    waiting = deferred_products(
        calibration.framework, architecture, micro_batches.astype(np.float64), pipelined=stages > 1
    )
    logits[:, last] += deferred_head_bytes(architecture, sizes, waiting)
    states = _states(batch, parameters, workload, calibration, micro_batches)
    buffers = _buffers(batch, sizes, architecture) + communicator_bytes(batch, calibration)
    bucket = np.where(batch.data * batch.context > 1, calibration.framework.bucket_bytes, 0.0)
    buffers = buffers[:, None] + np.minimum(bucket[:, None], states.gradients)
    fragmentation = calibration.fragmentation_share * (activations + logits)
    step = calibration.framework.step_bytes * states.owned
    settled = StageMemoryParts(
        weights_bytes=states.weights,
        gradients_bytes=states.gradients,
        optimizer_bytes=states.optimizer + np.maximum(step - activations - logits - fragmentation, 0.0),
        activations_bytes=activations,
        logits_bytes=logits,
        communication_bytes=buffers,
        runtime_bytes=np.full((len(batch), stages), calibration.runtime_bytes),
        fragmentation_bytes=fragmentation,
        limit_bytes=np.full((len(batch), stages), gpu.memory_bytes * (1.0 - workload.memory_headroom)),
    )
    if not calibration.framework.keeps_gathered_inputs:
        return settled
    share = lagging(
        processor(gpu, workload.precision, calibration),
        architecture,
        sizes,
        in_flight=in_flight.max(axis=1),
        passes=(layers.sum(axis=-1).reshape(-1, *in_flight.shape[1:]) * in_flight).sum(axis=1),
        micro_batches=micro_batches,
        domain=gpu.scale_up_domain_gpus,
    )
    return _with_waiting(settled, share * (held(1.0) - activations), calibration)


def _weight_bytes(
    batch: CandidateBatch, layers: IntArray, architecture: Architecture, sizes: LocalSizes
) -> FloatArray:
    """(n, C) bytes that wait for the gradients of weights of a micro-batch, the head's included."""
    waiting = waiting_bytes(architecture, sizes, layers)
    heads = np.full(len(batch), 1.0 + architecture.prediction_layers)
    waiting[:, batch.last_column(layers.shape[-2])] += deferred_head_bytes(architecture, sizes, heads)
    return waiting


def _with_waiting(
    settled: StageMemoryParts, waiting_bytes: FloatArray, calibration: Calibration
) -> StageMemoryParts:
    """``settled`` and blocks (n, P) that wait for the GPU, as far as there is room for them.

    PyTorch's allocator waits for such blocks before it reports that memory is out (``release_cached_blocks``, which
    synchronizes their events); memory taken back again and again is in pieces, ``_PIECES`` of all that was wanted.
    """
    fragmentation = calibration.fragmentation_share * waiting_bytes
    wanted = settled.total_bytes + waiting_bytes + fragmentation
    short = wanted > settled.limit_bytes
    pieces = np.minimum(_PIECES * wanted, waiting_bytes + fragmentation)
    return replace(
        settled,
        activations_bytes=settled.activations_bytes + np.where(short, 0.0, waiting_bytes),
        fragmentation_bytes=settled.fragmentation_bytes + np.where(short, pieces, fragmentation),
    )


def least_bytes(
    batch: CandidateBatch,
    *,
    architecture: Architecture,
    workload: TrainingWorkload,
    calibration: Calibration,
) -> FloatArray:
    """(n,) bytes that the fullest GPU of each candidate holds at least, however layers and micro-batches are cut.

    Weights, gradients and optimizer states do not depend on either: the mean of their sum over the pipeline ranks,
    which candidates share, and what the run time takes.  States that ZeRO-3 shards are not counted.
    """
    whole, stages = all_layers(architecture), int(batch.pipeline[0])
    layers = np.zeros((stages, len(whole)), dtype=np.int64)
    if any(schedule.is_v_shaped for schedule in calibration.framework.schedules):
        # tied embeddings and those of predictions have no copy where the model ends on the rank that it begins on
        layers = np.zeros((V_STAGES * stages, len(whole)), dtype=np.int64)
        v_shaped = SCHEDULE_CODES.index(PipelineSchedule.ZB_V)
        batch = replace(batch, schedule=np.full(len(batch), v_shaped, dtype=np.int64))
    layers[0] = whole
    parameters = local_parameters(batch, layers, architecture)
    states = _states(batch, parameters, workload, calibration, np.ones(len(batch), dtype=np.int64))
    held = (states.weights + states.gradients + states.optimizer).mean(axis=1)
    held[is_sharded(batch, Sharding.PARAMETERS)] = 0.0
    return np.asarray(held + calibration.runtime_bytes + communicator_bytes(batch, calibration))


@dataclass(frozen=True, slots=True)
class _States:
    """Bytes (n, P) of what outlives a micro-batch, and parameters ``owned`` after sharding."""

    weights: FloatArray
    gradients: FloatArray
    optimizer: FloatArray
    owned: FloatArray


def _logit_bytes(architecture: Architecture, sizes: LocalSizes, framework: Framework) -> FloatArray:
    """(n,) bytes of the logits that one head holds: of a micro-batch, or of a chunk of it.

    Ranks that gather them hold their own columns and a copy beside (measured: 5 to 7 GB of 16,384 tokens).
    """
    tokens = np.minimum(sizes.tokens, framework.loss_chunk_tokens or np.inf)
    logits = tokens * architecture.vocabulary
    if not framework.whole_logits:
        return np.asarray(framework.logit_bytes * logits / sizes.tensor)
    gathered = np.where(sizes.tensor > 1, sizes.element_bytes * (1.0 + 1.0 / sizes.tensor), 0.0)
    return np.asarray((framework.logit_bytes + gathered) * logits)


def _states(
    batch: CandidateBatch,
    parameters: LocalParameters,
    workload: TrainingWorkload,
    calibration: Calibration,
    micro_batches: IntArray,
) -> _States:
    """ZeRO-3 adds two gathered layers and what lies outside layers, and gradients of one layer and of that.

    PyTorch FSDP keeps an FP32 shard alone; its pipelines gather once and reduce after the last micro-batch
    (``torch.distributed.pipelining``, ``backward_maybe_with_nosync``).  Gradients that are reduced once are summed
    whole over several micro-batches; those of ZeRO-2 stay on their owner alone once their layer is through (arXiv
    1910.02054, section 5.2).
    """
    framework, fp32 = calibration.framework, workload.precision is Precision.FP32
    common_ranks, routed_ranks = (ranks[:, None] for ranks in sharing_ranks(batch, framework))
    whole = parameters.common + parameters.routed
    owned = parameters.common / common_ranks + parameters.routed / routed_ranks
    layer = parameters.largest_layer[:, None]
    zero3 = is_sharded(batch, Sharding.PARAMETERS)[:, None]
    stays_whole = framework.sharded_master & (batch.pipeline > 1)[:, None]
    gathered = np.where(stays_whole, whole, np.minimum(whole, 2.0 * layer + parameters.tables))
    sums_whole = stays_whole | (framework.reduces_once & (micro_batches > 1))[:, None]
    last = whole if framework.reduces_once else whole + owned
    passing = np.minimum(whole, owned + layer + parameters.tables)
    owners = reduces_each_micro_batch(batch, framework)[:, None]
    summed = np.where(zero3 & sums_whole, last, np.where(zero3 | owners, passing, whole))
    weight_bytes = WEIGHT_BYTES.get(workload.precision, 2.0)
    narrow = 0.5 if framework.sixteen_bit_states else 1.0
    if framework.sharded_master:
        sharded = narrow * MASTER_BYTES * owned + weight_bytes * gathered
    else:
        sharded = weight_bytes * np.minimum(whole, owned + gathered)
    no_master = fp32 or framework.sixteen_bit_states
    master = np.where(zero3 & framework.sharded_master, 0.0, 0.0 if no_master else MASTER_BYTES)
    gradient_bytes = max(framework.gradient_bytes, workload.precision.activation_bytes if fp32 else 0.0)
    gradient_bytes += framework.own_gradient_bytes
    return _States(
        weights=np.where(zero3, sharded, weight_bytes * whole),
        gradients=gradient_bytes * summed,
        optimizer=(narrow * MOMENT_BYTES[workload.optimizer] + master) * owned,
        owned=owned,
    )


def communicator_bytes(batch: CandidateBatch, calibration: Calibration) -> FloatArray:
    """(n,) what the library of collectives keeps outside the allocator for the groups of each candidate."""
    degrees = (batch.tensor, batch.pipeline, batch.data, batch.context, batch.expert, batch.expert_tensor)
    return np.asarray(calibration.group_bytes * sum((degree > 1).astype(np.float64) for degree in degrees))


def _buffers(batch: CandidateBatch, sizes: LocalSizes, architecture: Architecture) -> FloatArray:
    """(n,) gathered sequences and pipeline transfers (two each way)."""
    boundary = sizes.element_bytes * architecture.hidden * sizes.stream_tokens
    gathered = np.where(batch.tensor > 1, sizes.element_bytes * architecture.hidden * sizes.tokens, 0.0)
    transfers = np.where(batch.pipeline > 1, 4.0 * boundary, 0.0)
    return np.asarray(gathered + transfers)
