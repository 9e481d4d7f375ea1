"""How many copies each expert of a layer gets: several answers, of which searches start from the best ones.

Letters: E experts, S slots, G ranks.  Shares (E,) are scaled so that balanced ranks all carry 1.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.candidates import FloatArray, IntArray
from solver.experts.layout import ExpertLayout

_HEAVIEST: Final = np.geomspace(1.0, 0.2, 16)
"""Loads of a copy, in those of a balanced rank, up to which hot experts are split."""
_ROUNDING: Final = 1e-9


def greedy_counts(shares: FloatArray, slots: int, most: int) -> IntArray:
    """(E,) copies, ``slots`` in all: each next one to the largest load per copy, at most ``most`` of an expert."""
    counts = np.ones(len(shares), dtype=np.int64)
    for _ in range(slots - len(shares)):
        counts[np.argmax(np.where(counts < most, shares / counts, -1.0))] += 1
    return counts


def several_counts(shares: FloatArray, layout: ExpertLayout) -> list[IntArray]:
    """Counts of copies that differ in how far hot experts are split, (E,) each.

    The thinnest copies are not always the best: two of 0.6 of a balanced rank's load each do not share a rank, and
    one of 0.8 with cold company fills it.  So hot experts are split down to a load, for several loads, and slots
    that are left go to the coldest experts, which need no room on any rank.
    """
    found = [greedy_counts(shares, layout.slots, layout.ranks)]
    coldest = np.argsort(shares, kind="stable")
    for heaviest in _HEAVIEST:
        counts = np.clip(np.ceil(shares / heaviest - _ROUNDING), 1, layout.ranks).astype(np.int64)
        if counts.sum() <= layout.slots:
            found.append(_filled_up(counts, coldest, layout))
    return found


def _filled_up(counts: IntArray, order: IntArray, layout: ExpertLayout) -> IntArray:
    """``counts`` with one further copy for each expert in turn until no slot is left."""
    filled = counts.copy()
    left = layout.slots - int(filled.sum())
    while left > 0:
        more = order[filled[order] < layout.ranks][:left]
        filled[more] += 1
        left -= len(more)
    return filled
