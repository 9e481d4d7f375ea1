"""The effective link model: what one GPU-to-GPU flow between any two nodes takes, from the samples of a cluster.

``docs/links.md`` derives it.  Shapes: ``N`` nodes in the cluster's order, ``L`` measured directed links, ``K`` link
classes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from cluster_models.cluster.measurements import Sample, SampleStatus
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.links.classes import ClassEstimator, LinkClass, Proximity, classify, slower_quartile
from cluster_models.links.pair_kinds import PairKinds, pair_kinds, with_shares
from cluster_models.links.spread import spreads
from cluster_models.links.suspicions import reject_absurd
from cluster_models.links.tables import LinkTables, Recency, directions, link_tables, recent
from cluster_models.training.workload import LinkBandwidth

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class LinkModel:
    """Times, bandwidth and latency between all pairs of ``nodes``; row sends, column receives.

    ``row`` (N, N) is the measured link of a pair in ``tables``, -1 where there is none; ``mirrored`` marks pairs
    that borrow the measurement of the other direction; ``link_classes`` (N, N) indexes ``estimator.classes``,
    ``row_class`` (L,) those of the tables.  ``telling`` are the tables without what tells of small messages only.
    ``latency_s`` (N, N) are the seconds of a transfer of no bytes, ``row_latency_s`` (L,) those of the tables;
    ``kinds`` groups the pairs that take the same time.
    The diagonal is the inside of each node.
    """

    nodes: tuple[str, ...]
    tables: LinkTables
    telling: LinkTables
    row: IntArray
    row_class: IntArray
    mirrored: BoolArray
    link_classes: IntArray
    estimator: ClassEstimator
    latency_s: FloatArray
    row_latency_s: FloatArray
    kinds: PairKinds
    derived: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False)
    """Results worked out from these links elsewhere (``solver.placement.link_times``), kept as long as they are."""

    @property
    def classes(self) -> tuple[LinkClass, ...]:
        """The classes that ``link_classes`` indexes."""
        return self.estimator.classes

    def transfer_s(self, message_bytes: float, flows_per_node: int) -> FloatArray:
        """Seconds (N, N) of one flow of ``message_bytes`` while ``flows_per_node`` such flows leave its node."""
        return self.kind_s(message_bytes, flows_per_node)[self.kinds.kind]

    def kind_s(self, message_bytes: float, flows_per_node: int) -> FloatArray:
        """The same seconds by kind of pair (U,), as ``kinds.kind`` indexes them."""
        if message_bytes < 0 or flows_per_node < 1:
            raise ValueError(f"need bytes >= 0 and flows >= 1, got {message_bytes} and {flows_per_node}")
        flows = float(flows_per_node)
        told_at = self._measured_times(self.telling, message_bytes)
        estimate = self.estimator.estimate_s(message_bytes, flows, told_at)
        time_s = estimate[self.kinds.link_class]
        known = self.kinds.row >= 0
        if self.tables.pairs:
            own = self._own_s(message_bytes, flows, estimate, told_at)
            time_s[known] = own[self.kinds.row[known]]
        limit = np.array([link_class.limit_bytes_per_s(flows) for link_class in self.classes])
        time_s = np.maximum(time_s, message_bytes / limit[self.kinds.link_class])
        # a measured time holds its own latency, which may be below the default
        latency_s = self.kinds.latency_s.copy()
        if self.tables.pairs:
            latency_s[known] = np.minimum(time_s[known], self.row_latency_s[self.kinds.row[known]])
        time_s = np.where(known, time_s, np.maximum(time_s, latency_s))
        return latency_s + (time_s - latency_s) / self.kinds.share

    def bytes_per_s(self, message_bytes: float, flows_per_node: int) -> FloatArray:
        """Effective bandwidth (N, N) of each flow, latency included: bytes over ``transfer_s``."""
        result: FloatArray = message_bytes / self.transfer_s(message_bytes, flows_per_node)
        return result

    def estimated(self, flows_per_node: int) -> BoolArray:
        """Where (N, N) large messages were not measured: not in that direction, or not with about so many flows."""
        if not self.tables.pairs:
            return np.ones(self.row.shape, dtype=np.bool_)
        outside = (self.telling.lowest_flows > flows_per_node) | (self.telling.highest_flows < flows_per_node)
        return (self.row < 0) | self.mirrored | outside[self.row]

    @property
    def small_only(self) -> BoolArray:
        """Where (N, N) all that was measured are small messages."""
        if not self.tables.pairs:
            return np.zeros(self.row.shape, dtype=np.bool_)
        small: BoolArray = (self.row >= 0) & (self.telling.highest_flows == 0)[self.row]
        return small

    def link_class(self, a: str, b: str) -> str:
        """In words, how close the two nodes sit and what joins them."""
        found = self.classes[self.link_classes[self.nodes.index(a), self.nodes.index(b)]]
        ends = dict.fromkeys(end.words for end in found.ends)
        return f"{found.proximity.words} ({' to '.join(ends)})"

    def _own_s(
        self, message_bytes: float, flows: float, estimate: FloatArray, told_at: Callable[[float], FloatArray]
    ) -> FloatArray:
        """Seconds (L,) of the measured links; by ``estimate`` (K,) where only smaller messages were measured.

        Never less than those smaller messages took.
        """
        if self.telling is self.tables:
            return self._with_class_floor(self.tables, told_at(flows), flows, told_at)
        silent = self.tables.too_small(message_bytes)
        tables = self.tables.without(silent)
        own = self._measured_times(tables, message_bytes)(flows)
        own = self._with_class_floor(tables, own, flows, told_at)
        own = np.where(tables.highest_flows > 0, own, estimate[self.row_class])
        longest: FloatArray = np.maximum(own, self.tables.longest_s(silent))
        return longest

    def _measured_times(self, tables: LinkTables, message_bytes: float) -> Callable[[float], FloatArray]:
        """Times (L,) of all links of ``tables`` as a function of the flows, extended beyond the most measured.

        Beyond it each link keeps its share of what is nominally there for so many flows: full pace while more
        flows bring more network cards into play, a constant aggregate once all of them are busy.
        """
        highest = tables.highest_flows
        computed: dict[float, FloatArray] = {}

        def times_at(flows: float) -> FloatArray:
            if flows not in computed:
                times = tables.at(message_bytes, flows, self.row_latency_s)
                beyond = (highest > 0) & (highest < flows)
                for k, link_class in enumerate(self.classes):
                    rows = np.flatnonzero(beyond & (self.row_class == k))
                    for most in np.unique(highest[rows]):
                        ratio = link_class.nominal_bytes_per_s(most) / link_class.nominal_bytes_per_s(flows)
                        times[rows[highest[rows] == most]] *= ratio
                computed[flows] = times
            return computed[flows]

        return times_at

    def _with_class_floor(
        self, tables: LinkTables, times: FloatArray, flows: float, told_at: Callable[[float], FloatArray]
    ) -> FloatArray:
        """Links measured with fewer flows than others of their class are at least as slow as those were."""
        estimator = self.estimator
        count = range(len(self.classes))
        floor = np.array([estimator.measured_s(k, flows, told_at) for k in count])[self.row_class]
        most = np.array([estimator.most_flows(k) for k in count])[self.row_class]
        beyond = tables.highest_flows < np.minimum(flows, most)
        return np.where(beyond, np.maximum(times, floor), times)


def effective_links(
    snapshot: ClusterSnapshot,
    *,
    recency: Recency = Recency(),  # noqa: B008 - a frozen value
    bandwidth: LinkBandwidth = LinkBandwidth.MEDIAN,
) -> LinkModel:
    """The link model of ``snapshot``: medians of recent samples, and estimates where there are none.

    ``LinkBandwidth.PESSIMISTIC`` takes slow deciles instead (docs/robustness.md), never faster than the medians;
    latencies stay.
    Raises ``InvalidCluster`` where a bandwidth cannot be one (over a hundred times the data sheet).
    """
    classes, link_classes = classify(snapshot.cluster)
    reject_absurd(snapshot, classes, link_classes)
    nodes = tuple(node.name for node in snapshot.cluster.nodes)
    position = {name: index for index, name in enumerate(nodes)}
    class_of = {
        pair: int(link_classes[position[pair[0]], position[pair[1]]])
        for pair in {pair for sample in snapshot.samples for pair in directions(sample)}
    }
    nominal_factor = np.ones(len(classes))
    slow_factors = None
    if bandwidth is LinkBandwidth.PESSIMISTIC:
        found = spreads(snapshot.samples, recency, classes, class_of)
        nominal_factor = np.array([spread.slow_factor for spread in found])
        slow_factors = {pair: found[k].slow_factor for pair, k in class_of.items()}
    tables = link_tables(snapshot.samples, recency, slow_factors)
    row, mirrored = _rows(nodes, tables)
    row_class = np.array([class_of[pair] for pair in tables.pairs], dtype=np.int64)
    latencies, class_latency = _latencies(snapshot.samples, recency, position, classes, link_classes)
    small = tables.too_small(np.inf)
    telling = tables.without(small) if small.any() else tables
    levels = np.unique(telling.flows[np.isfinite(telling.flows)])
    return LinkModel(
        nodes=nodes,
        tables=tables,
        telling=telling,
        row=row,
        row_class=row_class,
        mirrored=mirrored,
        link_classes=link_classes,
        estimator=ClassEstimator(
            classes=classes,
            members=tuple(
                np.flatnonzero((row_class == k) & (telling.highest_flows > 0)) for k in range(len(classes))
            ),
            highest_flows=telling.highest_flows,
            levels=tuple(float(level) for level in levels),
            latency_s=class_latency,
            nominal_factor=nominal_factor,
        ),
        latency_s=latencies,
        row_latency_s=np.array([latencies[position[a], position[b]] for a, b in tables.pairs]),
        kinds=with_shares(
            pair_kinds(row, link_classes, latencies, class_latency),
            _shares(snapshot, position, np.array([each.proximity for each in classes])[link_classes]),
        ),
    )


def _shares(snapshot: ClusterSnapshot, position: dict[str, int], proximity: IntArray) -> FloatArray:
    """Factors (N, N) on the bandwidth between nodes: what is left, times faster; 1 where NVLink joins them."""
    left = np.ones((len(position), len(position)))
    for each in snapshot.link_shares:
        if each.node not in position or (each.other and each.other not in position):
            continue
        a, b = position[each.node], position[each.other] if each.other else slice(None)
        left[a, b] = np.minimum(left[a, b], each.share)
        left[b, a] = np.minimum(left[b, a], each.share)
    left *= snapshot.links_faster
    left[proximity <= Proximity.SAME_NVLINK_DOMAIN] = 1.0
    return left


def _rows(nodes: tuple[str, ...], tables: LinkTables) -> tuple[IntArray, BoolArray]:
    """Row of the tables for each pair (N, N), -1 for none, and whether it is the other direction's."""
    position = {name: index for index, name in enumerate(nodes)}
    row = np.full((len(nodes), len(nodes)), -1, dtype=np.int64)
    for index, (a, b) in enumerate(tables.pairs):
        row[position[a], position[b]] = index
    mirrored = (row < 0) & (row.T >= 0)
    return np.where(mirrored, row.T, row), mirrored


def _latencies(
    samples: tuple[Sample, ...],
    recency: Recency,
    position: dict[str, int],
    classes: tuple[LinkClass, ...],
    link_classes: IntArray,
) -> tuple[FloatArray, FloatArray]:
    """Latency per pair (N, N) and per class (K,): measured, else the class's slower quartile, else assumed."""
    timed: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        if sample.status is SampleStatus.OK and sample.latency_s is not None:
            for pair in directions(sample):
                timed.setdefault(pair, []).append(sample)
    measured = np.full(link_classes.shape, np.nan)
    for (a, b), members in timed.items():
        values = [sample.latency_s for sample in recent(members, recency) if sample.latency_s is not None]
        measured[position[a], position[b]] = median(values)
    measured = np.where(np.isnan(measured), measured.T, measured)
    class_latency = np.array([link_class.default_latency_s() for link_class in classes])
    for k in range(len(classes)):
        known = measured[(link_classes == k) & np.isfinite(measured)]
        if known.size:
            class_latency[k] = slower_quartile(known)
    return np.where(np.isnan(measured), class_latency[link_classes], measured), class_latency
