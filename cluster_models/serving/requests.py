"""Requests of several lengths: classes of a workload, with distributions of lengths and limits of their own."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from cluster_models.errors import InvalidWorkload

MOST_CLASSES: Final = 16
MOST_LENGTHS: Final = 100
"""Lengths that one distribution tells apart."""
LATENCIES: Final = ("time_to_first_token_s", "time_per_output_token_s", "end_to_end_s")
"""Latencies that may be limited, in the order of ``limits_of``."""
QUANTILE_STEPS: Final = (
    *(number / 20 for number in range(19)),
    *(0.9 + number / 100 for number in range(1, 10)),
    *(0.99 + number / 1000 for number in range(1, 11)),
)
"""Shares between which a distribution given by quantiles is one length each: finer where few requests are long."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Distribution of tokens: ``shares`` of the requests have ``tokens``, ascending; a single one is a constant."""

    tokens: tuple[float, ...]
    shares: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not 1 <= len(self.tokens) <= MOST_LENGTHS or len(self.shares) != len(self.tokens):
            problem = f"has {len(self.tokens)} lengths, at most {MOST_LENGTHS} are told apart"
            raise InvalidWorkload("lengths", None, problem, "join neighbours")
        if self.tokens[0] < 1 or any(two <= one for one, two in pairwise(self.tokens)):
            raise InvalidWorkload("lengths", self.tokens[0], "must be at least 1 and ascend")
        if not (all(share > 0 for share in self.shares) and math.isclose(sum(self.shares), 1.0, rel_tol=1e-9)):
            raise InvalidWorkload("lengths", sum(self.shares), "shares must be above 0 and add up to 1")

    @classmethod
    def counted(cls, counts: Sequence[tuple[float, float]]) -> Lengths:
        """The histogram of pairs (tokens, count); raises ``InvalidWorkload``."""
        positive = sorted((tokens, count) for tokens, count in counts if count > 0)
        total = sum(count for _, count in positive)
        if not positive or not math.isfinite(total):
            raise InvalidWorkload("histogram", None, "counts nothing", "give pairs of tokens and a count above 0")
        return cls(tuple(each for each, _ in positive), tuple(count / total for _, count in positive))

    @classmethod
    def from_quantiles(cls, quantiles: Sequence[tuple[float, float]]) -> Lengths:
        """Straight lines in log(tokens) between pairs (share, tokens); nothing is shorter or longer than they.

        Raises ``InvalidWorkload`` where lengths do not rise with the shares.
        """
        shares, tokens = zip(*sorted(quantiles), strict=True)
        for (below, one), (share, two) in pairwise(sorted(quantiles)):
            if share == below or two < one:
                problem = f"{share:g} of the requests have at most {two:g} tokens, {below:g} of them {one:g}"
                raise InvalidWorkload("quantiles", two, problem, "give lengths that rise with the shares")

        def at(share: float) -> float:
            place = bisect_right(shares, share)
            if place in (0, len(shares)):
                return float(tokens[0] if place == 0 else tokens[-1])
            part = (share - shares[place - 1]) / (shares[place] - shares[place - 1])
            return float(tokens[place - 1] ** (1 - part) * tokens[place] ** part)

        found: dict[float, float] = {}
        for low, high in pairwise(QUANTILE_STEPS):
            length = at(0.5 * (low + high))
            found[length] = found.get(length, 0.0) + high - low
        return cls.counted(list(found.items()))

    @property
    def mean(self) -> float:
        """Mean tokens."""
        return sum(share * each for share, each in zip(self.shares, self.tokens, strict=True))

    @property
    def mean_square(self) -> float:
        """Mean of the squares."""
        return sum(share * each * each for share, each in zip(self.shares, self.tokens, strict=True))


@dataclass(frozen=True, slots=True)
class RequestClass:
    """Requests of one kind, ``share`` of all; lengths of prompt and answer are independent of each other.

    ``prefix_share`` of a prompt is cached already.  Limits hold for the mean of the class, or for
    ``limit_percentile`` of its requests; ``None``: no limit.
    """

    name: str
    share: float
    inputs: Lengths
    outputs: Lengths
    prefix_share: float = 0.0
    time_to_first_token_s: float | None = None
    time_per_output_token_s: float | None = None
    end_to_end_s: float | None = None
    limit_percentile: float | None = None

    def __post_init__(self) -> None:
        if not (math.isfinite(self.share) and self.share > 0):
            raise InvalidWorkload("share", self.share, "must be above 0")
        if not 0 <= self.prefix_share < 1:
            raise InvalidWorkload("prefix_share", self.prefix_share, "must lie in [0, 1)")
        check_limits(self, "")

    @property
    def limits_s(self) -> tuple[float, float, float]:
        """Limits in the order of ``LATENCIES``, infinite where there is none."""
        return limits_of(self)

    @property
    def longest(self) -> float:
        """Tokens of its longest prompt and answer together."""
        return self.inputs.tokens[-1] + self.outputs.tokens[-1]

    @property
    def held_tokens(self) -> float:
        """Mean of O (I + O / 2): tokens held while an answer of O is decoded, times O."""
        return self.outputs.mean * self.inputs.mean + 0.5 * self.outputs.mean_square


def limits_of(limited: object) -> tuple[float, float, float]:
    """The three limits of a workload or class, infinite where there is none."""
    first, token, whole = (getattr(limited, name) for name in LATENCIES)
    return first or math.inf, token or math.inf, whole or math.inf


def check_limits(limited: object, prefix: str) -> None:
    """Raise ``InvalidWorkload`` for a limit or percentile that makes no sense; ``prefix`` is put before fields."""
    for name in LATENCIES:
        value = getattr(limited, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InvalidWorkload(f"{prefix}{name}", value, "must be a positive number of seconds")
    share = limited.limit_percentile  # type: ignore[attr-defined]  # both have one
    if share is not None and not 0.5 <= share < 1:
        raise InvalidWorkload(f"{prefix}limit_percentile", share, "must lie in [0.5, 1)", "0.9 is the 90th")
