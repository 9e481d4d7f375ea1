"""The nodes a plan may use and how long messages take between them.

Every GPU of a node is assumed to send at once: parallel groups work in step, so their flows leave a node together
and share its network cards (docs/links.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

import numpy as np

from cluster_models.errors import InvalidWorkload
from cluster_models.fitted import FittedParameters
from cluster_models.gpus import GpuKind
from cluster_models.links import LinkModel
from cluster_models.measurements import Collective
from cluster_models.snapshot import ClusterSnapshot
from cluster_models.topology import Node
from cluster_models.workload import TrainingWorkload
from solver.candidates import FloatArray, IntArray
from solver.costs.calibration import calibration_of
from solver.costs.collectives import domain_collective_s

GRID_BYTES: Final = 2.0 ** np.arange(10, 37.01, 0.25)
GRID_SHARE: Final = 0.997
"""Latency plus size over bandwidth bends between powers: over steps of 2^(1/4) by less than 0.1 %."""
MOST_KINDS: Final = 3
"""GPU kinds that one plan mixes at most."""


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """``N`` usable nodes, each offering ``gpus_per_node`` GPUs of one of ``kinds``.

    ``index`` (N,) points into the cluster's nodes and the rows of ``links``; ``slowdown`` (N,) is each node's
    measured compute slowdown against healthy ones of its kind, and ``kind`` (N,) the index of its kind.
    ``domain_shares``: by kind, what rings inside a node reach of the curves of their links.
    """

    names: tuple[str, ...]
    index: IntArray
    slowdown: FloatArray
    kinds: tuple[GpuKind, ...]
    kind: IntArray
    gpus_per_node: int
    links: LinkModel
    domain_shares: tuple[float, ...]
    _hops: dict[float, FloatArray] = field(default_factory=dict, init=False)
    _curves: list[FloatArray] = field(default_factory=list, init=False)

    @property
    def nodes(self) -> int:
        """Number of usable nodes."""
        return len(self.names)

    @property
    def gpu(self) -> GpuKind:
        """The GPU kind of a fabric that has a single one."""
        assert len(self.kinds) == 1
        return self.kinds[0]

    @property
    def is_mixed(self) -> bool:
        """Whether nodes have GPUs of several kinds."""
        return len(self.kinds) > 1

    @property
    def sizes(self) -> FloatArray:
        """Message sizes of the curves, increasing: the grid, and the measured sizes, where times may bend."""
        measured = self.links.tables.message_bytes
        return np.union1d(GRID_BYTES, measured[np.isfinite(measured)])

    def hop_s(self, message_bytes: float) -> FloatArray:
        """(N, N) seconds for one flow of ``message_bytes`` while all GPUs of its node send; diagonal: inside it."""
        if message_bytes not in self._hops:
            matrix = self.links.transfer_s(max(1.0, message_bytes), self.gpus_per_node)
            self._hops[message_bytes] = np.ascontiguousarray(matrix[np.ix_(self.index, self.index)])
        return self._hops[message_bytes]

    def local_hop_s(self, message_bytes: float) -> float:
        """Seconds for one transfer between GPUs of the same node, the slowest node's."""
        return float(self.hop_s(message_bytes).diagonal().max())

    def best_s(self, message_bytes: FloatArray) -> FloatArray:
        """(n,) at most the fastest transfer between two nodes for each message; 0 where there is a single node.

        Read off a curve over ``sizes``; ``GRID_SHARE`` covers what interpolation can add.
        """
        if self.nodes < 2:
            return np.zeros_like(message_bytes)
        return GRID_SHARE * _interpolated(message_bytes, self.sizes, self._best_curves()[0])

    def best_inside_s(self, message_bytes: FloatArray) -> FloatArray:
        """(n,) at most ``local_hop_s`` of each message, read off the same kind of curve."""
        return GRID_SHARE * _interpolated(message_bytes, self.sizes, self._best_curves()[1])

    def _best_curves(self) -> list[FloatArray]:
        """Over ``sizes``: the fastest transfer between nodes, and the slowest inside one."""
        if not self._curves:
            off = ~np.eye(self.nodes, dtype=bool)
            matrices = [self.hop_s(float(size)) for size in self.sizes]
            self._curves.append(np.array([matrix[off].min(initial=np.inf) for matrix in matrices]))
            self._curves.append(np.array([matrix.diagonal().max() for matrix in matrices]))
        return self._curves

    def ring_s(
        self, payload_bytes: float, *, ranks: int, members: int, ring_nodes: int, kind: int = 0
    ) -> FloatArray:
        """(N, N) seconds of a reduce-scatter or all-gather whose slowest hop joins nodes ``a`` and ``b``.

        Of ``ranks`` members holding ``payload_bytes`` each, ``members`` share a node and drive its cards
        together, so (n-1)/n of the payload crosses each hop in ``members`` flows (ring algorithm, Patarasuk &
        Yuan 2009); start-up is paid once per node on the ring.  Never faster than the same group on NVLink of
        nodes of ``kind``.
        """
        share = (ranks - 1) / ranks
        hop = self.hop_s(payload_bytes * share / members)
        start_up = self.links.latency_s[np.ix_(self.index, self.index)] * max(0, ring_nodes - 2)
        return np.maximum(hop + start_up, self.local_ring_s(payload_bytes, members, kind))

    def local_ring_s(self, payload_bytes: float, members: int, kind: int = 0) -> float:
        """Seconds of a reduce-scatter or all-gather among ``members`` GPUs of one node of ``kind``."""
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


def fabrics(
    snapshot: ClusterSnapshot,
    workload: TrainingWorkload,
    links: LinkModel,
    *,
    fitted: FittedParameters | None = None,
) -> tuple[Fabric, ...]:
    """One fabric per GPU kind and node size; nodes with more GPUs also serve as smaller ones.

    ``fitted`` are the user's own parameters.  Kinds that cannot compute in the workload's precision are left out
    where others can.
    Raises ``InvalidWorkload`` when a node to avoid does not exist.
    """
    nodes = _usable_nodes(snapshot, workload)
    names = sorted({node.gpu_kind for _, node in nodes})
    return tuple(_fabrics_of(snapshot, workload, links, fitted, nodes, [(name,) for name in names]))


def mixed_fabrics(
    snapshot: ClusterSnapshot,
    workload: TrainingWorkload,
    links: LinkModel,
    *,
    fitted: FittedParameters | None = None,
) -> tuple[Fabric, ...]:
    """The same for every set of two to ``MOST_KINDS`` GPU kinds."""
    nodes = _usable_nodes(snapshot, workload)
    names = sorted({node.gpu_kind for _, node in nodes})
    sets = [kinds for size in range(2, MOST_KINDS + 1) for kinds in combinations(names, size)]
    return tuple(_fabrics_of(snapshot, workload, links, fitted, nodes, sets))


def _usable_nodes(snapshot: ClusterSnapshot, workload: TrainingWorkload) -> list[tuple[int, Node]]:
    """Position and node of all that a plan may use, those able to compute in its precision if any is."""
    nodes = snapshot.cluster.nodes
    unknown = sorted(set(workload.avoid_nodes) - {node.name for node in nodes})
    if unknown:
        raise InvalidWorkload("workload.avoid_nodes", unknown, "no such node in the cluster")
    usable = [(i, node) for i, node in enumerate(nodes) if node.usable and node.name not in workload.avoid_nodes]
    kinds = snapshot.cluster.gpu_kinds
    able = [(i, node) for i, node in usable if workload.precision in kinds[node.gpu_kind].peak_flops]
    return able or usable


def _fabrics_of(
    snapshot: ClusterSnapshot,
    workload: TrainingWorkload,
    links: LinkModel,
    fitted: FittedParameters | None,
    nodes: Sequence[tuple[int, Node]],
    kind_sets: Iterable[tuple[str, ...]],
) -> Iterator[Fabric]:
    """One fabric for each of ``kind_sets`` and node size on which all its kinds have nodes."""
    for names in kind_sets:
        kinds = tuple(snapshot.cluster.gpu_kinds[name] for name in names)
        of_kinds = [(i, node) for i, node in nodes if node.gpu_kind in names]
        for size in sorted({node.gpu_count for _, node in of_kinds}):
            chosen = [(i, node) for i, node in of_kinds if node.gpu_count >= size]
            if {node.gpu_kind for _, node in chosen} != set(names):
                continue
            yield Fabric(
                names=tuple(node.name for _, node in chosen),
                index=np.array([i for i, _ in chosen]),
                slowdown=np.array([node.compute_slowdown for _, node in chosen]),
                kinds=kinds,
                kind=np.array([names.index(node.gpu_kind) for _, node in chosen]),
                gpus_per_node=size,
                links=links,
                domain_shares=tuple(
                    calibration_of(kind, workload.framework, fitted).domain_share for kind in kinds
                ),
            )
