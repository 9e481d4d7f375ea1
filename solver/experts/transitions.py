"""Worth of a map of experts where tokens go from layer to layer: whether they stay on their rank and node.

Letters: L layers, E experts, G ranks.  ``ranks`` (L, E): the rank of each expert, of maps without copies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import Counts, RoutedWorkload
from solver.candidates import FloatArray, IntArray
from solver.experts.compiled_chain_worth import rank_masses
from solver.experts.layout import ExpertLayout


@dataclass(frozen=True, slots=True)
class ChangePrices:
    """Cost to a token of a change of its rank between two layers: inside its node, and between nodes.

    In any unit, seconds per byte for one.  A change between nodes costs at least as much, and more than 0.
    """

    inside: float = 1.0
    between: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.between) and 0 <= self.inside <= self.between and self.between > 0):
            raise InvalidInput(
                "experts.prices",
                (self.inside, self.between),
                "must be numbers from 0 on, the one between nodes above 0 and not below the one inside",
            )

    def worth(self, layout: ExpertLayout) -> FloatArray:
        """(G, G) worth of a transition from rank to rank: 1 on the rank, less in the node, 0 between nodes."""
        rows = np.eye(layout.ranks)
        if layout.nodes > 1:
            node = np.arange(layout.ranks) // layout.ranks_per_node
            inside = (node[:, None] == node).astype(np.float64) * (1.0 - self.inside / self.between)
            rows = np.maximum(rows, inside)
        return np.asarray(rows)


EVERY_CHANGE: Final = ChangePrices()
"""A change of rank costs the same anywhere: the worth of a map is the share of transitions that stay."""


def inside_worth(worth: FloatArray, layout: ExpertLayout) -> float:
    """Worth of a transition that changes its rank but not its node, of 1 for one that stays on the rank."""
    return float(worth[0, 1]) if layout.nodes > 1 and layout.ranks_per_node > 1 else 0.0


def transition_tables(workload: RoutedWorkload) -> FloatArray:
    """(L - 1, E, E) the share of all counted transitions from expert to expert of the next layer; sum 1.

    Raises ``InvalidInput`` where none was counted.
    """
    tables = np.zeros((len(workload.layers) - 1, workload.experts, workload.experts))
    for index, counts in workload.transitions.items():
        tables[index] = counts
    total = tables.sum()
    if total <= 0:
        raise InvalidInput(
            "routing.transitions",
            workload.name,
            "no transition between neighbouring layers was counted",
            "give counts from layer to layer or traces of tokens",
        )
    return np.asarray(tables / total)


def expert_ranks(slots: IntArray, experts: int, layout: ExpertLayout) -> IntArray:
    """(L, E) the rank of each expert.  Raises ``InvalidInput`` for maps with copies."""
    if layout.slots != experts:
        raise InvalidInput(
            "experts.slots",
            layout.slots,
            f"transitions are followed in maps without copies, {experts} slots for {experts} experts",
            f"take {experts} slots",
        )
    ranks = np.empty((len(slots), experts), dtype=np.int64)
    np.put_along_axis(ranks, slots, np.broadcast_to(layout.rank_of_slot(), slots.shape), axis=1)
    return ranks


def rank_slots(ranks: IntArray) -> IntArray:
    """(L, E) the expert in each slot, those of a rank in order: the inverse of ``expert_ranks``."""
    return np.argsort(ranks, axis=1, kind="stable")


def stay_share(slots: IntArray, transitions: Mapping[int, Counts], layout: ExpertLayout) -> float:
    """Share of the counted transitions whose two experts lie on one rank, of a map without copies.

    ``transitions[i]`` (E, E) from layer ``i`` to the next, as ``RoutedWorkload`` has them.
    """
    return _stays(slots, transitions, layout, 1)


def node_stay_share(slots: IntArray, transitions: Mapping[int, Counts], layout: ExpertLayout) -> float:
    """Share of the counted transitions whose two experts lie in one node, of a map without copies."""
    return _stays(slots, transitions, layout, layout.ranks_per_node)


def _stays(slots: IntArray, transitions: Mapping[int, Counts], layout: ExpertLayout, size: int) -> float:
    group = expert_ranks(slots, slots.shape[1], layout) // size
    stays = total = 0.0
    for index, counts in transitions.items():
        stays += float(counts[group[index][:, None] == group[index + 1]].sum())
        total += float(counts.sum())
    return stays / total if total else 0.0


def chain_worth(ranks: IntArray, tables: FloatArray, worth: FloatArray) -> float:
    """Worth of a map: the sum over ``tables`` of the ``worth`` of each transition."""
    return float(
        sum(
            (rank_masses(table, here, there, len(worth)) * worth).sum()
            for table, here, there in zip(tables, ranks[:-1], ranks[1:], strict=True)
        )
    )
