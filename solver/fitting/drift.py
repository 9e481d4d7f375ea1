"""Whether runs have become slower or faster than they were.

The runs are cut in two where the absolute deviations from the medians of both sides are least; the cut is a change
if chance would hardly make it (Mann and Whitney's test, with Bonferroni's correction), and if it matters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.candidates import FloatArray
from solver.fitting.patterns import BY_CHANCE, FEWEST, chance_of

MOST_CUTS: Final = 64
"""Cuts that are compared first; then those around the best."""
MATTERS: Final = math.log(1.03)
"""Change of a step that is worth telling."""


@dataclass(frozen=True, slots=True)
class Drift:
    """Measured over predicted of runs in the order of time: its median, and its 10th and 90th percentile.

    ``changed_at``: place of the first run after which they differ from those before, ``before`` and ``after`` the
    medians then; ``None`` where nothing changed but by chance.
    """

    runs: int
    ratio: float
    low: float
    high: float
    changed_at: int | None = None
    before: float | None = None
    after: float | None = None


def drift_of(log_ratios: Sequence[float]) -> Drift:
    """The drift of log(measured / predicted) of runs in the order of time, at least one."""
    values = np.array(log_ratios)
    low, middle, high = np.exp(np.quantile(values, (0.1, 0.5, 0.9))).tolist()
    found = Drift(len(values), middle, low, high)
    places = range(FEWEST, len(values) - FEWEST + 1)
    if not places:
        return found
    step = max(1, len(places) // MOST_CUTS)
    near = min(places[::step], key=lambda cut: _deviation(values, cut))
    cut = min(
        range(max(near - step, FEWEST), min(near + step, places[-1]) + 1), key=lambda cut: _deviation(values, cut)
    )
    before, after = float(np.median(values[:cut])), float(np.median(values[cut:]))
    chance = chance_of(values, np.arange(len(values)) >= cut) * len(places)
    if chance > BY_CHANCE or abs(after - before) < MATTERS:
        return found
    return Drift(len(values), middle, low, high, cut, math.exp(before), math.exp(after))


def _deviation(values: FloatArray, cut: int) -> float:
    """Sum of absolute deviations from the median on either side of a cut."""
    return float(sum(np.abs(side - np.median(side)).sum() for side in (values[:cut], values[cut:])))
