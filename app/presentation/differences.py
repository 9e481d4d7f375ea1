"""Gains and losses of one step against another, in words whose figures add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cluster_models.training.rank_costs import TIME_PARTS, TimeBreakdown

MOST_PARTS: Final = 4
"""Parts of a step in which two plans differ that are named; the rest is summed up."""


def step_difference(time: TimeBreakdown, base: TimeBreakdown) -> str:
    """Gains and losses of ``time`` against ``base``: "(+0.21 s): pipeline bubble +0.20 s, all else +0.01 s"."""
    parts = [getattr(time, part) - getattr(base, part) for part in TIME_PARTS]
    return difference_words(time.step_s - base.step_s, tuple(TIME_PARTS), parts)


def difference_words(more_s: float, parts: Sequence[str], parts_more_s: Sequence[float]) -> str:
    """The same from the seconds more of the step and of each of ``parts``, fields of ``TimeBreakdown``.

    The largest parts come first, rounded so that they add up with all else.
    """
    unit, scale, places = ("s", 1.0, 2) if max(map(abs, (*parts_more_s, more_s))) >= 1 else ("ms", 1e3, 1)
    shown = sorted(zip(parts, parts_more_s, strict=True), key=lambda part: -abs(part[1]))[:MOST_PARTS]
    figures = [(TIME_PARTS[part], round(seconds * scale, places)) for part, seconds in shown]
    total = round(more_s * scale, places)
    figures.append(("all else", round(total - sum(figure for _, figure in figures), places)))
    listed = ", ".join(f"{name} {figure:+.{places}f} {unit}" for name, figure in figures if figure)
    return f"({total:+.{places}f} {unit}): {listed}"
