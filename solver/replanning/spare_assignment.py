"""Spares for the slots that a job lost: all others stay where they are.

Spares that no matrix of times and no rule tells apart are tried once, so most problems are enumerated in full; wide
ones start from a matching and are improved by exchanges (docs/replanning.md).  Letters: k slots to fill, S spares,
N units of the site.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np
import scipy

from solver.candidates import FloatArray, IntArray
from solver.compiled import step_seconds, violations
from solver.placement.problem import PlacementProblem

ENUMERATED_EVENTS: Final = 2e7
"""Forwards and backwards simulated for all assignments that are enumerated, about 3 ns each."""
MOST_ENUMERATED: Final = 5000
SEARCHED_EVENTS: Final = 2e7
"""The same of the exchanges that improve a matching."""
MOST_SEARCHED: Final = 5000
BEYOND_ALL: Final = 1e18
"""Stands for what cannot be: an assignment that breaks a rule."""


@dataclass(frozen=True, slots=True, eq=False)
class Filled:
    """The best assignment (K,) found and its step time; ``is_best``: whether all others were compared."""

    assignment: IntArray
    step_s: float
    is_best: bool


def fill_slots(
    placement: PlacementProblem,
    home: IntArray,
    slots: Sequence[int],
    spares: Sequence[int],
    *,
    price_s: Mapping[int, float] = MappingProxyType({}),
    allowed: int = 0,
) -> Filled | None:
    """``home`` (K,) with its ``slots`` on different units of ``spares``, for the shortest step.

    ``price_s``: seconds of step that a unit must save to be worth taking.  Assignments that break more than
    ``allowed`` rules are left out; ``None`` where none is left.
    """
    if len(spares) < len(slots):
        return None
    types = _alike(placement, spares, price_s)
    judge = _judge(placement, home, slots, price_s, allowed)
    work = 2 * len(placement.schedule.rank) * placement.replicas
    ways = _ways(types, len(slots))
    limit = int(min(MOST_ENUMERATED, 1 + ENUMERATED_EVENTS / work))
    found = _at_most(ways, limit)
    if found is not None:
        best = min(found, key=judge)
        is_best = True
    else:
        most = int(min(MOST_SEARCHED, 1 + SEARCHED_EVENTS / work))
        best = _improved(_matched(placement, home, slots, types), types, judge, most)
        is_best = False
    if judge(best)[0] >= BEYOND_ALL:
        return None
    assignment = with_units(home, slots, best)
    return Filled(assignment, float(step_seconds(assignment, placement.arrays)[0]), is_best)


def exchanged(
    placement: PlacementProblem, assignment: IntArray, slots: Sequence[int], *, least_gain: float, allowed: int = 0
) -> IntArray:
    """``assignment`` (K,) with units of ``slots`` and others exchanged while each saves ``least_gain`` of a step.

    The best exchange first.  The units stay the same: a spare takes the place of a live unit, which takes the lost
    one's.
    """
    arrays, work = placement.arrays, 2 * len(placement.schedule.rank) * placement.replicas
    left = int(min(MOST_SEARCHED, 1 + SEARCHED_EVENTS / work))
    step_s = float(step_seconds(assignment, arrays)[0])
    while left > 0:
        tries = []
        for slot in slots:
            for other in np.setdiff1d(np.arange(len(assignment)), slots)[:left]:
                changed = assignment.copy()
                changed[slot], changed[other] = assignment[other], assignment[slot]
                left -= 1
                if int(violations(changed, arrays.rules)) <= allowed:
                    tries.append((float(step_seconds(changed, arrays)[0]), int(slot), int(other)))
        if not tries or min(tries)[0] > step_s * (1 - least_gain):
            break
        step_s, slot, other = min(tries)
        assignment = assignment.copy()
        assignment[slot], assignment[other] = assignment[other], assignment[slot]
    return assignment


def with_units(home: IntArray, slots: Sequence[int], units: Sequence[int]) -> IntArray:
    """``home`` (K,) with ``units`` on ``slots``."""
    assignment = home.copy()
    assignment[list(slots)] = units
    return assignment


def _judge(
    placement: PlacementProblem, home: IntArray, slots: Sequence[int], price_s: Mapping[int, float], allowed: int
) -> Callable[[Sequence[int]], tuple[float, float]]:
    """The step of the slots' units and their prices, then what tells equal ones apart."""
    arrays = placement.arrays

    def judged(units: Sequence[int]) -> tuple[float, float]:
        assignment = with_units(home, slots, units)
        if int(violations(assignment, arrays.rules)) > allowed:
            return BEYOND_ALL, BEYOND_ALL
        step_s, mean_s = step_seconds(assignment, arrays)
        return float(step_s) + sum(price_s.get(unit, 0.0) for unit in units), float(mean_s)

    return judged


def _alike(placement: PlacementProblem, spares: Sequence[int], price_s: Mapping[int, float]) -> list[list[int]]:
    """``spares`` grouped so that exchanging two of a group changes no step time; the cheapest first."""
    arrays = placement.arrays
    matrices = np.concatenate(
        [arrays.hop_s[None], arrays.cross_s, arrays.reduce_s, arrays.gather_s], axis=0, dtype=np.float64
    )
    rules = arrays.rules
    columns = np.concatenate(
        [
            arrays.slowdown[None],
            rules.eligible.astype(np.float64),
            rules.places.astype(np.float64),
            rules.quota_of.astype(np.float64),
            arrays.uplinks.above.astype(np.float64),
        ]
    )
    groups: list[list[int]] = []
    like: dict[bytes, list[list[int]]] = {}
    for spare in sorted(spares, key=lambda unit: (price_s.get(unit, 0.0), unit)):
        # units that can be exchanged send alike to the others and to each other
        known = like.setdefault(np.sort(np.delete(arrays.hop_s[spare], spare)).tobytes(), [])
        for group in known:
            if np.array_equal(columns[:, spare], columns[:, group[0]]) and _exchangeable(matrices, spare, group[0]):
                group.append(spare)
                break
        else:
            known.append([spare])
            groups.append(known[-1])
    return groups


def _exchangeable(matrices: FloatArray, a: int, b: int) -> bool:
    """Whether rows and columns of two units are equal but for where they meet themselves."""
    others = np.ones(matrices.shape[1], dtype=np.bool_)
    others[[a, b]] = False
    return (
        np.array_equal(matrices[:, a, others], matrices[:, b, others])
        and np.array_equal(matrices[:, others, a], matrices[:, others, b])
        and np.array_equal(matrices[:, a, b], matrices[:, b, a])
    )


def _ways(types: Sequence[Sequence[int]], slots: int) -> Iterator[list[int]]:
    """Every choice of a group for each slot, as units: of a group the first so many."""
    taken = [0] * len(types)
    chosen: list[int] = []

    def further() -> Iterator[list[int]]:
        if len(chosen) == slots:
            yield list(chosen)
            return
        for index, group in enumerate(types):
            if taken[index] < len(group):
                chosen.append(group[taken[index]])
                taken[index] += 1
                yield from further()
                taken[index] -= 1
                chosen.pop()

    return further()


def _at_most(ways: Iterator[list[int]], limit: int) -> list[list[int]] | None:
    """All of ``ways``, ``None`` where there are more than ``limit``."""
    found: list[list[int]] = []
    for way in ways:
        if len(found) == limit:
            return None
        found.append(way)
    return found


def _matched(
    placement: PlacementProblem, home: IntArray, slots: Sequence[int], types: Sequence[Sequence[int]]
) -> list[int]:
    """The assignment that is best if each spare's step time, the others as they were, could be added up."""
    arrays = placement.arrays
    cost = np.empty((len(slots), sum(map(len, types))))
    units = [unit for group in types for unit in group]
    group_of = np.repeat(np.arange(len(types)), [len(group) for group in types])
    for row, slot in enumerate(slots):
        seconds = []
        for group in types:
            step_s, mean_s = step_seconds(with_units(home, [slot], [group[0]]), arrays)
            seconds.append(float(step_s) + float(mean_s))
        cost[row] = np.array(seconds)[group_of]
        cost[row] += np.where(arrays.rules.eligible[slot, units], 0.0, BEYOND_ALL)
    return [units[column] for column in scipy.optimize.linear_sum_assignment(cost)[1]]


def _improved(
    start: list[int],
    types: Sequence[Sequence[int]],
    judge: Callable[[Sequence[int]], tuple[float, float]],
    most: int,
) -> list[int]:
    """``start`` after the first ``most`` tries of unused spares and exchanges, each taken where it is better."""
    best, best_judged = start, judge(start)
    tries, found_better = 0, True
    while found_better and tries < most:
        found_better = False
        for changed in _neighbours(best, types):
            tries += 1
            if (judged := judge(changed)) < best_judged:
                best, best_judged, found_better = changed, judged, True
                break
            if tries >= most:
                break
    return best


def _neighbours(units: list[int], types: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """``units`` with one of them replaced by an unused spare, or two exchanged."""
    unused = [next((unit for unit in group if unit not in units), None) for group in types]
    for index in range(len(units)):
        for unit in unused:
            if unit is not None:
                yield [*units[:index], unit, *units[index + 1 :]]
        for other in range(index + 1, len(units)):
            changed = list(units)
            changed[index], changed[other] = changed[other], changed[index]
            yield changed
