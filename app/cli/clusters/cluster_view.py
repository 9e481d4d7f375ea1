"""A cluster on a terminal: its report, and a heat matrix of its links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, pairs, section
from app.presentation.cluster import CLASS_COLUMNS, NodeRow, cluster_figures, cluster_report, node_row
from app.presentation.figures import count
from app.presentation.links import SHOWN_MESSAGE_BYTES, SLOW_COLUMNS, SlowLinkRow, by_place
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.links.model import LinkModel
from cluster_models.units import GBYTE

MATRIX_NODES: Final = 48
"""More nodes than this do not fit a terminal side by side."""
MOST_SLOW: Final = 12
"""Links that stand out listed."""
_SHADES: Final = ("░░", "▒▒", "▓▓", "██")
_SHARES: Final = (0.5, 0.7, 0.9)
"""Edges of the shades, as shares of the fastest pair."""
_COLOURS: Final = ("red", "yellow", "green", "bright_green")


def cluster_view(snapshot: ClusterSnapshot) -> RenderableType:
    """A cluster as an engineer looks at it, from its nodes to its slowest links."""
    figures = cluster_figures(snapshot)
    report = cluster_report(figures)
    cluster = snapshot.cluster
    doubts = report.suspicions
    return Group(
        Text(cluster.name, style="bold"),
        pairs(report.facts),
        section("Nodes", _nodes(map(node_row, cluster.nodes))),
        section(f"Links between nodes: {report.load}", _table(CLASS_COLUMNS, report.classes)),
        section("Not measured", Text(report.unmeasured)),
        section("Links that stand out", _slow(report.slow_sentence, report.slow)),
        *([section("What else looks wrong", bullets(doubts))] if doubts else []),
        section(
            "From row to column, neighbours together",
            heat_matrix(by_place(cluster), figures.links, figures.flows),
        ),
    )


def _nodes(rows: Iterable[NodeRow]) -> RenderableType:
    """Equal nodes together: what they are, and below it their names."""
    groups: dict[NodeRow, list[str]] = {}
    for row in rows:
        groups.setdefault(replace(row, name=""), []).append(row.name)
    blocks: list[RenderableType] = []
    for row, names in groups.items():
        words = ", ".join(filter(None, (row.gpus, row.nics, row.labels, row.state)))
        blocks.append(Text(f"{count(len(names))} x {words}" if len(names) > 1 else words))
        blocks.append(Padding(Text(" ".join(names), style="dim"), (0, 0, 0, 4)))
    return Group(*blocks)


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose first column names what the numbers of the others belong to."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    for index, name in enumerate(columns):
        table.add_column(name, justify="right" if index else "left")
    for row in rows:
        table.add_row(*row)
    return table


def _slow(sentence: str, slow: Sequence[SlowLinkRow]) -> RenderableType:
    if not slow:
        return Text(sentence)
    rows = _table(SLOW_COLUMNS, (row.cells for row in slow[:MOST_SLOW]))
    more = len(slow) - MOST_SLOW
    return Group(Text(sentence), rows, *([Text(f"and {count(more)} more", style="dim")] if more > 0 else []))


def heat_matrix(order: list[int], links: LinkModel, flows: int) -> RenderableType:
    """A cell for each pair, darker is slower; ``··`` marks what was never measured."""
    names = links.nodes
    if len(names) > MATRIX_NODES:
        return Text(f"{len(names)} nodes are too many for a terminal; the web page shows them.")
    if len(names) < 2:
        return Text("There is one node only.")
    bandwidth, estimated = links.bytes_per_s(SHOWN_MESSAGE_BYTES, flows), links.estimated(flows)
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
