"""Links between the GPUs of workers on a cluster, from its measured links.

Rates were fitted with nominal bandwidth inside a scale-up domain (``link_share`` is a share of it), so a measured
inside counts by what it reaches of the same kind's usual links; between domains, measured bandwidth counts itself.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Node
from cluster_models.errors import InvalidConfiguration
from cluster_models.links.model import BoolArray, LinkModel, effective_links
from cluster_models.serving.workload import ServingConfiguration
from solver.serving.loads import FloatArray, WorkerLinks

MESSAGE_BYTES: Final = 64.0 * 2**20
"""Messages at which links are compared: prefill moves as much in a collective."""


def usable_nodes(snapshot: ClusterSnapshot) -> tuple[Node, ...]:
    """Nodes that a deployment may use: ready, with a free GPU."""
    return tuple(node for node in snapshot.cluster.nodes if node.usable and node.free_gpus)


def chosen_nodes(snapshot: ClusterSnapshot, configuration: ServingConfiguration) -> tuple[Node, ...]:
    """The first nodes of the kind with most free GPUs that hold ``configuration``.

    Raises ``InvalidConfiguration`` where the cluster has too few GPUs of one kind.
    """
    by_kind: dict[str, list[Node]] = {}
    for node in usable_nodes(snapshot):
        by_kind.setdefault(node.gpu_kind, []).append(node)
    free = {kind: sum(len(node.free_gpus) for node in nodes) for kind, nodes in by_kind.items()}
    kind = max(free, key=lambda name: free[name], default="")
    if free.get(kind, 0) < configuration.gpus:
        raise InvalidConfiguration(
            "configuration",
            f"{configuration.gpus} GPUs",
            f"the cluster has {free.get(kind, 0)} free GPUs of one kind{f' ({kind})' if kind else ''}",
            "lower replicas or the degrees of a worker",
        )
    chosen: list[Node] = []
    while sum(len(node.free_gpus) for node in chosen) < configuration.gpus:
        chosen.append(by_kind[kind][len(chosen)])
    return tuple(chosen)


def worker_links(
    snapshot: ClusterSnapshot, nodes: tuple[Node, ...], configuration: ServingConfiguration
) -> tuple[WorkerLinks, float]:
    """Links of workers that fill ``nodes`` in order, and bytes/s of one cache between nodes.

    The slowest link paces all: inside a domain, between domains of one worker, and for caches between any two
    domains.
    """
    gpu = gpu_kind(nodes[0].gpu_kind)
    gpus = min(node.gpu_count for node in nodes)
    domains: dict[str, int] = {}
    for node in nodes:
        domains[node.nvlink_domain] = domains.get(node.nvlink_domain, 0) + node.gpu_count
    measured = effective_links(snapshot)
    rows = np.array([measured.nodes.index(node.name) for node in nodes])
    usual = effective_links(replace(snapshot, samples=(), link_shares=()))
    inside = float(np.max(_inside_s(measured)[rows] / _inside_s(usual)[rows]))
    names = [node.nvlink_domain for node in nodes]
    far = ~np.equal.outer(names, names)
    span = max(math.ceil(pool.worker.gpus / gpus) for pool in configuration.pools)
    place = np.arange(len(nodes)) // span
    joined = far & np.equal.outer(place, place)
    pairs = np.ix_(rows, rows)

    def slowest(seconds: FloatArray, where: BoolArray) -> float:
        chosen = seconds[pairs][where]
        return float(chosen.max()) if chosen.size else MESSAGE_BYTES / gpu.scale_up_bytes_per_s

    crossing = slowest(measured.transfer_s(MESSAGE_BYTES, gpus), joined)
    single = slowest(measured.transfer_s(MESSAGE_BYTES, 1), far)
    links = WorkerLinks(
        domain_gpus=min(domains.values()),
        domain_bytes_per_s=gpu.scale_up_bytes_per_s / max(inside, 1e-9),
        cross_bytes_per_s=MESSAGE_BYTES / crossing,
        cross_latency_s=float(measured.latency_s[pairs][joined].max()) if joined.any() else 0.0,
    )
    return links, MESSAGE_BYTES / single


def _inside_s(links: LinkModel) -> FloatArray:
    """Seconds (N,) of a large message inside each node."""
    return np.diagonal(links.transfer_s(MESSAGE_BYTES, 1)).copy()
