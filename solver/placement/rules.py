"""Demands of a workload on the nodes under a plan, as rules on slots that the search can count.

A rule on a group of ranks is one on the slots that hold them (docs/placement_rules.md).  Letters: K slots, N
nodes of a placement problem, which are units of one or several nodes of the cluster (``solver.placement.fabric``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from cluster_models.cluster.topology import Cluster, Node, NodeState
from cluster_models.training.placement_rules import KeepTogether, PlacementRules, RankGroup, Spares, Spread
from cluster_models.training.plan import Degrees, RankOrder
from cluster_models.training.workload import TrainingWorkload
from solver.candidates import BoolArray, IntArray
from solver.compiled import Rules
from solver.placement.fabric import Fabric
from solver.placement.geometry import coordinates
from solver.placement.problem import NO_SLOT

NODE: Final = "node"
"""The label whose places are the nodes themselves."""


@dataclass(frozen=True, slots=True, eq=False)
class SlotGroups:
    """The slots (G, g) under the groups of one kind, each set once, padded with ``NO_SLOT``.

    ``crowded``: whether some slot holds two ranks of one group, so that these can never sit apart.
    """

    slots: IntArray
    crowded: bool

    @property
    def sizes(self) -> IntArray:
        """(G,) slots of each group."""
        return np.asarray((self.slots != NO_SLOT).sum(axis=1))


@lru_cache(maxsize=4096)
def slot_groups(
    degrees: Degrees, order: RankOrder, gpus_per_slot: int, group: RankGroup, *, by_expert: bool = False
) -> SlotGroups:
    """The slots of every group of a kind.

    ``by_expert``: of the data groups take those of equal experts, where experts lie over several cells.
    Ranks of a cell that share a slot lie in groups of the same slots, so one of them stands for all.
    """
    per_slot, cell = min(gpus_per_slot, degrees.gpus), degrees.tensor * degrees.context
    inside = group in {RankGroup.TENSOR, RankGroup.CONTEXT, RankGroup.EXPERT}
    block = 1 if inside or (per_slot % cell and cell % per_slot) else min(per_slot, cell)
    ranks = np.arange(0, degrees.gpus, block)
    key = _group_of(degrees, order, group, by_expert=by_expert)[ranks]
    slot = ranks // per_slot
    hosts = int(slot[-1]) + 1
    pairs, members = np.unique(key * hosts + slot, return_counts=True)
    crowded = bool((members > 1).any()) or (block > 1 and group is not RankGroup.DATA)
    _, first, sizes = np.unique(pairs // hosts, return_index=True, return_counts=True)
    padded = np.full((len(sizes), int(sizes.max())), NO_SLOT, dtype=np.int64)
    row = np.repeat(np.arange(len(sizes)), sizes)
    padded[row, np.arange(len(pairs)) - first[row]] = pairs % hosts
    return SlotGroups(np.unique(padded, axis=0), crowded)


def _group_of(degrees: Degrees, order: RankOrder, group: RankGroup, *, by_expert: bool) -> IntArray:
    """(ranks,) the number of the group that each rank belongs to."""
    tensor, context, data, stage = coordinates(degrees, order)
    cell = tensor + degrees.tensor * context
    inside = cell + degrees.tensor * degrees.context * data
    key: IntArray
    match group:
        case RankGroup.DATA if by_expert:
            key = inside % degrees.expert_block + degrees.expert_block * stage
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
            cut, block = degrees.expert_tensor, degrees.expert_block
            key = inside % cut + cut * (inside // block) + degrees.gpus * stage
        case RankGroup.JOB:
            key = np.zeros_like(stage)
    return key


def groups_of(rule: Spread | KeepTogether, degrees: Degrees, order: RankOrder, gpus_per_slot: int) -> SlotGroups:
    """The groups that a rule speaks of.

    For ranks to have copies in several places, those that hold the same experts must lie in several.
    """
    several = isinstance(rule, Spread) and rule.at_least is not None
    wide = degrees.expert_block > degrees.tensor * degrees.context
    by_expert = several and rule.group is RankGroup.DATA and wide
    return slot_groups(degrees, order, gpus_per_slot, rule.group, by_expert=by_expert)


def numbered_places(nodes: Sequence[Node], label: str) -> IntArray:
    """(nodes,) the place of each node, numbered from 0; nodes without the label have one of their own each."""
    numbers: dict[object, int] = {}
    return np.array(
        [numbers.setdefault(node.place(label) or (node.name,), len(numbers)) for node in nodes], dtype=np.int64
    )


@dataclass(frozen=True, slots=True)
class Terrain:
    """Nodes of a fabric as rules see them.

    ``units``: the nodes behind each node of a placement problem, equally many.  ``pool``: all nodes that offer what
    the fabric takes of a node, in units or not.
    """

    asked: PlacementRules
    units: tuple[tuple[Node, ...], ...]
    pool: tuple[Node, ...]
    gpus_per_node: int

    @property
    def nodes_per_unit(self) -> int:
        """Nodes that are placed together."""
        return len(self.units[0])

    @property
    def gpus_per_unit(self) -> int:
        """GPUs of a slot."""
        return self.gpus_per_node * self.nodes_per_unit

    def places(self, label: str) -> IntArray:
        """(N,) the place of each unit, numbered from 0."""
        return numbered_places([unit[0] for unit in self.units], label)


def terrain_of(cluster: Cluster, workload: TrainingWorkload, fabric: Fabric) -> Terrain:
    """The terrain of a fabric."""
    kinds = {kind.name for kind in fabric.kinds}
    return Terrain(
        asked=workload.placement,
        units=tuple(tuple(cluster.nodes[position] for position in unit) for unit in fabric.members),
        pool=tuple(
            node
            for node in cluster.nodes
            if node.usable
            and node.name not in workload.avoid_nodes
            and node.gpu_kind in kinds
            and len(node.free_gpus) >= fabric.gpus_per_node
        ),
        gpus_per_node=fabric.gpus_per_node,
    )


@dataclass(frozen=True, slots=True)
class Quota:
    """At least ``fewest`` and at most ``most`` of ``members`` (positions of units) may be in use."""

    members: tuple[int, ...]
    fewest: int
    most: int


def quotas(terrain: Terrain) -> tuple[tuple[Quota, ...], ...]:
    """Quotas that spares and required nodes set, a level for each of them; members of a level are disjoint."""
    levels = [tuple(_spare_quotas(terrain, spares)) for spares in terrain.asked.spares]
    if required := terrain.asked.require_nodes:
        holding = tuple(n for n, unit in enumerate(terrain.units) if any(node.name in required for node in unit))
        found = sum(node.name in required for n in holding for node in terrain.units[n])
        # a required node in no unit can never be used: then more must be in use than there are
        levels.append((Quota(holding, len(holding) + len(required) - found, len(terrain.units)),))
    return tuple(levels)


def _spare_quotas(terrain: Terrain, spares: Spares) -> Iterator[Quota]:
    """Spares are ready nodes, so of the ready nodes of a place all but the spares may be used.

    None of its nodes at all where it has fewer ready ones.  A unit of several nodes counts as so many ready ones.
    """
    heads, width = [unit[0] for unit in terrain.units], terrain.nodes_per_unit
    nodes = [*heads, *terrain.pool]
    place = np.zeros(len(nodes), dtype=np.int64) if spares.per is None else numbered_places(nodes, spares.per)
    ready = np.array([node.state is NodeState.READY for node in nodes])
    own, pool = np.arange(len(nodes)) < len(heads), np.arange(len(nodes)) >= len(heads)
    for number in range(int(place.max()) + 1):
        left = int((pool & ready & (place == number)).sum()) - spares.count
        counted = own & (place == number) & (ready | (width > 1) | (left < 0))
        yield Quota(tuple(int(n) for n in np.flatnonzero(counted)), 0, max(0, left // width))


def compile_rules(terrain: Terrain, degrees: Degrees, order: RankOrder, eligible: BoolArray) -> Rules:
    """The rules of a candidate, for the compiled code; ``eligible`` (K, N) as other parts of the problem ask.

    Which nodes of a unit a group spans is fixed, so rules on nodes are kept or not before any placement.
    """
    rows: list[tuple[tuple[int, ...], int, int, IntArray]] = []
    for rule in terrain.asked.neighbours:
        if rule.label == NODE:
            continue
        place = terrain.places(rule.label)
        for padded in groups_of(rule, degrees, order, terrain.gpus_per_unit).slots.tolist():
            group = tuple(slot for slot in padded if slot != NO_SLOT)
            fewest, most = places_wanted(rule, len(group))
            if fewest > 1 or most < len(group):
                rows.append((group, fewest, most, place))
    levels, nodes = quotas(terrain), len(terrain.units)
    quota_of = np.full((len(levels), nodes), -1, dtype=np.int64)
    flat: list[Quota] = []
    for level, members in enumerate(levels):
        for quota in members:
            quota_of[level, list(quota.members)] = len(flat)
            flat.append(quota)
    width = max((len(group) for group, *_ in rows), default=1)
    padded = [(*group, *[NO_SLOT] * (width - len(group))) for group, *_ in rows]
    return Rules(
        eligible=eligible,
        group_slots=np.array(padded, dtype=np.int64).reshape(-1, width),
        fewest_places=np.array([fewest for _, fewest, _, _ in rows], dtype=np.int64),
        most_places=np.array([most for _, _, most, _ in rows], dtype=np.int64),
        places=np.array([place for *_, place in rows], dtype=np.int64).reshape(-1, nodes),
        quota_of=quota_of,
        fewest_used=np.array([quota.fewest for quota in flat], dtype=np.int64),
        most_used=np.array([quota.most for quota in flat], dtype=np.int64),
    )


def places_wanted(rule: Spread | KeepTogether, size: int) -> tuple[int, int]:
    """Fewest and most places of a group on ``size`` slots."""
    if isinstance(rule, KeepTogether):
        return 1, rule.at_most
    return (size if rule.at_least is None else rule.at_least), size
