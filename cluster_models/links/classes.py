"""Classes of node pairs: what is expected of a pair that was never measured.

A pair's class is how close its two nodes sit and what hardware they have.  Letters: ``f`` flows leave a node at
once, ``K`` classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt

from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.cluster.topology import Cluster, Node
from cluster_models.links.collective_curves import domain_latency_s, domain_time_s
from cluster_models.units import GBIT

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

TYPICAL_EFFICIENCY: Final = 0.75
"""Share of the nominal card rate that a flow between GPUs of two nodes typically gets.

Published pairs: 0.62 to 0.79 on HDR with older stacks, 0.82 on EDR, 0.96 to 0.98 on tuned NDR, EFA v3 and
Slingshot (sources in docs/links.md); the figure is on the careful side of the middle.
"""

FABRIC_LATENCY_S: Final = {
    "infiniband": 10e-6,
    "roce": 10e-6,
    "slingshot": 9.5e-6,
    "efa": 35e-6,
    "tcp": 62e-6,
    "ethernet": 62e-6,
}
"""Latency of one NCCL transfer between two nodes, where none was measured.

Half of the published time of a tiny two-node all-reduce, which crosses twice: Slingshot 19 us, EFA on p5 70 us,
TCP on a3-mega 123 us; InfiniBand and RoCE take the 10 us that planners assume (sources in docs/links.md).
"""
UNKNOWN_FABRIC_LATENCY_S: Final = 10e-6


class Proximity(IntEnum):
    """How close two nodes sit; a greater value is a wider class."""

    SAME_NODE = 0
    SAME_NVLINK_DOMAIN = 1
    SAME_LEAF = 2
    SAME_ZONE = 3
    OTHER = 4

    @property
    def words(self) -> str:
        """For people, true also of clusters without labels of zones or leaves."""
        return _WORDS[self]


_WORDS: Final = {
    Proximity.SAME_NODE: "same node",
    Proximity.SAME_NVLINK_DOMAIN: "same NVLink domain",
    Proximity.SAME_LEAF: "same leaf",
    Proximity.SAME_ZONE: "no shared leaf",
    Proximity.OTHER: "other zone",
}


@dataclass(frozen=True, slots=True)
class Hardware:
    """Hardware of a node that decides the speed of its links."""

    gpu_kind: str
    gpu_count: int
    cards: int
    card_bytes_per_s: float
    fabric: str

    @property
    def aggregate_bytes_per_s(self) -> float:
        """Rate of all cards together in one direction."""
        return self.cards * self.card_bytes_per_s

    def nominal_flow_bytes_per_s(self, flows: float) -> float:
        """Nominal rate of each of ``flows`` flows that leave the node at once.

        A GPU's flow uses its own card, or its share of them where there are more cards than GPUs.
        """
        own = max(self.card_bytes_per_s, self.aggregate_bytes_per_s / self.gpu_count)
        return min(own, self.aggregate_bytes_per_s / flows)

    @property
    def words(self) -> str:
        """For people."""
        rate = self.card_bytes_per_s / GBIT
        return f"{self.gpu_count} x {self.gpu_kind}, {self.cards} x {rate:g} Gb/s {self.fabric}"


@dataclass(frozen=True, slots=True)
class LinkClass:
    """Pairs of equally close nodes with the same two sets of hardware (ordered, so that a-b is b-a)."""

    proximity: Proximity
    ends: tuple[Hardware, Hardware]
    kinds: tuple[GpuKind, GpuKind]

    @property
    def key(self) -> tuple[Proximity, tuple[Hardware, Hardware]]:
        """Key that tells two classes apart."""
        return self.proximity, self.ends

    @property
    def scale_up(self) -> bool:
        """Whether the pair talks over NVLink (or what the GPU kind has instead), not over network cards."""
        return self.proximity <= Proximity.SAME_NVLINK_DOMAIN

    def nominal_bytes_per_s(self, flows: float) -> float:
        """Nominal rate of each of ``flows`` flows of the slower end."""
        if self.scale_up:
            return min(
                kind.scale_up_bytes_per_s * min(1.0, end.gpu_count / flows)
                for kind, end in zip(self.kinds, self.ends, strict=True)
            )
        return min(end.nominal_flow_bytes_per_s(flows) for end in self.ends)

    def limit_bytes_per_s(self, flows: float) -> float:
        """Limit of each of ``flows`` flows: its share of all the cards (or links) of the smaller end."""
        if self.scale_up:
            return self.nominal_bytes_per_s(flows)
        return min(end.aggregate_bytes_per_s for end in self.ends) / flows

    def default_latency_s(self) -> float:
        """Latency assumed where none was measured."""
        if self.scale_up:
            return max(domain_latency_s(kind, Collective.POINT_TO_POINT, 2) for kind in self.kinds)
        return max(FABRIC_LATENCY_S.get(end.fabric.casefold(), UNKNOWN_FABRIC_LATENCY_S) for end in self.ends)

    def nominal_time_s(self, message_bytes: float, flows: float, latency_s: float) -> float:
        """Seconds of one flow by data sheet and typical efficiency, nothing measured in this cluster."""
        if not self.scale_up:
            return latency_s + message_bytes / (TYPICAL_EFFICIENCY * self.nominal_bytes_per_s(flows))
        sharing = max(max(1.0, flows / end.gpu_count) for end in self.ends)
        return sharing * max(
            float(domain_time_s(kind, Collective.POINT_TO_POINT, 2, message_bytes)) for kind in self.kinds
        )


def hardware(node: Node) -> Hardware:
    """The hardware of ``node``."""
    nics = node.nics
    return Hardware(node.gpu_kind, node.gpu_count, nics.count, nics.bytes_per_s, nics.fabric)


def classify(cluster: Cluster) -> tuple[tuple[LinkClass, ...], IntArray]:
    """All classes of the cluster, ordered by key, and the class of each pair (N, N) as an index."""
    sets = [hardware(node) for node in cluster.nodes]
    known = sorted(set(sets), key=_hardware_order)
    place = {item: index for index, item in enumerate(known)}
    kind = np.array([place[item] for item in sets])
    first, second = np.minimum.outer(kind, kind), np.maximum.outer(kind, kind)
    codes, matrix = np.unique(
        (_proximities(cluster) * len(known) + first) * len(known) + second, return_inverse=True
    )
    return tuple(_link_class(cluster, int(code), known) for code in codes), matrix.reshape(first.shape)


def _link_class(cluster: Cluster, code: int, known: Sequence[Hardware]) -> LinkClass:
    """The class whose proximity and two sets of hardware are the digits of ``code``."""
    rest, second = divmod(code, len(known))
    found, first = divmod(rest, len(known))
    ends = (known[first], known[second])
    return LinkClass(
        Proximity(found), ends, (cluster.gpu_kinds[ends[0].gpu_kind], cluster.gpu_kinds[ends[1].gpu_kind])
    )


def _proximities(cluster: Cluster) -> IntArray:
    """How close each pair (N, N) sits, by NVLink domain and the labels ``leaf`` and ``zone``.

    Nodes without a zone label share one zone; nodes without a leaf label share no leaf.
    """
    nodes = cluster.nodes
    domain = _numbered(node.nvlink_domain for node in nodes)
    zone = _numbered(node.labels.get("zone", "") for node in nodes)
    leaf = _numbered(node.labels.get("leaf") or None for node in nodes)
    same_leaf = np.equal.outer(leaf, leaf) & np.array([bool(node.labels.get("leaf")) for node in nodes])
    found = np.where(same_leaf, Proximity.SAME_LEAF, Proximity.SAME_ZONE)
    found = np.where(np.equal.outer(zone, zone), found, Proximity.OTHER)
    found = np.where(np.equal.outer(domain, domain), Proximity.SAME_NVLINK_DOMAIN, found)
    np.fill_diagonal(found, Proximity.SAME_NODE)
    return found.astype(np.int64)


def _numbered(words: Iterable[str | None]) -> IntArray:
    """Equal words get equal numbers."""
    numbers: dict[str | None, int] = {}
    return np.array([numbers.setdefault(word, len(numbers)) for word in words])


def _hardware_order(item: Hardware) -> tuple[str, int, int, float, str]:
    return (item.gpu_kind, item.gpu_count, item.cards, item.card_bytes_per_s, item.fabric)


def slower_quartile(values: FloatArray) -> float:
    """The upper quartile of times, as one of them: as slow as the pair that opens the slowest quarter."""
    place = math.ceil(0.75 * (len(values) - 1))  # np.quantile(..., method="higher"), in a tenth of its time
    return float(np.partition(values, place)[place])


@dataclass(frozen=True, slots=True, eq=False)
class ClassEstimator:
    """Expected times per class, from measured links where there are any.

    ``members[k]`` are the rows of the links of class ``k`` that large messages were measured on, ``highest_flows``
    (L,) the largest number of flows each was measured at so, ``levels`` those of any link, ``latency_s`` (K,); a
    class without measurements is taken to need ``nominal_factor`` (K,) times the time of its data sheet.
    """

    classes: tuple[LinkClass, ...]
    members: tuple[IntArray, ...]
    highest_flows: FloatArray
    levels: tuple[float, ...]
    latency_s: FloatArray
    nominal_factor: FloatArray

    def measured_s(self, k: int, flows: float, times_at: Callable[[float], FloatArray]) -> float:
        """Expected seconds of class ``k`` by its measured links; 0 where it has none.

        ``times_at(f)`` (L,) are the times of all measured links with ``f`` flows, extended where they were
        measured with fewer.  The slower quartile of the links that were measured with ``flows`` or more (or
        with the most flows of the class); taken as the maximum over the measured numbers of flows up to
        ``flows``, so that more flows never look faster because other links were measured at them.
        """
        rows = self.members[k]
        if not rows.size:
            return 0.0
        highest = self.highest_flows[rows]
        top = highest.max()
        steps = {level for level in self.levels if level <= flows} | {flows}
        return max(slower_quartile(times_at(at)[rows[highest >= min(at, top)]]) for at in steps)

    def most_flows(self, k: int) -> float:
        """The largest number of flows any link of class ``k`` was measured at; 0 where there is none."""
        return float(self.highest_flows[self.members[k]].max(initial=0.0))

    def estimate_s(self, message_bytes: float, flows: float, times_at: Callable[[float], FloatArray]) -> FloatArray:
        """Seconds of one flow in each class (K,).

        A class nothing was measured in takes the next wider class of the same hardware that has measurements;
        without any, the data sheet, yet never faster than the narrower classes were measured.
        """
        own = [self.measured_s(k, flows, times_at) for k in range(len(self.classes))]
        estimates = []
        for k, link_class in enumerate(self.classes):
            if own[k] > 0:
                estimates.append(own[k])
                continue
            related = [
                (other.proximity, own[j])
                for j, other in enumerate(self.classes)
                if other.ends == link_class.ends and other.scale_up == link_class.scale_up and own[j] > 0
            ]
            wider = [time for near, time in sorted(related) if near > link_class.proximity]
            nominal = link_class.nominal_time_s(message_bytes, flows, float(self.latency_s[k]))
            nominal *= float(self.nominal_factor[k])
            narrower = [time for near, time in related if near < link_class.proximity]
            estimates.append(wider[0] if wider else max([nominal, *narrower]))
        return np.array(estimates)
