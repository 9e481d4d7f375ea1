"""Load at which the bandwidths of a cluster are shown, order of its nodes, and links that stand out, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from app.presentation.figures import data_bytes, gbytes_per_s, percent, plural
from cluster_models.cluster.topology import Cluster
from cluster_models.links.model import LinkModel
from cluster_models.links.slow_links import SLOW_SHARE, SlowLink, slow_pairs
from cluster_models.units import MIB

SHOWN_MESSAGE_BYTES: Final = 256 * MIB
"""Large enough that latency does not count."""
MOST_SIZES: Final = 12
SLOW_COLUMNS: Final = ("link", "each flow gets", "usual in its class", "share", "load")
"""Heads of the table of links that stand out."""


def shown_flows(model: LinkModel, gpus_per_node: int) -> int:
    """The most flows that most links between nodes were measured with; all GPUs of a node where none was."""
    between = np.array([a != b for a, b in model.tables.pairs], dtype=np.bool_)
    levels = model.tables.highest_flows[between]
    if not len(levels):
        return gpus_per_node
    values, counts = np.unique(levels, return_counts=True)
    return int(values[counts.argmax()])


def offered_flows(model: LinkModel, usual: int) -> tuple[int, ...]:
    """Numbers of flows that links were measured with, and the usual one."""
    levels = model.tables.flows[np.isfinite(model.tables.flows)]
    return tuple(sorted({usual, *(int(level) for level in np.unique(levels) if level >= 1)}))


def offered_sizes(model: LinkModel) -> tuple[float, ...]:
    """Message sizes that most links were measured with, and the usual one."""
    sizes = model.tables.message_bytes[np.isfinite(model.tables.message_bytes)]
    values, counts = np.unique(sizes, return_counts=True)
    common = values[np.argsort(-counts, kind="stable")[:MOST_SIZES]].tolist()
    return tuple(sorted({float(SHOWN_MESSAGE_BYTES), *common}))


def shown_load(flows: int, message_bytes: float = SHOWN_MESSAGE_BYTES) -> str:
    """The load in words: "each of 8 flows at once, 256 MiB messages"."""
    at_once = "one flow at a time" if flows == 1 else f"each of {flows} flows at once"
    return f"{at_once}, {data_bytes(message_bytes)} messages"


def by_place(cluster: Cluster) -> list[int]:
    """Positions of the nodes by zone, leaf and rack, so that what is close stands together."""

    def place(position: int) -> list[str]:
        return [cluster.nodes[position].labels.get(key, "") for key in ("zone", "leaf", "rack")]

    return sorted(range(len(cluster.nodes)), key=place)


@dataclass(frozen=True, slots=True)
class SlowLinkRow:
    """A pair of nodes that stands out, at the load at which it falls behind its class most."""

    source: str
    destination: str
    rate: str
    usual: str
    share: str
    load: str
    bar: int
    """The share as a length, of 64."""

    @property
    def cells(self) -> tuple[str, ...]:
        """Cells of its row under ``SLOW_COLUMNS``."""
        return f"{self.source} - {self.destination}", self.rate, self.usual, self.share, self.load


def slow_link_rows(links: Sequence[SlowLink]) -> tuple[SlowLinkRow, ...]:
    """Every pair of nodes once, the slower of its directions, slowest share of the class first."""
    return tuple(
        SlowLinkRow(
            link.source,
            link.destination,
            gbytes_per_s(link.bytes_per_s),
            gbytes_per_s(link.class_bytes_per_s),
            percent(link.share, places=0),
            f"{plural(int(link.flows), 'flow')}, {data_bytes(link.message_bytes)}",
            round(64 * link.share),
        )
        for link in slow_pairs(links)
    )


def slow_links_sentence(pairs: int, *, measured: bool = True) -> str:
    """How many pairs stand out, and what that means."""
    if not measured:
        return "No pair of nodes was measured, so that none can stand out."
    if not pairs:
        return "No link stands out from its class at any load that was measured."
    lead = "1 pair of nodes reaches" if pairs == 1 else f"{pairs:,} pairs of nodes reach"
    return (
        f"{lead} less than {percent(SLOW_SHARE, places=0)} of what others of the same class do at the same load. "
        "Each is shown at the load where it falls behind most."
    )
