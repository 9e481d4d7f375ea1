"""Documents of mixed lengths in a training run's sequences."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist
from typing import Final

from cluster_models.errors import InvalidWorkload

LONGEST_DOCUMENT: Final = 100_000_000
MOST_LENGTHS: Final = 512
"""Distinct lengths of one distribution; longer tables are summed up by ``MixedLengths.of``."""
LARGEST_SIGMA: Final = 5.0
_QUANTILES: Final = 128
"""Lengths, of equal shares, that stand for a distribution given by its shape."""


class Packing(StrEnum):
    """How documents fill a sequence."""

    PADDED = "padded"
    """One a sequence, padded to its end."""
    LONGEST = "longest"
    """One a sequence, padded to the longest of its micro-batch."""
    WHOLE = "whole"
    """As many as fit, each whole: the longest first, each where the least room is left (TRL's ``bfd``)."""
    CUT = "cut"
    """One behind the other, cut where a sequence ends, as pre-training does: nothing is padded."""

    @property
    def joins(self) -> bool:
        """Whether several documents share a sequence."""
        return self in (Packing.WHOLE, Packing.CUT)


class Balance(StrEnum):
    """Which data rank trains on which sequence."""

    DRAWN = "drawn"
    """Whichever come next."""
    PAIRS = "pairs"
    """Sequences of one step, dealt by attended pairs, most first, back and forth among the ranks."""
    EVEN = "even"
    """As if every rank had the mean in every micro-batch: what no dealing beats."""


@dataclass(frozen=True, slots=True)
class MixedLengths:
    """Documents of ``lengths`` tokens, increasing, each a share of all documents (``shares`` add up to 1).

    A token attends to its own document only.  Documents longer than a sequence are cut into pieces.
    """

    lengths: tuple[int, ...]
    shares: tuple[float, ...]
    packing: Packing = Packing.CUT
    balance: Balance = Balance.DRAWN

    def __post_init__(self) -> None:
        field = "workload.lengths.tokens"
        if not 1 <= len(self.lengths) <= MOST_LENGTHS or len(self.lengths) != len(self.shares):
            raise InvalidWorkload(
                field, len(self.lengths), f"must name 1..{MOST_LENGTHS} lengths, each with a share"
            )
        if not 1 <= min(self.lengths) <= max(self.lengths) <= LONGEST_DOCUMENT:
            raise InvalidWorkload(
                field, [min(self.lengths), max(self.lengths)], f"documents have 1..{LONGEST_DOCUMENT} tokens"
            )
        if list(self.lengths) != sorted(set(self.lengths)):
            raise InvalidWorkload(field, list(self.lengths)[:8], "must increase", "name each length once")
        if min(self.shares) <= 0 or not math.isclose(sum(self.shares), 1.0, rel_tol=1e-6):
            raise InvalidWorkload(
                "workload.lengths.shares", sum(self.shares), "must be positive and add up to 1", "or give counts"
            )

    @classmethod
    def of(
        cls,
        counts: Mapping[int, float],
        packing: Packing = Packing.CUT,
        balance: Balance = Balance.DRAWN,
    ) -> MixedLengths:
        """Documents by how many have each length; near ones are summed up where there are many lengths.

        Raises ``InvalidWorkload`` where a count is not a positive number, or there is none.
        """
        total = sum(counts.values())
        if not counts or min(counts.values()) < 0 or not 0 < total < math.inf:
            raise InvalidWorkload(
                "workload.lengths.counts", total, "must say how many documents have each length, from 0 up"
            )
        pairs = [(length, counts[length] / total) for length in sorted(counts) if counts[length]]
        lengths, shares = zip(*_summed(pairs), strict=True)
        return cls(lengths, shares, packing, balance)

    @classmethod
    def log_normal(
        cls,
        median: float,
        sigma: float,
        packing: Packing = Packing.CUT,
        balance: Balance = Balance.DRAWN,
    ) -> MixedLengths:
        """Documents whose logarithms of lengths are normal, ``sigma`` their standard deviation, above 0."""
        normal = NormalDist(math.log(median), sigma)
        middles = ((each + 0.5) / _QUANTILES for each in range(_QUANTILES))
        lengths = (max(1, round(math.exp(normal.inv_cdf(middle)))) for middle in middles)
        return cls.of(_counted(min(length, LONGEST_DOCUMENT) for length in lengths), packing, balance)

    @property
    def mean(self) -> float:
        """Mean tokens of a document."""
        return sum(length * share for length, share in zip(self.lengths, self.shares, strict=True))


def _counted(lengths: Iterable[int]) -> dict[int, float]:
    counts: dict[int, float] = {}
    for length in lengths:
        counts[length] = counts.get(length, 0.0) + 1.0
    return counts


def _summed(pairs: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most ``MOST_LENGTHS`` lengths: neighbours with the share of all of them, at their mean length."""
    step = -(-len(pairs) // MOST_LENGTHS)
    if step == 1:
        return pairs
    found: dict[int, float] = {}
    for first in range(0, len(pairs), step):
        some = pairs[first : first + step]
        share = sum(each for _, each in some)
        length = round(sum(tokens * each for tokens, each in some) / share)
        found[length] = found.get(length, 0.0) + share
    return sorted(found.items())
