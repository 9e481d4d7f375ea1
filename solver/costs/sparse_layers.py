"""Seconds of a sparse layer's MLP on one GPU for one micro-batch: router, permutation, experts, shared expert.

Letters: T tokens of a context rank, h hidden width, t tensor ranks, x expert tensor ranks.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.training.framework_choices import CudaGraphs, ExpertDispatch
from solver.candidates import FloatArray
from solver.costs.compute import Extent, Processor, elementwise_s, linear_s, quantise_s
from solver.costs.launching import LAUNCHED
from solver.costs.layer_costs import mlp
from solver.costs.local_sizes import LocalSizes, drawn_share, gathered_tokens, routed_tokens
from solver.costs.seconds import Seconds

_PERMUTED_BYTES: Final = {
    ExpertDispatch.ALL_TO_ALL: 4.0,
    ExpertDispatch.DEEPEP: 0.0,
    ExpertDispatch.HYBRIDEP: 0.0,
}
"""Memory traffic per routed token and element of the hidden width, forward (backward mirrors it): copies written
in the order of the ranks (2) and summed on return (2).  DeepEP and HybridEP send straight from the tokens and sum
on the way."""
_SORTED_BYTES: Final = 8.0
"""The same per token that the local experts work on: sorted by expert on arrival (4) and back (4).  Megatron-Core's
all-to-all dispatcher leaves tokens of a single local expert as they arrive."""
_LOCAL_BYTES: Final = 8.0
"""The same where every rank holds all experts: copies sorted by expert once and summed once."""
_PADDED_BYTES: Final = 8.0
"""The same of copying tokens to and from rows padded to the tiles of 8 and 4-bit formats (Transformer Engine's
``Fp8Padding``); with a graph of the whole iteration the dispatch pads."""


def sparse_mlp(gpu: Processor, architecture: Architecture, experts: Experts, sizes: LocalSizes) -> Seconds:
    """A sparse layer's norm, router, permutation and busiest expert rank; no communication, no shared expert.

    Every rank sends its ``T/t`` tokens to ``active`` experts, so ranks receive that many on average, the
    busiest ``sizes.imbalance`` times as many; its ``count/expert`` experts run as one grouped product, which the
    host launches expert by expert unless it replays a graph.  It holds ``1/x`` of each, through which go the tokens
    of all ``x`` ranks that cut it (docs/experts_parallel.md).
    """
    h, shard = architecture.hidden, sizes.shard_tokens
    routed = routed_tokens(experts, sizes)
    gathered = gathered_tokens(experts, sizes)
    local = experts.count / sizes.expert
    router = linear_s(gpu, shard, float(experts.count), h)
    framework = gpu.calibration.framework
    travels = sizes.expert * sizes.expert_tensor > 1
    sent = np.where(travels, _PERMUTED_BYTES[framework.expert_dispatch], 0.0)
    in_order = (framework.expert_dispatch is ExpertDispatch.ALL_TO_ALL) & (local == 1.0)
    sorted_ = np.where(travels, np.where(in_order, 0.0, _SORTED_BYTES), _LOCAL_BYTES)
    if gpu.quantise_bytes and framework.cuda_graphs is not CudaGraphs.FULL:
        sorted_ = sorted_ + _PADDED_BYTES
    permuted = architecture.expert_width * (sent * routed + sorted_ * gathered)
    norm = 10.0 * h * sizes.stream_tokens
    host = gpu.calibration.sparse_layer_s + gpu.calibration.expert_host_s * local
    host = host * LAUNCHED[framework.cuda_graphs]
    total = (
        _grouped(
            gpu,
            architecture,
            width=experts.hidden / sizes.expert_tensor,
            rows=gathered / local,
            groups=local,
            drawn=drawn_share(experts, sizes),
        )
        + router
        + Seconds(
            elementwise_s(gpu, permuted + norm, kernels=8) + host,
            elementwise_s(gpu, permuted + 2.0 * norm, kernels=8) + host,
        )
    )
    if experts.latent:  # projected before they travel, and back after it
        latent = float(experts.latent)
        total = total + linear_s(gpu, shard, latent, float(h)) + linear_s(gpu, shard, float(h), latent)
    return total


def shared_expert(gpu: Processor, architecture: Architecture, experts: Experts, sizes: LocalSizes) -> Seconds:
    """The expert of a sparse layer that all tokens pass, cut over tensor ranks."""
    width = experts.shared_hidden / sizes.tensor
    return mlp(gpu, architecture, tokens=sizes.tokens, width=width, stream_tokens=sizes.stream_tokens)


def activation_s(gpu: Processor, architecture: Architecture, experts: Experts, sizes: LocalSizes) -> FloatArray:
    """(n,) seconds of the activation between the two products of routed experts, forward, cast for the second."""
    fan = 2.0 if architecture.gated_mlp else 1.0
    elements = experts.hidden / sizes.expert_tensor * gathered_tokens(experts, sizes)
    return elementwise_s(gpu, (fan + 1.0) * 2.0 * elements) + quantise_s(gpu, elements)


def _grouped(
    gpu: Processor,
    architecture: Architecture,
    *,
    width: FloatArray,
    rows: FloatArray,
    groups: FloatArray,
    drawn: float,
) -> Seconds:
    """MLPs of ``groups`` experts of ``width``, ``rows`` tokens each: products together, the rest on all tokens."""
    fan = 2.0 if architecture.gated_mlp else 1.0
    h, routed = float(architecture.expert_width), rows * groups
    up = _grouped_linear(gpu, rows, fan * width, h, groups, drawn=drawn)
    products = up + _grouped_linear(gpu, rows, h, width, groups, drawn=drawn)
    activation = 2.0 * width * routed
    biased = gpu.calibration.expert_bias_bytes * (h + width) * routed if architecture.mlp_bias else 0.0
    return products + Seconds(
        elementwise_s(gpu, (fan + 1.0) * activation + biased) + quantise_s(gpu, (h + width) * routed, kernels=2),
        elementwise_s(gpu, (2.0 * fan + 1.0) * activation + biased)
        + quantise_s(gpu, (h + fan * width) * routed, kernels=2),
    )


def _grouped_linear(
    gpu: Processor, rows: FloatArray, n: Extent, k: Extent, groups: FloatArray, *, drawn: float
) -> Seconds:
    """One linear layer of all local experts; several together run at ``grouped_share`` of a single one's rate."""
    share, launch = np.where(groups > 1.0, gpu.calibration.grouped_share, 1.0), gpu.calibration.kernel_s
    single = linear_s(gpu, rows, n, k, groups=groups, drawn=drawn)
    return Seconds(
        (single.forward - launch) / share + launch,
        (single.backward - 2.0 * launch) / share + 2.0 * launch,
        None if single.weight is None else (single.weight - launch) / share + launch,
    )
