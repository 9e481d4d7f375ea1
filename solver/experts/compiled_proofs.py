"""Compiled: loads that no map of experts with copies can stay below (docs/experts.md has the proofs).

Letters: E experts, S slots, s slots of a rank; ``shares`` (E,); ``limit`` the load whose impossibility is to
be shown.  A proof gives each copy a value, so that the copies on one rank below the limit have a sum of at most 0;
when the values of all copies add up to more than 0 however many copies each expert gets, the limit cannot be met.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.kernels import inner, kernel

LIGHT: Final = 5
"""Counts of light copies that are told apart for each expert."""


@kernel
def fewest_copies(shares: FloatArray, limit: float) -> int:
    """Copies that are needed for none to carry more than ``limit``."""
    total = 0
    for e in range(len(shares)):
        total += max(1, int(np.ceil(shares[e] / limit * (1 - 1e-12))))
    return total


@kernel
def shown_by_slopes(shares: FloatArray, limit: float, slots: int, size: int, floors: FloatArray) -> bool:
    """Whether heavy copies, each alone among the lightest, show that ``limit`` cannot be met.

    With a floor ``x``: a copy above half the limit has the value ``max(v - limit + (s - 1) x, min(0, v - x))`` and
    every other ``min(0, v - x)``; ``floors`` are tried one after the other, for each the best price of a copy.
    """
    for x in floors:
        low, high = x, x + limit
        for _ in range(24):
            third = (high - low) / 3
            left = _slope_value(shares, limit, slots, size, x, low + third)
            right = _slope_value(shares, limit, slots, size, x, high - third)
            if max(left, right) > 1e-9 * slots:
                return True
            if left < right:
                low += third
            else:
                high -= third
    return False


@inner
def _slope_value(shares: FloatArray, limit: float, slots: int, size: int, floor: float, price: float) -> float:
    """Least sum over experts of ``r (value(w / r) + price)``, minus ``price`` times the slots; ``price >= floor``.

    Once copies are neither heavy nor above the floor, one more adds ``price - floor >= 0``: none further is tried.
    """
    total = -price * slots
    for e in range(len(shares)):
        count, least = max(1, int(np.ceil(shares[e] / limit * (1 - 1e-12)))), np.inf
        while True:
            v = shares[e] / count
            value = min(0.0, v - floor)
            if 2 * v > limit * (1 + 1e-12):
                value = max(value, v - limit + (size - 1) * floor)
            least = min(least, count * (value + price))
            if 2 * v <= limit and v <= floor:
                break
            count += 1
            if count > slots:
                break
        total += least
    return total


@kernel
def partner_options(
    shares: FloatArray, limit: float, most: int, gaps: FloatArray
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Counts of copies that matter where every heavy copy needs a light partner; two slots for a rank.

    Row ``i`` says: copies of at least ``limit - gaps[i]`` need as many copies of at most ``gaps[i]``.  Of each
    option the expert, the copies, the first row in which they need partners, and the first in which they are
    partners (``len(gaps)`` = none).  Beyond ``LIGHT`` counts that make light copies all others, up to ``most``, are
    taken for as light as ``most`` copies are: only the least and the most of them are listed.
    """
    rows = len(gaps)
    found = []
    for e in range(len(shares)):
        count, light = max(1, int(np.ceil(shares[e] / limit * (1 - 1e-12)))), 0
        while count <= most:
            v = shares[e] / count
            if 2 * v > limit:
                found.append((e, count, int(np.searchsorted(gaps, (limit - v) * (1 - 1e-9))), rows))
            elif light < LIGHT:
                found.append((e, count, rows, int(np.searchsorted(gaps, v * (1 - 1e-9)))))
                light += 1
            else:
                lightest = int(np.searchsorted(gaps, shares[e] / most * (1 - 1e-9)))
                found.append((e, count, rows, lightest))
                found.append((e, most, rows, lightest))
                break
            count += 1
    total = len(found)
    expert, copies = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    need, helps_from = np.empty(total, dtype=np.int64), np.empty(total, dtype=np.int64)
    for index in range(total):
        expert[index], copies[index], need[index], helps_from[index] = found[index]
    return expert, copies, need, helps_from


@kernel
def heavy_gaps(shares: FloatArray, limit: float, most: int) -> FloatArray:
    """Gaps ``limit - v`` of copies ``v`` above half the limit that some count makes."""
    found = []
    for e in range(len(shares)):
        count = max(1, int(np.ceil(shares[e] / limit * (1 - 1e-12))))
        while 2 * shares[e] > limit * count and count <= most:
            found.append(max(0.0, limit - shares[e] / count))
            count += 1
    return np.array(found)


@kernel
def counting_bound(shares: FloatArray, ranks: int, size: int) -> float:
    """The least load of the slowest rank without copies that counting the hottest experts allows.

    ``shares`` (ranks * size,) descending.  Of the ``j`` hottest either two share a rank, with at least the
    ``size - 2`` coldest, or each has its own, all of them together with at least the ``(size - 1) j`` coldest.
    """
    count = len(shares)
    cold = np.zeros(count + 1)
    for i in range(count):
        cold[i + 1] = cold[i] + shares[count - 1 - i]
    best, hot = cold[count] / ranks, 0.0
    for j in range(1, min(ranks + 1, count) + 1):
        hot += shares[j - 1]
        apart = (hot + cold[(size - 1) * j]) / j if j <= ranks else np.inf
        shared = shares[j - 2] + shares[j - 1] + cold[size - 2] if j > 1 and size > 1 else np.inf
        best = max(best, min(apart, shared))
    return float(best)
