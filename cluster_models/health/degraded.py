"""A cluster as failures left it: states of nodes, GPUs that are out, links that lost bandwidth."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.snapshot import ClusterSnapshot, LinkShare
from cluster_models.cluster.topology import Node, NodeState
from cluster_models.health.conditions import Condition
from cluster_models.health.events import Entity, EntityKind, HealthState
from cluster_models.health.states import NODE_STATES

LEAST_SHARE: Final = 0.001
"""Left of a link that failed: traffic finds some way round, and plans stay away from it."""
_LOSES: Final = (HealthState.FAILED, HealthState.DEGRADED)
"""States in which links lose bandwidth."""
_WORST: Final = tuple(NODE_STATES.values())


def degraded(snapshot: ClusterSnapshot, conditions: Sequence[Condition]) -> ClusterSnapshot:
    """``snapshot`` as ``conditions`` leave it; what speaks of parts that the cluster does not have says nothing.

    A GPU that failed counts among those in use: nothing can be placed on it.  The GPUs of a network card that
    failed share the cards that are left, and a card at half its rate halves what its GPUs send: the busiest or
    slowest card paces the flows of the whole node, which fails with its last card.  The nodes under a switch that
    failed fail with it, and a node fails with a GPU whose number nobody knows.  A link that was measured again
    since counts as it was measured.
    """
    if not conditions:
        return snapshot
    cluster = snapshot.cluster
    links = [each for each in conditions if each.entity.kind is EntityKind.LINK]
    touching = _by_node(conditions, cluster.nodes)
    nodes = tuple(_node(node, touching[node.name]) for node in cluster.nodes)
    shares = {_left_of_link(each) for each in links if each.state in _LOSES}
    shares |= {share for node in cluster.nodes for share in _shares(node, touching[node.name])}
    measured = _last_measured(snapshot.samples)
    since = {(each.entity.node, each.entity.part): each.since for each in conditions}
    kept = tuple(
        share
        for share in sorted({*snapshot.link_shares, *shares})
        if not (moment := measured.get((share.node, share.other)))
        or (told := since.get((share.node, share.other))) is None
        or moment <= told
    )
    digest = hashlib.sha256(repr((nodes, kept)).encode()).hexdigest()[:12]
    return ClusterSnapshot(f"{snapshot.id}+{digest}", replace(cluster, nodes=nodes), snapshot.samples, kept)


def _by_node(conditions: Iterable[Condition], nodes: Sequence[Node]) -> dict[str, list[Condition]]:
    """Conditions by node that concern it, its parts or a switch over it; not its links."""
    found: dict[str, list[Condition]] = {node.name: [] for node in nodes}
    for each in conditions:
        if each.entity.kind is EntityKind.SWITCH:
            label, _, place = each.entity.part.partition(":")
            under = [node.name for node in nodes if node.place(label) == place]
        else:
            under = [each.entity.node] * (each.entity.kind is not EntityKind.LINK and each.entity.node in found)
        for name in under:
            found[name].append(each)
    return found


def _node(node: Node, conditions: Iterable[Condition]) -> Node:
    """The node with the worst reported of it and of its parts."""
    state, slowdown, out = node.state, node.compute_slowdown, set(node.gpus_in_use)
    if _cards_left(node, conditions) <= 0:
        state = NodeState.FAILED
    for condition in conditions:
        state = max(state, _state(condition, node), key=_WORST.index)
        slowdown = max(slowdown, condition.compute_slowdown)
        if condition.state is HealthState.FAILED and _is_numbered(condition.entity, node):
            out.add(int(condition.entity.part))
    return replace(node, state=state, compute_slowdown=slowdown, gpus_in_use=tuple(sorted(out)))


def _state(condition: Condition, node: Node) -> NodeState:
    """State of the node under a condition that concerns it."""
    entity, failed = condition.entity, condition.state is HealthState.FAILED
    if entity.kind is EntityKind.GPU and failed and _is_numbered(entity, node):
        return NodeState.READY
    if entity.kind is EntityKind.NIC and failed:
        return NodeState.DEGRADED
    # where nobody knows which GPU failed, the node goes with it
    return NODE_STATES[condition.state]


def _is_numbered(entity: Entity, node: Node) -> bool:
    """Whether it is a GPU of the node by its number."""
    return entity.kind is EntityKind.GPU and entity.part.isdecimal() and int(entity.part) < node.gpu_count


def _cards_left(node: Node, conditions: Iterable[Condition]) -> int:
    """Network cards of the node that work, slowly or not."""
    failed = [
        each for each in conditions if each.entity.kind is EntityKind.NIC and each.state is HealthState.FAILED
    ]
    return node.nics.count - len(failed)


def _share_of_cards(node: Node, conditions: Sequence[Condition]) -> float:
    """Share left to a GPU of the card that slows it most: collectives wait for it.

    GPUs share out evenly over the cards that work; a slow one passes its share.
    """
    left = _cards_left(node, conditions)
    slow = [
        each.bandwidth_share
        for each in conditions
        if each.entity.kind is EntityKind.NIC and each.state is HealthState.DEGRADED
    ]
    if left <= 0:
        return 0.0
    return _pace(node.gpu_count, left) / _pace(node.gpu_count, node.nics.count) * min(slow, default=1.0)


def _pace(gpus: int, cards: int) -> float:
    """Cards for the GPU that has least of them: whole ones, or a part of one that it shares."""
    return float(cards // gpus) if cards >= gpus else 1 / -(-gpus // cards)


def _left_of_link(condition: Condition) -> LinkShare:
    """Remaining share of a link that failed or is slow."""
    failed = condition.state is HealthState.FAILED
    entity = condition.entity
    return LinkShare(entity.node, entity.part, LEAST_SHARE if failed else condition.bandwidth_share)


def _shares(node: Node, conditions: Sequence[Condition]) -> Iterator[LinkShare]:
    """Remaining share of all links of a node, for each cause that lowers it."""
    for each in conditions:
        is_whole = each.entity.kind in (EntityKind.NODE, EntityKind.SWITCH)
        if is_whole and each.state in _LOSES and each.bandwidth_share < 1:
            yield LinkShare(node.name, "", each.bandwidth_share)
    if 0 < (share := _share_of_cards(node, conditions)) < 1:
        yield LinkShare(node.name, "", share)


def _last_measured(samples: Iterable[Sample]) -> dict[tuple[str, str], datetime]:
    """Moment when each pair was measured last, its names in order."""
    last: dict[tuple[str, str], datetime] = {}
    for sample in samples:
        if sample.measured_at is not None:
            first, second = sorted((sample.source, sample.destination))
            last[first, second] = max(sample.measured_at, last.get((first, second), sample.measured_at))
    return last
