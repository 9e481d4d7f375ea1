"""Seconds of a sparse layer's MLP on one GPU for one micro-batch: router, permutation, experts, shared expert.

Letters: T tokens of a context rank, h hidden width, t tensor ranks.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.architecture import Architecture, Experts
from cluster_models.frameworks import CudaGraphs, ExpertDispatch
from solver.candidates import FloatArray
from solver.costs.compute import Extent, Processor, linear_s, quantise_s, streaming_s
from solver.costs.launching import LAUNCHED
from solver.costs.layer_costs import mlp
from solver.costs.local_sizes import LocalSizes, routed_tokens
from solver.costs.seconds import Seconds

_PERMUTED_BYTES: Final = {
    ExpertDispatch.ALL_TO_ALL: 12.0,
    ExpertDispatch.DEEPEP: 8.0,
    ExpertDispatch.HYBRIDEP: 8.0,
}
"""Memory traffic per routed token and element of the hidden width, forward (backward mirrors it): copies written
in the order of the ranks (2) and summed on return (2), sorted by expert on arrival (4) and back (4).  DeepEP and
HybridEP send straight from the tokens and sum on the way."""
_LOCAL_BYTES: Final = 8.0
"""The same where every rank holds all experts: copies sorted by expert once and summed once."""
_PADDED_BYTES: Final = 8.0
"""The same of copying tokens to and from rows padded to the tiles of 8 and 4-bit formats (Transformer Engine's
``Fp8Padding``); with a graph of the whole iteration the dispatch pads."""


def sparse_mlp(gpu: Processor, architecture: Architecture, experts: Experts, sizes: LocalSizes) -> Seconds:
    """A sparse layer's router, permutation, busiest expert rank and shared expert; no communication.

    Every rank sends its ``T/t`` tokens to ``active`` experts, so ranks receive that many on average, the
    busiest ``expert_imbalance`` times as many; its ``count/expert`` experts run as one grouped product, which the
    host launches expert by expert unless it replays a graph.
    """
    h, shard = architecture.hidden, sizes.shard_tokens
    routed = routed_tokens(experts, sizes, gpu.calibration)
    local = experts.count / sizes.expert
    router = linear_s(gpu, shard, float(experts.count), h)
    framework = gpu.calibration.framework
    copied = np.where(sizes.expert > 1, _PERMUTED_BYTES[framework.expert_dispatch], _LOCAL_BYTES)
    if gpu.quantise_bytes and framework.cuda_graphs is not CudaGraphs.FULL:
        copied = copied + _PADDED_BYTES
    permuted = copied * h * routed
    norm = 10.0 * h * sizes.stream_tokens
    host = gpu.calibration.sparse_layer_s + gpu.calibration.expert_host_s * local
    host = host * LAUNCHED[framework.cuda_graphs]
    total = (
        _grouped(gpu, architecture, experts, rows=routed / local, groups=local)
        + router
        + Seconds(
            streaming_s(gpu, permuted + norm, kernels=8) + host,
            streaming_s(gpu, permuted + 2.0 * norm, kernels=8) + host,
        )
    )
    if experts.shared_hidden:
        width = experts.shared_hidden / sizes.tensor
        total = total + mlp(gpu, architecture, tokens=sizes.tokens, width=width, stream_tokens=sizes.stream_tokens)
    return total


def _grouped(
    gpu: Processor, architecture: Architecture, experts: Experts, *, rows: FloatArray, groups: FloatArray
) -> Seconds:
    """MLPs of ``groups`` experts with ``rows`` tokens each: products launched together, the rest on all tokens."""
    fan = 2.0 if architecture.gated_mlp else 1.0
    h, width, routed = float(architecture.hidden), float(experts.hidden), rows * groups
    products = _grouped_linear(gpu, rows, fan * width, h, groups) + _grouped_linear(gpu, rows, h, width, groups)
    activation = 2.0 * width * routed
    biased = gpu.calibration.expert_bias_bytes * (h + width) * routed if architecture.mlp_bias else 0.0
    return products + Seconds(
        streaming_s(gpu, (fan + 1.0) * activation + biased) + quantise_s(gpu, (h + width) * routed, kernels=2),
        streaming_s(gpu, (2.0 * fan + 1.0) * activation + biased)
        + quantise_s(gpu, (h + fan * width) * routed, kernels=2),
    )


def _grouped_linear(gpu: Processor, rows: FloatArray, n: Extent, k: Extent, groups: FloatArray) -> Seconds:
    """One linear layer of all local experts, at ``grouped_share`` of the rate of single products."""
    share, launch = gpu.calibration.grouped_share, gpu.calibration.kernel_s
    single = linear_s(gpu, rows, n, k, groups=groups)
    return Seconds(
        (single.forward - launch) / share + launch, (single.backward - 2.0 * launch) / share + 2.0 * launch
    )
