"""Links far slower than others of their class at the same load: the robust residual against the class's curve.

The curve of a class at a number of flows is the median bandwidth of its links over message sizes.  The residual of
a link is the logarithm of its bandwidth over the curve; its scale is the median absolute deviation of the class at
that load (Rousseeuw and Croux 1993, section 1), so that neither many broken links nor a class that strays by nature
hides or makes an outlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.cluster.topology import Cluster
from cluster_models.links.classes import classify
from cluster_models.links.tables import LinkTables

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

Rates = Mapping[tuple[float, float], Mapping[tuple[str, str], float]]
"""Bytes/s of each directed pair of different nodes, by (flows, message bytes)."""

SLOW_SHARE: Final = 0.6
"""A link below this share of its class's curve stands out."""
FARTHEST_DEVIATIONS: Final = 4.0
"""It must also lie so many standard deviations of its class below the curve: one normal link in 30,000 does."""
NORMAL_DEVIATIONS: Final = 1.4826
"""Standard deviations of a normal distribution in its median absolute deviation."""
LEAST_DEVIATION: Final = 0.03
"""Spread of repeated tests on one link, as a logarithm: no class is taken to be more even than that."""
FEWEST_LINKS: Final = 5
"""Directed links of a class measured at one load from which their median is its curve."""


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A directed link at the load at which it falls behind its class most; rates are those of one flow."""

    source: str
    destination: str
    link_class: int
    flows: float
    message_bytes: float
    bytes_per_s: float
    class_bytes_per_s: float

    @property
    def share(self) -> float:
        """Share of its class's curve that it reaches, below 1."""
        return self.bytes_per_s / self.class_bytes_per_s


def rates_of(tables: LinkTables) -> dict[tuple[float, float], dict[tuple[str, str], float]]:
    """The bandwidth of every measured link between two nodes, load by load."""
    rates: dict[tuple[float, float], dict[tuple[str, str], float]] = {}
    measured = np.nonzero(np.isfinite(tables.message_bytes))
    rows, levels, _ = measured
    sizes, times = tables.message_bytes[measured], tables.time_s[measured]
    values = (rows, tables.flows[rows, levels], sizes, sizes / times)
    for row, flows, size, rate in zip(*(value.tolist() for value in values), strict=True):
        pair = tables.pairs[row]
        if pair[0] != pair[1]:
            rates.setdefault((flows, size), {})[pair] = rate
    return rates


def slow_links(cluster: Cluster, rates: Rates) -> tuple[SlowLink, ...]:
    """Every link that stands out at some load, slowest share of its class first; both directions are listed."""
    link_classes = classify(cluster)[1]
    position = {node.name: index for index, node in enumerate(cluster.nodes)}
    worst: dict[tuple[str, str], SlowLink] = {}
    loads = {load: _Load.of(load, by_pair, position, link_classes) for load, by_pair in rates.items()}
    for k in sorted({k for load in loads.values() for k in load.classes.tolist()}):
        for flows in sorted({flows for flows, _ in rates}):
            for link in _outliers(k, [load for load in loads.values() if load.flows == flows]):
                pair = (link.source, link.destination)
                if pair not in worst or link.share < worst[pair].share:
                    worst[pair] = link
    return tuple(sorted(worst.values(), key=lambda link: (link.share, link.source, link.destination)))


def slow_pairs(links: Sequence[SlowLink]) -> tuple[SlowLink, ...]:
    """The first of the links between each two nodes: the slower direction, where they come slowest share first."""
    pairs: dict[frozenset[str], SlowLink] = {}
    for link in links:
        pairs.setdefault(frozenset((link.source, link.destination)), link)
    return tuple(pairs.values())


@dataclass(frozen=True, slots=True, eq=False)
class _Load:
    """Measurements with so many flows and messages of one size: pairs, their classes (L,) and rates (L,)."""

    flows: float
    message_bytes: float
    pairs: tuple[tuple[str, str], ...]
    classes: IntArray
    rates: FloatArray

    @classmethod
    def of(
        cls,
        load: tuple[float, float],
        by_pair: Mapping[tuple[str, str], float],
        position: Mapping[str, int],
        link_classes: IntArray,
    ) -> _Load:
        """The measurements of one load."""
        ends = np.array([(position[a], position[b]) for a, b in by_pair], dtype=np.int64)
        return cls(*load, tuple(by_pair), link_classes[ends[:, 0], ends[:, 1]], np.array(list(by_pair.values())))


def _outliers(k: int, loads: Sequence[_Load]) -> list[SlowLink]:
    """Links of class ``k`` that stand out at one of ``loads``, which have the same number of flows."""
    usual = {
        load.message_bytes: (float(np.median(own)), _deviation(own))
        for load in loads
        if len(own := load.rates[load.classes == k]) >= FEWEST_LINKS
    }
    if not usual:
        return []
    sizes = np.array(sorted(usual))
    curve = np.log([usual[size][0] for size in sizes])
    spread = np.array([usual[size][1] for size in sizes])
    outliers = []
    # below the smallest size of the curve latency rules: nothing is known to compare with
    for load in (load for load in loads if load.message_bytes >= sizes[0]):
        at = np.log(load.message_bytes)
        expected = float(np.exp(np.interp(at, np.log(sizes), curve)))
        deviation = float(np.interp(at, np.log(sizes), spread))
        limit = expected * min(SLOW_SHARE, float(np.exp(-FARTHEST_DEVIATIONS * deviation)))
        for row in np.flatnonzero((load.classes == k) & (load.rates < limit)):
            a, b = load.pairs[row]
            outliers.append(SlowLink(a, b, k, load.flows, load.message_bytes, float(load.rates[row]), expected))
    return outliers


def _deviation(rates: FloatArray) -> float:
    """Robust standard deviation of the logarithm of ``rates`` (L,)."""
    residuals = np.log(rates) - np.log(np.median(rates))
    return max(LEAST_DEVIATION, NORMAL_DEVIATIONS * float(np.median(np.abs(residuals))))
