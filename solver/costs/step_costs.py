"""Costs of one training step that do not depend on which node plays which part.

Shapes: ``n`` candidates that share their pipeline and virtual pipeline sizes, ``C`` chunks (virtual stages) in
the order of ``Configuration.stage_layers`` (column ``c`` sits on pipeline rank ``c % pipeline``; the model runs
through them in this order unless the schedule is V-shaped), ``P`` pipeline ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.model.architecture import Architecture
from cluster_models.training.schedules import PipelineSchedule
from cluster_models.training.workload import TrainingWorkload
from solver.candidates import CandidateBatch, FloatArray, IntArray
from solver.costs.activations import kept_activations, layer_tensors
from solver.costs.adapters import trained_parameters
from solver.costs.calibration import Calibration, calibration_of
from solver.costs.compute import Processor, processor
from solver.costs.data_parallel import (
    gradient_bytes,
    optimizer_s,
    parameter_traffic,
    reduces_each_micro_batch,
    reduction_overlaps,
    ring_passes,
    tail_transfers,
)
from solver.costs.host_offload import offload_s, waiting_activations_s
from solver.costs.layers import Layers, SizedLayers, layers_of
from solver.costs.local_sizes import LocalSizes
from solver.costs.model_ends import (
    deferred_head_s,
    deferred_products,
    embedding,
    end_precision,
    gathered_logits_s,
    head_and_loss,
)
from solver.costs.orthogonalisation import orthogonalisation_s, orthogonalising
from solver.costs.parameters import (
    by_rank,
    local_parameters,
    owned_parameters,
    sharing_ranks,
    sparse_counts,
)
from solver.costs.prediction import prediction_ends
from solver.costs.recomputation import RecomputePolicies, repeated_chunks
from solver.costs.routed_loads import RoutedLoads
from solver.costs.seconds import Seconds
from solver.costs.split_backward import calibration_under
from solver.costs.straggling import straggling
from solver.costs.traffic import (
    CrossTraffic,
    LayerTraffic,
    joined_traffic,
)

__all__ = ["CrossTraffic", "StepCosts", "step_costs"]


@dataclass(frozen=True, slots=True)
class StepCosts:
    """Costs of ``n`` candidates that the placement and the pipeline need to know.

    ``forward_s`` and ``backward_s`` (n, C): one micro-batch through one chunk on a healthy node, collectives inside
    a node included, traffic that crosses nodes left out; ``weight_s`` (n, C): what of the backward pass a schedule
    that splits it runs apart, for gradients of weights, with what it computes again for them. ``compute_s``,
    ``tensor_s``, ``context_s`` and ``expert_s`` (n, C) are the parts of forward plus backward and add up to them;
    gathering sharded parameters inside a node counts as compute where nothing hides it. ``transfer_bytes`` (n,):
    what one GPU sends to its peer in the next chunk, per micro-batch, in the mean of both ways. ``reduce_bytes``
    and ``gather_bytes`` (n, P): gradients (and gathered parameters) that each GPU puts through its data parallel
    group (``data * context`` ranks) once per step, and ``expert_reduce_bytes``, ``expert_gather_bytes`` the same
    for experts over the expert data parallel group (``tensor * context * data / (expert * expert_tensor)`` ranks);
    full buffer sizes, before the (n-1)/n of the ring, which they pass ``reduce_passes`` and ``gather_passes`` (n,)
    times (``data_parallel.ring_passes``). ``reduce_hidden_s`` and ``gather_hidden_s`` (n, P): how much of either
    hides behind compute. Parameters are gathered over ``gather_ranks`` and ``expert_gather_ranks`` (n,) of these
    groups. ``tail_transfers`` (n,): transfers between domains whose latency these rings show whatever hides their
    bytes.
    ``optimizer_s`` (n, P): the optimizer step itself, and on the last rank the head's deferred weight gradients as
    far as they take longer than the others' last backward passes; ``offload_s`` (n, P) of it is the step in the
    node's memory, with transfers there that nothing hides.
    """

    forward_s: FloatArray
    backward_s: FloatArray
    weight_s: FloatArray
    compute_s: FloatArray
    tensor_s: FloatArray
    context_s: FloatArray
    expert_s: FloatArray
    transfer_bytes: FloatArray
    context_traffic: CrossTraffic
    expert_traffic: CrossTraffic
    parameter_traffic: CrossTraffic
    """Parameters gathered layer by layer over the data parallel group when they are sharded (ZeRO-3)."""
    reduce_passes: FloatArray
    gather_passes: FloatArray
    gather_ranks: FloatArray
    expert_gather_ranks: FloatArray
    tail_transfers: FloatArray
    reduce_bytes: FloatArray
    gather_bytes: FloatArray
    expert_reduce_bytes: FloatArray
    expert_gather_bytes: FloatArray
    reduce_hidden_s: FloatArray
    gather_hidden_s: FloatArray
    optimizer_s: FloatArray
    offload_s: FloatArray

    def durations_s(self, order: PipelineSchedule) -> tuple[FloatArray, ...]:
        """(n, C) seconds of each kind of event under a schedule (``solver.orders``)."""
        if not order.splits_backward:
            return self.forward_s, self.backward_s
        return self.forward_s, self.backward_s - self.weight_s, self.weight_s


def step_costs(  # noqa: PLR0913 - each a fact of its own
    batch: CandidateBatch,
    layers: IntArray,
    *,
    architecture: Architecture,
    workload: TrainingWorkload,
    gpu: GpuKind,
    gpus_per_domain: int,
    gpus_per_node: int,
    calibration: Calibration | None = None,
    routed: RoutedLoads | None = None,
    tensor_slowdown: FloatArray | None = None,
    known: SizedLayers | None = None,
) -> StepCosts:
    """Costs of candidates that share their pipeline and virtual pipeline sizes, schedule and settings.

    ``layers``, (C, K) or by candidate (n, C, K), counts decoder layers of each kind in every chunk; chunk 0 also
    holds the embedding and the model's last chunk final norm, output head and loss.  ``calibration`` defaults to
    the GPU kind's own.  ``routed``: what their expert ranks carry by counts of the routing; without it, by
    calibration.
    ``tensor_slowdown`` (n,): how much longer tensor parallel collectives take than inside a domain.
    ``known`` are their layers, where those have been worked out before.  Formulas: docs/cost_model.md.
    """
    calibration = calibration_of(gpu, workload.framework) if calibration is None else calibration
    calibration = calibration_under(calibration, batch)
    split = batch.runs.splits_backward
    chip = processor(gpu, workload.precision, calibration, splits_backward=split)
    domain = max(gpus_per_domain, gpus_per_node)
    policies = RecomputePolicies.of(batch, calibration.framework)
    sizes, parts = known or layers_of(
        batch,
        architecture=architecture,
        workload=workload,
        gpu=gpu,
        domain=domain,
        calibration=calibration,
        routed=routed,
        tensor_slowdown=tensor_slowdown,
        modules=policies.used,
    )
    order = batch.model_order(layers.shape[-2])
    again = repeated_chunks(parts.again, policies, layers, architecture, order)
    parameters = local_parameters(batch, layers, architecture)
    trained = trained_parameters(batch, layers, architecture, workload, parameters)
    held = np.maximum(layers.sum(axis=(-2, -1)), 1)
    shares = layers.reshape(-1, layers.shape[-1]).sum(axis=0) / max(layers.sum(), 1)
    layer = reduce(add, (each * share for each, share in zip(parts.seconds, shares.tolist(), strict=True)))
    gathers = parameter_traffic(
        gpu,
        batch,
        parameters,
        calibration,
        trained=trained,
        frozen=workload.frozen_weights,
        shares=shares,
        sparse_share=float(sparse_counts(architecture, layers).sum() / max(layers.sum(), 1)),
        layer=layer.then(again.compute.sum(axis=1) / held),
        domain=domain,
    )
    stages, last = int(batch.pipeline[0]), batch.last_columns(layers.shape[-2])
    slow = straggling(batch.tensor * batch.pipeline * batch.context * batch.data / gpus_per_node, calibration)
    ends = processor(gpu, end_precision(workload.precision), calibration, splits_backward=split)
    ends = replace(ends, is_frozen=workload.adapters is not None)
    micro_batches = workload.global_batch / (batch.data * batch.micro_batch)
    pipelined = stages > 1 and workload.adapters is None
    waiting = deferred_products(calibration.framework, architecture, micro_batches, pipelined=pipelined)
    passes, learns = workload.forward_passes, workload.optimizer.runs_backward
    once = _chunks(
        ends,
        architecture,
        sizes,
        parts,
        gathers,
        layers,
        last,
        deferred=waiting / ((1.0 + architecture.prediction_layers) * micro_batches),
        logits_s=gathered_logits_s(gpu, calibration.framework, architecture, sizes),
    )
    repeated = (again.compute, again.tensor, again.context, again.expert)
    compute, tensor, context, expert = (
        each.then(more).of_step(passes, backward=learns) * slow[:, None]
        for each, more in zip(once, repeated, strict=True)
    )
    forward = compute.forward + tensor.forward + context.forward + expert.forward
    backward = compute.backward + tensor.backward + context.backward + expert.backward
    buffers = gradient_bytes(batch, trained, parameters, calibration, workload.precision)
    every = layers.sum(axis=-1).astype(np.float64)
    reduce_passes, gather_passes = ring_passes(batch, calibration, domain)
    reductions = np.where(reduces_each_micro_batch(batch, calibration.framework), micro_batches, 1.0)
    gather_ranks, expert_gather_ranks = sharing_ranks(batch, calibration.framework)
    on_rank = by_rank(np.broadcast_to(every, forward.shape), stages)
    optimizer = optimizer_s(chip, batch, trained, workload, on_rank)
    if workload.optimizer.orthogonalises:
        optimizer += orthogonalisation_s(
            orthogonalising(gpu, workload.precision, calibration),
            architecture,
            sizes,
            layers,
            stages=stages,
            sharing=sharing_ranks(batch, calibration.framework),
        )
    flush = slow * deferred_head_s(ends, architecture, sizes, waiting) - backward[:, : stages - 1].sum(axis=1)
    optimizer[:, int(last[0]) % stages] += np.maximum(flush, 0.0)
    offload = offload_s(
        gpu.host_share,
        batch,
        workload,
        owned_parameters(batch, trained, calibration.framework),
        forward_s=by_rank(forward, stages),
        backward_s=by_rank(backward, stages),
        micro_batches=micro_batches,
    )
    if batch.offloaded_layers.any():
        tensors = layer_tensors(architecture, sizes, calibration, lagging=0.0)
        kept = kept_activations(architecture, sizes, calibration, tensors, policies).layers
        waits = batch.offloaded_layers[:, None] / architecture.layers
        waiting = waits * (layers.sum(axis=-2) * kept).sum(axis=-1, keepdims=True)
        passes_s = by_rank(forward, stages), by_rank(backward, stages)
        exposed = waiting_activations_s(gpu.host_share, waiting, forward_s=passes_s[0], backward_s=passes_s[1])
        offload = offload + np.asarray(micro_batches)[:, None] * exposed
    return StepCosts(
        forward_s=forward,
        backward_s=backward,
        weight_s=_weight_s(compute, tensor, context, expert),
        compute_s=compute.forward + compute.backward,
        tensor_s=tensor.forward + tensor.backward,
        context_s=context.forward + context.backward,
        expert_s=expert.forward + expert.backward,
        transfer_bytes=(passes + 1.0) / 2.0 * sizes.element_bytes * architecture.hidden * sizes.shard_tokens,
        context_traffic=joined_traffic(parts.context, layers, again.attention).of_step(passes, backward=learns),
        expert_traffic=joined_traffic(parts.expert, layers, again.dispatch).of_step(passes, backward=learns),
        parameter_traffic=gathers.cross(every).of_step(passes, backward=learns),
        reduce_passes=reductions * reduce_passes,
        gather_passes=gather_passes,
        gather_ranks=gather_ranks,
        expert_gather_ranks=expert_gather_ranks,
        tail_transfers=learns * tail_transfers(batch, calibration, domain),
        reduce_bytes=learns * buffers.reduce,
        gather_bytes=buffers.gather,
        expert_reduce_bytes=learns * buffers.expert_reduce,
        expert_gather_bytes=buffers.expert_gather,
        reduce_hidden_s=calibration.data_overlap
        * (reductions * reduction_overlaps(batch, calibration.framework))[:, None]
        * by_rank(backward, stages),
        gather_hidden_s=calibration.data_overlap
        * calibration.framework.overlap_parameters
        * by_rank(forward, stages),
        optimizer_s=optimizer + offload,
        offload_s=offload,
    )


def _weight_s(*parts: Seconds) -> FloatArray:
    """(n, C) seconds of all ``parts`` for gradients of weights."""
    return np.asarray(sum(0.0 if part.weight is None else part.weight for part in parts)) + 0.0 * parts[0].forward


def _chunks(  # noqa: PLR0913 - each a fact of its own
    ends: Processor,
    architecture: Architecture,
    sizes: LocalSizes,
    parts: Layers,
    gathers: LayerTraffic,
    layers: IntArray,
    last_chunk: IntArray,
    *,
    deferred: FloatArray,
    logits_s: FloatArray,
) -> tuple[Seconds, Seconds, Seconds, Seconds]:
    """Compute, tensor, context and expert seconds (n, C), nothing run again.

    ``last_chunk`` (n,): where the head is; ``deferred`` (n,) as in ``head_and_loss``; ``logits_s`` (n,): what
    gathering the logits of one head takes.
    """
    rows = np.arange(len(last_chunk))
    counts = [layers[..., kind].astype(np.float64) for kind in range(layers.shape[-1])]

    def of_kinds(each: Sequence[Seconds]) -> Seconds:
        return reduce(add, (one.in_chunks(held) for one, held in zip(each, counts, strict=True)))

    compute = of_kinds(parts.seconds) + gathers.inside.in_chunks(layers.sum(axis=-1).astype(np.float64))
    tensor = of_kinds(parts.tensor)
    first = embedding(ends, architecture, sizes)
    last, heads = head_and_loss(ends, architecture, sizes, deferred=deferred), 1
    if architecture.prediction_layers:
        last = last + prediction_ends(ends, architecture, sizes, deferred=deferred)
        heads += architecture.prediction_layers
    for end, chunk, blocks in ((first, np.zeros_like(last_chunk), 1), (last, last_chunk, heads)):
        compute.forward[rows, chunk] += end.forward
        compute.backward[rows, chunk] += end.backward
        if compute.weight is not None and end.weight is not None:
            compute.weight[rows, chunk] += end.weight
        tensor.forward[rows, chunk] += blocks * parts.tensor_block.forward / 2.0
        tensor.backward[rows, chunk] += blocks * parts.tensor_block.forward / 2.0
    tensor.forward[rows, last_chunk] += heads * logits_s
    context = of_kinds([each.inside for each in parts.context])
    expert = of_kinds([each.inside for each in parts.expert])
    return compute, tensor, context, expert
