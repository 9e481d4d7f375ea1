"""A group of nodes that offer the same, and how long messages take between them.

Every GPU of a node is assumed to send at once: parallel groups work in step, so their flows leave a node together
and share its network cards, with those of other jobs on it (docs/links.md).

Where NVLink joins the GPUs of several nodes, ``u`` nodes of a domain are placed together as one *unit*
(docs/placement.md); elsewhere a unit is a node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.measurements import Collective
from cluster_models.links.model import LinkModel
from solver.candidates import FloatArray, IntArray
from solver.costs.collectives import domain_collective_s
from solver.costs.traffic import Window
from solver.placement.link_times import LinkTimes, flow_levels, times_over
from solver.placement.unavoidable_links import across, merges, parts_below

GRID_SHARE: Final = 0.997
"""Latency plus size over bandwidth bends between powers: over steps of 2^(1/4) by less than 0.1 %."""
MOST_KEPT_BYTES: Final = 2**28
"""Memory for matrices of times that a fabric keeps."""
HEALTH_BYTES: Final = 2.0**26
"""The message whose time says how good a node's links are."""


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """``N`` usable units of ``u`` nodes, each node offering ``gpus_per_node`` GPUs of one of ``kinds``.

    ``members`` (N, u) points into the cluster's nodes and the rows of ``links``; ``names`` (N,) and ``index`` (N,)
    are the first of each unit.  ``slowdown`` (N,) is each unit's measured compute slowdown, its slowest node's,
    against healthy ones of its kind, and ``kind`` (N,) the index of its kind.
    ``in_use`` (N, u) counts the GPUs of each node that other jobs hold: they are taken to send whenever ours do.
    ``domain_shares``: by kind, what rings inside a unit reach of the curves of their links.
    ``wider``: GPUs and number of the wider units, whose fabrics take the candidates that fit them.
    """

    names: tuple[str, ...]
    members: IntArray
    slowdown: FloatArray
    kinds: tuple[GpuKind, ...]
    kind: IntArray
    gpus_per_node: int
    in_use: IntArray
    times: LinkTimes
    domain_shares: tuple[float, ...]
    wider: tuple[tuple[int, int], ...] = ()
    _latency: list[float] = field(default_factory=list, init=False)
    _least_latency: list[float] = field(default_factory=list, init=False)
    _latencies: list[FloatArray] = field(default_factory=list, init=False)
    _pairs: list[IntArray] = field(default_factory=list, init=False)
    _hops: dict[float, FloatArray] = field(default_factory=dict, init=False)
    _curves: list[FloatArray] = field(default_factory=list, init=False)
    _merges: list[IntArray] = field(default_factory=list, init=False)
    _joins: dict[int, FloatArray] = field(default_factory=dict, init=False)

    @property
    def nodes(self) -> int:
        """Number of usable units, which are the nodes of a placement problem."""
        return len(self.names)

    @property
    def index(self) -> IntArray:
        """(N,) the cluster's position of each unit's first node."""
        return self.members[:, 0]

    @property
    def links(self) -> LinkModel:
        """The links of the cluster."""
        return self.times.links

    @property
    def nodes_per_unit(self) -> int:
        """Nodes placed together; 1 where NVLink ends at the node."""
        return int(self.members.shape[1])

    @property
    def gpus_per_unit(self) -> int:
        """GPUs that NVLink joins, and that a slot of a placement problem offers."""
        return self.gpus_per_node * self.nodes_per_unit

    @property
    def latency_s(self) -> float:
        """The least latency of a transfer between two nodes; 0 where there is a single one."""
        if not self._least_latency:
            latencies = self.links.latency_s[self.links.latency_s > 0.0]
            self._least_latency.append(float(latencies.min(initial=np.inf)) if latencies.size else 0.0)
        return self._least_latency[0]

    @property
    def network_latency_s(self) -> float:
        """The median latency of a transfer between two units; 0 where there is a single one."""
        if not self._latency:
            between = self._latencies_s()[~np.eye(self.nodes, dtype=np.bool_)]
            self._latency.append(float(np.median(between)) if between.size else 0.0)
        return self._latency[0]

    def hosts(self, assignment: IntArray) -> tuple[str, ...]:
        """Names of the nodes of the units in ``assignment``, in rank order."""
        return tuple(self.links.nodes[position] for position in self.members[assignment].ravel())

    @property
    def gpu(self) -> GpuKind:
        """The GPU kind of a fabric that has a single one."""
        assert len(self.kinds) == 1
        return self.kinds[0]

    @property
    def is_mixed(self) -> bool:
        """Whether nodes have GPUs of several kinds."""
        return len(self.kinds) > 1

    def with_gpus(self, gpus_per_node: int) -> Fabric:
        """The same nodes with fewer of their GPUs taken."""
        times = times_over(self.links, flow_levels(gpus_per_node, self.in_use))
        return replace(self, gpus_per_node=gpus_per_node, times=times)

    def hop_s(self, message_bytes: float) -> FloatArray:
        """(N, N) seconds for one flow of ``message_bytes`` while all GPUs of its node send.

        Between units, and inside one (the diagonal), it is the slowest pair of their nodes that counts.
        """
        if message_bytes not in self._hops:
            if len(self._hops) * 8 * self.nodes**2 > MOST_KEPT_BYTES:
                self._hops.clear()
            if not self._pairs:
                self._pairs.append(self._pair_kinds())
            self._hops[message_bytes] = self._pooled(self.times.at(message_bytes)[self._pairs[0]])
        return self._hops[message_bytes]

    def windowed_s(self, message_bytes: float, window: Window, hidden_s: float) -> FloatArray:
        """(N, N) ``hop_s`` as far as ``window`` lets it, to be compared with ``hidden_s``."""
        hop = self.hop_s(message_bytes)
        if not math.isfinite(window.nbytes):
            return hop
        return window.limited_s(hop, message_bytes, self._latencies_s(), hidden_s)

    def _latencies_s(self) -> FloatArray:
        """(N, N) the latency of a transfer between two units."""
        if not self._latencies:
            nodes = self.members.ravel()
            self._latencies.append(self._pooled(self.links.latency_s[np.ix_(nodes, nodes)]))
        return self._latencies[0]

    def _pair_kinds(self) -> IntArray:
        """(N u, N u) columns of ``times`` for the pairs of nodes, unit by unit: the end with more flows counts."""
        nodes = self.members.ravel()
        level = np.searchsorted(self.times.flows, self.gpus_per_node + self.in_use.ravel())
        first = len(self.links.kinds.row) * np.maximum.outer(level, level)
        columns: IntArray = self.links.kinds.kind[np.ix_(nodes, nodes)] + first
        return columns

    def _pooled(self, values: FloatArray) -> FloatArray:
        """(N, N) the greatest of ``values`` (N u, N u) between the nodes of two units."""
        width = self.nodes_per_unit
        if width == 1:
            return values
        greatest: FloatArray = values.reshape(self.nodes, width, self.nodes, width).max(axis=(1, 3))
        return greatest

    def local_hop_s(self, message_bytes: float) -> float:
        """Seconds for one transfer between GPUs of the same unit, the slowest unit's."""
        return float(self.hop_s(message_bytes).diagonal().max())

    def best_s(self, message_bytes: FloatArray) -> FloatArray:
        """(n,) at most the fastest transfer between two units for each message; 0 where there is a single one.

        Read off a curve over the sizes of ``LinkTimes``; ``GRID_SHARE`` covers what interpolation can add.
        """
        if self.nodes < 2:
            return np.zeros_like(message_bytes)
        return GRID_SHARE * _interpolated(message_bytes, self.times.sizes, self._best_curves()[0])

    def joining_s(self, message_bytes: FloatArray, units: IntArray) -> FloatArray:
        """(n,) at most the slowest transfer of each message on any ring that joins so many units.

        Every such ring leads across the parts of ``joining``; the fastest link between parts is read off a curve.
        """
        result = np.zeros_like(message_bytes)
        if self.nodes < 2:
            return result
        for count in np.unique(units):
            own = units == count
            result[own] = _interpolated(message_bytes[own], self.times.sizes, self._joining_curve(int(count)))
        return GRID_SHARE * result

    def _joining_curve(self, units: int) -> FloatArray:
        """Fastest transfer of each size between nodes of two parts, none of which holds so many units."""
        if units not in self._joins:
            if not self._merges:
                self._merges.append(merges(self.hop_s(HEALTH_BYTES)))
            unit_part = parts_below(self._merges[0], min(units, self.nodes))
            crossing = self._distinct(self._pair_kinds()[across(np.repeat(unit_part, self.nodes_per_unit))])
            rows = (self.times.at(float(size)) for size in self.times.sizes)
            self._joins[units] = np.array([row[crossing].min(initial=np.inf) for row in rows])
        return self._joins[units]

    def best_inside_s(self, message_bytes: FloatArray) -> FloatArray:
        """(n,) at most ``local_hop_s`` of each message, read off the same kind of curve."""
        return GRID_SHARE * _interpolated(message_bytes, self.times.sizes, self._best_curves()[1])

    def _best_curves(self) -> list[FloatArray]:
        """Fastest transfer of each size between nodes of two units, and the slowest inside one.

        The fastest pair of nodes is never slower than the fastest pair of units, whose slowest nodes count.
        """
        if not self._curves:
            kinds = self._pair_kinds()
            unit = np.repeat(np.arange(self.nodes), self.nodes_per_unit)
            inside = np.equal.outer(unit, unit)
            between_kinds, inside_kinds = self._distinct(kinds[~inside]), self._distinct(kinds[inside])
            rows = [self.times.at(float(size)) for size in self.times.sizes]
            self._curves.append(np.array([row[between_kinds].min(initial=np.inf) for row in rows]))
            self._curves.append(np.array([row[inside_kinds].max() for row in rows]))
        return self._curves

    def _distinct(self, kinds: IntArray) -> IntArray:
        present = np.zeros(len(self.links.kinds.row) * len(self.times.flows), dtype=np.bool_)
        present[kinds] = True
        return np.flatnonzero(present)

    def ring_s(
        self, payload_bytes: float, *, ranks: int, members: int, ring_nodes: int, kind: int = 0
    ) -> FloatArray:
        """(N, N) seconds of a reduce-scatter or all-gather whose slowest hop joins units ``a`` and ``b``.

        Each of ``ranks`` members holds ``payload_bytes``; ``members`` of them share a unit and drive its cards
        together, so (n-1)/n of the payload crosses each hop in ``members`` flows (ring algorithm, Patarasuk & Yuan
        2009); start-up is paid once per unit on the ring.  Never faster than the same group on NVLink of units of
        ``kind``.
        """
        share = (ranks - 1) / ranks
        hop = self.hop_s(payload_bytes * share / members)
        seconds = self._latencies_s() * max(0, ring_nodes - 2)
        seconds += hop
        return np.maximum(seconds, self.local_ring_s(payload_bytes, members, kind), out=seconds)

    def local_ring_s(self, payload_bytes: float, members: int, kind: int = 0) -> float:
        """Seconds of a reduce-scatter or all-gather among ``members`` GPUs of one unit of ``kind``."""
        payloads, sizes = np.array([float(payload_bytes)]), np.array([float(members)])
        return float(self.local_rings_s(payloads, sizes, kind)[0])

    def local_rings_s(self, payload_bytes: FloatArray, members: FloatArray, kind: int = 0) -> FloatArray:
        """(n,) the same of many rings."""
        seconds = domain_collective_s(self.kinds[kind], Collective.REDUCE_SCATTER, members, payload_bytes)
        return seconds / self.domain_shares[kind]


def _interpolated(message_bytes: FloatArray, sizes: FloatArray, seconds: FloatArray) -> FloatArray:
    """The lesser of linear interpolation, low for size^p with p in (0, 1), and logarithmic, exact for all p."""
    linear = np.interp(message_bytes, sizes, seconds)
    power = np.exp(np.interp(np.log(np.maximum(message_bytes, 1.0)), np.log(sizes), np.log(seconds)))
    return np.minimum(linear, power)
