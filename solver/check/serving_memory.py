"""Whether a replica holds its weights and requests, from parameter counts alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

from cluster_models.model.architecture import Architecture
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.replicas import Phase, Replica
from cluster_models.serving.workload import ServingWorkload, Worker

TOLERANCE: Final = 0.02
"""Room for norms, biases and position tables, which the account leaves out."""
WIDEST: Final = 2.0
"""Bytes of a weight that no format narrows: embeddings, output layer, routers."""


def memory_violations(replica: Replica, served: ServedModel) -> Iterator[str]:
    """Rules that the memory account of ``replica`` breaks."""
    memory, name = replica.memory, f"Replica {replica.number}"
    for part in memory.__slots__:
        value = getattr(memory, part)
        if not (math.isfinite(value) and value >= 0):
            yield f"{name} has {part} = {value}, which is not an amount."
    used = memory.weight_bytes + memory.step_bytes + memory.cache_bytes
    if used > memory.gpu_bytes * (1 + 1e-6):
        yield f"{name} needs {used:.0f} bytes a GPU, there are {memory.gpu_bytes:.0f}."
    least = _least_weight_bytes(served.architecture, served.workload, replica.worker)
    if memory.weight_bytes < least * (1 - TOLERANCE):
        yield f"{name} states {memory.weight_bytes:.0f} bytes of weights a GPU, at least {least:.0f} lie there."
    token = _cache_bytes(served.architecture, served.workload, replica.worker)
    tokens = served.workload.held_tokens
    if memory.sequence_bytes < tokens * token * (1 - TOLERANCE):
        yield f"{name} states {memory.sequence_bytes:.0f} bytes a request, its cache takes {tokens * token:.0f}."
    held = memory.most_sequences * memory.sequence_bytes / replica.worker.attention_data
    if memory.most_sequences < 1 or held > memory.cache_bytes * (1 + TOLERANCE):
        yield f"{name} states {memory.most_sequences} requests, whose caches take {held:.0f} bytes a GPU."
    working = replica.sequences if replica.phase is Phase.DECODE else 0.0
    if working > memory.most_sequences + 1:
        yield f"{name} decodes {working:g} requests at once and holds {memory.most_sequences}."


def _least_weight_bytes(architecture: Architecture, workload: ServingWorkload, worker: Worker) -> float:
    """Bytes of weights on a GPU of the largest stage, all shared out as evenly as the degrees allow.

    Attention and dense layers over tensor ranks, routed experts over all of the stage.
    """
    a, experts = architecture, architecture.experts
    stage = math.ceil(a.layers / worker.pipeline) / a.layers
    routed = a.sparse_layers * a.expert_parameters() * (experts.count if experts else 0)
    ends = a.hidden * a.vocabulary * (1 if a.tied_embeddings else 2)
    rest = a.parameters() - routed - ends
    narrow = workload.attention_format(a).element_bytes
    whole = 0.0 if a.latent_attention is None else _latent_parameters(a)
    adapters = workload.adapters
    named = 0.0
    if adapters is not None:
        named = (
            adapters.held * adapters.rank * WIDEST * sum(each.inputs + each.outputs for each in adapters.linears(a))
        )
    if workload.routing is not None and worker.expert > 1:
        routed = routed * workload.routing.slots(worker.expert) // workload.routing.workloads[0].experts
    return stage * (
        routed / worker.stage_gpus * workload.weights.element_bytes
        + (max(rest - whole, 0.0) / worker.tensor + whole) * narrow
        + ends / worker.tensor * WIDEST
        + named / worker.tensor
    )


def _latent_parameters(a: Architecture) -> float:
    """Down-projections of latent attention, which every tensor rank holds."""
    mla = a.latent_attention
    assert mla is not None  # asked only of models that have it
    return float(a.layers * a.hidden * (mla.query_rank + mla.key_value_rank + mla.rope_head_size))


def _cache_bytes(architecture: Architecture, workload: ServingWorkload, worker: Worker) -> float:
    """Bytes of cache of one token on a GPU, of layers that keep all tokens."""
    a = architecture
    full = sum(not windowed for windowed in a.windowed_pattern) / a.layers
    stage = math.ceil(a.layers / worker.pipeline)
    if a.latent_attention is not None:
        elements = float(a.latent_attention.key_value_rank + a.latent_attention.rope_head_size)
    else:
        elements = 2.0 * a.head_size * max(a.kv_heads / worker.tensor, 1.0)
    return full * stage * elements * workload.cache_format.element_bytes
