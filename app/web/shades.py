"""Scales of colour from slow to fast: which of seven shades a value has, and the legend."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.presentation.figures import gbytes_per_s, percent
from app.web.drawing import Key

SHADES: Final = 7


@dataclass(frozen=True, slots=True)
class Scale:
    """``edges`` between the shades, rising, and the legend."""

    edges: tuple[float, ...]
    legend: tuple[Key, ...]

    def style(self, value: float) -> str:
        """Style of the shade of ``value``."""
        return f"heat-{SHADES - 1 - len(self.edges) + bisect_right(self.edges, value)}"


def rate_scale(values: Sequence[float]) -> Scale:
    """Bandwidths: steps of equal ratio with two digits, so that a slow link among fast ones shows."""
    low, high = min(values, default=0.0), max(values, default=0.0)
    if not 0 < low < high:
        return Scale((), (Key(f"heat-{SHADES - 1}", gbytes_per_s(high)),))
    steps = {_two_digits(low * (high / low) ** (step / SHADES)) for step in range(1, SHADES)}
    return _scale(sorted(step for step in steps if low < step < high), gbytes_per_s)


def share_scale(highest: float) -> Scale:
    """Shares from 0 up to ``highest``, in equal steps of whole percents."""
    steps = {math.ceil(100 * highest * step / SHADES) / 100 for step in range(1, SHADES)}
    return _scale(sorted(step for step in steps if 0 < step < highest), _whole_percent)


def _scale(edges: Sequence[float], words: Callable[[float], str]) -> Scale:
    first = SHADES - 1 - len(edges)
    texts = [f"below {words(edge)}" for edge in edges[:1]]
    texts += [f"{words(low)} and more" for low in edges]
    return Scale(tuple(edges), tuple(Key(f"heat-{first + index}", text) for index, text in enumerate(texts)))


def _two_digits(value: float) -> float:
    unit: float = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(value / unit) * unit


def _whole_percent(share: float) -> str:
    return percent(share, places=0)


SHARE_SCALE: Final = _scale((0.3, 0.6, 0.8, 0.9, 0.95, 1.05), _whole_percent)
"""Shares of a class: below 60 % a link stands out."""
LOAD_SCALE: Final = _scale((0.25, 0.5, 1.0, 2.0, 4.0, 8.0), "{:g}".format)
"""Loads over the mean load."""
DIRECTION_SCALE: Final = _scale((0.5, 0.7, 0.85, 0.95, 1.05, 1.4), _whole_percent)
"""One direction over the other: equal in the shade before the last but one."""
