"""Made-up large clusters of hosts with 8 H100: leaves, uneven links, one node in eight degraded."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.placement_clusters import DEGRADED_ONE_IN, made_up_links
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.measurements import Collective, Direction, Sample, SampleStatus
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, NicGroup, Node, NodeState

GPU: Final = "H100"
HOST_GPUS: Final = 8
LEAF_NODES: Final = 16
ZONE_LEAVES: Final = 16
CARDS: Final = NicGroup(count=8, bytes_per_s=50e9, fabric="infiniband")
SLOWDOWN: Final = 1.05
"""Compute of a degraded node against a healthy one."""
MESSAGE_BYTES: Final = 2.0**26


def cluster_by_class(nodes: int, seed: int) -> ClusterSnapshot:
    """Known by leaves, zones and cards alone; degraded nodes have lost half their cards and compute slowly."""
    random = np.random.default_rng(seed)
    degraded = set(random.choice(nodes, nodes // DEGRADED_ONE_IN, replace=False).tolist())
    listed = []
    for index in range(nodes):
        node = _node(index)
        if index in degraded:
            cards = replace(CARDS, count=CARDS.count // 2)
            node = replace(node, nics=cards, state=NodeState.DEGRADED, compute_slowdown=SLOWDOWN)
        listed.append(node)
    return ClusterSnapshot(f"classes-{nodes}-{seed}", _cluster(listed), ())


def measured_cluster(nodes: int, seed: int) -> ClusterSnapshot:
    """Every pair measured in both directions, all GPUs of a node sending; links as in ``made_up_links``."""
    listed = [_node(index) for index in range(nodes)]
    links = made_up_links(nodes, seed)
    samples = tuple(
        measured_link(listed[a], listed[b], links[a, b]) for a in range(nodes) for b in range(nodes) if a != b
    )
    return ClusterSnapshot(f"measured-{nodes}-{seed}", _cluster(listed), samples)


def _node(index: int) -> Node:
    name, leaf = f"n{index:04d}", index // LEAF_NODES
    labels = {"leaf": f"leaf{leaf:03d}", "zone": f"zone{leaf // ZONE_LEAVES}"}
    return Node(name, GPU, HOST_GPUS, name, CARDS, labels)


def _cluster(nodes: list[Node]) -> Cluster:
    return Cluster(f"made-up-{len(nodes)}", tuple(nodes), {GPU: gpu_kind(GPU)}, source="made up")


def measured_link(a: Node, b: Node, bytes_per_s: float) -> Sample:
    """The bandwidth from one node to another with all GPUs sending."""
    return Sample(
        source=a.name,
        destination=b.name,
        direction=Direction.FORWARD,
        tool="made up",
        collective=Collective.POINT_TO_POINT,
        message_bytes=MESSAGE_BYTES,
        ranks_per_node=HOST_GPUS,
        pairs_active=1,
        status=SampleStatus.OK,
        bytes_per_s=float(bytes_per_s),
    )
