"""What a workload asks of the nodes under a plan, as rules on slots that the search can count.

A rule on a group of ranks is one on the slots that hold them (docs/placement_rules.md).  Letters: K slots, N nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from cluster_models.placement_rules import KeepTogether, PlacementRules, RankGroup, Spread
from cluster_models.plan import Degrees, RankOrder
from cluster_models.topology import Node, NodeState
from solver.candidates import IntArray
from solver.compiled import Rules
from solver.placement.problem import NO_SLOT, no_rules


@dataclass(frozen=True, slots=True)
class SlotGroups:
    """The slots under the groups of one kind, each set once.

    ``crowded``: whether some slot holds two ranks of one group, so that these can never sit apart.
    """

    slots: tuple[tuple[int, ...], ...]
    crowded: bool


@lru_cache(maxsize=65536)
def slot_groups(
    degrees: Degrees, order: RankOrder, gpus_per_node: int, group: RankGroup, *, by_expert: bool = False
) -> SlotGroups:
    """The slots of every group of a kind.

    ``by_expert``: of the data groups take those of equal experts, where experts lie over several cells.
    """
    ranks = np.arange(degrees.gpus)
    key = _group_of(degrees, order, group, by_expert=by_expert)
    slot = ranks // min(gpus_per_node, degrees.gpus)
    hosts = int(slot[-1]) + 1
    pairs, members = np.unique(key * hosts + slot, return_counts=True)
    found: dict[int, list[int]] = {}
    for pair in pairs:
        found.setdefault(int(pair) // hosts, []).append(int(pair) % hosts)
    return SlotGroups(tuple(dict.fromkeys(map(tuple, found.values()))), bool((members > 1).any()))


def _group_of(degrees: Degrees, order: RankOrder, group: RankGroup, *, by_expert: bool) -> IntArray:
    """(ranks,) the number of the group that each rank belongs to."""
    sizes = [degrees.tensor, degrees.context]
    if order is RankOrder.DATA_BEFORE_PIPELINE:
        sizes += [degrees.data, degrees.pipeline]
    else:
        sizes += [degrees.pipeline, degrees.data]
    tensor, context, third, fourth = np.unravel_index(np.arange(degrees.gpus), sizes, order="F")
    data, stage = (third, fourth) if order is RankOrder.DATA_BEFORE_PIPELINE else (fourth, third)
    cell = tensor + degrees.tensor * context
    inside = cell + degrees.tensor * degrees.context * data
    key: IntArray
    match group:
        case RankGroup.DATA if by_expert:
            key = inside % degrees.expert + degrees.expert * stage
        case RankGroup.DATA:
            key = cell + degrees.tensor * degrees.context * stage
        case RankGroup.PIPELINE:
            key = data
        case RankGroup.STAGE:
            key = stage
        case RankGroup.TENSOR:
            key = context + degrees.context * (data + degrees.data * stage)
        case RankGroup.CONTEXT:
            key = data + degrees.data * stage
        case RankGroup.EXPERT:
            key = inside // degrees.expert + degrees.gpus * stage
        case RankGroup.JOB:
            key = np.zeros_like(stage)
    return key


def groups_of(rule: Spread | KeepTogether, degrees: Degrees, order: RankOrder, gpus_per_node: int) -> SlotGroups:
    """The groups that a rule speaks of.

    For ranks to have copies in several places, those that hold the same experts must lie in several.
    """
    several = isinstance(rule, Spread) and rule.at_least is not None
    by_expert = several and rule.group is RankGroup.DATA and degrees.expert > degrees.tensor * degrees.context
    return slot_groups(degrees, order, gpus_per_node, rule.group, by_expert=by_expert)


def numbered_places(nodes: Sequence[Node], label: str) -> IntArray:
    """(N,) the place of each node, numbered from 0; nodes without the label have one of their own each."""
    numbers: dict[object, int] = {}
    return np.array(
        [numbers.setdefault(node.place(label) or (node.name,), len(numbers)) for node in nodes], dtype=np.int64
    )


@dataclass(frozen=True, slots=True)
class Quota:
    """Of ``members`` (positions of nodes) at least ``fewest`` and at most ``most`` may be in use."""

    members: tuple[int, ...]
    fewest: int
    most: int


def quotas(asked: PlacementRules, nodes: Sequence[Node]) -> tuple[tuple[Quota, ...], ...]:
    """What spares and required nodes allow in use, a level for each of them; members of a level are disjoint.

    Spares are ready nodes, so of the ready nodes of a place all but the spares may be used, and none of its
    nodes at all where it has fewer ready ones.
    """
    levels = []
    for spares in asked.spares:
        place = np.zeros(len(nodes), dtype=np.int64) if spares.per is None else numbered_places(nodes, spares.per)
        level = []
        for number in range(int(place.max(initial=-1)) + 1):
            all_here = [int(n) for n in np.flatnonzero(place == number)]
            ready = [n for n in all_here if nodes[n].state is NodeState.READY]
            most = len(ready) - spares.count
            level.append(Quota(tuple(ready if most >= 0 else all_here), 0, max(0, most)))
        levels.append(tuple(level))
    if asked.require_nodes:
        required = [n for n, node in enumerate(nodes) if node.name in asked.require_nodes]
        levels.append((Quota(tuple(required), len(asked.require_nodes), len(nodes)),))
    return tuple(levels)


def compile_rules(
    asked: PlacementRules, degrees: Degrees, order: RankOrder, gpus_per_node: int, nodes: Sequence[Node]
) -> Rules:
    """The rules of a candidate on ``nodes``, for the compiled code."""
    slots = -(-degrees.gpus // gpus_per_node)
    if not asked:
        return no_rules(slots, len(nodes))
    rows: list[tuple[tuple[int, ...], int, int, IntArray]] = []
    for rule in asked.neighbours:
        place = numbered_places(nodes, rule.label)
        for group in groups_of(rule, degrees, order, gpus_per_node).slots:
            fewest, most = places_wanted(rule, len(group))
            if fewest > 1 or most < len(group):
                rows.append((group, fewest, most, place))
    levels = quotas(asked, nodes)
    quota_of = np.full((len(levels), len(nodes)), -1, dtype=np.int64)
    flat: list[Quota] = []
    for level, members in enumerate(levels):
        for quota in members:
            quota_of[level, list(quota.members)] = len(flat)
            flat.append(quota)
    width = max((len(group) for group, *_ in rows), default=1)
    padded = [(*group, *[NO_SLOT] * (width - len(group))) for group, *_ in rows]
    return Rules(
        eligible=np.ones((slots, len(nodes)), dtype=np.bool_),
        group_slots=np.array(padded, dtype=np.int64).reshape(-1, width),
        fewest_places=np.array([fewest for _, fewest, _, _ in rows], dtype=np.int64),
        most_places=np.array([most for _, _, most, _ in rows], dtype=np.int64),
        places=np.array([place for *_, place in rows], dtype=np.int64).reshape(-1, len(nodes)),
        quota_of=quota_of,
        fewest_used=np.array([quota.fewest for quota in flat], dtype=np.int64),
        most_used=np.array([quota.most for quota in flat], dtype=np.int64),
    )


def places_wanted(rule: Spread | KeepTogether, size: int) -> tuple[int, int]:
    """Fewest and most places of a group on ``size`` slots."""
    if isinstance(rule, KeepTogether):
        return 1, rule.at_most
    return (size if rule.at_least is None else rule.at_least), size
