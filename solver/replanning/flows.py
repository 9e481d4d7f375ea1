"""Flows between GPUs, over which links, and how long that takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from cluster_models.jobs.recovery import MigrationBytes, StateKind
from cluster_models.jobs.times import TimeRange
from solver.costs.training_state import NOBODY
from solver.replanning.sources import Distances, Found, Supplies

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cluster_models.cluster.topology import Cluster
    from solver.candidates import BoolArray, FloatArray, IntArray

HOST_BYTES_PER_S: Final = 25e9
"""From a node's memory into one of its GPUs: what PCIe 4.0 x16 (32 GB/s by its rate) leaves (our assumption)."""
SLOWER_TRANSFER: Final = 2.0
"""The high estimate over the low one: small tensors, packing, one piece after the other (our assumption)."""
KINDS: Final = tuple(StateKind)


@dataclass(frozen=True, slots=True, eq=False)
class Flows:
    """Bytes to new ranks, added up (F,): by ``rank``, ``kind`` (of ``KINDS``), ``found``, ``giver`` and ``node``.

    ``node`` is the giver's, ``taker`` the rank's.  ``stored_bytes``: what must come from storage, each part once.
    """

    rank: IntArray
    kind: IntArray
    found: IntArray
    giver: IntArray
    node: IntArray
    taker: IntArray
    bytes: FloatArray
    stored_bytes: float

    def of(self, *found: Found) -> BoolArray:
        """(F,) whether they were found so."""
        return np.isin(self.found, found)


def flows_of(found: Sequence[Supplies], taker: IntArray) -> Flows:
    """The flows of all parts together; ``taker`` (R',) are the nodes of the new ranks."""
    columns = [
        np.stack([each.needs.rank, np.full_like(each.found, KINDS.index(each.needs.kind)), each.found])
        for each in found
    ]
    ends = [np.stack([each.giver, each.node]) for each in found]
    table = np.concatenate([np.concatenate(columns, axis=1), np.concatenate(ends, axis=1)])
    key = np.zeros(table.shape[1], dtype=np.int64)
    for column in table:
        key = key * (int(column.max(initial=0)) + 2) + column + 1
    _, first, member = np.unique(key, return_index=True, return_inverse=True)
    total = np.bincount(member.ravel(), weights=np.concatenate([each.needs.bytes for each in found])).astype(
        np.float64
    )
    rank, kind, source, giver, node = table[:, first]
    stored = sum(_missing_bytes(each) for each in found)
    return Flows(rank, kind, source, giver, node, taker[rank], total, stored)


def _missing_bytes(found: Supplies) -> float:
    """Bytes of what nobody has, each atom once."""
    missing = np.zeros(found.needs.atom_bytes.shape, dtype=np.bool_)
    nowhere = found.found == Found.NOWHERE
    missing[found.needs.run[nowhere], found.needs.atom[nowhere]] = True
    return float(found.needs.atom_bytes[missing].sum())


def bytes_by_link(flows: Flows, distances: Distances, cluster: Cluster, *, from_memory: bool) -> MigrationBytes:
    """Bytes over each class of links; what a GPU gets from its own node's memory crosses none."""
    crosses = flows.of(Found.ELSEWHERE) if from_memory else flows.of(Found.SAME_NODE, Found.ELSEWHERE)
    source, target, size = flows.node[crosses], flows.taker[crosses], flows.bytes[crosses]
    domain, leaf = (_places(distances, cluster, label) for label in ("nvlink_domain", "leaf"))
    inside = domain[source] == domain[target]
    near = ~inside & (leaf[source] == leaf[target]) & (leaf[source] != NOBODY)
    return MigrationBytes(
        nvlink=float(size[inside].sum()),
        leaf=float(size[near].sum()),
        fabric=float(size[~inside & ~near].sum()),
        storage=flows.stored_bytes,
    )


def transfer_time(
    flows: Flows, distances: Distances, cluster: Cluster, *, from_memory: bool, storage_bytes_per_s: float
) -> TimeRange:
    """How long the transfer takes (estimated): all GPUs at once, each with one flow after the other.

    Low: the busiest GPU or way up of a switch, storage read once for each part of the state (ranks that hold the
    same share what they read), and what nodes keep in memory copied into their GPUs.  High: ``SLOWER_TRANSFER``.
    """
    links = max(_busiest_s(flows, distances, from_memory=from_memory), _switches_s(flows, distances, cluster))
    memory = 0.0
    if from_memory:
        in_memory = flows.of(Found.SAME_NODE, Found.ELSEWHERE)
        memory = _greatest_sum(flows.rank[in_memory], flows.bytes[in_memory]) / HOST_BYTES_PER_S
    total = links + memory + flows.stored_bytes / storage_bytes_per_s
    return TimeRange(total, SLOWER_TRANSFER * total)


def _busiest_s(flows: Flows, distances: Distances, *, from_memory: bool) -> float:
    """Seconds of the GPU that takes or gives longest."""
    crosses = flows.of(Found.ELSEWHERE) if from_memory else flows.of(Found.SAME_NODE, Found.ELSEWHERE)
    seconds = flows.bytes[crosses] * distances.seconds[flows.node[crosses], flows.taker[crosses]]
    return max(_greatest_sum(flows.rank[crosses], seconds), _greatest_sum(flows.giver[crosses], seconds))


def _greatest_sum(who: IntArray, what: FloatArray) -> float:
    return float(np.bincount(who, weights=what).max()) if who.size else 0.0


def _switches_s(flows: Flows, distances: Distances, cluster: Cluster) -> float:
    """Seconds of the switch whose way up or down is busiest."""
    if not cluster.switches:
        return 0.0
    crosses = flows.of(Found.ELSEWHERE)
    source, target, size = flows.node[crosses], flows.taker[crosses], flows.bytes[crosses]
    longest = 0.0
    for label, ways in cluster.uplinks().items():
        names: dict[str, int] = {}
        place = _places(distances, cluster, label, names)
        leaves = place[source] != place[target]
        for end in (place[source], place[target]):
            for name, number in names.items():
                if name in ways:
                    longest = max(longest, float(size[leaves & (end == number)].sum()) / ways[name].bytes_per_s)
    return longest


def _places(distances: Distances, cluster: Cluster, label: str, names: dict[str, int] | None = None) -> IntArray:
    """(N,) the number of each node's place; ``NOBODY`` where it has none.  ``names`` takes the numbers."""
    names = {} if names is None else names
    wanted = set(distances.names)
    place = {node.name: node.place(label) for node in cluster.nodes if node.name in wanted}
    return np.array(
        [
            NOBODY if (found := place[name]) is None else names.setdefault(found, len(names))
            for name in distances.names
        ],
        dtype=np.int64,
    )
