"""Nodes and links that measured steps point to: group testing over runs that share parts.

A synchronous job goes at the pace of its slowest part, so a part that took part in a run of usual speed is no
slower than that, and a part is suspected whose newest runs were all slow.  How likely chance alone makes such a
series is ``C(s, k) / C(r, k)`` for k runs of a part when s of r runs were slow (drawing without replacement), times
the series that were looked at (Bonferroni).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

FEWEST_RUNS: Final = 4
"""Runs of a group below which nobody knows its usual speed."""
FEWEST_SLOW: Final = 2
"""Slow runs in a row that a part must have had."""
USUAL: Final = 0.25
"""Quantile of a group's runs that is their usual speed: most may be slowed."""
LEAST: Final = 0.05
"""Quantile that tells with the usual one how much runs vary by themselves: slow runs move neither."""
LEAST_SLOWDOWN: Final = math.log(1.05)
LEAST_SPREAD: Final = 0.01
SPREADS: Final = 3.0
"""A run is slow beyond the usual speed by more than so many spreads."""
BY_CHANCE: Final = 0.05
_NORMAL: Final = 0.9704
"""Standard deviations of a normal distribution between the two quantiles."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured run: log(measured / predicted), what it is comparable with, and the parts that it used."""

    excess: float
    group: str
    parts: frozenset[str]


@dataclass(frozen=True, slots=True)
class SlowPart:
    """Parts that no run tells apart, one of which is slow.

    ``slowdown``: the least of their slow runs' steps over usual ones.  ``runs``: places of these in the order of
    the observations.  ``chance``: probability that runs fall so without a cause.
    """

    parts: tuple[str, ...]
    slowdown: float
    runs: tuple[int, ...]
    chance: float


def slow_parts(observations: Sequence[Observation]) -> tuple[SlowPart, ...]:
    """The parts that slow runs, in the order of time, point to; the one that explains most comes first."""
    excess = _beyond_usual(observations)
    left = {place for place, value in enumerate(excess) if value is not None and value > 0.0}
    judged = [place for place, value in enumerate(excess) if value is not None]
    slow, found = set(left), []
    series = _series(observations, judged, slow)
    while left:
        best = max(
            (each for each in series if len(left & set(each[1])) >= FEWEST_SLOW),
            key=lambda each: (len(left & set(each[1])), -each[2], each[0]),
            default=None,
        )
        if best is None:
            break
        parts, places, chance = best
        slowdown = math.exp(min(excess[place] or 0.0 for place in places))
        found.append(SlowPart(parts, slowdown, places, chance))
        left -= set(places)
    return tuple(found)


def _beyond_usual(observations: Sequence[Observation]) -> list[float | None]:
    """How far each run is beyond the usual of its group, 0 where that is usual; ``None`` in groups too small."""
    groups: dict[str, list[int]] = defaultdict(list)
    for place, each in enumerate(observations):
        groups[each.group].append(place)
    found: list[float | None] = [None] * len(observations)
    for places in groups.values():
        if len(places) < FEWEST_RUNS:
            continue
        values = np.array([observations[place].excess for place in places])
        least, usual = np.quantile(values, (LEAST, USUAL)).tolist()
        spread = max(LEAST_SPREAD, (usual - least) / _NORMAL)
        threshold = max(LEAST_SLOWDOWN, SPREADS * spread)
        for place, value in zip(places, values.tolist(), strict=True):
            found[place] = value - usual if value - usual > threshold else 0.0
    return found


def _series(
    observations: Sequence[Observation], judged: Sequence[int], slow: set[int]
) -> list[tuple[tuple[str, ...], tuple[int, ...], float]]:
    """Parts whose newest runs were all slow more often than by chance: alike ones, those runs, the chance."""
    runs_of: dict[str, list[int]] = defaultdict(list)
    for place in judged:
        for part in observations[place].parts:
            runs_of[part].append(place)
    alike: Mapping[tuple[int, ...], list[str]] = _by_runs(runs_of)
    looked_at = sum(len(places) for places in alike)
    found = []
    for places, parts in alike.items():
        newest = _slow_at_the_end(places, slow)
        if len(newest) < FEWEST_SLOW:
            continue
        chance = looked_at * _all_slow(len(newest), len(slow), len(judged))
        if chance <= BY_CHANCE:
            found.append((tuple(sorted(parts)), newest, min(chance, 1.0)))
    return found


def _by_runs(runs_of: Mapping[str, list[int]]) -> dict[tuple[int, ...], list[str]]:
    """Parts that the same runs used, by these."""
    alike: dict[tuple[int, ...], list[str]] = defaultdict(list)
    for part, places in runs_of.items():
        alike[tuple(places)].append(part)
    return alike


def _slow_at_the_end(places: Sequence[int], slow: set[int]) -> tuple[int, ...]:
    """The newest runs of a part back to the last one of usual speed."""
    fast = [index for index, place in enumerate(places) if place not in slow]
    return tuple(places[fast[-1] + 1 :] if fast else places)


def _all_slow(drawn: int, slow: int, runs: int) -> float:
    """Probability that ``drawn`` of the runs, drawn at random, are all slow."""
    return math.comb(slow, drawn) / math.comb(runs, drawn)
