"""Doubts about a snapshot's measurements; a plan has them among its warnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.cluster.measurements import Sample, SampleStatus
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidCluster
from cluster_models.links.classes import LinkClass, classify
from cluster_models.links.oversubscription import SharedUplink, shared_uplinks
from cluster_models.links.slow_links import SLOW_SHARE, Rates, SlowLink, rates_of, slow_links, slow_pairs
from cluster_models.links.tables import LinkTables, Recency, link_tables
from cluster_models.links.wire_flows import LARGE_BYTES, WireFlow, wire_flow
from cluster_models.remarks import Remark, remark
from cluster_models.units import GBYTE

IntArray = npt.NDArray[np.int64]

ABSURD_RATIO: Final = 100.0
"""Above so many times the data sheet a figure has the wrong unit."""
ASYMMETRY_RATIO: Final = 2.0
FALLBACK_RATIO: Final = 10.0
"""A link so many times slower than its class has probably fallen back to TCP: 14 to 23 times below the fabric's
rate in the cases published (docs/links.md)."""
ROUNDING: Final = 1.02
"""Bandwidth this much above the data sheet is still measurement noise."""
NAMED_AT_MOST: Final = 5
SLOW_LINKS: Final = "slow_links"
"""Code of the remark about links that stand out."""


def reject_absurd(snapshot: ClusterSnapshot, classes: Sequence[LinkClass], link_classes: IntArray) -> None:
    """Raise ``InvalidCluster`` for the first sample over a hundred times its data sheet."""
    flows = _flows(snapshot.samples)
    names = [node.name for node in snapshot.cluster.nodes]
    found = _classes_of(((sample.source, sample.destination) for sample, _ in flows), names, link_classes)

    @cache
    def nominal_of(link_class: int, flows: int) -> float:
        return classes[link_class].nominal_bytes_per_s(flows)

    for (sample, flow), link_class in zip(flows, found, strict=True):
        nominal = nominal_of(link_class, flow.flows)
        if flow.bytes_per_s > ABSURD_RATIO * nominal:
            raise InvalidCluster(
                f"measurements.{sample.source}->{sample.destination}.bandwidth",
                sample.bytes_per_s,
                f"is over {ABSURD_RATIO:g} times what the data sheet allows"
                f" ({nominal / GBYTE:.4g} GB/s for one of {flow.flows} flows)",
                "check the unit: GB/s means 10^9 bytes per second",
            )


def suspicions(snapshot: ClusterSnapshot, tables: LinkTables | None = None) -> tuple[Remark, ...]:
    """Everything about the measurements that a planner should not believe unseen.

    ``tables`` are the medians of the snapshot's samples, where they are at hand.
    """
    classes, link_classes = classify(snapshot.cluster)
    names = [node.name for node in snapshot.cluster.nodes]
    flows = _flows(snapshot.samples)
    rates = rates_of(link_tables(snapshot.samples, Recency()) if tables is None else tables)
    return (
        *_asymmetric(rates),
        *_above_nominal(flows, names, classes, link_classes),
        *_slow(slow_links(snapshot.cluster, rates)),
        *(_oversubscribed(uplink) for uplink in shared_uplinks(snapshot.cluster, rates)),
        *_coverage(snapshot, flows, names),
    )


Flows = list[tuple[Sample, WireFlow]]


def _flows(samples: Iterable[Sample]) -> Flows:
    return [(sample, flow) for sample in samples if (flow := wire_flow(sample)) is not None]


def _asymmetric(rates: Rates) -> list[Remark]:
    worst: dict[tuple[str, str], tuple[float, float]] = {}
    for (flows, _), by_pair in rates.items():
        for pair, rate in by_pair.items():
            ratio = rate / by_pair.get(pair[::-1], rate)
            if ratio > ASYMMETRY_RATIO and ratio > worst.get(pair, (0.0, 0.0))[0]:
                worst[pair] = (ratio, flows)
    found = [
        remark("uneven_directions", source=a, destination=b, ratio=ratio, flows=flows)
        for (a, b), (ratio, flows) in sorted(worst.items())
    ]
    return _shortened(found, remark("more_uneven_directions", count=len(found) - NAMED_AT_MOST))


def _classes_of(pairs: Iterable[tuple[str, str]], names: Sequence[str], link_classes: IntArray) -> list[int]:
    position = {name: index for index, name in enumerate(names)}
    ends = np.array([(position[a], position[b]) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    found: list[int] = link_classes[ends[:, 0], ends[:, 1]].tolist()
    return found


def _above_nominal(
    flows: Flows, names: Sequence[str], classes: Sequence[LinkClass], link_classes: IntArray
) -> list[Remark]:
    worst: dict[tuple[str, str], tuple[float, float, int]] = {}

    @cache
    def limit_of(link_class: int, flows: int) -> float:
        return classes[link_class].limit_bytes_per_s(flows)

    found = _classes_of(((sample.source, sample.destination) for sample, _ in flows), names, link_classes)
    for (sample, flow), link_class in zip(flows, found, strict=True):
        limit = limit_of(link_class, flow.flows)
        pair = (sample.source, sample.destination)
        if flow.bytes_per_s > ROUNDING * limit and flow.bytes_per_s > worst.get(pair, (0.0,))[0]:
            worst[pair] = (flow.bytes_per_s, limit, flow.flows)
    doubts = [
        remark("above_data_sheet", source=a, destination=b, bytes_per_s=rate, limit_bytes_per_s=limit, flows=count)
        for (a, b), (rate, limit, count) in sorted(worst.items())
    ]
    return _shortened(doubts, remark("more_above_data_sheet", count=len(doubts) - NAMED_AT_MOST))


def _slow(links: Sequence[SlowLink]) -> list[Remark]:
    """One remark about all links that stand out, if any; both directions of a pair count once."""
    pairs = slow_pairs(links)
    if not pairs:
        return []
    examples = pairs[:NAMED_AT_MOST]
    doubt = remark(
        SLOW_LINKS,
        pairs=len(pairs),
        share=SLOW_SHARE,
        fallbacks=sum(link.share <= 1 / FALLBACK_RATIO for link in pairs),
        sources=tuple(link.source for link in examples),
        destinations=tuple(link.destination for link in examples),
        bytes_per_s=tuple(link.bytes_per_s for link in examples),
        usual_bytes_per_s=tuple(link.class_bytes_per_s for link in examples),
        flows=tuple(link.flows for link in examples),
    )
    return [doubt]


def _oversubscribed(uplink: SharedUplink) -> Remark:
    return remark(
        "oversubscribed_uplinks",
        label=uplink.label,
        few_flows=uplink.few,
        many_flows=uplink.many,
        inside_bytes_per_s=uplink.inside_bytes_per_s,
        across_bytes_per_s=uplink.across_bytes_per_s,
        node_bytes_per_s=uplink.node_bytes_per_s,
    )


def _coverage(snapshot: ClusterSnapshot, flows: Flows, names: Sequence[str]) -> list[Remark]:
    """Pairs and nodes that nothing is known about."""
    if len(names) < 2:
        return []
    measured = _pairs(sample for sample, _ in flows)
    small = measured - _pairs(sample for sample, flow in flows if flow.message_bytes >= LARGE_BYTES)
    failed = _pairs(sample for sample in snapshot.samples if sample.status is SampleStatus.FAILED)
    pairs = len(names) * (len(names) - 1) // 2
    if not measured:
        return [remark("nothing_measured")]
    doubts = []
    if small:
        doubts.append(remark("only_small_messages", pairs=len(small), of=pairs, message_bytes=LARGE_BYTES))
    if failed:
        again = len(failed & (measured - small))
        doubts.append(remark("failed_tests", pairs=len(failed), of=pairs, succeeded=again))
    if missing := pairs - len(measured):
        doubts.append(remark("never_measured", pairs=missing, of=pairs))
    heard = {name for pair in measured for name in pair}
    silent = [remark("node_without_measurement", node=name) for name in names if name not in heard]
    more = remark("more_nodes_without_measurement", count=len(silent) - NAMED_AT_MOST)
    return [*doubts, *_shortened(silent, more)]


def _pairs(samples: Iterable[Sample]) -> set[tuple[str, str]]:
    """The pairs of two nodes, each in the order of their names."""
    directed = {(sample.source, sample.destination) for sample in samples if sample.source != sample.destination}
    return {(a, b) if a < b else (b, a) for a, b in directed}


def _shortened(doubts: list[Remark], more: Remark) -> list[Remark]:
    return doubts if len(doubts) <= NAMED_AT_MOST else [*doubts[:NAMED_AT_MOST], more]
