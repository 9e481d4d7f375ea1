"""Drawings as values: boxes, lines and words with their places, which one template macro writes as SVG.

Lengths are CSS pixels.  Colours are not named here: ``style`` is a class of the style sheet, so that a dark
page, a light page and a page with forced colours can each choose their own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_ROUND_RATIOS: Final = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 5.0, 10.0), (0.98, 0.95, 0.9, 0.8, 0.5, 0.2, 0.1)


@dataclass(frozen=True, slots=True)
class Box:
    """A filled rectangle; ``tip`` is read out and shown on hover, ``address`` is where a click leads."""

    x: float
    y: float
    width: float
    height: float
    style: str
    tip: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    style: str


@dataclass(frozen=True, slots=True)
class Words:
    """Text; ``anchor`` is the end of it that stands at ``x`` (start, middle or end)."""

    x: float
    y: float
    text: str
    style: str = "tick"
    anchor: str = "start"


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    style: str
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A whole picture; ``name`` says what it is, ``description`` what it shows.

    ``shrinks``: on a narrow page it gets smaller as a whole instead of being scrolled.
    """

    width: float
    height: float
    name: str
    description: str
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...] = ()
    words: tuple[Words, ...] = ()
    legend: tuple[Key, ...] = ()
    shrinks: bool = False


def round_steps(highest: float, *, wanted: int = 5) -> tuple[float, ...]:
    """Multiples of 1, 2 or 5 times a power of ten from 0 up to ``highest``, about ``wanted`` of them."""
    if not (math.isfinite(highest) and highest > 0):
        return (0.0,)
    rough = highest / wanted
    power = 10 ** math.floor(math.log10(rough))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    return tuple(index * step for index in range(int(highest / step * (1 + 1e-9)) + 1))


def round_ratios(extent: float, *, apart: float) -> tuple[float, ...]:
    """1 and ratios of round percents within ``extent`` of it, ``apart`` from each other (both are logarithms)."""
    found = [1.0]
    for side in _ROUND_RATIOS:
        last = 0.0
        for ratio in side:
            if last + apart <= abs(math.log(ratio)) <= extent:
                found.append(ratio)
                last = abs(math.log(ratio))
    return tuple(sorted(found))
