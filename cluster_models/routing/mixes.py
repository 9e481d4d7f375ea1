"""Workloads put together, cut to layers, fitted to a model and compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import Counts, RoutedWorkload


@dataclass(frozen=True, slots=True)
class Agreement:
    """How alike two workloads load the experts: Pearson's correlation of the loads in each layer that both have."""

    first: str
    second: str
    layers: tuple[int, ...]
    correlations: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over layers."""
        return sum(self.correlations) / len(self.correlations)

    @property
    def lowest(self) -> tuple[int, float]:
        """The layer that differs most, and its correlation."""
        value, layer = min(zip(self.correlations, self.layers, strict=True))
        return layer, value

    def sentence(self) -> str:
        """Text of a warning."""
        layer, value = self.lowest
        least = f"in layer {layer} {value:.2f}"
        return f"planned for {self.first}, {self.second} differs: correlation {self.mean:.2f}, {least}"


def weighted(workloads: Sequence[RoutedWorkload], weights: Sequence[float], name: str = "mix") -> RoutedWorkload:
    """The mix in which workload i makes up ``weights[i]`` of all tokens, however many were counted of each.

    Loads are shares: each layer sums to 1, and tables are relative to the selections of their (first) layer.
    Tables stay where every workload of a positive weight has them.  Raises ``InvalidInput`` for weights that are no
    numbers from 0 on or all 0, and for workloads of other layers or experts.
    """
    if len(weights) != len(workloads) or not workloads:
        raise InvalidInput("weights", len(weights), f"must be one for each of {len(workloads)} workloads")
    given = np.asarray(weights, dtype=np.float64)
    if not np.isfinite(given).all() or (given < 0).any() or given.sum() <= 0:
        raise InvalidInput("weights", list(weights), "must be numbers from 0 on, not all 0")
    parts = [(workload, share) for workload, share in zip(workloads, given / given.sum(), strict=True) if share > 0]
    first = parts[0][0]
    for workload, _ in parts:
        _check_alike(first, workload)
    loads = sum((share * workload.shares() for workload, share in parts), np.zeros_like(first.loads))
    return RoutedWorkload(
        name,
        first.layers,
        np.asarray(loads),
        {index: _mixed(parts, index, "transitions") for index in _shared(parts, "transitions")},
        {index: _mixed(parts, index, "coactivation") for index in _shared(parts, "coactivation")},
    )


def restricted(workload: RoutedWorkload, layers: Sequence[int]) -> RoutedWorkload:
    """The workload in ``layers`` alone; transitions stay between layers that still follow each other.

    Raises ``InvalidInput`` where a layer was not counted.
    """
    wanted = tuple(sorted(set(layers)))
    absent = [layer for layer in wanted if layer not in workload.layers]
    if absent or not wanted:
        problem = f"were not counted in {workload.name!r}" if absent else "must be some layers"
        raise InvalidInput("layers", absent, problem, f"choose among {_ranges(workload.layers)}")
    rows = [workload.layers.index(layer) for layer in wanted]
    place = {row: index for index, row in enumerate(rows)}
    return replace(
        workload,
        layers=wanted,
        loads=workload.loads[rows],
        transitions={
            place[row]: table for row, table in workload.transitions.items() if row in place and row + 1 in place
        },
        coactivation={place[row]: table for row, table in workload.coactivation.items() if row in place},
    )


def of_model(workload: RoutedWorkload, sparse_layers: Sequence[int], experts: int) -> RoutedWorkload:
    """The workload with the layer numbers of a model whose layers ``sparse_layers`` have ``experts`` experts each.

    Files without layer numbers count sparse layers from 0: as many rows as the model has sparse layers, from 0 on,
    are given their numbers.  Raises ``InvalidInput`` for another number of experts, and for layers that the model
    does not have or that are dense.
    """
    if workload.experts != experts:
        problem = f"{workload.name!r} has {workload.experts} experts in a layer, the model has {experts}"
        raise InvalidInput("routing.experts", workload.experts, problem, "send the counts of this model")
    sparse = tuple(sorted(sparse_layers))
    if set(workload.layers) <= set(sparse):
        return workload
    if workload.layers == tuple(range(len(sparse))):
        return replace(workload, layers=sparse)
    strange = [layer for layer in workload.layers if layer not in sparse]
    problem = f"{workload.name!r} counts layers {_ranges(strange)}, which are no layers of experts of the model"
    remedy = f"number the rows as the model's layers {_ranges(sparse)}, or send all {len(sparse)} of them"
    raise InvalidInput("routing.layers", strange[:20], problem, remedy)


def agreement(first: RoutedWorkload, second: RoutedWorkload) -> Agreement:
    """How alike two workloads of one model are; raises ``InvalidInput`` where they share no layer.

    A layer where exactly one of both is uniform correlates with nothing: 0; where both are: 1.
    """
    layers = tuple(layer for layer in first.layers if layer in second.layers)
    if first.experts != second.experts or not layers:
        problem = f"{first.name!r} and {second.name!r} share no layer of as many experts"
        raise InvalidInput("routing.layers", _ranges(second.layers), problem, "compare workloads of one model")
    left = first.shares()[[first.layers.index(layer) for layer in layers]]
    right = second.shares()[[second.layers.index(layer) for layer in layers]]
    pairs = zip(left, right, strict=True)
    return Agreement(first.name, second.name, layers, tuple(_correlation(one, other) for one, other in pairs))


def _correlation(first: Counts, second: Counts) -> float:
    one, other = first - first.mean(), second - second.mean()
    sizes = float(np.linalg.norm(one)), float(np.linalg.norm(other))
    uniform = [size <= 1e-12 for size in sizes]
    if any(uniform):
        return 1.0 if all(uniform) else 0.0
    return float(np.clip(one @ other / (sizes[0] * sizes[1]), -1.0, 1.0))


def _check_alike(first: RoutedWorkload, other: RoutedWorkload) -> None:
    if other.experts != first.experts:
        problem = f"{other.name!r} has {other.experts} experts in a layer, {first.name!r} {first.experts}"
        raise InvalidInput("workloads", other.experts, problem, "mix workloads of one model")
    if other.layers != first.layers:
        problem = f"{other.name!r} counts other layers than {first.name!r}: {_ranges(other.layers)}"
        raise InvalidInput("workloads", _ranges(first.layers), problem, "restrict them to the layers they share")


def _tables(workload: RoutedWorkload, kind: str) -> Mapping[int, Counts]:
    return workload.transitions if kind == "transitions" else workload.coactivation


def _shared(parts: Sequence[tuple[RoutedWorkload, float]], kind: str) -> list[int]:
    return sorted(set.intersection(*(set(_tables(workload, kind)) for workload, _ in parts)))


def _mixed(parts: Sequence[tuple[RoutedWorkload, float]], index: int, kind: str) -> Counts:
    total = np.zeros_like(_tables(parts[0][0], kind)[index])
    for workload, share in parts:
        total += share * _tables(workload, kind)[index] / workload.loads[index].sum()
    return total


def _ranges(layers: Sequence[int]) -> str:
    """Layer numbers for people: "3-60, 62"."""
    runs: list[list[int]] = []
    for layer in sorted(layers):
        if runs and runs[-1][1] == layer - 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    return ", ".join(str(start) if start == end else f"{start}-{end}" for start, end in runs[:20])
