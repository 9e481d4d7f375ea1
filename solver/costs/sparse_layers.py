"""Seconds of a sparse layer's MLP on one GPU for one micro-batch: router, permutation, experts, shared expert.

Letters: T tokens of a context rank, h hidden width, t tensor ranks.
"""

from __future__ import annotations

import numpy as np

from cluster_models.architecture import Architecture, Experts
from solver.candidates import FloatArray
from solver.costs.compute import Processor, linear_s, streaming_s
from solver.costs.layer_costs import Seconds, mlp
from solver.costs.local_sizes import LocalSizes


def sparse_mlp(gpu: Processor, architecture: Architecture, experts: Experts, sizes: LocalSizes) -> Seconds:
    """A sparse layer's router, permutation, busiest expert rank and shared expert; no communication.

    Every rank sends its ``T/t`` tokens to ``active`` experts, so ranks receive that many on average, the
    busiest ``expert_imbalance`` times as many; its ``count/expert`` experts run as one grouped product.
    """
    h, shard = architecture.hidden, sizes.shard_tokens
    routed = shard * experts.active * np.where(sizes.expert > 1, gpu.calibration.expert_imbalance, 1.0)
    local = experts.count / sizes.expert
    rows = routed / local
    grouped = _grouped(gpu, architecture, experts, rows=rows, groups=local)
    router = Seconds(*linear_s(gpu, shard, float(experts.count), h))
    permuted = streaming_s(gpu, 8.0 * h * routed + 10.0 * h * sizes.stream_tokens, kernels=8)
    host = gpu.calibration.sparse_layer_s
    total = grouped + router + Seconds(permuted + host, 2.0 * permuted + host)
    if experts.shared_hidden:
        width = experts.shared_hidden / sizes.tensor
        total = total + mlp(gpu, architecture, tokens=sizes.tokens, width=width)
    return total


def _grouped(
    gpu: Processor, architecture: Architecture, experts: Experts, *, rows: FloatArray, groups: FloatArray
) -> Seconds:
    """Products of ``groups`` experts with ``rows`` tokens each, launched together."""
    single = mlp(gpu, architecture, tokens=rows, width=float(experts.hidden))
    share = gpu.calibration.grouped_share
    forward_launches, backward_launches = 3 * gpu.calibration.kernel_s, 5 * gpu.calibration.kernel_s
    return Seconds(
        groups * (single.forward - forward_launches) / share + forward_launches,
        groups * (single.backward - backward_launches) / share + backward_launches,
    )
