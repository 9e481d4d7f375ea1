"""How far links stray from their median: as repeated tests of the cluster show, else as published.

The logarithm of a link's bandwidth is taken as normal around that of its median; its spread is given by the *slow
decile*, ``ln(median / p10)``.  ``docs/robustness.md`` has the estimate and the published figures.
Letters: ``K`` link classes, ``N`` nodes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import NormalDist, fmean
from typing import Final

import numpy as np

from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.links.classes import FloatArray, IntArray, LinkClass, Proximity, classify
from cluster_models.links.tables import DECILE_SAMPLES, Recency, directions, recent
from cluster_models.links.wire_flows import wire_flow

NORMAL_DECILE: Final = NormalDist().inv_cdf(0.9)
"""Standard deviations between the median and the decile of a normal distribution."""
ENOUGH_REPEATS: Final = 10
"""Repetitions of tests below which a class, or a cluster, says nothing about spread."""
PUBLISHED_DECILE: Final[Mapping[Proximity, float]] = {
    Proximity.SAME_NODE: 0.0,
    Proximity.SAME_NVLINK_DOMAIN: 0.0,
    Proximity.SAME_LEAF: 0.05,
    Proximity.SAME_ZONE: 0.05,
    Proximity.OTHER: 0.22,
}
"""Slow decile where no test was repeated.

In one zone: three clusters measured again within hours or days have 0.012 to 0.020, 0.022 and 0.02 to 0.45; between
regions 0.23 over twelve days.  Copies over NVLink hardly differ (docs/robustness.md).
"""
PUBLISHED_NODE_SHARE: Final[Mapping[Proximity, float]] = {
    Proximity.SAME_NODE: 0.0,
    Proximity.SAME_NVLINK_DOMAIN: 0.0,
    Proximity.SAME_LEAF: 0.1,
    Proximity.SAME_ZONE: 0.1,
    Proximity.OTHER: 0.3,
}
"""Share of the variance that all links of a node have in common: 0 to 0.34 in clusters, 0.32 between regions."""


class SpreadOrigin(StrEnum):
    """Where a spread comes from."""

    CLASS = "class"
    """Tests that were repeated on links of the same class."""
    CLUSTER = "cluster"
    """Tests that were repeated on other links of the cluster."""
    PUBLISHED = "published"
    """Published measurements of other clusters."""


@dataclass(frozen=True, slots=True)
class Spread:
    """How far the links of a class stray: ``decile`` is ``ln(median / p10)``, from ``repeats`` repeated tests.

    ``node_share`` is the part of the variance that is common to all links of a node, half of it at either end.
    """

    decile: float
    node_share: float
    origin: SpreadOrigin
    repeats: int

    @property
    def slow_factor(self) -> float:
        """How many times its median a transfer takes on a link at its slow decile."""
        return math.exp(self.decile)

    @property
    def standard_deviation(self) -> float:
        """Spread of the logarithm of the bandwidth."""
        return self.decile / NORMAL_DECILE


@dataclass(frozen=True, slots=True, eq=False)
class LinkSpread:
    """The spread of each class (K,), and of each pair of nodes (N, N) the class and the samples behind its median.

    Pairs that were never measured count one sample.
    """

    by_class: tuple[Spread, ...]
    link_classes: IntArray
    samples: IntArray

    def deviation(self, pairs: IntArray) -> FloatArray:
        """(u,) standard deviation of what ``pairs`` (u, 2) will have, around their medians.

        A median of n samples is itself off, by a variance of about one nth of a single sample's.
        """
        of_class = np.array([spread.standard_deviation for spread in self.by_class])
        a, b = pairs[:, 0], pairs[:, 1]
        deviation: FloatArray = of_class[self.link_classes[a, b]] * np.sqrt(1 + 1 / self.samples[a, b])
        return deviation


def link_spread(snapshot: ClusterSnapshot, *, recency: Recency = Recency()) -> LinkSpread:  # noqa: B008 - frozen
    """The spread of the links of ``snapshot``: of their class, else of the cluster, else published."""
    classes, link_classes = classify(snapshot.cluster)
    position = {node.name: index for index, node in enumerate(snapshot.cluster.nodes)}
    class_of = {
        (a, b): int(link_classes[position[a], position[b]])
        for a, b in {(sample.source, sample.destination) for sample in snapshot.samples}
    }
    by_class = spreads(snapshot.samples, recency, classes, class_of)
    return LinkSpread(by_class, link_classes, _sample_counts(snapshot.samples, recency, position))


def spreads(
    samples: Iterable[Sample],
    recency: Recency,
    classes: Sequence[LinkClass],
    class_of: Mapping[tuple[str, str], int],
) -> tuple[Spread, ...]:
    """The spread of each class (K,); ``class_of`` indexes the classes by the two ends of a sample.

    Links inside an NVLink domain and links of network cards are never taken for each other.
    """
    tests: list[list[list[float]]] = [[] for _ in classes]
    for pair, values in _most_repeated(samples, recency).items():
        tests[class_of[pair]].append(values)
    found = []
    for k, link_class in enumerate(classes):
        like = [
            test for j, other in enumerate(classes) if other.scale_up == link_class.scale_up for test in tests[j]
        ]
        node_share = PUBLISHED_NODE_SHARE[link_class.proximity]
        for origin, pool in ((SpreadOrigin.CLASS, tests[k]), (SpreadOrigin.CLUSTER, like)):
            if _repeats(pool) >= ENOUGH_REPEATS:
                found.append(Spread(slow_decile(pool), node_share, origin, _repeats(pool)))
                break
        else:
            decile = PUBLISHED_DECILE[link_class.proximity]
            found.append(Spread(decile, node_share, SpreadOrigin.PUBLISHED, 0))
    return tuple(found)


def slow_decile(tests: Sequence[Sequence[float]]) -> float:
    """``ln(median / p10)`` of links that were tested again and again; ``tests`` are logarithms of bandwidths.

    Four of five deviations of a normal distribution lie within its deciles.  Deviations from the mean of n values
    are too small by sqrt((n-1)/n), which is put right; the quantile leaves a few broken tests without a say.
    """
    deviations = [
        abs(value - fmean(values)) * math.sqrt(len(values) / (len(values) - 1))
        for values in tests
        for value in values
    ]
    return float(np.quantile(deviations, 0.8))


def _sample_counts(samples: Iterable[Sample], recency: Recency, position: Mapping[str, int]) -> IntArray:
    """(N, N) recent samples of each pair's most sampled number of flows and message size, at least 1.

    A direction without samples has the other one's.
    """
    groups: dict[tuple[str, str], dict[tuple[int, float], list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if (flow := wire_flow(sample)) is not None:
            for pair in directions(sample):
                groups[pair][flow.flows, flow.message_bytes].append(sample)
    counts = np.zeros((len(position), len(position)), dtype=np.int64)
    for (a, b), keys in groups.items():
        runs = [members for members in keys.values() if len(members) > 1]
        counts[position[a], position[b]] = max((len(recent(run, recency)) for run in runs), default=1)
    return np.maximum(1, np.where(counts > 0, counts, counts.T))


def _repeats(tests: Sequence[Sequence[float]]) -> int:
    """How often tests were run again."""
    return sum(len(values) - 1 for values in tests)


def _most_repeated(samples: Iterable[Sample], recency: Recency) -> dict[tuple[str, str], list[float]]:
    """Logarithms of bandwidth of each pair's most repeated test, the one with the largest message among equals.

    One test a pair: message sizes of one run rise and fall together.
    """
    groups: dict[tuple[str, str], dict[tuple[object, ...], list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        if wire_flow(sample) is not None:
            test = (sample.direction, sample.tool, sample.collective, sample.ranks_per_node, sample.message_bytes)
            groups[sample.source, sample.destination][test].append(sample)
    window = replace(recency, samples=DECILE_SAMPLES)
    repeated = {}
    for pair, tests in groups.items():
        runs = [recent(run, window) for run in tests.values() if len(run) > 1]
        most = max(runs, key=lambda run: (len(run), run[0].message_bytes), default=[])
        if len(most) > 1:
            repeated[pair] = [math.log(sample.bytes_per_s) for sample in most if sample.bytes_per_s]
    return repeated
