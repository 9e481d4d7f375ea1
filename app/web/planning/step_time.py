"""A drawing of where the seconds of one training step go."""

from __future__ import annotations

from typing import Final

from app.presentation.figures import percent, round_seconds, seconds
from app.web.drawing import Box, Drawing, Key, Line, Words, round_steps
from cluster_models.training.rank_costs import TIME_PARTS, TimeBreakdown

_WIDTH: Final = 570.0
_SIDE, _TOP, _BAR = 12.0, 6.0, 34.0


def time_bar(time: TimeBreakdown) -> Drawing:
    """The step as one bar, its parts side by side."""
    scale = (_WIDTH - 2 * _SIDE) / time.step_s
    boxes: list[Box] = []
    x = _SIDE
    for index, (field, name) in enumerate(TIME_PARTS.items()):
        part: float = getattr(time, field)
        if part > 0:
            boxes.append(
                Box(x, _TOP, part * scale, _BAR, f"part-{index}", f"{name}: {seconds(part)}"),
            )
            x += part * scale
    bottom = _TOP + _BAR
    steps = round_steps(time.step_s)
    largest = max(TIME_PARTS, key=lambda part: float(getattr(time, part)))
    return Drawing(
        width=_WIDTH,
        height=bottom + 24,
        name="Parts of one training step",
        description=f"The largest part is {TIME_PARTS[largest]}: {percent(getattr(time, largest) / time.step_s)}.",
        boxes=tuple(boxes),
        lines=tuple(Line(_SIDE + step * scale, bottom, _SIDE + step * scale, bottom + 5, "axis") for step in steps),
        words=tuple(
            Words(x, bottom + 19, round_seconds(step), anchor=_anchor(x))
            for x, step in ((_SIDE + step * scale, step) for step in steps)
        ),
        legend=tuple(
            Key(f"part-{index}", name)
            for index, (field, name) in enumerate(TIME_PARTS.items())
            if getattr(time, field) > 0
        ),
        shrinks=True,
    )


def _anchor(x: float) -> str:
    """Ticks at the ends are written inwards, where there is room."""
    return "start" if x <= _SIDE else "end" if x > _WIDTH - 2 * _SIDE else "middle"
