"""Estimated times of what is done with jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class TimeRange:
    """Seconds, low and high (estimated)."""

    low_s: float = 0.0
    high_s: float = 0.0

    @property
    def middle_s(self) -> float:
        """Mean of both, with which decisions reckon."""
        return (self.low_s + self.high_s) / 2


NO_TIME: Final = TimeRange()
