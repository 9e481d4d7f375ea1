"""Candidates to show beside a plan: the frontier of time against memory, and a sample of the others."""

from __future__ import annotations

from typing import Final

import numpy as np

from cluster_models.training.plan import TradeOff
from solver.candidates import BoolArray, FloatArray
from solver.degrees.priced import PricedCandidates
from solver.placement.build import degrees_of

SAMPLE: Final = 160
"""Candidates at most beside those on the frontier: enough for a cloud, little beside a plan."""
SLOWEST: Final = 2.5
"""Slower candidates than so many times the fastest would press all others into a corner of the picture."""


def trade_offs(candidates: PricedCandidates) -> tuple[TradeOff, ...]:
    """The frontier and a sample of the candidates that fit, evenly by rank of their bounds, the fastest first."""
    fits = np.flatnonzero(candidates.excess_bytes <= 0)
    order = fits[np.lexsort((candidates.excess_bytes[fits], candidates.bound_s[fits]))]
    order = order[candidates.bound_s[order] <= SLOWEST * candidates.bound_s[order].min(initial=np.inf)]
    frontier = _frontier(candidates.excess_bytes[order])
    others = np.flatnonzero(~frontier)
    sampled = others[np.unique(np.linspace(0, len(others) - 1, min(SAMPLE, len(others))).round().astype(np.int64))]
    shown = np.sort(np.concatenate([np.flatnonzero(frontier), sampled]))
    return tuple(
        TradeOff(
            degrees=degrees_of(candidates.batch.take(order[row : row + 1])),
            micro_batch=int(candidates.batch.micro_batch[order[row]]),
            step_bound_s=float(candidates.bound_s[order[row]]),
            spare_bytes=float(-candidates.excess_bytes[order[row]]),
            on_frontier=bool(frontier[row]),
        )
        for row in shown.tolist()
    )


def _frontier(excess_bytes: FloatArray) -> BoolArray:
    """Which of candidates that get slower need less memory than all that are faster."""
    least = np.minimum.accumulate(np.concatenate([[np.inf], excess_bytes]))[:-1]
    frontier: BoolArray = excess_bytes < least
    return frontier
