"""How well two configurations of one model on one cluster are known against each other.

Errors of a predicted step time are mostly common to both, so their ratio is better known than either.  The 80 %
interval of log(measured ratio / predicted ratio) grows with the doublings of tensor, pipeline, context and expert
parallel sizes from one to the other:

    half width = sqrt(settings^2 + doubling^2 * doublings)

fitted on pairs of measured runs of the same sweep (``benchmarks.differences``; docs/calibration.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist
from typing import Final

import numpy as np

from cluster_models.training.plan import Degrees
from solver.candidates import CandidateBatch, FloatArray
from solver.costs.confidence import LEVEL, confidence_tables

SHAPE: Final = ("tensor", "pipeline", "context", "expert")
"""The sizes whose doublings are counted; data parallel ranks follow from them and the GPUs."""
NORMAL: Final = NormalDist()
HALF_WIDTH: Final = NORMAL.inv_cdf((1 + LEVEL) / 2)
"""Half width of the interval over the standard deviation of a normal distribution."""


@dataclass(frozen=True, slots=True)
class DifferenceError:
    """Half widths for configurations of the same sizes, and for one doubling; on ``pairs`` of ``sweeps``."""

    settings: float
    doubling: float
    pairs: int
    sweeps: int

    def half_width(self, doublings: FloatArray | float) -> FloatArray:
        """Half width of the interval of the logarithm of a ratio."""
        width: FloatArray = np.sqrt(self.settings**2 + self.doubling**2 * np.asarray(doublings))
        return width

    def ratio_interval(self, ratio: float, doublings: float) -> tuple[float, float]:
        """The interval of the measured ratio where ``ratio`` is predicted."""
        reach = math.exp(float(self.half_width(doublings)))
        return ratio / reach, ratio * reach

    def chance_faster(self, slower_by: float, doublings: float) -> float:
        """Probability that a configuration predicted to be slower by the logarithm ``slower_by`` is the faster."""
        return NORMAL.cdf(-slower_by * HALF_WIDTH / float(self.half_width(doublings)))

    def slower_at(self, chance: float, doublings: FloatArray) -> FloatArray:
        """The ``slower_by`` at which ``chance_faster`` is ``chance``."""
        slower: FloatArray = NORMAL.inv_cdf(1 - chance) / HALF_WIDTH * self.half_width(doublings)
        return slower


@cache
def difference_error() -> DifferenceError:
    """As fitted on the sweeps of published steps."""
    return DifferenceError(**confidence_tables()["differences"])


def sizes_of(batch: CandidateBatch) -> FloatArray:
    """(n, 4) logarithms to base 2 of the sizes in ``SHAPE``."""
    sizes: FloatArray = np.log2(np.stack([getattr(batch, name) for name in SHAPE], axis=1))
    return sizes


def doublings(batch: CandidateBatch, row: int) -> FloatArray:
    """(n,) doublings and halvings from one row of ``batch`` to each."""
    sizes = sizes_of(batch)
    apart: FloatArray = np.abs(sizes - sizes[row]).sum(axis=1)
    return apart


def doublings_between(one: Degrees, other: Degrees) -> float:
    """Doublings and halvings of the sizes in ``SHAPE`` from one to the other."""
    return sum(abs(math.log2(getattr(one, name) / getattr(other, name))) for name in SHAPE)


def drawn_errors(batch: CandidateBatch, *, draws: int, seed: int) -> FloatArray:
    """(draws, n) errors of the rows, log(measured / predicted), without what is common to all.

    Any two differ as ``difference_error`` says: each size has an error that wanders over its logarithm like a
    random walk, and each row one of its own.
    """
    error, random = difference_error(), np.random.default_rng(seed)
    drawn: FloatArray = random.standard_normal((draws, len(batch))) * error.settings / np.sqrt(2.0)
    for column in sizes_of(batch).T:
        values, place = np.unique(column, return_inverse=True)
        strides = np.sqrt(np.diff(values, prepend=values[0]))
        drawn += (
            error.doubling * np.cumsum(random.standard_normal((draws, len(values))) * strides, axis=1)[:, place]
        )
    return drawn / HALF_WIDTH
