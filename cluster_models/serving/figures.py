"""Figures that predictions and plans of serving share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and the range that four measurements in five fall into (docs/serving.md, section 6)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ClassLatencies:
    """Seconds that the limits of one class of requests hold for: means, or its percentile."""

    name: str
    first_token_s: float
    token_s: float
    answer_s: float


@dataclass(frozen=True, slots=True)
class LimitedLatencies:
    """Seconds that a workload's limits hold for, means or its percentile: over all requests, and in each class."""

    first_token_s: float
    token_s: float
    answer_s: float
    classes: tuple[ClassLatencies, ...] = ()

    @classmethod
    def of(cls, values_s: Sequence[float], names: Sequence[str]) -> LimitedLatencies:
        """The latencies in the order of ``ServingWorkload.limits_s``, of classes of these names."""
        columns = [list(values_s)[place::3] for place in range(3)]
        first, token, answer = (column[0] for column in columns)
        own = zip(names, *(column[1:] for column in columns), strict=True)
        return cls(first, token, answer, tuple(ClassLatencies(*each) for each in own))

    @property
    def values_s(self) -> tuple[float, ...]:
        """All of them in that order."""
        groups: tuple[LimitedLatencies | ClassLatencies, ...] = (self, *self.classes)
        return tuple(value for own in groups for value in (own.first_token_s, own.token_s, own.answer_s))

    def largest(self, others: Iterable[LimitedLatencies]) -> LimitedLatencies:
        """The largest of each among ``others``."""
        values = [max(column) for column in zip(*(each.values_s for each in others), strict=True)]
        return LimitedLatencies.of(values, [each.name for each in self.classes])


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Seconds that half, nine in ten and 99 in 100 requests do not exceed."""

    p50_s: float
    p90_s: float
    p99_s: float

    @property
    def values_s(self) -> tuple[float, float, float]:
        """The three."""
        return self.p50_s, self.p90_s, self.p99_s


@dataclass(frozen=True, slots=True)
class Replay:
    """Requests of a trace or drawn from classes, simulated step by step, and what the closed form expects of them.

    ``limited_s``: what limits hold for, as simulated; times per token are of answers of more than one.
    """

    requests: int
    first_token: Percentiles
    token: Percentiles
    expected_first_token: Percentiles
    expected_token: Percentiles
    limited_s: LimitedLatencies


@dataclass(frozen=True, slots=True)
class StepShares:
    """Seconds of one step by part."""

    dense_s: float
    expert_s: float
    attention_s: float
    collective_s: float
    overhead_s: float

    @property
    def total_s(self) -> float:
        """The whole step."""
        return self.dense_s + self.expert_s + self.attention_s + self.collective_s + self.overhead_s
