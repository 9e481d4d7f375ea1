"""Doubts about a snapshot's measurements, one sentence each; a plan shows them as warnings."""

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
from cluster_models.links.oversubscription import shared_uplinks
from cluster_models.links.slow_links import SLOW_SHARE, Rates, SlowLink, rates_of, slow_links
from cluster_models.links.tables import LinkTables, Recency, link_tables
from cluster_models.links.wire_flows import LARGE_BYTES, WireFlow, wire_flow
from cluster_models.units import GBYTE, MIB
from cluster_models.wording import named

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


def suspicions(snapshot: ClusterSnapshot, tables: LinkTables | None = None) -> tuple[str, ...]:
    """One sentence for each thing about the measurements that a planner should not believe unseen.

    ``tables`` are the medians of the snapshot's samples, where they are at hand.
    """
    classes, link_classes = classify(snapshot.cluster)
    names = [node.name for node in snapshot.cluster.nodes]
    flows = _flows(snapshot.samples)
    rates = rates_of(link_tables(snapshot.samples, Recency()) if tables is None else tables)
    return (
        *_asymmetric(rates),
        *_above_nominal(flows, names, classes, link_classes),
        *slow_links_doubt(slow_links(snapshot.cluster, rates)),
        *(found.sentence for found in shared_uplinks(snapshot.cluster, rates)),
        *_coverage(snapshot, flows, names),
    )


Flows = list[tuple[Sample, WireFlow]]


def _flows(samples: Iterable[Sample]) -> Flows:
    return [(sample, flow) for sample in samples if (flow := wire_flow(sample)) is not None]


def _asymmetric(rates: Rates) -> list[str]:
    worst: dict[tuple[str, str], tuple[float, float]] = {}
    for (flows, _), by_pair in rates.items():
        for pair, rate in by_pair.items():
            ratio = rate / by_pair.get(pair[::-1], rate)
            if ratio > ASYMMETRY_RATIO and ratio > worst.get(pair, (0.0, 0.0))[0]:
                worst[pair] = (ratio, flows)
    sentences = [
        f"{a} to {b} is {ratio:.1f} times faster than back ({flows:g} flows per node):"
        " check the cards and routes of both nodes, or measure again."
        for (a, b), (ratio, flows) in sorted(worst.items())
    ]
    return _shortened(sentences, "more pairs are as uneven between their two directions")


def _classes_of(pairs: Iterable[tuple[str, str]], names: Sequence[str], link_classes: IntArray) -> list[int]:
    position = {name: index for index, name in enumerate(names)}
    ends = np.array([(position[a], position[b]) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
    found: list[int] = link_classes[ends[:, 0], ends[:, 1]].tolist()
    return found


def _above_nominal(
    flows: Flows, names: Sequence[str], classes: Sequence[LinkClass], link_classes: IntArray
) -> list[str]:
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
    sentences = [
        f"{a} to {b} was measured at {rate / GBYTE:.4g} GB/s in each of {count} flows, above the"
        f" {limit / GBYTE:.4g} GB/s that the stated hardware can carry: correct the nodes' NICs or NVLink domain."
        for (a, b), (rate, limit, count) in sorted(worst.items())
    ]
    return _shortened(sentences, "more pairs were measured above their data sheet")


def slow_links_doubt(links: Sequence[SlowLink]) -> list[str]:
    """One sentence about all links that stand out, if any; both directions of a pair count once."""
    pairs: dict[frozenset[str], SlowLink] = {}
    for link in links:
        pairs.setdefault(frozenset((link.source, link.destination)), link)
    if not pairs:
        return []
    lead = "1 node pair reaches" if len(pairs) == 1 else f"{len(pairs):,} node pairs reach"
    examples = [_slow_words(link) for link in pairs.values()]
    fallback = sum(link.share <= 1 / FALLBACK_RATIO for link in pairs.values())
    tcp = f" {fallback} of them may have fallen back to TCP." if fallback else ""
    sentence = (
        f"{lead} less than {100 * SLOW_SHARE:.0f} % of what others of the same class do at the same load: "
        f"{named(examples, NAMED_AT_MOST)}.{tcp} Measure them again; if they stay slow, look at their "
        "cables, cards and routes."
    )
    return [sentence]


def _slow_words(link: SlowLink) -> str:
    """One link beside its class: "a to b 1.7 GB/s where 13.5 is usual (1 flow)"."""
    rate, usual = link.bytes_per_s / GBYTE, link.class_bytes_per_s / GBYTE
    flows = "1 flow" if link.flows == 1 else f"{link.flows:g} flows"
    return f"{link.source} to {link.destination} {rate:.3g} GB/s where {usual:.3g} is usual ({flows})"


def _coverage(snapshot: ClusterSnapshot, flows: Flows, names: Sequence[str]) -> list[str]:
    """Pairs and nodes that nothing is known about."""
    if len(names) < 2:
        return []
    measured = _pairs(sample for sample, _ in flows)
    small = measured - _pairs(sample for sample, flow in flows if flow.message_bytes >= LARGE_BYTES)
    failed = _pairs(sample for sample in snapshot.samples if sample.status is SampleStatus.FAILED)
    pairs = len(names) * (len(names) - 1) // 2
    if not measured:
        return ["No pair of nodes was measured: every link is estimated from the data sheet."]
    sentences = []
    if small:
        sentences.append(
            f"On {len(small)} of {pairs} node pairs only small messages were measured (below {LARGE_BYTES / MIB:g}"
            " MiB a flow), as by a test that ended early: larger ones are estimated from the class of the pair."
        )
    if failed:
        again = len(failed & (measured - small))
        sentences.append(
            f"{len(failed)} of {pairs} node pairs have failed tests ({again} of them also succeeded in others):"
            " failed counts as unknown."
        )
    if missing := pairs - len(measured):
        sentences.append(
            f"{missing} of {pairs} node pairs ({100 * missing / pairs:.0f} %) were never measured: they are"
            " estimated from their class."
        )
    heard = {name for pair in measured for name in pair}
    silent = [name for name in names if name not in heard]
    lost = [f"Node {name} has no measurement at all: all its links are estimated." for name in silent]
    return [*sentences, *_shortened(lost, "more nodes have no measurement at all")]


def _pairs(samples: Iterable[Sample]) -> set[tuple[str, str]]:
    """The pairs of two nodes, each in the order of their names."""
    directed = {(sample.source, sample.destination) for sample in samples if sample.source != sample.destination}
    return {(a, b) if a < b else (b, a) for a, b in directed}


def _shortened(sentences: list[str], rest: str) -> list[str]:
    if len(sentences) <= NAMED_AT_MOST:
        return sentences
    return [*sentences[:NAMED_AT_MOST], f"{len(sentences) - NAMED_AT_MOST} {rest}."]
