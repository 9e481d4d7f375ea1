"""Experts over slots for one workload or a set of workloads, by their loads alone, with a bound.

Letters: W workloads, L layers, E experts, G ranks, s slots of a rank.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.training.expert_slots import ExpertSlots
from solver.candidates import FloatArray, IntArray
from solver.experts import balance, packing
from solver.experts.bounds import least_slowest_load, plain_bound
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, layer_balancedness
from solver.experts.near_bounds import least_near_load

T = TypeVar("T")

STEPS: Final = 10_000
SET_STEPS: Final = 2
"""Steps for several workloads or the nearest copy, for each step that is asked for."""
ROUNDS: Final = 3
"""How often the weights of a set are shifted towards its worst member, and all layers placed again."""
SHIFT: Final = 4.0
"""A member of the set that lies a tenth below the mean gets ``exp(0.1 * SHIFT)`` times the weight."""
THREADS: Final = 2


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A map of experts, and what it is worth.

    ``balancedness`` by workload: mean over layers of mean over maximum rank load.  ``layer_bounds`` (W, L): what no
    map exceeds in that layer for that workload alone.  ``worth``: the weighted mean over workloads where weights
    were given, else the balancedness of the worst; ``bound``: what no map's worth exceeds.
    """

    slots: ExpertSlots
    balancedness: Mapping[str, float]
    layer_bounds: FloatArray
    worth: float
    bound: float

    def rows(self) -> IntArray:
        """(L, S) the expert in each slot."""
        return np.array(self.slots.slots)


def place_experts(
    workloads: Sequence[RoutedWorkload],
    layout: ExpertLayout,
    *,
    weights: Mapping[str, float] | None = None,
    choice: CopyChoice = CopyChoice.ANY,
    steps: int = STEPS,
    seed: int = 0,
    close_bounds: bool = True,
) -> Placed:
    """The best map found for ``workloads``: their worst member, or their mean weighted with ``weights``.

    ``choice``: which copies serve tokens; balance is searched, judged and bounded under it.
    ``steps`` of search for each layer (and round, for a set); ``close_bounds``: solve linear programs for tighter
    bounds where ranks have two slots.  The same arguments give the same map.  Raises ``InvalidInput``.
    """
    check_alike(workloads)
    layout.check(workloads[0].experts)
    # (L, W, E), balanced ranks all carry 1
    shares = np.stack([workload.shares() for workload in workloads], axis=1) * layout.ranks
    factors = _factors(workloads, weights)
    layers = range(len(workloads[0].layers))
    if len(workloads) == 1:
        placed = _each(
            len(layers),
            lambda layer: packing.place_layer(
                shares[layer, 0], layout, plain_bound(shares[layer, 0], layout), steps, seed + layer
            ),
        )
        held, proven = [rows for rows, _ in placed], [best for _, best in placed]
    else:
        envelope = _envelope(shares, layout)
        held = _each(
            len(layers), lambda layer: packing.place_layer(envelope[layer], layout, 1.0, steps, seed + layer)[0]
        )
        held = _annealed(shares, held, layout, factors, CopyChoice.ANY, steps, seed)
        proven = [False] * len(layers)
    held = _each(len(layers), lambda layer: packing.spread(shares[layer].mean(axis=0), held[layer], layout))
    if choice is CopyChoice.NEAREST and layout.slots > workloads[0].experts:
        held = _annealed(shares, held, layout, factors, choice, steps, seed)
        least = [[least_near_load(row, layout) for row in rows] for rows in shares]
    else:
        close = close_bounds and len(workloads) == 1
        reached = [balance.slowest_load(shares[layer], held[layer], layout) for layer in layers]
        least = _each(
            len(layers),
            lambda layer: [
                float(load) if proven[layer] else least_slowest_load(row, layout, load, close=close)
                for row, load in zip(shares[layer], reached[layer], strict=True)
            ],
        )
    return _placed(workloads, layout, held, 1.0 / np.array(least).T, factors, choice)


def check_alike(workloads: Sequence[RoutedWorkload]) -> None:
    """Raise ``InvalidInput`` unless there are workloads, of different names and of the same layers and experts."""
    if not workloads:
        raise InvalidInput("experts.workloads", 0, "at least one workload is needed")
    names = [workload.name for workload in workloads]
    if len(set(names)) < len(names):
        raise InvalidInput("experts.workloads", names, "two workloads have the same name")
    first = workloads[0]
    for other in workloads[1:]:
        if other.layers != first.layers or other.experts != first.experts:
            raise InvalidInput(
                "experts.workloads",
                other.name,
                f"has {len(other.layers)} layers of {other.experts} experts, "
                f"but {first.name} has {len(first.layers)} of {first.experts}",
                "place workloads of one model together, with the same layers counted",
            )


def _factors(workloads: Sequence[RoutedWorkload], weights: Mapping[str, float] | None) -> FloatArray | None:
    """(W,) weights with the sum 1, ``None`` for the worst member."""
    if weights is None:
        return None
    names = {workload.name for workload in workloads}
    if set(weights) != names:
        raise InvalidInput("experts.weights", sorted(weights), f"must weigh each of {sorted(names)}, and no other")
    for name, weight in weights.items():
        if not (math.isfinite(weight) and weight >= 0):
            raise InvalidInput(f"experts.weights.{name}", weight, "must be a number from 0 on")
    factors = np.array([weights[workload.name] for workload in workloads])
    if factors.sum() <= 0:
        raise InvalidInput("experts.weights", dict(weights), "must not all be 0")
    return np.asarray(factors / factors.sum())


def _envelope(shares: FloatArray, layout: ExpertLayout) -> FloatArray:
    """(L, E) the largest share that an expert has in any of the workloads of (L, W, E)."""
    largest = shares.max(axis=1)
    return np.asarray(largest * (layout.ranks / largest.sum(axis=1, keepdims=True)))


def _annealed(
    shares: FloatArray,
    held: list[IntArray],
    layout: ExpertLayout,
    factors: FloatArray | None,
    choice: CopyChoice,
    steps: int,
    seed: int,
) -> list[IntArray]:
    """(G, s) of each layer, annealed from ``held`` for the weighted balancedness of shares (L, W, E).

    Where the worst counts, each round gives workloads that are behind more weight; the best round's maps.
    """
    layers, count, _ = shares.shape
    cases = [balance.layer_case(row, [choice] * count, layout) for row in shares]
    hot = balance.HOT[choice]
    # maps for even copies start from balanced ones, which a high temperature would only spoil
    hots = (hot,) if choice is CopyChoice.ANY else balance.heats(layout, hot)
    current = np.full(count, 1.0 / count) if factors is None else factors
    best, best_worth = held, -np.inf
    for turn in range(ROUNDS if factors is None and count > 1 else 1):

        def better(
            layer: int, turn: int = turn, held: list[IntArray] = held, weights: FloatArray = current
        ) -> IntArray:
            first = seed + turn * layers + layer
            return balance.annealed(
                cases[layer], held[layer], weights, steps=SET_STEPS * steps, seed=first, hots=hots
            )

        held = _each(layers, better)
        slowest = [
            balance.slowest_load(row, ranks, layout, choice) for row, ranks in zip(shares, held, strict=True)
        ]
        means = (1.0 / np.array(slowest)).mean(axis=0)
        worth = float(means.min() if factors is None else means @ factors)
        if worth > best_worth:
            best, best_worth = held, worth
        current = current * np.exp(SHIFT * (means.mean() - means))
        current /= current.sum()
    return best


def _each(layers: int, do: Callable[[int], T]) -> list[T]:
    """Results of ``do`` for each layer: layers are independent, and compiled loops leave the interpreter free."""
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(do, range(layers)))


def _placed(
    workloads: Sequence[RoutedWorkload],
    layout: ExpertLayout,
    held: list[IntArray],
    layer_bounds: FloatArray,
    factors: FloatArray | None,
    choice: CopyChoice,
) -> Placed:
    rows = np.array([np.sort(ranks, axis=1).ravel() for ranks in held])
    reached = np.array([layer_balancedness(rows, workload.loads, layout, choice) for workload in workloads])
    bounds = np.maximum(np.minimum(layer_bounds, 1.0), reached)
    means, limits = reached.mean(axis=1), bounds.mean(axis=1)
    first = workloads[0]
    return Placed(
        slots=ExpertSlots(first.layers, tuple(tuple(row.tolist()) for row in rows), first.experts, layout.ranks),
        balancedness={workload.name: float(mean) for workload, mean in zip(workloads, means, strict=True)},
        layer_bounds=bounds,
        worth=float(means.min() if factors is None else means @ factors),
        bound=float(limits.min() if factors is None else limits @ factors),
    )
