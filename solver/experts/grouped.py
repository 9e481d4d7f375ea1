"""Orders of experts that keep router groups together, for training without copies.

Megatron-Core's routers form groups by position: with H groups the scores of a token are cut into H blocks, and its
experts come from the best of these.  So experts may change places inside their group, and groups as wholes; every
other order gives tokens other experts.  Letters: W workloads, L layers, E experts, H groups, G ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from cluster_models.routing.counts import RoutedWorkload
from solver.candidates import FloatArray, IntArray
from solver.experts.layout import ExpertLayout
from solver.experts.place import Placed, place_experts

_STEPS: Final = 2_000
"""Steps of the search for each layer and group."""
_SELDOM: Final = 1e-9
"""Share of the mean of a layer that an expert has at least, for groups that nothing selected."""


def keeps_groups(row: Sequence[int], groups: int) -> bool:
    """Whether each block of E / H positions holds the experts of one group."""
    size = len(row) // groups
    return all(
        len({expert // size for expert in row[start : start + size]}) == 1 for start in range(0, len(row), size)
    )


def grouped_orders(
    workloads: Sequence[RoutedWorkload], weights: Mapping[str, float] | None, layout: ExpertLayout, groups: int
) -> tuple[list[IntArray], FloatArray] | None:
    """(L, E) orders that balance ranks, and (W, L) the load of the slowest rank that none of them undercuts.

    Where ranks divide groups, groups are shared out to ranks.  Where groups divide ranks, each group is shared out
    to its own ranks; the second order also spreads hot groups over nodes.  ``None`` where neither divides.
    """
    if groups % layout.ranks == 0:
        placed = _placed(_by_group(workloads, groups), weights, ExpertLayout(layout.ranks, layout.nodes, groups))
        return [_expanded(placed.rows(), _natural(workloads), groups)], 1.0 / placed.layer_bounds
    if layout.ranks % groups:
        return None
    inner = ExpertLayout(layout.ranks // groups, 1, workloads[0].experts // groups)
    inside, least = _natural(workloads), np.ones((len(workloads), len(workloads[0].layers)))
    shares = np.array([each.shares() for each in _by_group(workloads, groups)])
    for group in range(groups):
        members = slice(group * inner.slots, (group + 1) * inner.slots)
        placed = _placed([_part(each, members) for each in workloads], weights, inner)
        inside[:, members] = placed.rows() + group * inner.slots
        least = np.maximum(least, shares[:, :, group] * groups / placed.layer_bounds)
    orders = [inside]
    if 1 < layout.nodes < groups and groups % layout.nodes == 0:
        spread = _placed(_by_group(workloads, groups), weights, ExpertLayout(layout.nodes, 1, groups))
        orders.append(_expanded(spread.rows(), inside, groups))
    return orders, least


def _placed(
    workloads: Sequence[RoutedWorkload], weights: Mapping[str, float] | None, layout: ExpertLayout
) -> Placed:
    # many small problems, of which only the hottest group's decides
    return place_experts(workloads, layout, weights=weights, steps=_STEPS, close_bounds=False)


def _natural(workloads: Sequence[RoutedWorkload]) -> IntArray:
    return np.tile(np.arange(workloads[0].experts), (len(workloads[0].layers), 1))


def _part(workload: RoutedWorkload, members: slice) -> RoutedWorkload:
    """The counts of one group's experts."""
    least = _SELDOM * workload.loads.mean(axis=1, keepdims=True)
    return RoutedWorkload(workload.name, workload.layers, np.maximum(workload.loads[:, members], least))


def _by_group(workloads: Sequence[RoutedWorkload], groups: int) -> list[RoutedWorkload]:
    """Groups in place of experts."""
    return [
        RoutedWorkload(each.name, each.layers, each.loads.reshape(len(each.layers), groups, -1).sum(axis=2))
        for each in workloads
    ]


def _expanded(order: IntArray, inside: IntArray, groups: int) -> IntArray:
    """(L, E) the groups in (L, H) ``order``, the experts of each as in ``inside`` (L, E)."""
    blocks = inside.reshape(len(inside), groups, -1)
    return np.take_along_axis(blocks, order[:, :, None], axis=1).reshape(inside.shape)
