"""The proof as a picture: the best step time and the bound over the seconds of a search."""

from __future__ import annotations

from collections.abc import Sequence

from app.presentation.figures import percent, seconds
from app.services.planning.course import CoursePoint
from app.web.drawing import Drawing, Key, Line, Words, round_steps

_WIDTH, _HEIGHT = 570.0, 180.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 12.0, 40.0


def search_course(course: Sequence[CoursePoint]) -> Drawing | None:
    """Two lines of steps that close in on each other; ``None`` before two points have both."""
    points = [point for point in course if point.incumbent_s is not None and point.bound_s is not None]
    if len(points) < 2:
        return None
    best = [point.incumbent_s or 0.0 for point in points]
    bound = [point.bound_s or 0.0 for point in points]
    end = points[-1].elapsed_s
    low, high = min(bound), max(best)
    margin = 0.08 * (high - low) or 0.01 * high
    low, high = low - margin, high + margin

    def across(elapsed_s: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * elapsed_s / end

    def down(step_s: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (step_s - low) / (high - low)

    def staircase(values: list[float], style: str) -> list[Line]:
        lines = []
        for index, value in enumerate(values[:-1]):
            left, right = across(points[index].elapsed_s), across(points[index + 1].elapsed_s)
            lines.append(Line(left, down(value), right, down(value), style))
            lines.append(Line(right, down(value), right, down(values[index + 1]), style))
        return lines

    floor = _HEIGHT - _BOTTOM
    return Drawing(
        width=_WIDTH,
        height=_HEIGHT,
        name="Best plan and bound over the search",
        description=(
            f"After {seconds(end)} the best plan takes {seconds(best[-1])} a step, none can take less than "
            f"{seconds(bound[-1])}: {percent((best[-1] - bound[-1]) / best[-1], places=2)} between them."
        ),
        boxes=(),
        lines=(
            Line(_LEFT, floor, _WIDTH - _RIGHT, floor, "axis"),
            *staircase(bound, "line-bound"),
            *staircase(best, "line-best"),
        ),
        words=(
            *(Words(across(tick), floor + 18, f"{tick:g} s", anchor="middle") for tick in round_steps(end)),
            *(Words(_LEFT - 8, down(value) + 4, seconds(value), anchor="end") for value in (bound[0], best[0])),
        ),
        legend=(Key("line-best", "best plan so far"), Key("line-bound", "no plan can beat")),
        shrinks=True,
    )
