"""A cluster: nodes, their GPUs, NICs, NVLink domains and labels, and the graph that joins them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.hosts import HostMemory, HostShare, usual_host
from cluster_models.cluster.switches import Switch, Uplink, uplinks_of
from cluster_models.errors import InvalidCluster

if TYPE_CHECKING:
    import networkx as nx

MOST_NODES: Final = 2048
"""Links are kept for every pair of nodes: 4 million at this size, in tables of 34 MB."""


class NodeState(StrEnum):
    """State of a node; only ``READY`` and ``DEGRADED`` nodes carry new ranks."""

    READY = "ready"
    DEGRADED = "degraded"
    DRAINING = "draining"
    FAILED = "failed"
    UNKNOWN = "unknown"


_ABOVE: Final = {"leaf": ("zone", "fabric"), "zone": ("fabric",)}
"""Labels to which the way up of a switch leads in the graph."""
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
    healthy node of its kind (1 = healthy); a degraded node has more.  ``gpus_in_use`` are the numbers of the GPUs
    that other jobs hold, increasing.  ``host``: its memory and processors, as far as they are stated.
    """

    name: str
    gpu_kind: str
    gpu_count: int
    nvlink_domain: str
    nics: NicGroup
    labels: dict[str, str] = field(default_factory=dict, hash=False)
    state: NodeState = NodeState.READY
    compute_slowdown: float = 1.0
    gpus_in_use: tuple[int, ...] = ()
    host: HostMemory | None = None

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
        taken = self.gpus_in_use
        if list(taken) != sorted(set(taken)) or not set(taken) <= set(range(self.gpu_count)):
            raise InvalidCluster(
                f"nodes.{self.name}.gpus_in_use",
                list(taken),
                f"must be different GPU numbers from 0 to {self.gpu_count - 1}",
                "give the numbers that nvidia-smi shows, each once",
            )

    @property
    def free_gpus(self) -> tuple[int, ...]:
        """Numbers of the GPUs that no other job holds."""
        if not self.gpus_in_use:
            return tuple(range(self.gpu_count))
        return tuple(gpu for gpu in range(self.gpu_count) if gpu not in self.gpus_in_use)

    @property
    def usable(self) -> bool:
        """Whether new ranks may be placed here."""
        return self.state in USABLE_STATES and len(self.gpus_in_use) < self.gpu_count

    def place(self, label: str) -> str | None:
        """The value of a label as a place; ``None`` without it.

        Leaves of two zones may be called alike: the place of a leaf holds its zone.  ``node`` and
        ``nvlink_domain`` are labels that every node has.
        """
        value = {"node": self.name, "nvlink_domain": self.nvlink_domain}.get(label) or self.labels.get(label)
        zone = self.labels.get("zone")
        return f"{zone}/{value}" if value and zone and label == "leaf" else value


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes in the order the user listed them, with the GPU kinds they refer to.

    ``switches``: what is known of switches whose way up many nodes share; others limit nothing.  ``gpu_kinds`` are
    those of its domains (``GpuKind.in_domains_of``), of several sizes the smallest, with the least that a node has
    for each GPU.
    """

    name: str
    nodes: tuple[Node, ...]
    gpu_kinds: dict[str, GpuKind] = field(hash=False)
    source: str = ""
    switches: tuple[Switch, ...] = ()

    def __post_init__(self) -> None:
        if not self.nodes:
            raise InvalidCluster("nodes", [], "the cluster has no nodes", "list at least one node")
        if len(self.nodes) > MOST_NODES:
            raise InvalidCluster(
                "nodes",
                len(self.nodes),
                f"a cluster has at most {MOST_NODES} nodes",
                "plan for a part of it: a job's network seldom spans more",
            )
        seen: set[str] = set()
        for node in self.nodes:
            if node.name in seen:
                raise InvalidCluster("nodes.name", node.name, "the node is listed twice", "give each node once")
            seen.add(node.name)
            if node.gpu_kind not in self.gpu_kinds:
                raise InvalidCluster(
                    f"nodes.{node.name}.gpu_kind",
                    node.gpu_kind,
                    "unknown GPU kind",
                    f"use one of {', '.join(sorted(self.gpu_kinds))}, or define it under gpu_kinds",
                )
        self.uplinks()
        sizes = self.domain_gpus()
        smallest = {
            name: min(sizes[node.nvlink_domain] for node in self.nodes if node.gpu_kind == name)
            for name in {node.gpu_kind for node in self.nodes}
        }
        kinds = {name: kind.in_domains_of(smallest.get(name, 0)) for name, kind in self.gpu_kinds.items()}
        shares = {name: self._host_share(kind) for name, kind in kinds.items()}
        kinds = {
            name: kind if kind.host == shares[name] else replace(kind, host=shares[name])
            for name, kind in kinds.items()
        }
        object.__setattr__(self, "gpu_kinds", kinds)

    def _host_share(self, kind: GpuKind) -> HostShare | None:
        """Host figures that nodes have for each GPU of a kind; ``None`` where none of them states any of it."""
        own = [node for node in self.nodes if node.gpu_kind == kind.name]
        if not any(node.host for node in own):
            return None
        stated = [(node.host or HostMemory(), node.gpu_count) for node in own]
        return usual_host(kind.name, kind.pcie_bytes_per_s).as_stated(stated)

    def uplinks(self) -> dict[str, dict[str, Uplink]]:
        """Rates that the stated switches pass up and down, by label and place (``Node.place``)."""
        return uplinks_of(self.nodes, self.switches)

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

    def domain_gpus(self) -> dict[str, int]:
        """GPUs of each scale-up domain, over all its nodes."""
        sizes: dict[str, int] = {}
        for node in self.nodes:
            sizes[node.nvlink_domain] = sizes.get(node.nvlink_domain, 0) + node.gpu_count
        return sizes

    def graph(self) -> nx.Graph[str]:
        """The physical graph: GPUs, nodes, scale-up domains, and the switches that labels name.

        Vertices carry ``kind`` (gpu, node, nvlink_domain, leaf, zone, fabric); nodes also ``state`` and
        ``labels``, domains ``gpus``.  Edges carry ``bytes_per_s``, one direction, nominal where nothing else is
        stated; the way up of a switch only where ``switches`` state it.  A node hangs on its leaf, else on its
        zone, else on the one vertex called ``fabric``.
        """
        import networkx as nx  # noqa: PLC0415 - a service starts sooner without

        graph: nx.Graph[str] = nx.Graph()
        graph.add_node("fabric", kind="fabric")
        for domain, gpus in self.domain_gpus().items():
            graph.add_node(f"nvlink:{domain}", kind="nvlink_domain", gpus=gpus)
        for node in self.nodes:
            graph.add_node(node.name, kind="node", state=str(node.state), labels=dict(node.labels))
            self._join_gpus(graph, node)
            uplink = node.nics.count * node.nics.bytes_per_s
            graph.add_edge(node.name, _switch_of(graph, node), bytes_per_s=uplink)
        for label, places in self.uplinks().items():
            for place, capacity in places.items():
                if (switch := f"{label}:{place}") in graph:
                    for above in graph.neighbors(switch):
                        if graph.nodes[above]["kind"] in _ABOVE.get(label, ()):
                            graph.edges[switch, above]["bytes_per_s"] = capacity.bytes_per_s
        return graph

    def _join_gpus(self, graph: nx.Graph[str], node: Node) -> None:
        scale_up = self.gpu_kinds[node.gpu_kind].scale_up_bytes_per_s
        domain = f"nvlink:{node.nvlink_domain}"
        graph.add_edge(node.name, domain, bytes_per_s=node.gpu_count * scale_up)
        per_gpu = node.nics.count * node.nics.bytes_per_s / node.gpu_count
        for index in range(node.gpu_count):
            gpu = f"{node.name}/gpu{index}"
            graph.add_node(gpu, kind="gpu", gpu_kind=node.gpu_kind)
            graph.add_edge(gpu, domain, bytes_per_s=scale_up)
            graph.add_edge(gpu, node.name, bytes_per_s=per_gpu)


def _switch_of(graph: nx.Graph[str], node: Node) -> str:
    """The switch that ``node`` hangs on, added with its way up to ``fabric`` where it is new.

    Leaves of two zones may carry the same label: a leaf's vertex is named with its zone.
    """
    above = "fabric"
    if zone := node.labels.get("zone"):
        above = f"zone:{zone}"
        graph.add_node(above, kind="zone")
        graph.add_edge(above, "fabric")
    leaf = node.labels.get("leaf")
    if not leaf:
        return above
    switch = f"leaf:{zone}/{leaf}" if zone else f"leaf:{leaf}"
    graph.add_node(switch, kind="leaf")
    graph.add_edge(switch, above)
    return switch
