"""Low-rank adapters: parameters and bytes on each GPU, and seconds of their products and collectives.

In W x + B A x the input passes A (r x k), and the output of A passes B (n x r) (LoRA, arXiv 2106.09685, equation
3).  Tensor ranks cut A and B of every adapter between them, whichever way they cut W (``ParallelLinearAdapter`` of
Megatron-Bridge's ``peft/utils.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.model.architecture import Architecture
from cluster_models.training.adapters import (
    OUTPUT_MODULES,
    AdaptedLinear,
    Adapters,
    adapted_linears,
    adapter_parameters,
)
from cluster_models.training.frameworks import Framework
from cluster_models.training.workload import TrainingWorkload
from solver.candidates import CandidateBatch, FloatArray, IntArray
from solver.costs.calibration import Calibration
from solver.costs.collectives import domain_collective_s
from solver.costs.compute import Extent, Processor, elementwise_s
from solver.costs.local_sizes import LocalSizes
from solver.costs.parameters import LocalParameters, by_rank
from solver.costs.seconds import Seconds

LAUNCHES: Final = 0.1
"""Kernels that an adapter launches over those of a layer's pass: two products, scale and sum, on about 40."""


def linears_of(
    architecture: Architecture, adapters: Adapters | None, framework: Framework
) -> tuple[tuple[AdaptedLinear, ...], ...]:
    """(K,) the linear layers with an adapter in each kind of layer."""
    if adapters is None:
        return ((),) * len(architecture.layer_kinds)
    fused = framework.megatron_core > 0
    return tuple(adapted_linears(architecture, kind, adapters, fused=fused) for kind in architecture.layer_kinds)


def trained_parameters(
    batch: CandidateBatch,
    layers: IntArray,
    architecture: Architecture,
    workload: TrainingWorkload,
    held: LocalParameters,
) -> LocalParameters:
    """Parameters that a step changes: all that are ``held``, or adapters alone."""
    if (adapters := workload.adapters) is None:
        return held
    fused = workload.framework.megatron_core > 0
    each = [adapter_parameters(architecture, kind, adapters, fused=fused) for kind in architecture.layer_kinds]
    own = np.array(each, dtype=np.float64) / batch.tensor[:, None]
    nothing = np.zeros_like(held.routed)
    return LocalParameters(
        layers=own,
        largest_layer=own.max(axis=1),
        experts=np.zeros_like(held.experts),
        common=by_rank((layers * own[:, None, :]).sum(axis=-1), int(batch.pipeline[0])),
        routed=nothing,
        tables=nothing,
    )


def adapter_s(gpu: Processor, linears: Sequence[AdaptedLinear], sizes: LocalSizes) -> Seconds:
    """Products of adapters, on a ``gpu`` that computes in 16 bits, their scaling and addition to those of W.

    Bytes of 16 bits: the output is scaled (4) and added (6); backward its gradient is scaled (4) and that of the
    input added (6).  Products so thin are bound by memory, whatever tiles they run in; backward each runs twice,
    for its input and its weight.
    """
    total = Seconds(np.zeros_like(sizes.tokens), np.zeros_like(sizes.tokens))
    if sizes.adapters is None:
        return total
    rank = float(sizes.adapters.rank)
    for module, inputs, outputs in linears:
        is_output = module in OUTPUT_MODULES
        into = (rank, inputs / sizes.tensor) if is_output else (rank / sizes.tensor, float(inputs))
        read, written = sizes.tokens, sizes.shard_tokens
        if is_output:
            read, written = sizes.shard_tokens, sizes.stream_tokens
        products = _thin_s(gpu, sizes.tokens, *into) + _thin_s(gpu, sizes.tokens, outputs / sizes.tensor, rank)
        total = total + Seconds(
            products + elementwise_s(gpu, 10.0 * outputs * written, kernels=2),
            2.0 * products + elementwise_s(gpu, 4.0 * outputs * written + 6.0 * inputs * read, kernels=2),
        )
    return total


def _thin_s(gpu: Processor, m: FloatArray, n: Extent, k: Extent) -> FloatArray:
    """(n,) seconds of an (m x k) @ (k x n) product of which n or k is the rank of an adapter."""
    nbytes = gpu.element_bytes * (m * k + k * n + m * n)
    return np.asarray(
        np.maximum(nbytes / gpu.memory_bytes_per_s, 2.0 * m * n * k / gpu.matmul_flops) + gpu.calibration.kernel_s
    )


def adapter_collectives_s(
    gpu: GpuKind, calibration: Calibration, linears: Sequence[AdaptedLinear], sizes: LocalSizes
) -> Seconds:
    """Collectives of adapters that tensor ranks cut, none of which runs beside anything.

    The r-wide output of A is gathered or summed forward, its gradient summed backward.  Beside a layer whose inputs
    are cut the output of B is gathered, too, and with sequence parallelism its gradient backward
    (``gather_output``, ``scatter_to_sequence_parallel_region``).
    """
    total = Seconds(np.zeros_like(sizes.tokens), np.zeros_like(sizes.tokens), sizes.no_weights)
    if sizes.adapters is None:
        return total
    skew = calibration.collective_skew_s * np.log2(sizes.tensor)

    def taken_s(kind: Collective, width: float) -> FloatArray:
        nbytes = sizes.element_bytes * width * sizes.tokens
        return domain_collective_s(gpu, kind, sizes.tensor, nbytes) / calibration.domain_share + skew

    rank = float(sizes.adapters.rank)
    summed, gathered = taken_s(Collective.ALL_REDUCE, rank), taken_s(Collective.ALL_GATHER, rank)
    for module, _, outputs in linears:
        if module in OUTPUT_MODULES:
            wide = taken_s(Collective.ALL_GATHER, float(outputs))
            total = total + Seconds(summed + wide, summed + wide * calibration.framework.sequence_parallel)
        else:
            total = total + Seconds(gathered, summed)
    return total


def kept_bytes(linears: Sequence[AdaptedLinear], sizes: LocalSizes) -> FloatArray:
    """(n,) bytes that the adapters of a layer keep beside their inputs: the outputs of A."""
    if sizes.adapters is None:
        return np.zeros_like(sizes.tokens)
    return np.asarray(sizes.element_bytes * sizes.adapters.rank * len(linears) * sizes.tokens)
