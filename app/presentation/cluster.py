"""A cluster as pages and terminal report it: facts, nodes, links by class, and what is unsure or stands out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.presentation.figures import count, gbytes_per_s, plural, seconds
from app.presentation.links import (
    SHOWN_MESSAGE_BYTES,
    SlowLinkRow,
    shown_flows,
    shown_load,
    slow_link_rows,
    slow_links_sentence,
)
from app.presentation.sentences import sentences
from app.presentation.switches import shared_uplinks
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Node
from cluster_models.links.model import LinkModel, effective_links
from cluster_models.links.slow_links import Rates, SlowLink, rates_of, slow_links
from cluster_models.links.summaries import ClassSummary, class_summaries
from cluster_models.links.suspicions import SLOW_LINKS, suspicions
from cluster_models.remarks import Remark
from cluster_models.units import GBIT

NAMED_PAIRS: Final = 12
CLASS_COLUMNS: Final = ("class", "pairs", "measured", "median", "10th pct.", "latency")
"""Heads of the table of classes; all but the first are numbers."""

Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True, eq=False)
class ClusterFigures:
    """A snapshot with what follows from its measurements; ``flows`` leave each node in the load shown at first."""

    snapshot: ClusterSnapshot
    links: LinkModel
    rates: Rates
    slow: tuple[SlowLink, ...]
    doubts: tuple[Remark, ...]
    flows: int
    classes: tuple[ClassSummary, ...]


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node in words; ``name`` is all that equal nodes differ in."""

    name: str
    state: str
    gpus: str
    nics: str
    labels: str


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """Report on a cluster in words; ``classes`` has a row for each of ``CLASS_COLUMNS``."""

    facts: Pairs
    load: str
    classes: tuple[tuple[str, ...], ...]
    unmeasured: str
    slow_sentence: str
    slow: tuple[SlowLinkRow, ...]
    suspicions: tuple[str, ...]
    """Other doubts than the links that stand out."""


def cluster_figures(snapshot: ClusterSnapshot) -> ClusterFigures:
    """The figures of a snapshot; seconds for a thousand nodes."""
    links = effective_links(snapshot)
    rates = rates_of(links.tables)
    flows = shown_flows(links, max(node.gpu_count for node in snapshot.cluster.nodes))
    return ClusterFigures(
        snapshot=snapshot,
        links=links,
        rates=rates,
        slow=slow_links(snapshot.cluster, rates),
        doubts=suspicions(snapshot, links.tables),
        flows=flows,
        classes=class_summaries(links, SHOWN_MESSAGE_BYTES, flows),
    )


def cluster_report(
    figures: ClusterFigures, *, nodes: Sequence[Node] | None = None, version: int | None = None
) -> ClusterReport:
    """The report of a cluster; ``nodes`` as they are now, where that differs, ``version`` where it is stored."""
    slow = slow_link_rows(figures.slow)
    return ClusterReport(
        facts=_facts(figures.snapshot, figures.snapshot.cluster.nodes if nodes is None else nodes, version),
        load=shown_load(figures.flows),
        classes=tuple(map(_class_row, figures.classes)),
        unmeasured=_unmeasured(figures.links, figures.flows),
        slow_sentence=slow_links_sentence(len(slow), measured=bool(figures.snapshot.samples)),
        slow=slow,
        suspicions=sentences(doubt for doubt in figures.doubts if doubt.code != SLOW_LINKS),
    )


def node_row(node: Node) -> NodeRow:
    """A node in words."""
    slower = f", computes {node.compute_slowdown:g} times as long" if node.compute_slowdown > 1 else ""
    taken = f", {len(node.gpus_in_use)} in use by other jobs" if node.gpus_in_use else ""
    labels = [f"{key}={value}" for key, value in sorted(node.labels.items())]
    if node.nvlink_domain != node.name:
        labels.append(f"NVLink domain {node.nvlink_domain}")
    return NodeRow(
        name=node.name,
        state=f"{node.state}{slower}",
        gpus=f"{node.gpu_count} x {node.gpu_kind}{taken}",
        nics=f"{node.nics.count} x {node.nics.bytes_per_s / GBIT:g} Gbit/s {node.nics.fabric}",
        labels=", ".join(labels),
    )


def _facts(snapshot: ClusterSnapshot, nodes: Sequence[Node], version: int | None) -> Pairs:
    cluster = snapshot.cluster
    uplinks = shared_uplinks(cluster)
    return (
        ("nodes", f"{count(len(nodes))}, {count(sum(node.usable for node in nodes))} of them usable"),
        ("GPUs", f"{count(cluster.gpu_count)}: {', '.join(sorted({node.gpu_kind for node in nodes}))}"),
        ("measurements", plural(len(snapshot.samples), "sample")),
        *([("shared uplinks, each direction", uplinks)] if uplinks else []),
        *([("version", str(version))] if version is not None else []),
        ("snapshot", snapshot.id),
        *([("source", cluster.source)] if cluster.source else []),
    )


def _class_row(summary: ClassSummary) -> tuple[str, ...]:
    return (
        summary.link_class,
        count(summary.pairs),
        count(summary.measured_pairs),
        gbytes_per_s(summary.median_bytes_per_s),
        gbytes_per_s(summary.p10_bytes_per_s),
        seconds(summary.median_latency_s),
    )


def _unmeasured(links: LinkModel, flows: int) -> str:
    """Pairs that were measured in neither direction."""
    estimated, names = links.estimated(flows), links.nodes
    pairs = np.argwhere(np.triu(estimated & estimated.T, k=1))
    if not len(pairs):
        return "Every pair of nodes was measured." if len(names) > 1 else "There is one node only."
    if len(pairs) == len(names) * (len(names) - 1) // 2:
        return "No pair of nodes was measured: all are estimated from their class."
    are = "pair is estimated from its" if len(pairs) == 1 else "pairs are estimated from their"
    if len(pairs) > NAMED_PAIRS:
        return f"{count(len(pairs))} {are} class."
    listed = ", ".join(f"{names[a]} \N{EN DASH} {names[b]}" for a, b in pairs)
    return f"{count(len(pairs))} {are} class: {listed}"
