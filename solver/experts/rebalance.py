"""The cheapest moves of experts from a running map to a target balance for new counts, and whether they pay.

Letters: L layers, G ranks, s slots of a rank.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from cluster_models.errors import InvalidInput
from cluster_models.routing.counts import RoutedWorkload
from cluster_models.training.expert_slots import ExpertSlots
from solver.candidates import FloatArray, IntArray
from solver.experts.layer_frontiers import LayerFrontier, Point, layer_frontiers
from solver.experts.layout import ExpertLayout
from solver.experts.least_moves import least_moves_in_all
from solver.experts.loads import balancedness, rank_loads
from solver.experts.moves import Move, MoveCosts, kept_in_place, ordered_moves

STEPS: Final = 4000
GRAIN: Final = 8
"""Prices of loads are weighed in parts of so many to the cheapest load."""
SHARES_OF_RANKS: Final = 6
"""Without a target: moves are valued as if 1, 2, 4, .. of all ranks loaded at once; the best of these is taken."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How time hangs on balance.

    ``seconds_per_load``: of one step in one layer when the slowest rank carries just what balanced ranks would; a
    rank with twice that takes twice as long.  ``least_s``: of a step in one layer, however little ranks carry: they
    read their experts' weights all the same.  ``steps``: until the map will be looked at again.
    Raises ``InvalidInput``.
    """

    seconds_per_load: float
    steps: float
    least_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("seconds_per_load", "steps", "least_s"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidInput(f"pace.{name}", value, "must be a number from 0 on")

    def layer_s(self, slowest: float) -> float:
        """Seconds of one layer in a step when the slowest rank carries so much, 1 = balanced."""
        return max(self.seconds_per_load * slowest, self.least_s)


@dataclass(frozen=True, slots=True, eq=False)
class Rebalanced:
    """Moves and what they bring.

    ``slots``: the map after all of them, experts that stay in the slots they had.  ``moves``: in an order in which
    each expert has a copy at any moment, layer by layer; ``spare_buffers``: of one expert each, that a rank needs
    while a layer moves.  ``move_s``: until the busiest rank is done; ``gain_s_per_step``: of all layers together.
    ``pays``: the gain until the map is looked at again exceeds ``move_s``; otherwise leave it alone.
    ``least_moves``: no map that reaches ``target`` needs fewer, ``None`` where none reaches it; ``reached``: the
    new map does.  ``frontier`` of each layer: (moves, balancedness), from leaving it alone on.
    """

    slots: ExpertSlots
    moves: tuple[Move, ...]
    bytes_inside: float
    bytes_between: float
    move_s: float
    gain_s_per_step: float
    break_even_steps: float
    pays: bool
    balancedness_before: float
    balancedness: float
    target: float | None
    reached: bool
    least_moves: int | None
    spare_buffers: int
    frontier: tuple[tuple[tuple[int, float], ...], ...]


def rebalance(
    running: ExpertSlots,
    workload: RoutedWorkload,
    layout: ExpertLayout,
    *,
    costs: MoveCosts,
    pace: Pace,
    target: float | None = None,
    steps: int = STEPS,
    seed: int = 0,
) -> Rebalanced:
    """The cheapest moves found that bring the mean balancedness of layers under new counts to ``target``.

    Without a target: those with the greatest gain until the map is looked at again less the seconds they take,
    which may be none.  Where the target cannot be reached, what comes nearest.  Raises ``InvalidInput``.
    """
    _check(running, workload, layout, target)
    rows = np.array(running.slots)
    before = rows.reshape(len(rows), layout.ranks, layout.slots_per_rank)
    shares = workload.shares() * layout.ranks
    far = costs.between_s_per_byte / costs.inside_s_per_byte
    frontiers = layer_frontiers(before, shares, layout, far=far, steps=steps, seed=seed)
    work = _Work(running, workload, layout, costs, pace, frontiers)
    if target is not None:
        return work.answer(cheapest_points(frontiers, target), target)
    answers = [work.answer(points, None) for points in _profitable(frontiers, layout, costs, pace)]
    return max(answers, key=lambda answer: answer.gain_s_per_step * pace.steps - answer.move_s)


def cheapest_points(frontiers: Sequence[LayerFrontier], target: float) -> list[Point]:
    """A point of each layer with the least price in all whose mean balancedness reaches ``target``.

    Exact up to ``GRAIN`` by dynamic programming over prices; all layers at their best where none reaches it.
    """
    missing = target * len(frontiers) - sum(1 / layer.points[-1].slowest for layer in frontiers)
    if missing >= -1e-9:
        return [layer.points[-1] for layer in frontiers]
    prices = [[math.ceil(point.price * GRAIN - 1e-6) for point in layer.points] for layer in frontiers]
    most = _enough(frontiers, prices, target)
    best = np.zeros(most + 1)
    picks = np.zeros((len(frontiers), most + 1), dtype=np.int64)
    for number, layer in enumerate(frontiers):
        reached = np.full(most + 1, -np.inf)
        for index, (point, price) in enumerate(zip(layer.points, prices[number], strict=True)):
            if price > most:
                continue
            tried = np.full(most + 1, -np.inf)
            tried[price:] = best[: most + 1 - price] + 1 / point.slowest
            picks[number][tried > reached] = index
            reached = np.maximum(reached, tried)
        best = reached
    left = int(np.flatnonzero(best >= target * len(frontiers) - 1e-12)[0])
    chosen = []
    for number in range(len(frontiers) - 1, -1, -1):
        index = int(picks[number, left])
        chosen.append(frontiers[number].points[index])
        left -= prices[number][index]
    return chosen[::-1]


def _enough(frontiers: Sequence[LayerFrontier], prices: Sequence[Sequence[int]], target: float) -> int:
    """A price at which the target is reached for certain: the best step for its price, one after the other."""
    at = [0] * len(frontiers)
    worth = sum(1 / layer.points[0].slowest for layer in frontiers)
    while worth < target * len(frontiers) - 1e-12:
        steps = (
            (1 / point.slowest - 1 / layer.points[at[number]].slowest, number, index)
            for number, layer in enumerate(frontiers)
            for index, point in enumerate(layer.points)
            if index > at[number]
        )
        rise, number, index = max(
            steps, key=lambda step: step[0] / max(1, prices[step[1]][step[2]] - prices[step[1]][at[step[1]]])
        )
        worth += rise
        at[number] = index
    return sum(prices[number][index] for number, index in enumerate(at))


def _profitable(
    frontiers: Sequence[LayerFrontier], layout: ExpertLayout, costs: MoveCosts, pace: Pace
) -> list[list[Point]]:
    """Choices of a point in each layer, by what moves would cost if more or fewer ranks loaded at once."""
    unit = costs.expert_bytes * costs.inside_s_per_byte
    choices = [[layer.points[0] for layer in frontiers]]
    for halving in range(SHARES_OF_RANKS):
        price = unit / max(1.0, layout.ranks / 2**halving)
        choices.append(
            [
                min(layer.points, key=lambda p: pace.steps * pace.layer_s(p.slowest) + price * p.price)
                for layer in frontiers
            ]
        )
    return choices


@dataclass(frozen=True, slots=True, eq=False)
class _Work:
    """Inputs of an answer."""

    running: ExpertSlots
    workload: RoutedWorkload
    layout: ExpertLayout
    costs: MoveCosts
    pace: Pace
    frontiers: Sequence[LayerFrontier]

    def answer(self, points: Sequence[Point], target: float | None) -> Rebalanced:
        """The moves to the map of each layer in ``points``, and what they bring."""
        moves, rows, spare = self._moves(points)
        loads, layout = self.workload.loads, self.layout
        old, new = np.array(self.running.slots), np.array(rows)
        seconds = self.costs.seconds(moves, layout.ranks)
        before, after = (
            sum(map(self.pace.layer_s, _slowest(rows, self.workload, layout).tolist())) for rows in (old, new)
        )
        gain = before - after
        inside = sum(move.same_node for move in moves)
        reached = balancedness(new, loads, layout)
        stairs = [layer.stairs for layer in self.frontiers]
        return Rebalanced(
            slots=ExpertSlots(self.running.layers, tuple(map(tuple, rows)), self.running.experts, layout.ranks),
            moves=tuple(moves),
            bytes_inside=inside * self.costs.expert_bytes,
            bytes_between=(len(moves) - inside) * self.costs.expert_bytes,
            move_s=seconds,
            gain_s_per_step=gain,
            break_even_steps=seconds / gain if gain > 0 else math.inf if moves else 0.0,
            pays=gain * self.pace.steps > seconds,
            balancedness_before=balancedness(old, loads, layout),
            balancedness=reached,
            target=target,
            reached=target is None or reached >= target - 1e-9,
            least_moves=0 if target is None else least_moves_in_all(stairs, target),
            spare_buffers=spare,
            frontier=tuple(tuple((p.loads, 1 / p.slowest) for p in layer.points) for layer in self.frontiers),
        )

    def _moves(self, points: Sequence[Point]) -> tuple[list[Move], list[list[int]], int]:
        moves: list[Move] = []
        rows: list[list[int]] = []
        sent: Counter[int] = Counter()
        spare = 0
        for layer, before, point in zip(self.running.layers, self.running.slots, points, strict=True):
            after = kept_in_place(before, point.held, self.layout)
            own, buffers = ordered_moves(layer, before, after, self.layout, sent)
            moves.extend(own)
            rows.append(after)
            spare = max(spare, buffers)
        return moves, rows, spare


def _slowest(rows: IntArray, workload: RoutedWorkload, layout: ExpertLayout) -> FloatArray:
    """(L,) the load of the slowest rank, 1 = balanced."""
    return np.asarray(rank_loads(rows, workload.shares() * layout.ranks, layout).max(axis=1))


def _check(running: ExpertSlots, workload: RoutedWorkload, layout: ExpertLayout, target: float | None) -> None:
    if (running.layers, running.experts) != (workload.layers, workload.experts):
        raise InvalidInput(
            "experts.workload",
            workload.name,
            f"counts {len(workload.layers)} layers of {workload.experts} experts, the running map has "
            f"{len(running.layers)} of {running.experts}",
            "give counts of the layers that the map has",
        )
    if (running.ranks, running.count) != (layout.ranks, layout.slots):
        raise InvalidInput(
            "experts.layout",
            (layout.ranks, layout.slots),
            f"the running map has {running.ranks} ranks and {running.count} slots",
        )
    if target is not None and not 0 < target <= 1:
        raise InvalidInput("experts.target", target, "must be above 0 and at most 1")
