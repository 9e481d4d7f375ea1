"""How a configuration that lost gets from the plan's step to its own: signed parts that add up."""

from __future__ import annotations

from app.presentation.comparison import rounded_parts
from app.presentation.figures import seconds
from app.web.drawing import Box, Drawing, Line, Words
from cluster_models.training.rank_costs import TIME_PARTS, TimeBreakdown

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW, _BAR = 640.0, 250.0, 84.0, 6.0, 22.0, 14.0


def waterfall(time: TimeBreakdown, base: TimeBreakdown, name: str, place: str = "") -> Drawing:
    """Bars from the step of ``base``, the plan, to that of ``time``, called ``name``; ``place``: where it lies."""
    unit, scale_by, places = ("s", 1.0, 2) if max(time.step_s, base.step_s) >= 10 else ("ms", 1e3, 1)
    own, its = rounded_parts(base, scale_by, places), rounded_parts(time, scale_by, places)
    changes = [
        (TIME_PARTS[part], round(its[part] - own[part], places)) for part in TIME_PARTS if its[part] != own[part]
    ]
    changes.sort(key=lambda change: -change[1])
    ends = [own["step_s"]]
    for _, change in changes:
        ends.append(ends[-1] + change)
    low, high = min(ends), max(ends)
    low -= 0.15 * (high - low or 1.0)
    across = (_WIDTH - _LEFT - _RIGHT) / (high - low)

    def at(value: float) -> float:
        return _LEFT + (value - low) * across

    boxes: list[Box] = []
    words: list[Words] = []
    lines: list[Line] = []

    def row(number: int, label: str, start: float, end: float, style: str, figure: str) -> None:
        y = _TOP + _ROW * number + (_ROW - _BAR) / 2
        left, right = sorted((at(start), at(end)))
        boxes.append(Box(left, y, max(right - left, 1.5), _BAR, style, f"{label}: {figure}"))
        words.append(Words(_LEFT - 8, y + 11, label, anchor="end"))
        words.append(Words(right + 5, y + 11, figure, "figure"))

    row(0, "this plan", low, ends[0], "fall-plan", f"{ends[0]:.{places}f} {unit}")
    for number, (label, change) in enumerate(changes, start=1):
        start, end = ends[number - 1], ends[number]
        row(number, label, start, end, "fall-loss" if change > 0 else "fall-gain", f"{change:+.{places}f} {unit}")
        y = _TOP + _ROW * number
        lines.append(Line(at(start), y - 4, at(start), y + 4, "axis"))
    row(len(changes) + 1, name, low, its["step_s"], "fall-other", f"{its['step_s']:.{places}f} {unit}")
    return Drawing(
        width=_WIDTH,
        height=_TOP + _ROW * (len(changes) + 2) + 4,
        name=f"From this plan to {name}",
        description=(
            f"From {seconds(base.step_s)} to {seconds(time.step_s)} a step, part by part on the busiest stage of "
            f"each. {place}The first and the last bar are cut at the left."
        ),
        boxes=tuple(boxes),
        lines=tuple(lines),
        words=tuple(words),
        shrinks=True,
    )
