"""The page of a stored cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.presentation.figures import count, plural
from app.presentation.links import by_place, shown_flows
from app.presentation.switches import shared_uplinks
from app.services.aliases import StoredAlias
from app.web.views.bandwidth import HeatMap, heat_map
from cluster_models.links import effective_links
from cluster_models.snapshot import ClusterSnapshot
from cluster_models.suspicions import suspicions
from cluster_models.topology import Cluster, Node, NodeState
from cluster_models.units import GBIT
from cluster_models.wording import named

_MOST_NAMES: Final = 6
_MOODS = {NodeState.READY: "good", NodeState.FAILED: "bad"}


@dataclass(frozen=True, slots=True)
class NodeRow:
    """One line of the table of nodes; ``mood`` colours the state."""

    name: str
    aliases: str
    state: str
    mood: str
    gpus: str
    nics: str
    labels: str


@dataclass(frozen=True, slots=True)
class ClusterPage:
    """A cluster as words, tables and its heat map."""

    name: str
    facts: tuple[tuple[str, str], ...]
    map: HeatMap
    suspicions: tuple[str, ...]
    nodes: tuple[NodeRow, ...]


def cluster_page(
    snapshot: ClusterSnapshot, *, version: int, aliases: Sequence[StoredAlias] = (), now: Cluster | None = None
) -> ClusterPage:
    """The page of a cluster with the measurements known now; ``aliases`` are other names of its nodes.

    ``now`` has the nodes as failures left them, where that differs.
    """
    cluster = snapshot.cluster
    model = effective_links(snapshot)
    nodes = cluster.nodes if now is None else now.nodes
    usable = [node for node in nodes if node.usable]
    flows = shown_flows(model, max(node.gpu_count for node in cluster.nodes))
    names: dict[str, list[str]] = {}
    for alias in aliases:
        names.setdefault(alias.node, []).append(alias.alias)
    facts = [
        ("nodes", f"{count(len(cluster.nodes))}, {count(len(usable))} of them usable"),
        ("GPUs", f"{count(cluster.gpu_count)}: {', '.join(sorted({node.gpu_kind for node in cluster.nodes}))}"),
        ("measurements", plural(len(snapshot.samples), "sample")),
        *([("shared uplinks, each direction", uplinks)] if (uplinks := shared_uplinks(cluster)) else []),
        ("version", str(version)),
        ("snapshot", snapshot.id),
    ]
    return ClusterPage(
        name=cluster.name,
        facts=(*facts, ("source", cluster.source)) if cluster.source else tuple(facts),
        map=heat_map(model, flows, by_place(cluster)),
        suspicions=suspicions(snapshot),
        nodes=tuple(_row(node, names.get(node.name, ())) for node in nodes),
    )


def leaves(cluster: Cluster) -> dict[str, str]:
    """The leaf switch of every node that has one."""
    return {node.name: node.labels["leaf"] for node in cluster.nodes if "leaf" in node.labels}


def _row(node: Node, names: Sequence[str]) -> NodeRow:
    slower = f", compute x{node.compute_slowdown:g}" if node.compute_slowdown > 1 else ""
    taken = f", {len(node.gpus_in_use)} in use" if node.gpus_in_use else ""
    return NodeRow(
        name=node.name,
        aliases=named(names, _MOST_NAMES),
        state=f"{node.state}{slower}",
        mood=_MOODS.get(node.state, "warn"),
        gpus=f"{node.gpu_count} x {node.gpu_kind}{taken}",
        nics=f"{node.nics.count} x {node.nics.bytes_per_s / GBIT:g} Gbit/s {node.nics.fabric}",
        labels=", ".join(f"{key}={value}" for key, value in sorted(node.labels.items())),
    )
