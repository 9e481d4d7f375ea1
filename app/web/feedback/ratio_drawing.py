"""Measured over predicted step of runs in the order of time, a dot each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from app.presentation.figures import seconds
from app.presentation.measured_runs import off
from app.presentation.recovery import moment
from app.services.feedback.measured_runs import MeasuredRunRecord
from app.web.drawing import Box, Drawing, Key, Line, Words, round_ratios

_WIDTH, _HEIGHT = 570.0, 220.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 70.0, 16.0, 14.0, 30.0
_DOT: Final = 7.0
_APART: Final = 30.0
"""Distance between marks of the axis."""
_STYLES: Final = 4
"""Frameworks with a colour of their own; the others share the last."""
_LEAST: Final = math.log(1.1)
"""Half height of the drawing at least, so that noise stays small."""


def ratio_drawing(runs: Sequence[MeasuredRunRecord]) -> Drawing | None:
    """The drawing of runs, the first that ended on the left; ``None`` of fewer than two."""
    if len(runs) < 2:
        return None
    names = list(dict.fromkeys(run.framework for run in runs))
    extent = max(_LEAST, 1.1 * max(abs(math.log(run.ratio)) for run in runs))
    boxes, step = [], (_WIDTH - _LEFT - _RIGHT) / (len(runs) - 1)
    for place, run in enumerate(runs):
        x, y = _LEFT + step * place, _height_of(math.log(run.ratio), extent)
        tip = (
            f"{run.model} on {run.cluster_name}, {run.framework}, ended {moment(run.ended_at)}: "
            f"{seconds(run.report.step_s)}, {off(run.ratio)}"
        )
        boxes.append(Box(x - _DOT / 2, y - _DOT / 2, _DOT, _DOT, _style(names.index(run.framework)), tip))
    marks = [math.log(ratio) for ratio in round_ratios(extent, apart=2 * extent * _APART / _HEIGHT)]
    lines = [
        Line(
            _LEFT,
            _height_of(mark, extent),
            _WIDTH - _RIGHT,
            _height_of(mark, extent),
            "axis" if mark == 0 else "grid-line",
        )
        for mark in marks
    ]
    words = [Words(_LEFT - 6, _height_of(mark, extent) + 4, off(math.exp(mark)), anchor="end") for mark in marks]
    base = _HEIGHT - 8
    words += [
        Words(_LEFT, base, f"{runs[0].ended_at:%d %b %Y}"),
        Words(_WIDTH - _RIGHT, base, f"{runs[-1].ended_at:%d %b %Y}", anchor="end"),
    ]
    keys = [Key(_style(index), name) for index, name in enumerate(names[:_STYLES])]
    return Drawing(
        width=_WIDTH,
        height=_HEIGHT,
        name="Measured over predicted step",
        description="A dot for each run in the order in which they ended; on the middle line steps are as "
        "predicted, above it longer.",
        boxes=tuple(boxes),
        lines=tuple(lines),
        words=tuple(words),
        legend=tuple(keys) if len(names) > 1 else (),
        shrinks=True,
    )


def _height_of(log_ratio: float, extent: float) -> float:
    room = _HEIGHT - _TOP - _BOTTOM
    return _TOP + room * (0.5 - 0.5 * log_ratio / extent)


def _style(index: int) -> str:
    return f"dot-{min(index, _STYLES - 1)}"
