"""Hosts that a configuration's groups span, before any host is chosen.

Rank ``r`` sits on slot ``r // gpus_per_node``.  With ``tensor`` fastest and ``context`` next, the GPUs of one cell
(one data rank on one pipeline rank) are consecutive ranks; the rank order says which cell follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cluster_models.training.plan import Degrees, RankOrder
from cluster_models.training.schedules import PipelineSchedule
from solver.candidates import IntArray
from solver.placement.problem import NO_SLOT

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True, eq=False)
class Geometry:
    """Slot pairs of one configuration (shapes as in ``solver.placement.problem.Arrays``).

    ``ring_members`` and ``expert_ring_members`` (P,) are the fewest ranks of one data parallel group of a stage
    that share a node, and ``ring_nodes`` and ``expert_ring_nodes`` (P,) over how many nodes such a group spreads.
    """

    slots: int
    cell_slots: IntArray
    hop_pairs: IntArray
    cross_pairs: IntArray
    ring_pairs: IntArray
    ring_members: IntArray
    ring_nodes: IntArray
    expert_ring_members: IntArray
    expert_ring_nodes: IntArray


class Coordinates(NamedTuple):
    """(R,) each: where the ranks stand in the grid."""

    tensor: IntArray
    context: IntArray
    data: IntArray
    pipeline: IntArray


def coordinates(degrees: Degrees, order: RankOrder) -> Coordinates:
    """Where every rank stands, in rank order: tensor changes fastest, then context."""
    data_first = order is RankOrder.DATA_BEFORE_PIPELINE
    outer = (degrees.data, degrees.pipeline) if data_first else (degrees.pipeline, degrees.data)
    tensor, context, third, fourth = (
        np.asarray(each, dtype=np.int64)
        for each in np.unravel_index(np.arange(degrees.gpus), (degrees.tensor, degrees.context, *outer), order="F")
    )
    return Coordinates(tensor, context, *((third, fourth) if data_first else (fourth, third)))


def cell_base(degrees: Degrees, order: RankOrder, replica: int, stage: int) -> int:
    """First rank of a cell."""
    if order is RankOrder.DATA_BEFORE_PIPELINE:
        cell = stage * degrees.data + replica
    else:
        cell = replica * degrees.pipeline + stage
    return cell * degrees.tensor * degrees.context


def geometry(
    degrees: Degrees,
    order: RankOrder,
    gpus_per_node: int,
    schedule: PipelineSchedule = PipelineSchedule.ONE_F_ONE_B,
) -> Geometry:
    """The slot pairs of ``degrees``; cells fill a node's GPUs evenly or span whole nodes."""
    replicas, stages = degrees.data, degrees.pipeline
    cell = degrees.tensor * degrees.context
    spans = [
        [_slots(cell_base(degrees, order, r, s), cell, gpus_per_node) for s in range(stages)]
        for r in range(replicas)
    ]
    width = len(spans[0][0])
    cell_slots = np.array(spans, dtype=np.int64)
    hop_pairs = np.full((replicas, 2, stages, width, 2), NO_SLOT, dtype=np.int64)
    if stages > 1:
        for direction, offset in ((0, 1), (1, -1)):
            hop_pairs[:, direction, :, :, 0] = cell_slots
            hop_pairs[:, direction, :, :, 1] = np.roll(cell_slots, -offset, axis=1)
    if degrees.virtual_pipeline == 1 or schedule.is_v_shaped:  # nothing goes round
        hop_pairs[:, 0, -1] = hop_pairs[:, 1, 0] = NO_SLOT
    stage_slots = [_unique([slot for r in range(replicas) for slot in spans[r][s]]) for s in range(stages)]
    dense = [_cycle(slots) for slots in stage_slots]
    stride = max(1, degrees.expert_block // gpus_per_node)
    sparse = [[pair for o in range(stride) for pair in _cycle(slots[o::stride])] for slots in stage_slots]
    cells = [(r, s) for r in range(replicas) for s in range(stages)]
    context = [_cycle(spans[r][s]) for r, s in cells]
    expert = [_expert_pairs(degrees, stage_slots[s], r, gpus_per_node) for r, s in cells]
    parameter = [dense[s] for _, s in cells]
    cross_pairs = _pad([*context, *expert, *parameter])
    ring_members, ring_nodes = _members(degrees, order, gpus_per_node, degrees.tensor)
    expert_ring_members, expert_ring_nodes = _members(degrees, order, gpus_per_node, degrees.expert_block)
    ring_pairs = _pad([*dense, *sparse])
    return Geometry(
        slots=-(-degrees.gpus // gpus_per_node),
        cell_slots=cell_slots,
        hop_pairs=hop_pairs,
        cross_pairs=cross_pairs.reshape(3, replicas, stages, -1, 2),
        ring_pairs=ring_pairs.reshape(2, stages, -1, 2),
        ring_members=ring_members,
        ring_nodes=ring_nodes,
        expert_ring_members=expert_ring_members,
        expert_ring_nodes=expert_ring_nodes,
    )


def _slots(base: int, size: int, gpus_per_node: int) -> list[int]:
    return list(range(base // gpus_per_node, (base + size - 1) // gpus_per_node + 1))


def _unique(slots: list[int]) -> list[int]:
    return list(dict.fromkeys(slots))


def _cycle(slots: list[int]) -> Pairs:
    """Hops of a ring through ``slots``; none when it stays on one."""
    return [(a, b) for a, b in zip(slots, slots[1:] + slots[:1], strict=True) if a != b]


def _expert_pairs(degrees: Degrees, slots: list[int], replica: int, gpus_per_node: int) -> Pairs:
    """Ordered slot pairs inside the expert groups that a replica's cell of one stage belongs to.

    Every node of an expert block has members of each of its all-to-all groups, for ``expert_tensor`` divides nodes.
    """
    nodes = degrees.expert_block // gpus_per_node
    if nodes < 2:
        return []
    cell = degrees.tensor * degrees.context
    first, last = replica * cell // degrees.expert_block, ((replica + 1) * cell - 1) // degrees.expert_block
    groups = [slots[index * nodes : (index + 1) * nodes] for index in range(first, last + 1)]
    return [(a, b) for group in groups for a in group for b in group if a != b]


def _members(degrees: Degrees, order: RankOrder, gpus_per_node: int, stride: int) -> tuple[IntArray, IntArray]:
    """Fewest ranks on one node and most nodes, over groups of every ``stride``-th rank of each stage (P,)."""
    inside = np.arange(degrees.tensor * degrees.context)
    fewest, most = [], []
    for stage in range(degrees.pipeline):
        bases = [cell_base(degrees, order, replica, stage) for replica in range(degrees.data)]
        groups = (np.add.outer(bases, inside).reshape(-1, stride) // gpus_per_node).T
        counts = [np.unique(group, return_counts=True)[1] for group in groups]
        fewest.append(min(int(count.min()) for count in counts))
        most.append(max(len(count) for count in counts))
    return np.array(fewest), np.array(most)


def _pad(lists: list[Pairs]) -> IntArray:
    """Lists of pairs as one array (lists, width, 2), filled up with ``NO_SLOT``."""
    width = max(1, *(len(pairs) for pairs in lists))
    padded = np.full((len(lists), width, 2), NO_SLOT, dtype=np.int64)
    for index, pairs in enumerate(lists):
        if pairs:
            padded[index, : len(pairs)] = pairs
    return padded
