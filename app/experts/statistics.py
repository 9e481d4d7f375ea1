"""Statistics of routing before anything is placed: skew of each layer, and how alike workloads are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cluster_models.routing.counts import RoutedWorkload


@dataclass(frozen=True, slots=True)
class WorkloadStatistics:
    """One workload without its counts.

    ``hottest`` of each layer: selections of its hottest expert beside the mean of all.  ``transition_layers`` and
    ``coactivation_layers``: at how many layers pairs of experts were counted.
    """

    name: str
    layers: tuple[int, ...]
    hottest: tuple[float, ...]
    selections: float
    tokens: float | None = None
    transition_layers: int = 0
    coactivation_layers: int = 0


@dataclass(frozen=True, slots=True)
class RoutingStatistics:
    """A set of workloads of one model.

    ``correlations[i][j]``: mean over common layers of the correlation of loads of workloads ``i`` and ``j``;
    ``None`` where they have no layer in common.
    """

    experts: int
    workloads: tuple[WorkloadStatistics, ...]
    correlations: tuple[tuple[float | None, ...], ...]


def statistics_of(workloads: Sequence[RoutedWorkload]) -> RoutingStatistics:
    """Statistics of a set of workloads."""
    correlations = [[_correlation(one, other) for other in workloads] for one in workloads]
    return RoutingStatistics(
        experts=workloads[0].experts,
        workloads=tuple(_of_workload(workload) for workload in workloads),
        correlations=tuple(tuple(row) for row in correlations),
    )


def common_layers(workloads: Sequence[RoutedWorkload]) -> tuple[int, ...]:
    """The layers that were counted in all workloads."""
    shared = set(workloads[0].layers)
    for workload in workloads[1:]:
        shared &= set(workload.layers)
    return tuple(sorted(shared))


def _of_workload(workload: RoutedWorkload) -> WorkloadStatistics:
    hottest = workload.shares().max(axis=1) * workload.experts
    return WorkloadStatistics(
        name=workload.name,
        layers=workload.layers,
        hottest=tuple(round(float(value), 4) for value in hottest),
        selections=float(workload.loads.sum()),
        tokens=workload.tokens,
        transition_layers=len(workload.transitions),
        coactivation_layers=len(workload.coactivation),
    )


def _correlation(one: RoutedWorkload, other: RoutedWorkload) -> float | None:
    """Mean of Pearson's coefficient over common layers; a layer without spread has none and is left out."""
    layers = common_layers((one, other))
    if one.experts != other.experts or not layers:
        return None
    rows = [
        side.shares()[[side.layers.index(layer) for layer in layers]] - 1.0 / side.experts for side in (one, other)
    ]
    spread = np.sqrt((rows[0] ** 2).sum(axis=1) * (rows[1] ** 2).sum(axis=1))
    told = spread > 0
    if not told.any():
        return None
    together = (rows[0] * rows[1]).sum(axis=1)
    return round(float(np.clip((together[told] / spread[told]).mean(), -1.0, 1.0)), 4)
