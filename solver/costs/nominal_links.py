"""Traffic of runs between nodes that are joined by nominal links: no cluster, no placement.

Ranks fill nodes in order (tensor fastest, then context, data, pipeline).  Shapes: ``n`` candidates that share
their pipeline size, ``P`` pipeline ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.calibration.training_run import TrainingRun
from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.links.classes import FABRIC_LATENCY_S, UNKNOWN_FABRIC_LATENCY_S
from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import CandidateBatch, FloatArray
from solver.costs.collectives import domain_collective_s
from solver.costs.parameters import data_ranks
from solver.costs.step_costs import CrossTraffic, StepCosts

NETWORK_SHARE: Final = {
    "infiniband": 0.8,
    "roce": 0.8,
    "slingshot": 0.9,
    "omni-path": 0.35,
    "efa": 0.65,
    "tcp": 0.5,
    "ethernet": 0.5,
}
"""Share of the nominal bandwidth that collectives reach between nodes (sources in docs/links.md).

InfiniBand HDR 0.65 to 0.79 and NDR up to 0.98 by pairs, 0.86 in an all-gather of ten nodes; EFA 0.64 in a two-node
all-reduce; Slingshot 0.96 by pairs; Omni-Path 23 to 57 of 100 Gb/s in all-reduces of 16 nodes (BigScience) and as
little in its steps; TCP about half (measured steps of data parallel training over 10 and 50 Gb/s); RoCE as
InfiniBand.
"""
UNKNOWN_SHARE: Final = 0.75
SOCKET_BYTES_PER_S: Final = 2.5e9
"""The most a node sends through sockets, whose data pass its memory several times: measured steps of four T4 with
50 Gb/s a node take as long as 20 Gb/s makes them."""
SOCKET_FABRICS: Final = ("tcp", "ethernet")


@dataclass(frozen=True, slots=True)
class NominalLinks:
    """Links between nodes that are all alike.

    ``gpu_bytes_per_s``: a GPU's share of its node's network, ``flow_bytes_per_s`` the most a single GPU gets while
    others are silent; both as collectives reach them.
    """

    gpu: GpuKind
    gpus_per_node: int
    gpus_per_domain: int
    gpu_bytes_per_s: float
    flow_bytes_per_s: float
    latency_s: float
    domain_share: float = 1.0
    """Share of the speed that curves of collectives inside a domain promise (``Calibration.domain_share``); a
    single transfer shares the host's memory with no other."""

    @classmethod
    def of(cls, run: TrainingRun, gpu: GpuKind, domain_share: float = 1.0) -> NominalLinks:
        """The links of ``run`` between GPUs of kind ``gpu``; nominal rates count by their share, measured whole."""
        measured, rate = run.network_measured, run.network_bytes_per_s
        share = 1.0 if measured else NETWORK_SHARE.get(run.fabric, UNKNOWN_SHARE)
        most = SOCKET_BYTES_PER_S if run.fabric in SOCKET_FABRICS and not measured else np.inf
        return cls(
            gpu=gpu,
            gpus_per_node=run.gpus_per_node,
            gpus_per_domain=max(run.gpus_per_domain, run.gpus_per_node),
            gpu_bytes_per_s=min(share * rate, most / run.gpus_per_node),
            flow_bytes_per_s=min(share * max(run.flow_bytes_per_s or rate, rate), most),
            latency_s=FABRIC_LATENCY_S.get(run.fabric, UNKNOWN_FABRIC_LATENCY_S),
            domain_share=domain_share,
        )

    def flow_rate(self, flows: FloatArray) -> FloatArray:
        """(n,) bytes/s of each of ``flows`` (n,) GPUs of a node that send at once."""
        together = self.gpus_per_node * self.gpu_bytes_per_s
        return np.asarray(np.minimum(self.flow_bytes_per_s, together / np.minimum(flows, self.gpus_per_node)))


def crossing_s(
    links: NominalLinks, costs: StepCosts, order: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B
) -> tuple[FloatArray, ...]:
    """(n, C) seconds, by kind of event, of collectives inside a chunk whose groups span nodes."""
    found = [np.zeros_like(seconds) for seconds in costs.durations_s(order)]
    for traffic in (costs.context_traffic, costs.expert_traffic, costs.parameter_traffic):
        for kind, (count, hidden_s) in enumerate(traffic.by_event(order)):
            found[kind] += count * _exposed_s(links, traffic, hidden_s)[:, None]
    return tuple(found)


def _exposed_s(links: NominalLinks, traffic: CrossTraffic, hidden_s: FloatArray) -> FloatArray:
    """(n,) seconds that a message takes longer than what hides it."""
    hop = traffic.message_bytes / links.gpu_bytes_per_s + links.latency_s
    limited = traffic.window.limited_s(hop, traffic.message_bytes, links.latency_s, hidden_s)
    return np.maximum(limited - hidden_s, 0.0)


def tensor_slowdown(links: NominalLinks, batch: CandidateBatch, message_bytes: FloatArray) -> FloatArray:
    """(n,) how much longer tensor collectives take than inside a domain where their groups reach beyond one.

    ``message_bytes`` (n,) are gathered over the group.  A ring enters and leaves each domain over all its cards and
    takes n-1 steps (Patarasuk & Yuan 2009), each no shorter than a transfer between nodes.
    """
    tensor = batch.tensor.astype(np.float64)
    wide = tensor > links.gpus_per_domain
    if not wide.any():
        return np.ones_like(tensor)
    inside = domain_collective_s(links.gpu, Collective.ALL_GATHER, tensor, message_bytes) / links.domain_share
    rate = links.gpus_per_domain * links.gpu_bytes_per_s
    between = message_bytes * (tensor - 1.0) / tensor / rate + (tensor - 1.0) * links.latency_s
    return np.where(wide, np.maximum(between / np.maximum(inside, 1e-12), 1.0), 1.0)


def hops_s(links: NominalLinks, batch: CandidateBatch, transfer_bytes: FloatArray) -> FloatArray:
    """(n, P) seconds of a transfer from each pipeline rank to the next, the last one's to the first.

    A rank's GPUs send at once; a hop crosses nodes if it does for any of them.
    """
    stages = int(batch.pipeline[0])
    width = (batch.tensor * batch.context * batch.data).astype(np.float64)
    first = np.arange(stages) * width[:, None]
    domain = links.gpus_per_domain
    crosses = np.floor((first + 2 * width[:, None] - 1) / domain) > np.floor(first / domain)
    crosses[:, -1] = width * stages > domain
    inside = domain_collective_s(
        links.gpu, Collective.POINT_TO_POINT, np.full(len(batch), 2.0), np.asarray(transfer_bytes, dtype=np.float64)
    )
    between = transfer_bytes / links.flow_rate(width) + links.latency_s
    return np.where(crosses, between[:, None], inside[:, None])


def data_parallel_s(links: NominalLinks, batch: CandidateBatch, costs: StepCosts) -> tuple[FloatArray, FloatArray]:
    """Exposed gradient reduction and parameter gathering (n, P) of a step."""
    ranks, routed_ranks = data_ranks(batch)
    tensor = batch.tensor.astype(np.float64)
    block = batch.expert_block.astype(np.float64)
    reduce, gather = (
        _rings_s(links, kind, common, members, tensor)
        + _rings_s(links, kind, routed, routed_members, np.maximum(block, tensor))
        for kind, common, members, routed, routed_members in (
            (Collective.REDUCE_SCATTER, costs.reduce_bytes, ranks, costs.expert_reduce_bytes, routed_ranks),
            (
                Collective.ALL_GATHER,
                costs.gather_bytes,
                costs.gather_ranks,
                costs.expert_gather_bytes,
                costs.expert_gather_ranks,
            ),
        )
    )
    tail = (costs.tail_transfers * links.latency_s)[:, None]
    return (
        np.maximum(costs.reduce_passes[:, None] * reduce - costs.reduce_hidden_s, 0.0) + tail,
        np.maximum(costs.gather_passes[:, None] * gather - costs.gather_hidden_s, 0.0),
    )


def _rings_s(
    links: NominalLinks, kind: Collective, nbytes: FloatArray, ranks: FloatArray, stride: FloatArray
) -> FloatArray:
    """(n, P) seconds of one collective over ``ranks`` (n,) GPUs, ``stride`` (n,) apart.

    A domain's members of the group share its network: the ring enters and leaves a domain over as many cards.
    """
    domain = links.gpus_per_domain
    together = ranks * stride <= domain
    members = np.maximum(np.floor(domain / stride), 1.0)
    domains = np.ceil(ranks / members)
    between = (
        nbytes * ((ranks - 1.0) / ranks / (members * links.gpu_bytes_per_s))[:, None]
        + ((domains - 1.0) * links.latency_s)[:, None]
    )
    inside = np.zeros_like(nbytes)
    if together.any():
        for stage in range(nbytes.shape[1]):
            inside[together, stage] = domain_collective_s(links.gpu, kind, ranks[together], nbytes[together, stage])
    seconds = np.where(together[:, None], inside / links.domain_share, between)
    return np.where((ranks[:, None] > 1) & (nbytes > 0), seconds, 0.0)
