"""Rows of dots that say how far steps are off: measured over predicted, on a logarithmic axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from app.presentation.measured_runs import off
from app.web.drawing import Box, Drawing, Line, Words, round_ratios

_WIDTH, _ROW, _HALF = 350.0, 40.0, 9.0
_DOT: Final = 7.0
_LEAST: Final = math.log(1.1)
"""Half width at least, so that noise stays small."""
_APART: Final = 56.0
"""Distance between marks of the axis, so that their words do not touch."""


@dataclass(frozen=True, slots=True)
class Residual:
    """Measured over predicted step of a run, and the words about it."""

    ratio: float
    tip: str


def residuals_drawing(name: str, rows: Sequence[tuple[str, Sequence[Residual]]]) -> Drawing:
    """A row for each name with its residuals, of which there is one at least."""
    extent = max(_LEAST, 1.1 * max(abs(math.log(each.ratio)) for _, members in rows for each in members))
    bottom = _ROW * len(rows) + 4

    def at(ratio: float) -> float:
        return _WIDTH / 2 * (1 + math.log(ratio) / extent)

    marks = round_ratios(0.9 * extent, apart=2 * extent * _APART / _WIDTH)
    boxes, words, lines = list[Box](), list[Words](), list[Line]()
    for number, (label, members) in enumerate(rows):
        y = _ROW * (number + 0.7)
        words.append(Words(0, y - 14, f"{label}: {len(members)}", "host-name"))
        boxes += [Box(at(each.ratio) - _DOT / 2, y - _DOT / 2, _DOT, _DOT, "dot-0", each.tip) for each in members]
        spans = [(mark, "axis" if mark == 1 else "grid-line") for mark in marks]
        spans.append((median(each.ratio for each in members), "limit-line"))
        lines += [Line(at(ratio), y - _HALF, at(ratio), y + _HALF, style) for ratio, style in spans]
    return Drawing(
        width=_WIDTH,
        height=bottom + 20,
        name=name,
        description="Measured over predicted step; to the right longer than predicted. The upright is the median.",
        boxes=tuple(boxes),
        lines=tuple(lines),
        words=(*words, *(Words(at(mark), bottom + 14, off(mark), anchor="middle") for mark in marks)),
    )
