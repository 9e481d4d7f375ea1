"""How many experts must be loaded at least before ranks can be balanced.  Proofs: docs/experts.md.

Letters: E experts, G ranks, s slots of a rank.  Shares are scaled so that balanced ranks all carry 1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.layout import ExpertLayout
from solver.ilp import IlpStatus, ModelBuilder, solve_relaxation

ROUNDING: Final = 1e-9


def least_moves(shares: FloatArray, held: IntArray, layout: ExpertLayout, limit: float) -> int:
    """No fewer loads into slots of ``held`` (G, s) leave all ranks with at most ``limit`` of load over speed."""
    counts = np.bincount(held.ravel(), minlength=len(shares))
    pieces = (shares / counts)[held]
    room = limit * layout.relative_speeds() - pieces.sum(axis=1)
    over = np.flatnonzero(room < -ROUNDING)
    if not len(over):
        return 0
    if layout.slots == len(shares):
        return _without_copies(pieces, room)
    return _with_copies(shares, held, counts, room)


def _without_copies(pieces: FloatArray, room: FloatArray) -> int:
    """Each overloaded rank changes its heaviest slots, and as many others as can absorb the excess."""
    loads = 0
    for rank in np.flatnonzero(room < -ROUNDING).tolist():
        lightest = np.sort(np.delete(pieces, rank, axis=0), axis=None)[: pieces.shape[1]]
        freed = np.cumsum(np.sort(pieces[rank])[::-1] - lightest)
        enough = np.flatnonzero(np.maximum.accumulate(freed) >= -room[rank] - ROUNDING)
        loads += int(enough[0]) + 1 if len(enough) else pieces.shape[1]
    taken = np.cumsum(np.sort(room[room > 0])[::-1])
    enough = np.flatnonzero(taken >= -room[room < 0].sum() - ROUNDING)
    return loads + (int(enough[0]) + 1 if len(enough) else 1)


def _with_copies(shares: FloatArray, held: IntArray, counts: IntArray, room: FloatArray) -> int:
    """A linear program: slots of overloaded ranks that change, and copies added of experts that they hold."""
    over = np.flatnonzero(room < -ROUNDING)
    size = held.shape[1]
    builder = ModelBuilder()
    loads = builder.add_columns(1, cost=1.0)[0]
    slots = builder.add_columns(len(over) * size, upper=1.0).reshape(len(over), size)
    experts = np.unique(held[over])
    added = dict(zip(experts.tolist(), builder.add_columns(len(experts)).tolist(), strict=True))
    thinner = shares / (counts * (counts + 1))
    builder.add_row([(int(loads), 1.0), *((column, -1.0) for column in added.values())], lower=0.0)
    builder.add_row([(int(loads), 1.0), *((int(column), -1.0) for column in slots.ravel())], lower=0.0)
    for columns, rank in zip(slots, over.tolist(), strict=True):
        terms = [(int(column), float(shares[e] / counts[e])) for column, e in zip(columns, held[rank], strict=True)]
        terms += [(added[e], float(thinner[e])) for e in held[rank].tolist()]
        builder.add_row(terms, lower=float(-room[rank]))
    outcome = solve_relaxation(builder.build())
    if outcome.status is IlpStatus.INFEASIBLE:
        return held.size
    return max(1, math.ceil(outcome.bound - 1e-6)) if outcome.status is IlpStatus.OPTIMAL else 1


def least_moves_in_all(stairs: Sequence[Sequence[tuple[float, float]]], target: float) -> int | None:
    """No fewer loads in all layers together give a mean of at least ``target``; ``None``: out of reach.

    ``stairs`` of each layer: (loads, balancedness that no map with fewer loads than those of the next stair
    exceeds), from 0 loads on, both increasing.  The linear relaxation: along the upper hull of each layer.
    """
    base = sum(points[0][1] for points in stairs)
    missing = target * len(stairs) - base
    if missing <= ROUNDING:
        return 0
    steps = [step for points in stairs for step in _hull_steps(points)]
    steps.sort(key=lambda step: step[1] / step[0], reverse=True)
    loads = 0.0
    for run, rise in steps:
        if rise >= missing - ROUNDING:
            return math.ceil(loads + run * max(0.0, missing - ROUNDING) / rise - 1e-6)
        loads += run
        missing -= rise
    return None


def _hull_steps(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """(loads, balancedness) from point to point of the upper concave hull."""
    hull: list[tuple[float, float]] = []
    for x, y in points:
        while len(hull) > 1 and (hull[-1][1] - hull[-2][1]) * (x - hull[-1][0]) <= (y - hull[-1][1]) * (
            hull[-1][0] - hull[-2][0]
        ):
            hull.pop()
        if not hull or y > hull[-1][1]:
            hull.append((x, y))
    return [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(hull)]
