"""Bearing of failures on the GPUs that somebody holds, seen without any plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from app.services.running.occupancy import Gpus
from cluster_models.cluster.topology import Cluster, Node
from cluster_models.health.conditions import Condition
from cluster_models.health.events import Entity, EntityKind, HealthState

TROUBLE: Final = frozenset({HealthState.FAILED, HealthState.DEGRADED, HealthState.DRAINING})
"""States that a running job may have to act on; for a suspicion nothing moves."""


def standing_trouble(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Conditions that a job may have to act on, and that nothing has reported as over."""
    return tuple(each for each in conditions if each.state in TROUBLE and each.quiet_until is None)


def fresh_trouble(before: Iterable[Condition], after: Iterable[Condition]) -> tuple[Condition, ...]:
    """The trouble in ``after`` that was not there before, or is worse: what was decided on does not count again."""
    known = {_mark(each) for each in standing_trouble(before)}
    return tuple(each for each in standing_trouble(after) if _mark(each) not in known)


def touched(conditions: Iterable[Condition], held: Mapping[str, Gpus], cluster: Cluster) -> tuple[str, ...]:
    """Holders in ``held``, in their order, with a GPU, node, card or way that one of ``conditions`` is about."""
    nodes, conditions = {node.name: node for node in cluster.nodes}, tuple(conditions)
    concerns = {holder: concerning(gpus, nodes) for holder, gpus in held.items()}
    return tuple(holder for holder in held if any(concerns[holder](each.entity) for each in conditions))


def concerning(gpus: Gpus, nodes: Mapping[str, Node]) -> Callable[[Entity], bool]:
    """Whether what becomes of a part can matter to ranks on ``gpus``.

    A GPU whose number is not known (``PCI:...``) may be any of its node.
    """
    on = {node for node, _gpu in gpus}

    def concerns(entity: Entity) -> bool:
        if entity.kind is EntityKind.SWITCH:
            label, _, place = entity.part.partition(":")
            return any(name in nodes and nodes[name].place(label) == place for name in on)
        if entity.kind is EntityKind.LINK:
            return entity.node in on and entity.part in on
        if entity.kind is EntityKind.GPU and entity.part.isdecimal():
            return (entity.node, int(entity.part)) in gpus
        return entity.node in on

    return concerns


def _mark(condition: Condition) -> tuple[object, ...]:
    return (
        condition.entity,
        condition.state,
        condition.compute_slowdown,
        condition.bandwidth_share,
        condition.failures,
    )
