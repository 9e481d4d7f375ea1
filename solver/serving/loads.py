"""Bytes, FLOPs and messages of one step of a worker, as arrays over cases; nothing fitted enters here.

Every field of ``Loads`` has shape (n,), an entry a case, so that thousands of measured rows are priced as one.
Figures are of one GPU of the worker; those with ``layers`` in their reckoning are sums over all pipeline stages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.power import GRID, cap_share, power_curve
from cluster_models.model.architecture import Architecture
from cluster_models.serving.adapters import ServedAdapters
from cluster_models.serving.workload import WeightFormat, Worker
from solver.serving.crossing import even_crossing

FloatArray = npt.NDArray[np.float64]

STREAM_BYTES: Final = 2.0
"""Activations between layers are 16-bit in every engine."""


@dataclass(frozen=True, slots=True)
class WorkerLinks:
    """Links between the GPUs of a worker: inside a scale-up domain of ``domain_gpus``, and between domains.

    Bandwidths are one-directional, per GPU.
    """

    domain_gpus: int
    domain_bytes_per_s: float
    cross_bytes_per_s: float
    cross_latency_s: float


@dataclass(frozen=True, slots=True)
class Loads:
    """Loads of workers; each field has shape (n,).

    ``dense_*``: attention projections, dense MLPs, shared experts and the output layer; ``expert_*``: the routed
    experts held by a GPU (all of its layers together), of which a token meets ``active``/``experts`` on average;
    ``cache_*_bytes``: keys and values of one token in layers with full and with windowed attention.  ``reduced``
    and ``exchanged`` count the all-reduces among tensor ranks and the exchanges of tokens among all ``members`` of
    a stage, of which ``domain`` sit in one scale-up domain.  ``largest_stage`` is the share of all layers that the
    pipeline stage with most of them has, which decides what fits.
    """

    layers: FloatArray
    sparse_layers: FloatArray
    pipeline: FloatArray
    largest_stage: FloatArray
    tensor: FloatArray
    attention_data: FloatArray
    expert_groups: FloatArray
    dense_bytes: FloatArray
    dense_flops_per_token: FloatArray
    dense_peak: FloatArray
    expert_bytes: FloatArray
    expert_flops_per_token: FloatArray
    expert_peak: FloatArray
    experts: FloatArray
    active: FloatArray
    cache_full_bytes: FloatArray
    cache_window_bytes: FloatArray
    window: FloatArray
    decode_attention_flops: FloatArray
    decode_window_flops: FloatArray
    prefill_attention_flops: FloatArray
    prefill_window_flops: FloatArray
    attention_peak: FloatArray
    memory_bytes_per_s: FloatArray
    hidden_bytes: FloatArray
    reduced: FloatArray
    exchanged: FloatArray
    members: FloatArray
    domain: FloatArray
    domain_bytes_per_s: FloatArray
    cross_bytes_per_s: FloatArray
    cross_latency_s: FloatArray
    stored_bytes: FloatArray
    """Weights that lie in a GPU's memory, resident adapters included."""
    adapters: FloatArray
    """Adapters that requests name, 0 without any; at most ``adapters_held`` in a step."""
    adapters_held: FloatArray
    adapter_bytes: FloatArray
    """One adapter, all layers."""
    adapter_linears: FloatArray
    """Linear layers with an adapter, of all layers."""
    imbalance: FloatArray
    """Excess load of the busiest of many expert ranks, NaN where the fitted one holds."""
    crossing: FloatArray
    """Other domains that a token needs for its experts, on the busiest where they were counted."""
    power_cap: FloatArray
    """Share of the board's power that a cap leaves, 1 without any."""
    capped_compute: FloatArray
    capped_memory: FloatArray
    """Shares (n, ``GRID``) of their rates that products and reads keep at shares of the power they draw."""


def stack(cases: Sequence[Loads]) -> Loads:
    """Loads of all ``cases`` one after the other."""
    return Loads(
        **{field.name: np.concatenate([getattr(each, field.name) for each in cases]) for field in fields(Loads)}
    )


def row_of(loads: Loads, row: int) -> Loads:
    """Case ``row`` alone, of shape (1,)."""
    return Loads(**{field.name: getattr(loads, field.name)[row : row + 1] for field in fields(Loads)})


def loads_of(
    architecture: Architecture,
    gpu: GpuKind,
    worker: Worker,
    links: WorkerLinks,
    *,
    weights: WeightFormat,
    attention_weights: WeightFormat,
    cache_bytes: float,
    imbalance: float | None = None,
) -> Loads:
    """Loads of one worker, arrays of shape (1,)."""
    a, tensor = architecture, worker.tensor
    experts = a.experts
    sparse = a.sparse_layers
    split, whole = _attention_matrices(a)
    attention = split / tensor + whole
    shared = a.mlp_matrices * a.hidden * experts.shared_hidden / tensor if experts else 0.0
    router = a.hidden * experts.count if experts else 0.0
    dense_mlp = a.mlp_matrices * a.hidden * a.mlp_hidden / tensor
    # gated 4-bit checkpoints leave attention, shared experts and dense layers of expert models in 16 bits
    common = a.layers * attention + sparse * shared + (a.layers - sparse) * dense_mlp
    head = a.hidden * a.vocabulary / tensor
    dense_bytes = common * attention_weights.element_bytes + 2.0 * (sparse * router + head)
    routed = sparse * a.expert_parameters() * (experts.count if experts else 0)
    slices = worker.stage_gpus
    full = sum(not windowed for windowed in a.windowed_pattern)
    cache, decode_flops, prefill_flops = _attention_work(a, tensor)
    gathers = worker.attention_data > 1 or worker.expert > 1
    values = {
        "layers": a.layers,
        "sparse_layers": sparse,
        "pipeline": worker.pipeline,
        "largest_stage": math.ceil(a.layers / worker.pipeline) / a.layers,
        "tensor": tensor,
        "attention_data": worker.attention_data,
        "expert_groups": worker.expert,
        "dense_bytes": dense_bytes,
        "dense_flops_per_token": 2.0 * (common + sparse * router),
        "dense_peak": attention_weights.peak_flops(gpu),
        "expert_bytes": routed / slices * weights.element_bytes,
        "expert_flops_per_token": 2.0 * routed / slices / (experts.count if experts else 1),
        "expert_peak": weights.peak_flops(gpu),
        "experts": experts.count if experts else 1,
        "active": experts.active if experts else 0,
        "cache_full_bytes": full * cache * cache_bytes,
        "cache_window_bytes": (a.layers - full) * cache * cache_bytes,
        "window": a.sliding_window or 1,
        "decode_attention_flops": full * decode_flops,
        "decode_window_flops": (a.layers - full) * decode_flops,
        "prefill_attention_flops": full * prefill_flops,
        "prefill_window_flops": (a.layers - full) * prefill_flops,
        "attention_peak": WeightFormat.BF16.peak_flops(gpu),
        "memory_bytes_per_s": gpu.memory_bytes_per_s,
        "hidden_bytes": STREAM_BYTES * a.hidden,
        "reduced": a.layers * (2.0 if not gathers else 1.0) * (tensor > 1)
        + (a.layers - sparse) * (gathers and tensor > 1),
        "exchanged": 2.0 * sparse * (gathers and worker.stage_gpus > 1),
        "members": worker.stage_gpus,
        "domain": links.domain_gpus,
        "domain_bytes_per_s": links.domain_bytes_per_s,
        "cross_bytes_per_s": links.cross_bytes_per_s,
        "cross_latency_s": links.cross_latency_s,
        "imbalance": math.nan if imbalance is None else imbalance,
        "crossing": even_crossing(experts, -(-worker.stage_gpus // links.domain_gpus), worker.expert),
        "stored_bytes": (
            dense_bytes
            + 2.0 * a.hidden * a.vocabulary / tensor * (not a.tied_embeddings)
            + routed / slices * weights.element_bytes
        )
        * math.ceil(a.layers / worker.pipeline)
        / a.layers,
        **dict.fromkeys(("adapters", "adapters_held", "adapter_bytes", "adapter_linears"), 0),
    }
    free = np.ones((1, len(GRID)))
    arrays = {name: np.array([float(value)]) for name, value in values.items()}
    return Loads(**arrays, power_cap=np.ones(1), capped_compute=free, capped_memory=free)


def with_cap(loads: Loads, gpu: GpuKind, cap_watts: float | None) -> Loads:
    """Loads of a worker (1,) under a power cap; raises ``InvalidWorkload`` for one that is too low to be priced."""
    if (cap := cap_share(gpu, cap_watts)) == 1.0:
        return loads
    curve = power_curve(gpu.name)
    rates = {"capped_compute": np.array([curve.compute]), "capped_memory": np.array([curve.memory])}
    return replace(loads, power_cap=np.array([cap]), **rates)


def with_adapters(loads: Loads, architecture: Architecture, tensor: int, adapters: ServedAdapters | None) -> Loads:
    """Loads of a worker (1,) of ``tensor`` ranks that answers with ``adapters`` beside its weights."""
    if adapters is None:
        return loads
    each = adapters.gpu_bytes(architecture, tensor)
    return replace(
        loads,
        stored_bytes=loads.stored_bytes + adapters.held * each * loads.largest_stage,
        adapters=np.array([float(adapters.count)]),
        adapters_held=np.array([float(adapters.held)]),
        adapter_bytes=np.array([each]),
        adapter_linears=np.array([float(sum(1 for _ in adapters.linears(architecture)))]),
    )


def _attention_matrices(a: Architecture) -> tuple[float, float]:
    """Weights of one layer's attention that tensor ranks divide, and those that each of them holds."""
    mla = a.latent_attention
    if mla is None:
        return float(a.attention_matrix_parameters()), 0.0
    whole = a.hidden * (mla.query_rank + mla.key_value_rank + mla.rope_head_size)
    return float(a.attention_matrix_parameters() - whole), float(whole)


def _attention_work(a: Architecture, tensor: int) -> tuple[float, float, float]:
    """Elements of cache of one layer and a token, FLOPs of a decode step per token of context, and of prefill.

    Latent attention decodes in the compressed space (DeepSeek-V2, arXiv 2405.04434, section 2.1.2: the
    up-projections are absorbed), every tensor rank reading the whole cache; prefill expands keys and values.
    """
    heads = a.heads / tensor
    mla = a.latent_attention
    if mla is None:
        flops = 4.0 * heads * a.head_size
        return 2.0 * max(a.kv_heads / tensor, 1.0) * a.head_size, flops, flops
    compressed = mla.key_value_rank + mla.rope_head_size
    return (
        float(compressed),
        2.0 * heads * (compressed + mla.key_value_rank),
        2.0 * heads * (mla.nope_head_size + mla.rope_head_size + mla.value_head_size),
    )
