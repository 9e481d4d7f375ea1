"""Traffic of the experts of one sparse layer: tokens travel to their experts' ranks and back."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.model.architecture import Architecture
from cluster_models.model.experts import Experts
from cluster_models.training.framework_choices import ExpertDispatch
from solver.candidates import FloatArray
from solver.costs.calibration import Calibration
from solver.costs.collectives import domain_collective_s
from solver.costs.launching import HOSTS_SEND_S, Shelter
from solver.costs.local_sizes import LocalSizes, rank_load
from solver.costs.routed_loads import RoutedLoads
from solver.costs.seconds import Seconds
from solver.costs.traffic import LayerTraffic, Window, no_traffic

_CONTENTION: Final = 0.2
"""Share of the GPU's multiprocessors that dispatch kernels occupy: 20 to 32 of 132 to 160 (defaults of DeepEP, and
of HybridEP in Megatron-Bridge's recipes)."""
_WINDOW_BYTES: Final = 8.0 * 2**17
"""Bytes under way of NCCL's point-to-point transfers between nodes: the 8 slots of its buffer, each with a chunk
of ``NCCL_P2P_NET_CHUNKSIZE`` (128 KiB unless set), which the GPU's proxy thread stages one after the other: 30 GB/s
for each GPU on EFA, faster than the cards on InfiniBand."""
_TOKENS_UNDER_WAY: Final = 83.0
"""DeepEP's kernels write tokens straight into network cards, but where GPUs cannot drive these (``HOSTS_SEND_S``)
threads of the host send each copy: 0.42 us of it on EFA, whatever its width, and the host launches nothing
meanwhile that would hide it (measured: 34 steps of three models on B300 with UCCL or NVSHMEM, 0.25 to 0.7 us;
UCCL-EP's README 0.19 us with 8 and 0.34 us with 16 bits)."""
_DIRECT_RATE: Final = 1.1
"""Rate of kernels that drive cards themselves over that of NCCL's collectives, 0.8 of nominal (docs/links.md): 43.5
to 45.8 of 50 GB/s without the copies that stay in the node (README of DeepEP, InfiniBand NDR)."""


def expert_traffic(
    gpu: GpuKind,
    calibration: Calibration,
    architecture: Architecture,
    sizes: LocalSizes,
    *,
    shelter: Shelter,
    domain: int,
    routed: RoutedLoads | None = None,
) -> LayerTraffic:
    """Dispatch and combination of a sparse layer: an all-to-all each, forward and backward.

    A rank sends its ``T/t`` tokens to ``active`` experts each; the busiest rank sets the pace.  Every expert gets
    its own copy with the all-to-all dispatcher, of which ``1 - 1/N`` leave the node where the group spans N nodes
    (or NVLink domains, of ``domain`` GPUs), as point-to-point transfers of NCCL, which stages them in chunks.
    DeepEP and HybridEP send a token once to every other node that it needs, and from there over NVLink once to
    every rank that it needs, passing on what has arrived while more arrives (DeepEP's README, normal kernels; one
    kernel whose warps forward chunks), so that the slower of both networks sets the pace.

    Ranks that cut experts between them work on the same tokens: the all-to-all dispatcher gathers what each of them
    received before the experts and scatters the sums after them (Megatron-Core's ``MoEAlltoAllTokenDispatcher``),
    on consecutive ranks of one node and never hidden; the others send a token to all of them (``tp_ep_group``).

    ``routed``: what the plan's map of experts makes of counts of the model's routing; without it experts are taken
    for equally likely, and the busiest rank for ``imbalance`` times as busy.

    ``shelter``: seconds of a pass in which traffic costs nothing because the GPU waits for its host anyway, or
    hides beside the compute of another micro-batch; what is hidden so inside a domain still takes multiprocessors
    away from that compute.
    """
    if (experts := architecture.experts) is None:
        return no_traffic(sizes)
    zeros = np.zeros_like(sizes.tokens)
    load = rank_load(experts, sizes)
    token_bytes = sizes.element_bytes * architecture.expert_width * sizes.shard_tokens * load
    block = sizes.expert * sizes.expert_tensor
    spans = block > domain
    nodes = np.where(spans, block / domain, 1.0)
    once = calibration.framework.expert_dispatch is not ExpertDispatch.ALL_TO_ALL
    if once:
        inside_copies, leaving = reached(experts, sizes.expert), reached(experts, nodes) * (1.0 - 1.0 / nodes)
        if routed is not None:
            inside_copies, leaving = routed.copies(inside_copies, leaving, load, calibration)
        inside_copies = sizes.expert_tensor * inside_copies
        inside_ranks, joined = np.where(spans, float(domain), block), zeros
    else:
        inside_copies, leaving = np.full_like(zeros, experts.active), experts.active * (1.0 - 1.0 / nodes)
        inside_ranks = np.where(spans, 1.0, sizes.expert)
        joined = _joined_s(gpu, calibration, sizes, experts.active * token_bytes)
    inside = 2.0 * domain_collective_s(gpu, Collective.ALL_TO_ALL, inside_ranks, inside_copies * token_bytes)
    awake = np.maximum(inside - shelter.idle_s, 0.0)
    exposed = np.maximum(awake - shelter.beside_s, 0.0) + _CONTENTION * np.minimum(awake, shelter.beside_s) + joined
    sheltered = shelter.idle_s + shelter.beside_s
    free = np.maximum(sheltered, inside) if once else np.maximum(sheltered - inside, 0.0)
    left = np.where(spans, free / 2.0, 0.0)
    rate = _DIRECT_RATE if once else 1.0
    width = sizes.element_bytes * architecture.hidden / rate
    return LayerTraffic(
        inside=Seconds(exposed, exposed, sizes.no_weights),
        message_bytes=np.where(spans, token_bytes * leaving, 0.0) / rate,
        forward_count=np.where(spans, 2.0, 0.0),
        backward_count=np.where(spans, 2.0, 0.0),
        forward_hidden_s=left,
        backward_hidden_s=left,
        window=Window(_TOKENS_UNDER_WAY * width, HOSTS_SEND_S, hides=False) if once else Window(_WINDOW_BYTES),
    )


def _joined_s(gpu: GpuKind, calibration: Calibration, sizes: LocalSizes, received_bytes: FloatArray) -> FloatArray:
    """(n,) seconds to gather over expert tensor ranks what each received and scatter the sums; backward alike."""
    together, ranks = sizes.expert_tensor * received_bytes, sizes.expert_tensor
    both = (Collective.ALL_GATHER, Collective.REDUCE_SCATTER)
    seconds = np.asarray(sum(domain_collective_s(gpu, each, ranks, together) for each in both))
    return seconds / calibration.domain_share + 2.0 * calibration.collective_skew_s * np.log2(ranks)


def reached(experts: Experts, groups: FloatArray) -> FloatArray:
    """(n,) how many of ``groups`` equal groups of consecutive experts (ranks or nodes) a token needs, on average.

    Its experts are drawn independently from the ``active_groups`` that the router allows: of M groups that touch
    these, one is missed with probability ``(1 - 1/M)^active``.  A group that holds several of the router's is
    touched unless none of these is drawn (without replacement); that it then gets more tokens is left out (3 %).
    """
    held = np.maximum(experts.router_groups / groups, 1.0)
    untouched = np.ones_like(groups)
    for drawn in range(experts.active_groups):
        left = experts.router_groups - drawn
        untouched = untouched * np.maximum(left - held, 0.0) / left
    touched = groups * (1.0 - untouched) if experts.router_groups > 1 else groups
    return touched * (1.0 - (1.0 - 1.0 / touched) ** experts.active)
