"""One configuration against another on the same cluster, model and workload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cluster_models.training.plan import TIME_PARTS, TimeBreakdown

MOST_PARTS: Final = 4
"""Parts of a step in which two plans differ that are named; the rest is summed up."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a configuration stands to the plan that it is compared with.

    ``objective_ratio``: its predicted objective over the plan's.  The measured ratio is expected between
    ``ratio_low`` and ``ratio_high`` with probability ``level``, and below 1 with probability ``chance_better``.
    """

    objective_ratio: float
    ratio_low: float
    ratio_high: float
    level: float
    chance_better: float

    @property
    def can_be_told(self) -> bool:
        """Whether predictions can tell which of the two is the better one."""
        return not self.ratio_low <= 1 <= self.ratio_high


@dataclass(frozen=True, slots=True)
class StepDifference:
    """Gains and losses of a step against another, rounded so that the printed figures add up.

    ``total`` and ``parts``, largest first, are in ``unit`` with ``places`` digits behind the point.
    """

    unit: str
    places: int
    total: float
    parts: tuple[tuple[str, float], ...]

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {figure:+.{self.places}f} {self.unit}" for name, figure in self.parts if figure)
        return f"({self.total:+.{self.places}f} {self.unit}): {listed}"


def step_difference(time: TimeBreakdown, base: TimeBreakdown) -> StepDifference:
    """The gains and losses of ``time`` against ``base``."""
    more = time.step_s - base.step_s
    parts = {name: getattr(time, part) - getattr(base, part) for part, name in TIME_PARTS.items()}
    unit, scale, places = ("s", 1.0, 2) if max(map(abs, (*parts.values(), more))) >= 1 else ("ms", 1e3, 1)
    shown = sorted(parts.items(), key=lambda part: -abs(part[1]))[:MOST_PARTS]
    figures = [(name, round(seconds * scale, places)) for name, seconds in shown]
    total = round(more * scale, places)
    figures.append(("all else", round(total - sum(figure for _, figure in figures), places)))
    return StepDifference(unit, places, total, tuple(figures))
