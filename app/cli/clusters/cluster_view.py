"""A cluster on a terminal: nodes, classes of links, what is not measured, what looks wrong, and a heat matrix."""

from __future__ import annotations

from typing import Final

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, section
from app.presentation.figures import count, gbytes_per_s, plural, seconds
from app.presentation.links import SHOWN_MESSAGE_BYTES, by_place, shown_flows, shown_load
from app.presentation.sentences import sentences
from app.presentation.switches import shared_uplinks
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Node
from cluster_models.links.model import BoolArray, FloatArray, LinkModel, effective_links
from cluster_models.links.suspicions import suspicions
from cluster_models.units import GBIT, GBYTE
from cluster_models.wording import named

NAMED_PAIRS: Final = 12
MATRIX_NODES: Final = 48
"""More nodes than this do not fit a terminal side by side."""
_SHADES: Final = ("░░", "▒▒", "▓▓", "██")
_SHARES: Final = (0.5, 0.7, 0.9)
"""Edges of the shades, as shares of the fastest pair."""
_COLOURS: Final = ("red", "yellow", "green", "bright_green")


def cluster_view(snapshot: ClusterSnapshot) -> RenderableType:
    """A cluster as an engineer looks at it, from its nodes to its slowest links."""
    links = effective_links(snapshot)
    flows = shown_flows(links, max(node.gpu_count for node in snapshot.cluster.nodes))
    bandwidth = links.bytes_per_s(SHOWN_MESSAGE_BYTES, flows)
    estimated = links.estimated(flows)
    doubts = sentences(suspicions(snapshot))
    cluster = snapshot.cluster
    return Group(
        _headline(snapshot),
        section("Nodes", _nodes(snapshot.cluster.nodes)),
        section(
            f"Links between nodes: {shown_load(flows)}",
            link_classes(links, bandwidth, estimated),
        ),
        *([section("Shared uplinks, each direction", Text(shared))] if (shared := shared_uplinks(cluster)) else []),
        section("Not measured", _unmeasured(links, estimated)),
        *([section("What looks wrong", bullets(doubts))] if doubts else []),
        section(
            "From row to column, neighbours together",
            heat_matrix(by_place(snapshot.cluster), links.nodes, bandwidth, estimated),
        ),
    )


def _headline(snapshot: ClusterSnapshot) -> RenderableType:
    cluster = snapshot.cluster
    text = Text.assemble(
        (cluster.name, "bold"),
        f"  {count(len(cluster.nodes))} nodes  {count(cluster.gpu_count)} GPUs  "
        f"{plural(len(snapshot.samples), 'measurement')}  snapshot {snapshot.id}",
    )
    return Group(text, Text(cluster.source, style="dim")) if cluster.source else text


def _nodes(nodes: tuple[Node, ...]) -> RenderableType:
    """Equal nodes together: what they are, and below it their names."""
    groups: dict[str, list[str]] = {}
    for node in nodes:
        parts = [
            f"{node.gpu_count} x {node.gpu_kind}",
            f"{node.nics.count} x {node.nics.bytes_per_s / GBIT:g} Gbit/s {node.nics.fabric}",
            *(f"{key}={value}" for key, value in sorted(node.labels.items())),
            "NVLink domain of its own" if node.nvlink_domain == node.name else f"domain {node.nvlink_domain}",
            str(node.state),
        ]
        if node.compute_slowdown > 1:
            parts.append(f"computes {node.compute_slowdown:g} times as long")
        if node.gpus_in_use:
            parts.append(f"GPUs {', '.join(map(str, node.gpus_in_use))} in use by other jobs")
        groups.setdefault(", ".join(parts), []).append(node.name)
    blocks: list[RenderableType] = []
    for what, names in groups.items():
        blocks.append(Text(f"{count(len(names))} x {what}" if len(names) > 1 else what))
        blocks.append(Padding(Text(" ".join(names), style="dim"), (0, 0, 0, 4)))
    return Group(*blocks)


def link_classes(links: LinkModel, bandwidth: FloatArray, estimated: BoolArray) -> Table:
    """For each class of pairs: how many, how many of them measured, median, 10th percentile, latency."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("class")
    for name in ("pairs", "measured", "median", "10th pct.", "latency"):
        table.add_column(name, justify="right")
    latency = links.latency_s
    off_diagonal = ~np.eye(len(links.nodes), dtype=bool)
    for index in np.unique(links.link_classes[off_diagonal]):
        members = (links.link_classes == index) & off_diagonal
        pairs = members & np.tri(len(links.nodes), dtype=bool).T
        first, second = np.argwhere(members)[0]
        rates = bandwidth[members]
        table.add_row(
            links.link_class(links.nodes[first], links.nodes[second]),
            count(int(pairs.sum())),
            count(int((pairs & ~(estimated & estimated.T)).sum())),
            gbytes_per_s(float(np.median(rates))),
            gbytes_per_s(float(np.percentile(rates, 10))),
            seconds(float(np.median(latency[members]))),
        )
    return table


def _unmeasured(links: LinkModel, estimated: BoolArray) -> RenderableType:
    pairs = [f"{links.nodes[a]} - {links.nodes[b]}" for a, b in np.argwhere(estimated & estimated.T) if a < b]
    if not pairs:
        return Text("Every pair of nodes was measured.")
    are = "pair is estimated from its" if len(pairs) == 1 else "pairs are estimated from their"
    return Text(f"{count(len(pairs))} {are} class: {named(pairs, NAMED_PAIRS)}")


def heat_matrix(
    order: list[int], names: tuple[str, ...], bandwidth: FloatArray, estimated: BoolArray
) -> RenderableType:
    """A cell for each pair, darker is slower; ``··`` marks what was never measured."""
    if len(names) > MATRIX_NODES:
        return Text(f"{len(names)} nodes are too many for a terminal; the web page shows them.")
    if len(names) < 2:
        return Text("There is one node only.")
    fastest = float(bandwidth[~np.eye(len(names), dtype=bool)].max())
    width = max(map(len, names))
    text = Text()
    for row in order:
        text.append(f"{names[row]:>{width}} ", "dim")
        for column in order:
            if row == column:
                text.append("  ")
            elif estimated[row, column]:
                text.append("··", "dim")
            else:
                level = int(np.searchsorted(_SHARES, bandwidth[row, column] / fastest, side="right"))
                text.append(_SHADES[level], _COLOURS[level])
        text.append("\n")
    edges = [f"{share * fastest / GBYTE:.1f}" for share in (*_SHARES, 1)]
    text.append(f"{_SHADES[0]} below {edges[0]}")
    for shade, edge in zip(_SHADES[1:], edges[1:], strict=True):
        text.append(f"  {shade} up to {edge}")
    text.append(" GB/s  ·· estimated")
    return text
