"""Candidates that can never keep a rule, by counting alone (docs/placement_rules.md has the proofs).

Others may still have no placement that keeps all rules at once: that is found, or proven, later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.training.placement_rules import KeepTogether, RankGroup, Spares, Spread
from cluster_models.training.plan import Degrees, RankOrder
from solver.candidates import IntArray
from solver.placement.problem import NO_SLOT
from solver.placement.rules import NODE, Quota, Terrain, groups_of, places_wanted, quotas

REQUIRED: Final = "require_nodes"
Unkept = Spread | KeepTogether | Spares | str
"""A rule, or ``REQUIRED``."""
_OVER_STAGES: Final = (RankGroup.PIPELINE, RankGroup.JOB)
"""Groups whose ranks may sit on several kinds of GPU: stages are whole on one."""


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """Room that rules leave in a terrain: how many units may be used in all, and in each place of each label.

    ``reach``: by label, the most places in use in which one kind of GPU has units.
    """

    terrain: Terrain
    missing: tuple[str, ...]
    most_units: int
    room: dict[str, IntArray]
    reach: dict[str, int]


def ground_of(terrain: Terrain) -> Ground:
    """The ground that the rules asked leave."""
    asked = terrain.asked
    levels = quotas(terrain)[: len(asked.spares)]
    kept_out = [sum(max(0, len(quota.members) - quota.most) for quota in level) for level in levels]
    names = {node.name for unit in terrain.units for node in unit}
    labels = {rule.label for rule in asked.neighbours} - {NODE}
    room = {label: _room(terrain, levels, label) for label in labels}
    return Ground(
        terrain=terrain,
        missing=tuple(name for name in asked.require_nodes if name not in names),
        most_units=len(terrain.units) - max(kept_out, default=0),
        room=room,
        reach={label: _reach(terrain, room[label], label) for label in labels},
    )


def _reach(terrain: Terrain, room: IntArray, label: str) -> int:
    """The most places with room in which one kind of GPU has units."""
    kinds = np.array([unit[0].gpu_kind for unit in terrain.units])
    place = terrain.places(label)
    return max(int((room[np.unique(place[kinds == kind])] > 0).sum()) for kind in set(kinds.tolist()))


def _room(terrain: Terrain, levels: Sequence[Sequence[Quota]], label: str) -> IntArray:
    """Units of each place that may be in use together."""
    place = terrain.places(label)
    size = np.bincount(place)
    room = size.copy()
    for spares, level in zip(terrain.asked.spares, levels, strict=True):
        if spares.per == label:
            for quota in level:
                if quota.members:
                    here = place[quota.members[0]]
                    room[here] = min(room[here], size[here] - max(0, len(quota.members) - quota.most))
    return room


def unkept(ground: Ground, degrees: Degrees, order: RankOrder) -> Unkept | None:
    """The first rule that no placement of the degrees keeps, as far as counting tells."""
    terrain, asked = ground.terrain, ground.terrain.asked
    units = -(-degrees.gpus // terrain.gpus_per_unit)
    if ground.missing or -(-degrees.gpus // terrain.gpus_per_node) < len(asked.require_nodes):
        return REQUIRED
    if units > ground.most_units:
        return max(asked.spares, key=lambda spares: spares.count)
    for rule in asked.neighbours:
        if rule.label == NODE:
            kept = kept_by_nodes(rule, degrees, order, terrain.gpus_per_node)
        else:
            room, reach = ground.room[rule.label], ground.reach[rule.label]
            places = int((room > 0).sum()) if rule.group in _OVER_STAGES else reach
            kept = _may_keep(rule, room, places, degrees, order, terrain.gpus_per_unit)
        if not kept:
            return rule
    return None


def kept_by_nodes(rule: Spread | KeepTogether, degrees: Degrees, order: RankOrder, gpus_per_node: int) -> bool:
    """Whether a rule on nodes is kept: which ranks share a node does not depend on the placement."""
    found = groups_of(rule, degrees, order, gpus_per_node)
    if isinstance(rule, Spread):
        return not found.crowded if rule.at_least is None else int(found.sizes.min()) >= rule.at_least
    return int(found.sizes.max()) <= rule.at_most


def _may_keep(
    rule: Spread | KeepTogether, room: IntArray, places: int, degrees: Degrees, order: RankOrder, gpus_per_unit: int
) -> bool:
    """Whether counting leaves a chance that every group keeps ``rule``.

    ``room``: units of each place.  ``places``: how many a group can reach.
    """
    found = groups_of(rule, degrees, order, gpus_per_unit)
    sizes, taken = found.sizes, found.slots[found.slots != NO_SLOT]
    apart = len(np.unique(taken)) == len(taken)
    largest = int(sizes.max())
    if isinstance(rule, Spread):
        fewest = places_wanted(rule, largest)[0]
        if rule.at_least is None and found.crowded:
            return False
        if places < fewest or (rule.at_least is not None and int(sizes.min()) < rule.at_least):
            return False
        # a place takes one slot of each group at most
        return rule.at_least is not None or not apart or int(np.minimum(room, len(sizes)).sum()) >= len(taken)
    if int(np.sort(room)[::-1][: rule.at_most].sum()) < largest:
        return False
    # groups of one size fill each place with whole groups
    alike = apart and rule.at_most == 1 and bool((sizes == largest).all())
    return not alike or int((room // largest).sum()) >= len(sizes)
