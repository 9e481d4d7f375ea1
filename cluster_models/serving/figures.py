"""Figures that predictions and plans of serving share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure and the range that four measurements in five fall into (docs/serving.md, section 6)."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class LimitedLatencies:
    """Seconds that a workload's limits hold for, in the order of its ``limits_s``: means, or its percentile."""

    first_token_s: float
    token_s: float
    answer_s: float

    @property
    def values_s(self) -> tuple[float, float, float]:
        """The three in that order."""
        return self.first_token_s, self.token_s, self.answer_s


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
