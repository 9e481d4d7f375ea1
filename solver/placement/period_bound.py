"""A fast lower bound for hundreds of nodes, by routes whose periods are limited.

Proves a step impossible as ``solver.placement.branch_and_price`` does, without branches, with one resource for a
route instead of many paths, and with prices that are made of a few properties of the nodes (docs/placement.md, "The
period bound").
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from solver.candidates import BoolArray, FloatArray, IntArray
from solver.compiled_period_bound import ROOM, UNREACHED, next_layer, route_to
from solver.ilp import ModelBuilder, solve_relaxation
from solver.placement.bounds import placement_bound_s
from solver.placement.branch_and_price import tail_bound_s
from solver.placement.chains import Chains, chains_of
from solver.placement.period_limits import TOLERANCE, PeriodLimits, bucket, period_limits
from solver.placement.problem import PlacementProblem
from solver.placement.ring_floors import forced_floors

LEVELS: Final = 32
"""Levels of slack."""
MOST_STAGES: Final = 64
MOST_PRICES: Final = 24
"""Rounds of prices for one step time."""
RESOLUTION: Final = 1e-3
"""Share of the step time at which the bisection ends."""
NS_PER_LEVEL: Final = 1.0
"""Nanoseconds that a step between two nodes takes for each level."""
PROOF: Final = 1e-6
"""Cost of the routes beyond the nodes that makes a proof; prices lie near -1 to 1."""
FASTEST: Final = 5
"""Links whose mean is a property of a node."""


class PeriodPacking:
    """The question whether a step is possible, for one problem; prices are kept from one step time to the next."""

    def __init__(self, problem: PlacementProblem, found: Chains, limits: PeriodLimits, tail_s: float) -> None:
        """``limits`` with the reductions of ``found`` in; ``tail_s``: least optimizer step and parameter gather."""
        self._problem, self._chains, self._limits, self._tail_s = problem, found, limits, tail_s
        self._hop_s = problem.arrays.hop_s + problem.arrays.hop_s.T
        self._slow = np.maximum(problem.arrays.slowdown, 1.0)
        self._spare = problem.nodes > problem.slots
        self._properties = _properties(problem, found.ring_s, self._hop_s)
        self._weights = np.zeros(len(self._properties))
        self._weights[0] = 1.0
        self.work = 0.0

    def impossible(self, step_s: float, out_of_time: Callable[[], bool]) -> bool:
        """Whether it is proven that no assignment reaches ``step_s``."""
        limits, floor_s = self._limits, self._chains.ring_s
        may_be = limits.end_s[:, None] + floor_s <= step_s * (1.0 + TOLERANCE) - self._tail_s
        rows = bucket(limits.at(step_s))
        if rows is None:
            return False
        excess_s = limits.unit_s[:, None] * self._slow - rows.rate_s
        most_s = np.where(may_be, (rows.end_s + rows.start_s)[:, None] - excess_s, -np.inf)
        gain_s = -excess_s
        gain_s[1:] += np.diff(rows.end_s)[:, None]
        level_s = max(float(most_s.max()), 1e-12) / (LEVELS - 1.5)
        if (most_s.max(axis=1) < -ROOM * level_s).any():
            return True
        most = np.where(most_s < -ROOM * level_s, -1, np.ceil(np.maximum(most_s, 0.0) / level_s + ROOM)).astype(
            np.int64
        )
        return self._priced_out(gain_s, most, level_s, out_of_time)

    def _priced_out(
        self, gain_s: FloatArray, most: IntArray, level_s: float, out_of_time: Callable[[], bool]
    ) -> bool:
        """Whether prices were found that rule out routes with these gains (P, N) and levels (P, N)."""
        weights, best, highest = self._weights, self._weights, -np.inf
        slopes: list[FloatArray] = []
        for round_ in range(MOST_PRICES):
            prices = weights @ self._properties
            if self._spare:
                prices = np.maximum(prices, 0.0)
            values = self._layers(prices, gain_s, most, level_s, out_of_time)
            if values is None:
                return False
            ends = values[-1][:, 0]
            order = np.argsort(ends, kind="stable")[: self._chains.count]
            beyond = float(ends[order].sum() - prices.sum())
            if ends[order[-1]] >= UNREACHED or beyond > PROOF:
                self._weights = weights
                return True
            if beyond > highest:
                best, highest = weights, beyond
            routes = np.stack([route_to(values, self._hop_s, gain_s, level_s, int(end)) for end in order])
            visits = np.bincount(routes.ravel(), minlength=len(prices))
            slopes.append(self._properties @ (visits - 1.0))
            exact, promised = _promising(np.array(slopes))
            if promised < PROOF:
                return False
            weights = exact if round_ % 4 == 0 else 0.5 * (best + exact)
        return False

    def _layers(
        self,
        prices: FloatArray,
        gain_s: FloatArray,
        most: IntArray,
        level_s: float,
        out_of_time: Callable[[], bool],
    ) -> FloatArray | None:
        """(P, N, W) price of the cheapest route to each node with each slack; ``None`` when time is over."""
        levels = np.arange(LEVELS)
        values = np.empty((len(most), len(prices), LEVELS))
        values[0] = np.where(levels <= most[0][:, None], prices[:, None], UNREACHED)
        self.work += NS_PER_LEVEL * values.size * len(prices)
        for q in range(1, len(most)):
            if out_of_time():
                return None
            values[q] = next_layer(values[q - 1], self._hop_s, gain_s[q], most[q], prices, level_s)
        return values


def _promising(slopes: FloatArray) -> tuple[FloatArray, float]:
    """Weights (D,) within -1 .. 1 that all routes known, ``slopes`` (n, D) of them, leave most; and how much."""
    builder = ModelBuilder()
    weights = builder.add_columns(slopes.shape[1], lower=-1.0, upper=1.0)
    size = float(np.abs(slopes).sum(axis=1).max()) + 1.0
    beyond = int(builder.add_columns(1, lower=-size, upper=size, cost=-1.0)[0])
    for slope in slopes:
        terms = [(int(column), -float(each)) for column, each in zip(weights, slope, strict=True)]
        builder.add_row([(beyond, 1.0), *terms], upper=0.0)
    values = solve_relaxation(builder.build()).values
    if values is None:
        return np.zeros(slopes.shape[1]), 0.0
    return values[weights], float(values[beyond])


def _properties(problem: PlacementProblem, ring_s: FloatArray, hop_s: FloatArray) -> FloatArray:
    """(D, N) what prices are made of: the lower, the worse a node; within -1 and 1."""
    nodes, count = problem.nodes, problem.slots // problem.schedule.pipeline
    away_s = np.sort(hop_s + np.diag(np.full(nodes, np.inf)), axis=1)[:, :-1]
    middle, slow = away_s[:, away_s.shape[1] // 2], problem.arrays.slowdown
    raw = [away_s[:, :2].sum(axis=1), middle, away_s[:, :FASTEST].mean(axis=1), ring_s[0], slow]
    sizes = {min(size, nodes - 1) for size in (1, count // 2, count, 2 * count, 4 * count, nodes // 2)}
    for order in (np.argsort(-middle, kind="stable"), np.argsort(-slow, kind="stable")):
        raw += [_among(order[:size], nodes) for size in sorted(sizes)]
    kept = [_centred(np.where(np.isfinite(each), each, each[np.isfinite(each)].max(initial=0.0))) for each in raw]
    if nodes > problem.slots:
        kept.append(np.ones(nodes))
    different: BoolArray = np.array([bool(np.abs(each).max() > 0) for each in kept])
    return np.unique(np.array(kept)[different], axis=0) if different.any() else np.ones((1, nodes))


def _among(chosen: IntArray, nodes: int) -> FloatArray:
    inside = np.zeros(nodes)
    inside[chosen] = 1.0
    return inside


def _centred(values: FloatArray) -> FloatArray:
    """From its mean, downwards, at most 1 away; 0 where all are alike."""
    below = values.mean() - values
    size = float(np.abs(below).max())
    return below / size if size > 1e-12 * float(np.abs(values).max(initial=1.0)) else np.zeros_like(below)


def period_bound_s(
    problem: PlacementProblem,
    *,
    upper_s: float,
    target_s: float | None = None,
    work: float,
    out_of_time: Callable[[], bool] = lambda: False,
    known_s: float = 0.0,
) -> float:
    """Seconds that no assignment of ``problem`` can beat, at least ``known_s`` and at most ``upper_s``.

    Halves what is between the bound known and ``upper_s``, the step time of the best assignment known, until the
    bound reaches ``target_s``, they are close, or ``work`` (about as many nanoseconds) is spent.
    """
    bound_s = max(known_s, placement_bound_s(problem))
    found = chains_of(problem) if problem.schedule.pipeline <= MOST_STAGES and problem.nodes > 1 else None
    if found is None or bound_s >= upper_s:
        return min(bound_s, upper_s)
    forced_s = forced_floors(found.ring_s, found.count, problem.nodes - problem.slots)
    found = replace(found, ring_s=np.maximum(found.ring_s, forced_s[:, None]))
    tail_s = tail_bound_s(problem)
    limits = period_limits(problem, found, found.ring_s.min(axis=1) + tail_s, upper_s, out_of_time)
    if limits is None:
        return bound_s
    bound_s = max(bound_s, float((limits.end_s + found.ring_s.min(axis=1)).max()) + tail_s)
    packing, high_s = PeriodPacking(problem, found, limits, tail_s), upper_s
    while high_s - bound_s > RESOLUTION * upper_s and packing.work < work and not out_of_time():
        if target_s is not None and bound_s >= target_s:
            break
        step_s = 0.5 * (bound_s + high_s)
        if packing.impossible(step_s, out_of_time):
            bound_s = step_s
        else:
            high_s = step_s
    return min(bound_s, upper_s)
