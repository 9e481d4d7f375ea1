"""Costs of a step across the data parallel ranks, and of the optimizer step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.cluster.measurements import Collective
from cluster_models.training.adapters import NF4_BYTES, FrozenFormat
from cluster_models.training.framework_choices import Optimizer
from cluster_models.training.frameworks import Framework
from cluster_models.training.plan import RankOrder
from cluster_models.training.workload import Sharding, TrainingWorkload
from solver.candidates import ORDER_CODES, BoolArray, CandidateBatch, FloatArray
from solver.costs.calibration import Calibration
from solver.costs.collectives import domain_collective_s
from solver.costs.compute import Processor
from solver.costs.host_offload import offload_share
from solver.costs.local_sizes import is_hybrid, is_sharded, shards_states
from solver.costs.parameters import LocalParameters, data_ranks, owned_parameters, sharing_ranks
from solver.costs.seconds import Seconds
from solver.costs.traffic import LayerTraffic

_GATHERED_BYTES: Final = 2.0
"""ZeRO-3 gathers weights in 16 bits (FSDP's mixed precision)."""
_INT8_BYTES: Final = 1.0
_INT4_BYTES: Final = 0.5
"""ZeRO++ (arXiv 2306.10209, section 3): blocks of 8,000 share a scale (``CUDAQuantizer``), which is not counted."""
_QUANTISING_BYTES: Final = 3.0
"""Through memory for each parameter: a gathered INT8 read and its 16 bits written; a gradient's 16 bits read, four
written, and the four of another rank read."""
_ORTHOGONAL_BYTES: Final = 16.0
"""Muon reads momentum, writes what it makes orthogonal, and reads and writes that once more to norm it, in FP32."""
_SCALING_BYTES: Final = 40.0
"""Updates are squared, averaged, rooted, shifted and divided by one operation after the other in FP32, beside the
second moment itself (``AdaptiveMuon._apply_moment2_normalization``)."""
_STEP_BYTES: Final = 10.0
"""Bytes moved per parameter that a GPU updates beside its states, which are read and written: gradient read for its
norm and for the update (8), 16-bit weight written (2).  With FP32 states 34 in all (Adam) or 26 (SGD)."""
_WIDENING_BYTES: Final = 20.0
"""A narrow state's FP32 copy is written, read and written by the update, and read for its largest element and for
the narrow state (Transformer Engine's ``FusedAdam``)."""
_PERTURBING_BYTES: Final = 3.0 * 16.0 + 26.0
"""MeZO's trainer moves weights along a direction, back past where they were, home, and updates them.  Each time it
draws 16-bit numbers (2) and works with one operation after the other: two factors (8) and a sum (6); in the update
two factors, decay and two sums (``zo_perturb_parameters``, ``zo_update``)."""
_PERTURBING_KERNELS: Final = 3.0 * 4.0 + 6.0

_LAYER_TENSORS: Final = 6.0
"""Parameters of a decoder layer as tensors: two norms, two products of attention and two of the MLP."""
_LAYER_PRODUCTS: Final = 4.0
_SLICE_S: Final = 1e-5
"""Time that the host takes to cut a slice of a tensor and copy it: two calls from Python and the launch of a copy.
Loops of InternEvo and nanotron take 16 and 4 us (``shard_host_s``, fitted)."""


@dataclass(frozen=True, slots=True)
class GradientBytes:
    """Full buffers (n, P) that each GPU puts through its groups once a step; see ``StepCosts``."""

    reduce: FloatArray
    gather: FloatArray
    expert_reduce: FloatArray
    expert_gather: FloatArray


def gradient_bytes(
    batch: CandidateBatch,
    trained: LocalParameters,
    held: LocalParameters,
    calibration: Calibration,
    precision: Precision,
) -> GradientBytes:
    """Buffers by sharding, of parameters that are ``trained`` among those ``held``.

    Without sharding gradients are all-reduced, so that their buffer passes the ring twice; the distributed
    optimizer scatters gradients and gathers weights (ZeRO-1, arXiv 1910.02054, section 7); ZeRO-3 does both
    layer by layer within the micro-batches instead (``parameter_traffic``), or once a step like ZeRO-1, where
    ``reduces_once`` says so the gradients alone.
    """
    framework = calibration.framework
    layer_by_layer = _layer_by_layer(batch, framework)
    once = is_sharded(batch, Sharding.PARAMETERS) & ~layer_by_layer
    weights = np.where(shards_states(batch), max(precision.operand_bytes, 1.0), 0.0)
    scattered = layer_by_layer & ~is_hybrid(batch) & (not framework.reduces_once)
    reduced = np.where(scattered, 0.0, framework.gradient_bytes)[:, None]
    whole, weights = (each[:, None] for each in (_GATHERED_BYTES * once, weights))
    return GradientBytes(
        reduce=reduced * trained.common,
        gather=whole * held.common + weights * trained.common,
        expert_reduce=reduced * trained.routed,
        expert_gather=whole * held.routed + weights * trained.routed,
    )


def ring_passes(batch: CandidateBatch, calibration: Calibration, domain: int) -> tuple[FloatArray, FloatArray]:
    """(n,) how often gradients, and gathered parameters, pass their ring.

    An all-reduce is a scatter and a gather, twice the way.  Rings over many domains of ``domain`` GPUs take longer
    than the same bytes over two: ``ring_decline`` for each doubling counts as further passes.
    """
    whole = is_all_reduced(batch, calibration.framework)
    domains = np.maximum(batch.tensor * batch.context * batch.data / domain, 2.0)
    longer = 1.0 + calibration.ring_decline * np.log2(domains / 2.0)
    return np.where(whole, 2.0, 1.0) * longer, longer


def is_all_reduced(batch: CandidateBatch, framework: Framework) -> BoolArray:
    """(n,) whether gradients are summed on all data ranks, and not only where their shard of the optimizer is.

    Groups that share states out and are smaller than all data ranks scatter inside and all-reduce between them:
    the bytes between nodes are those of an all-reduce.  So do groups that share parameters out (HSDP).
    """
    several = sharing_ranks(batch, framework)[0] < data_ranks(batch)[0]
    sharded = shards_states(batch) & (several | framework.sharded_all_reduce)
    return np.asarray(is_sharded(batch, Sharding.NONE) | sharded | is_hybrid(batch))


def tail_transfers(batch: CandidateBatch, calibration: Calibration, domain: int) -> FloatArray:
    """(n,) transfers between domains, one after the other, that gradients and weights wait for with nothing beside.

    A ring of n ranks takes n-1 of them for its first byte (Patarasuk & Yuan 2009); an all-reduce twice as many.
    None where the group stays in a domain, or where weights are gathered in every micro-batch anyway.
    """
    framework = calibration.framework
    ranks, _ = data_ranks(batch)
    gathering, _ = sharing_ranks(batch, framework)
    passes = np.where(is_all_reduced(batch, framework), 2.0, 1.0)
    reduce = np.where(ranks * _stride(batch) > domain, passes * (ranks - 1.0), 0.0)
    gather = np.where(gathering * _stride(batch) > domain, gathering - 1.0, 0.0)
    once = ~is_sharded(batch, Sharding.PARAMETERS) | is_hybrid(batch)
    return np.where(once, calibration.tail_collectives * (reduce + gather), 0.0)


def reduction_overlaps(batch: CandidateBatch, framework: Framework) -> BoolArray:
    """(n,) whether gradients are reduced beside the last backward pass."""
    beside = is_sharded(batch, Sharding.NONE) | framework.overlap_sharded_gradients
    return np.asarray(beside & framework.overlap_gradients)


def reduces_each_micro_batch(batch: CandidateBatch, framework: Framework) -> BoolArray:
    """(n,) whether gradients are reduced in each micro-batch, as none is kept whole (ZeRO-2, arXiv 1910.02054).

    PyTorch's HSDP also sums them over groups in each one.
    """
    hybrid = is_hybrid(batch) & (not framework.reduces_once)
    owners = is_sharded(batch, Sharding.OPTIMIZER) & framework.shards_gradients
    return np.asarray(owners | is_sharded(batch, Sharding.GRADIENTS) | hybrid)


def optimizer_s(
    gpu: Processor,
    batch: CandidateBatch,
    parameters: LocalParameters,
    workload: TrainingWorkload,
    layers: FloatArray,
) -> FloatArray:
    """(n, P) seconds of the optimizer step: memory traffic of owned states, gradients zeroed, fixed work.

    Where every rank clips all gradients that it holds it reads them for their norm and scales them; where shards
    are copied one by one after their gather, the host pays for each tensor of the ``layers`` (n, P) and data rank.
    Offloaded states are updated elsewhere (``host_offload``).  Zeroth-order training passes over all weights four
    times, by kernels of each tensor.
    """
    framework, calibration = gpu.calibration.framework, gpu.calibration
    owned = owned_parameters(batch, parameters, framework)
    common_ranks = sharing_ranks(batch, framework)[0][:, None]
    held = parameters.common + parameters.routed
    if not workload.optimizer.runs_backward:
        kernels = _PERTURBING_KERNELS * _LAYER_TENSORS * layers * calibration.kernel_s
        return _PERTURBING_BYTES * held / gpu.memory_bytes_per_s + kernels + calibration.step_overhead_s
    zeroed = np.where(is_sharded(batch, Sharding.PARAMETERS)[:, None], owned, held)
    states = (1.0 - offload_share(batch, workload)) * (_step_bytes(workload) - _STEP_BYTES)
    nbytes = (_STEP_BYTES + states) * owned + framework.gradient_bytes * zeroed
    if framework.clips_all_gradients:
        nbytes = nbytes + 3.0 * framework.gradient_bytes * held
    copies = np.where(common_ranks > 1, common_ranks, 0.0) * _LAYER_TENSORS * layers
    return nbytes / gpu.memory_bytes_per_s + calibration.step_overhead_s + calibration.shard_host_s * copies


def _step_bytes(workload: TrainingWorkload) -> float:
    """Bytes moved per parameter that a GPU updates; half where weights and states all have 16 bits."""
    states = workload.optimizer_states
    moments = states.first_moment.nbytes + states.second_moment.nbytes * workload.optimizer.has_second_moment
    orthogonal = _ORTHOGONAL_BYTES * workload.optimizer.orthogonalises
    orthogonal += _SCALING_BYTES * (workload.optimizer is Optimizer.ADAPTIVE_MUON)
    moved = (
        _STEP_BYTES + orthogonal + 2.0 * (moments + states.master_weight.nbytes) + _WIDENING_BYTES * states.widened
    )
    return moved * (0.5 if workload.framework.sixteen_bit_states else 1.0)


def parameter_traffic(  # noqa: PLR0913 - each a fact of its own
    gpu: GpuKind,
    batch: CandidateBatch,
    parameters: LocalParameters,
    calibration: Calibration,
    *,
    trained: LocalParameters,
    frozen: FrozenFormat | None,
    shares: FloatArray,
    sparse_share: float,
    layer: Seconds,
    domain: int,
) -> LayerTraffic:
    """ZeRO-3: one average layer gathered forward and again backward, its gradients scattered.

    Gathered are all parameters, ``frozen`` ones in their format, scattered the gradients of those ``trained``.
    ``layer`` is the time of the layer itself, beside which the next one travels; ``shares`` (K,) those of each kind
    of layers, ``sparse_share`` that of the sparse ones, ``domain`` the GPUs of a node or NVLink domain.
    Collectives take g seconds alone and slow the compute beside them by ``gather_contention`` g, wherever they
    lead: each rank moves the whole layer through its own memory.  A layer of L seconds then takes
    L + max(contention g, g - L), to which slices that the host cuts add as g does; where the group
    leaves its domain, the placement decides on the second term.
    Quantised (``sharded_exchange``), weights have a byte and gradients half of one; kernels for both pass memory
    beside nothing.
    All zero where weights are gathered once a step instead (``_layer_by_layer``); gradients that are reduced once
    stay out of it, and those that are summed over several groups as well.
    """
    framework, exchange = calibration.framework, calibration.framework.sharded_exchange
    zero3 = _layer_by_layer(batch, framework)
    common_ranks, routed_ranks = (np.where(zero3, ranks, 1.0) for ranks in sharing_ranks(batch, framework))
    layer_bytes, expert_bytes = _GATHERED_BYTES * (parameters.layers @ shares), _GATHERED_BYTES * parameters.experts
    width: FloatArray | float = 0.0 if framework.reduces_once else framework.gradient_bytes / _GATHERED_BYTES
    if frozen is not None:
        share = (NF4_BYTES if frozen is FrozenFormat.NF4 else _GATHERED_BYTES) / _GATHERED_BYTES
        own = _GATHERED_BYTES * (trained.layers @ shares)
        layer_bytes, expert_bytes = share * layer_bytes + own, share * expert_bytes
        width = width * own / (layer_bytes + sparse_share * expert_bytes)
    if exchange.of_gradients:
        width = width * _INT4_BYTES / framework.gradient_bytes
    width = np.where(is_hybrid(batch), 0.0, width)
    packed = np.where(exchange.of_weights & ~is_hybrid(batch), _INT8_BYTES / _GATHERED_BYTES, 1.0)
    common = _Group.of(
        layer_bytes,
        ranks=common_ranks,
        stride=_stride(batch),
        domain=domain,
    )
    routed = _Group.of(
        sparse_share * expert_bytes,
        ranks=routed_ranks,
        stride=_stride(batch) * batch.expert_block / batch.tensor,
        domain=domain,
    )
    gather, scatter = (
        sum(domain_collective_s(gpu, kind, each.members, factor * each.nbytes) for each in (common, routed))
        for kind, factor in ((Collective.ALL_GATHER, packed), (Collective.REDUCE_SCATTER, width))
    )
    alone = Seconds(np.asarray(gather), np.asarray(gather + scatter)) * (1.0 / calibration.domain_share)
    travels = layer_bytes * (common_ranks > 1) + sparse_share * expert_bytes * (routed_ranks > 1)
    pass_s = _QUANTISING_BYTES * travels / _GATHERED_BYTES / (gpu.memory_bytes_per_s * calibration.memory_share)
    weights_s = pass_s * (packed < 1.0)
    kernels = Seconds(weights_s, weights_s + pass_s * exchange.of_gradients * (width > 0.0))
    beside = Seconds(layer.forward * framework.overlap_parameters, layer.backward * framework.overlap_gradients)
    spans = common.spans | routed.spans
    slowed = alone * calibration.gather_contention
    if framework.slices_shards:
        slicing = _slicing_s(common_ranks)
        beside = Seconds(beside.forward - slicing, beside.backward - slicing * (1.0 + (width > 0)))
    return LayerTraffic(
        inside=Seconds(
            np.where(spans, slowed.forward, np.maximum(slowed.forward, alone.forward - beside.forward)),
            np.where(spans, slowed.backward, np.maximum(slowed.backward, alone.backward - beside.backward)),
        )
        + kernels,
        message_bytes=packed * (common.crossing_bytes + routed.crossing_bytes),
        forward_count=np.where(spans, 1.0, 0.0),
        backward_count=np.where(spans, 1.0 + width / packed, 0.0),
        forward_hidden_s=np.where(spans, beside.forward + slowed.forward, 0.0),
        backward_hidden_s=np.where(spans, (beside.backward + slowed.backward) / (1.0 + width / packed), 0.0),
    )


def _slicing_s(ranks: FloatArray) -> FloatArray:
    """(n,) host seconds of a gather, or scatter, of a layer's products over ``ranks`` (n,), which wait for it.

    Norms and biases stay whole, as they are small (``stage3_param_persistence_threshold``).
    """
    return np.where(ranks > 1.0, _SLICE_S * _LAYER_PRODUCTS * ranks, 0.0)


@dataclass(frozen=True, slots=True)
class _Group:
    """The ranks that share out ``nbytes`` (n,): how many share a domain, what leaves it per GPU.

    A domain's members of the group share its traffic: of a buffer of B bytes each of m sends (n-1)/n * B/m over
    the domain's edge (one ring per member, as NCCL builds them with a NIC per GPU).
    """

    nbytes: FloatArray
    members: FloatArray
    spans: BoolArray
    crossing_bytes: FloatArray

    @classmethod
    def of(cls, nbytes: FloatArray, *, ranks: FloatArray, stride: FloatArray, domain: int) -> _Group:
        """A group of ``ranks`` (n,) that lie ``stride`` (n,) apart, spread evenly over domains of one size."""
        ranks = np.where(nbytes > 0, ranks, 1.0)
        domains = np.ceil(ranks * stride / domain)
        members = np.where(domains > 1, np.maximum(np.floor(ranks / domains), 1.0), ranks)
        spans = members < ranks
        crossing = np.where(spans, nbytes * (ranks - 1.0) / ranks / members, 0.0)
        return cls(nbytes, members, spans, crossing)


def _layer_by_layer(batch: CandidateBatch, framework: Framework) -> BoolArray:
    """(n,) whether weights are gathered and gradients scattered in each micro-batch.

    PyTorch's FSDP keeps whole weights and gradients through the micro-batches of a pipeline where it is told to
    (torchtitan's and NeMo Automodel's ``reshard_after_forward``).
    """
    kept = framework.sharded_master & (not framework.gathers_each_micro_batch) & (batch.pipeline > 1)
    return np.asarray(is_sharded(batch, Sharding.PARAMETERS) & ~kept)


def _stride(batch: CandidateBatch) -> FloatArray:
    """(n,) ranks between neighbours of the data parallel group; context ranks count as neighbours.

    Megatron's ``tp-cp-ep-pp-dp`` puts the pipeline between them.
    """
    pipeline_first = batch.rank_order == ORDER_CODES.index(RankOrder.PIPELINE_BEFORE_DATA)
    between = np.where(pipeline_first & (batch.data > 1), batch.pipeline, 1)
    return (batch.tensor * between).astype(np.float64)
