"""Nodes in groups small enough to be drawn: leaves, racks or NVLink domains, else runs of neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.web.clusters.bandwidth import MOST_NODES
from cluster_models.cluster.topology import Cluster, Node

_LABELS: Final = ("leaf", "rack", "zone")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that one cell of the summary stands for; ``members`` are positions in the cluster."""

    name: str
    members: tuple[int, ...]


def node_groups(cluster: Cluster, order: Sequence[int]) -> tuple[NodeGroup, ...]:
    """The nodes of ``order`` by the closest place that they have, in parts of at most ``MOST_NODES``."""
    places: dict[str, list[int]] = {}
    for position in order:
        places.setdefault(place_name(cluster.nodes[position]), []).append(position)
    return tuple(part for name, members in places.items() for part in _parts(name, members))


def place_name(node: Node) -> str:
    """Leaf, rack or zone of a node, else the NVLink domain that it shares; empty where it has none."""
    for label in _LABELS:
        if (place := node.place(label)) is not None:
            return place if place.startswith(label) else f"{label} {place}"
    return "" if node.nvlink_domain == node.name else f"NVLink domain {node.nvlink_domain}"


def _parts(name: str, members: Sequence[int]) -> list[NodeGroup]:
    if len(members) <= MOST_NODES:
        return [NodeGroup(name or "all nodes", tuple(members))]
    return [
        NodeGroup(
            f"{name or 'nodes'} {start + 1} to {min(start + MOST_NODES, len(members))}",
            tuple(members[start : start + MOST_NODES]),
        )
        for start in range(0, len(members), MOST_NODES)
    ]
