"""Which candidates can never keep a rule, by counting alone (docs/placement_rules.md has the proofs).

What counting lets pass may still have no placement that keeps all rules at once: that is found, or proven, later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster_models.placement_rules import KeepTogether, PlacementRules, Spares, Spread
from cluster_models.plan import Degrees, RankOrder
from cluster_models.topology import Node, NodeState
from solver.candidates import IntArray
from solver.placement.rules import groups_of, numbered_places, places_wanted, quotas

Unkept = Spread | KeepTogether | Spares | str


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """What rules leave of a fabric's nodes: how many may be used in all, and in each place of each label."""

    asked: PlacementRules
    gpus_per_node: int
    missing: tuple[str, ...]
    most_hosts: int
    room: dict[str, IntArray]


def ground_of(asked: PlacementRules, nodes: Sequence[Node], gpus_per_node: int) -> Ground:
    """The ground that ``nodes`` are under the rules asked."""
    kept_out = [sum(max(0, len(quota.members) - quota.most) for quota in level) for level in quotas(asked, nodes)]
    names = {node.name for node in nodes}
    return Ground(
        asked=asked,
        gpus_per_node=gpus_per_node,
        missing=tuple(name for name in asked.require_nodes if name not in names),
        most_hosts=len(nodes) - max(kept_out, default=0),
        room={rule.label: _room(asked, nodes, rule.label) for rule in asked.neighbours},
    )


def _room(asked: PlacementRules, nodes: Sequence[Node], label: str) -> IntArray:
    """Nodes of each place that may be in use together."""
    place = numbered_places(nodes, label)
    size = np.bincount(place)
    ready = np.bincount(place[[node.state is NodeState.READY for node in nodes]], minlength=len(size))
    room = size.copy()
    for spares in asked.spares:
        if spares.per == label:
            room = np.minimum(room, np.where(ready >= spares.count, size - spares.count, 0))
    return room


def unkept(ground: Ground, degrees: Degrees, order: RankOrder) -> Unkept | None:
    """The first rule that no placement of the degrees keeps, as far as counting tells."""
    asked = ground.asked
    hosts = -(-degrees.gpus // ground.gpus_per_node)
    if ground.missing or hosts < len(asked.require_nodes):
        return "require_nodes"
    if hosts > ground.most_hosts:
        return max(asked.spares, key=lambda spares: spares.count)
    for rule in asked.neighbours:
        if not _may_keep(rule, ground.room[rule.label], degrees, order, ground.gpus_per_node):
            return rule
    return None


def _may_keep(
    rule: Spread | KeepTogether, room: IntArray, degrees: Degrees, order: RankOrder, gpus_per_node: int
) -> bool:
    """Whether counting leaves a chance that every group keeps ``rule``; ``room``: nodes of each place."""
    found = groups_of(rule, degrees, order, gpus_per_node)
    groups = found.slots
    taken = [slot for group in groups for slot in group]
    apart = len(set(taken)) == len(taken)
    largest, places = max(map(len, groups)), int((room > 0).sum())
    if isinstance(rule, Spread):
        fewest = max(places_wanted(rule, len(group))[0] for group in groups)
        if rule.at_least is None and found.crowded:
            return False
        if places < fewest or any(len(group) < places_wanted(rule, len(group))[0] for group in groups):
            return False
        # a place takes one slot of each group at most
        return rule.at_least is not None or not apart or int(np.minimum(room, len(groups)).sum()) >= len(taken)
    if int(np.sort(room)[::-1][: rule.at_most].sum()) < largest:
        return False
    # groups of one size fill each place with whole groups
    alike = apart and rule.at_most == 1 and all(len(group) == largest for group in groups)
    return not alike or int((room // largest).sum()) >= len(groups)
