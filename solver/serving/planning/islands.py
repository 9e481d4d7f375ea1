"""Islands: the GPUs that a scale-up domain joins and a plan may use, and the measured links between them.

Shapes: I islands.  A large message stands for bandwidth; row sends, column receives.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np

from cluster_models.cluster.gpus import GpuKind
from cluster_models.cluster.power import CAP_SHARES
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Node
from cluster_models.links.model import BoolArray, LinkModel, effective_links
from cluster_models.serving.goal import ServingGoal
from solver.serving.cluster_links import MESSAGE_BYTES, usable_nodes
from solver.serving.loads import FloatArray


@dataclass(frozen=True, slots=True)
class Island:
    """Free GPUs of one scale-up domain, of one kind and speed, in the order in which ranks fill them.

    ``slowdown`` as of a node; ``inside`` is how many times longer than usual its own links take.
    """

    gpu_kind: str
    slowdown: float
    inside: float
    gpus: tuple[tuple[str, int], ...]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of its nodes."""
        return tuple(dict.fromkeys(node for node, _ in self.gpus))


@dataclass(frozen=True, slots=True, eq=False)
class Site:
    """The islands that a plan may use, and links (I, I) between them; the slowest pair of nodes counts.

    ``crossing_s``: seconds of a large message while all GPUs of the nodes send; ``single_s``: of one alone.
    ``estimated`` marks links that were not measured.
    ``caps``: power caps in watts that GPUs of a kind may have, one or several, ``None`` for none.
    """

    snapshot: ClusterSnapshot
    islands: tuple[Island, ...]
    crossing_s: FloatArray
    single_s: FloatArray
    latency_s: FloatArray
    estimated: BoolArray
    caps: Mapping[str, tuple[float | None, ...]]

    def bytes_per_s(self, kind: str) -> float:
        """Nominal bandwidth inside islands of ``kind``."""
        return self.snapshot.cluster.gpu_kinds[kind].scale_up_bytes_per_s


def site_of(snapshot: ClusterSnapshot, goal: ServingGoal) -> Site:
    """Islands of ready nodes with free GPUs that ``goal`` does not avoid."""
    nodes = [node for node in usable_nodes(snapshot) if node.name not in goal.avoid_nodes]
    links = effective_links(snapshot)
    place = {name: row for row, name in enumerate(links.nodes)}
    slower = _slower_than_usual(snapshot, links)

    def key(node: Node) -> tuple[str, str, float]:
        return node.nvlink_domain, node.gpu_kind, node.compute_slowdown

    order = {name: index for index, name in enumerate(dict.fromkeys(node.nvlink_domain for node in nodes))}
    nodes.sort(key=lambda node: (order[node.nvlink_domain], node.gpu_kind, node.compute_slowdown))
    members = [tuple(group) for _, group in groupby(nodes, key=key)]
    rows = [[place[node.name] for node in group] for group in members]
    islands = tuple(
        Island(
            gpu_kind=group[0].gpu_kind,
            slowdown=group[0].compute_slowdown,
            inside=float(slower[np.ix_(own, own)].max()),
            gpus=tuple((node.name, gpu) for node in group for gpu in node.free_gpus),
        )
        for group, own in zip(members, rows, strict=True)
    )
    kinds = np.repeat([island.gpu_kind for island in islands], [len(own) for own in rows])
    most = {node.gpu_kind: 0 for node in nodes}
    for node in nodes:
        most[node.gpu_kind] = max(most[node.gpu_kind], len(node.free_gpus))
    crossing = links.latency_s.copy()
    for kind, flows in most.items():
        senders = np.concatenate(rows)[kinds == kind]
        crossing[senders] = links.transfer_s(MESSAGE_BYTES, flows)[senders]
    return Site(
        snapshot=snapshot,
        islands=islands,
        crossing_s=_slowest(rows, crossing),
        single_s=_slowest(rows, links.transfer_s(MESSAGE_BYTES, 1)),
        latency_s=_slowest(rows, links.latency_s),
        estimated=_slowest(rows, links.estimated(1).astype(np.float64)) > 0,
        caps={name: _caps(kind, goal) for name, kind in snapshot.cluster.gpu_kinds.items()},
    )


def _caps(kind: GpuKind, goal: ServingGoal) -> tuple[float | None, ...]:
    if goal.choose_power_caps:
        caps = (round(share * kind.power_watts) for share in CAP_SHARES)
        return (None, *dict.fromkeys(cap for cap in caps if 0 < cap < kind.power_watts))
    cap = goal.gpu_power_cap_watts
    return (None if cap is None or cap >= kind.power_watts else cap,)


def _slower_than_usual(snapshot: ClusterSnapshot, links: LinkModel) -> FloatArray:
    """How many times longer (N, N) a large message takes than between nodes of such kinds without measurements."""
    usual = effective_links(replace(snapshot, samples=(), link_shares=()))
    return np.asarray(links.transfer_s(MESSAGE_BYTES, 1) / usual.transfer_s(MESSAGE_BYTES, 1))


def _slowest(rows: Sequence[Sequence[int]], times: FloatArray) -> FloatArray:
    """The slowest pair of nodes (N, N) between any two islands, in either direction (I, I)."""
    if not rows:
        return np.zeros((0, 0))
    flat = np.concatenate(rows)
    starts = np.cumsum([0, *(len(own) for own in rows[:-1])])
    pairs = times[np.ix_(flat, flat)]
    found = np.maximum.reduceat(np.maximum.reduceat(pairs, starts, axis=0), starts, axis=1)
    return np.asarray(np.maximum(found, found.T))
