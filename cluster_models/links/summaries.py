"""Links of each class in figures: how many pairs, how many of them measured, bandwidth and latency."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cluster_models.links.model import BoolArray, FloatArray, LinkModel


@dataclass(frozen=True, slots=True)
class ClassSummary:
    """Pairs of nodes of one class while ``flows`` flows of ``message_bytes`` leave each node.

    Rates are those of one flow; latency is that of a transfer of no bytes.
    """

    link_class: str
    flows: int
    message_bytes: float
    pairs: int
    measured_pairs: int
    median_bytes_per_s: float
    p10_bytes_per_s: float
    median_latency_s: float


def class_summaries(links: LinkModel, message_bytes: float, flows: int) -> tuple[ClassSummary, ...]:
    """Every class that pairs of nodes have; none where there is one node."""
    apart = ~np.eye(len(links.nodes), dtype=np.bool_)
    estimated = links.estimated(flows)
    bandwidth, measured = links.bytes_per_s(message_bytes, flows), ~(estimated & estimated.T)

    def summary(members: BoolArray) -> ClassSummary:
        first, second = np.argwhere(members)[0]
        rates: FloatArray = bandwidth[members]
        return ClassSummary(
            link_class=links.link_class(links.nodes[first], links.nodes[second]),
            flows=flows,
            message_bytes=message_bytes,
            pairs=int(members.sum()) // 2,
            measured_pairs=int((members & measured).sum()) // 2,
            median_bytes_per_s=float(np.median(rates)),
            p10_bytes_per_s=float(np.percentile(rates, 10)),
            median_latency_s=float(np.median(links.latency_s[members])),
        )

    return tuple(summary((links.link_classes == k) & apart) for k in np.unique(links.link_classes[apart]))
