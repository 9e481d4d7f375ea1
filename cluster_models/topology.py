"""A cluster: nodes, their GPUs, NICs, NVLink domains and labels, and the graph that joins them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

import networkx as nx

from cluster_models.errors import InvalidCluster
from cluster_models.gpus import GpuKind


class NodeState(StrEnum):
    """What a node may be used for; only ``READY`` and ``DEGRADED`` nodes carry new ranks."""

    READY = "ready"
    DEGRADED = "degraded"
    DRAINING = "draining"
    FAILED = "failed"
    UNKNOWN = "unknown"


USABLE_STATES = frozenset({NodeState.READY, NodeState.DEGRADED})


@dataclass(frozen=True, slots=True)
class NicGroup:
    """Equal network cards of one node; the rate is per card and direction."""

    count: int
    bytes_per_s: float
    fabric: str = "unknown"

    def __post_init__(self) -> None:
        if self.count < 1 or not self.bytes_per_s > 0:
            raise InvalidCluster(
                "nics", (self.count, self.bytes_per_s), "needs at least one card and a positive rate"
            )


@dataclass(frozen=True, slots=True)
class Node:
    """One host.  ``labels`` carry the physical place (``rack``, ``leaf``, ``zone``, ...).

    ``nvlink_domain`` names the scale-up domain the GPUs belong to; nodes with the same name share one domain
    (GB200 NVL72).  ``compute_slowdown`` is the measured ratio of this node's step compute time to that of a
    healthy node of its kind (1 = healthy); a degraded node has more.
    """

    name: str
    gpu_kind: str
    gpu_count: int
    nvlink_domain: str
    nics: NicGroup
    labels: dict[str, str] = field(default_factory=dict, hash=False)
    state: NodeState = NodeState.READY
    compute_slowdown: float = 1.0

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidCluster("nodes.name", self.name, "must not be empty")
        if self.gpu_count < 1:
            raise InvalidCluster(f"nodes.{self.name}.gpu_count", self.gpu_count, "must be at least 1")
        if not self.compute_slowdown >= 1:
            raise InvalidCluster(
                f"nodes.{self.name}.compute_slowdown",
                self.compute_slowdown,
                "must be at least 1",
                "1 is a healthy node, 1.2 one whose compute takes 20 % longer",
            )

    @property
    def usable(self) -> bool:
        """Whether new ranks may be placed here."""
        return self.state in USABLE_STATES


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes in the order the user listed them, with the GPU kinds they refer to."""

    name: str
    nodes: tuple[Node, ...]
    gpu_kinds: dict[str, GpuKind] = field(hash=False)
    source: str = ""

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InvalidCluster("nodes", [], "the cluster has no nodes", "list at least one node")
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                raise InvalidCluster(
                    "nodes.name", node.name, "the node is listed twice", "give each node once"
                )
            seen.add(node.name)
            if node.gpu_kind not in self.gpu_kinds:
                raise InvalidCluster(
                    f"nodes.{node.name}.gpu_kind",
                    node.gpu_kind,
                    "unknown GPU kind",
                    f"use one of {', '.join(sorted(self.gpu_kinds))}, or define it under gpu_kinds",
                )

    @property
    def gpu_count(self) -> int:
        """GPUs of all nodes, whatever their state."""
        return sum(node.gpu_count for node in self.nodes)

    def node(self, name: str) -> Node:
        """The node called ``name``; raises ``InvalidCluster`` when there is none."""
        for node in self.nodes:
            if node.name == name:
                return node
        raise InvalidCluster("node", name, "no such node in the cluster")

    def graph(self) -> nx.Graph[str]:
        """The physical graph: GPUs, nodes, NVLink domains, NIC groups, and the switches that labels name.

        Vertices carry ``kind`` (gpu, node, nvlink_domain, leaf, zone); edges carry ``bytes_per_s``, nominal.
        Nodes without a ``leaf`` label hang on one vertex called ``fabric``.
        """
        graph: nx.Graph[str] = nx.Graph()
        graph.add_node("fabric", kind="fabric")
        for node in self.nodes:
            kind = self.gpu_kinds[node.gpu_kind]
            uplink = node.nics.count * node.nics.bytes_per_s
            graph.add_node(node.name, kind="node", state=str(node.state))
            domain = f"nvlink:{node.nvlink_domain}"
            graph.add_node(domain, kind="nvlink_domain")
            graph.add_edge(node.name, domain, bytes_per_s=node.gpu_count * kind.scale_up_bytes_per_s)
            for index in range(node.gpu_count):
                gpu = f"{node.name}/gpu{index}"
                graph.add_node(gpu, kind="gpu")
                graph.add_edge(gpu, domain, bytes_per_s=kind.scale_up_bytes_per_s)
                graph.add_edge(gpu, node.name, bytes_per_s=uplink / node.gpu_count)
            leaf = node.labels.get("leaf")
            if leaf is None:
                graph.add_edge(node.name, "fabric", bytes_per_s=uplink)
                continue
            switch = f"leaf:{leaf}"
            graph.add_node(switch, kind="leaf")
            graph.add_edge(node.name, switch, bytes_per_s=uplink)
            graph.add_edge(switch, "fabric")
        return graph
