"""The cloud of candidates: step time against room in memory, with the plan, its losers and the bound."""

from __future__ import annotations

from typing import Final

from app.presentation.figures import gib, seconds
from app.web.drawing import Box, Drawing, Key, Line, Words, round_steps
from cluster_models.training.plan import Plan, TradeOff
from cluster_models.units import GIB

_WIDTH, _HEIGHT = 570.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 12.0, 44.0
_DOT: Final = 6.0


def trade_off_cloud(plan: Plan) -> Drawing | None:
    """Each candidate at its least possible step and the room of its fullest GPU; ``None`` where there are none."""
    points = plan.trade_offs
    if len(points) < 2:
        return None
    step, spare = plan.time.step_s, min((each.limit_bytes - each.total_bytes for each in plan.memory), default=0.0)
    slowest = max(step, *(point.step_bound_s for point in points))
    low = 0.96 * min(step, *(point.step_bound_s for point in points))
    most = max(spare, *(point.spare_bytes for point in points), GIB) / GIB

    def across(spare_bytes: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * spare_bytes / GIB / most

    def down(step_s: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (step_s - low) / (slowest - low)

    def dot(spare_bytes: float, step_s: float, style: str, tip: str, size: float = _DOT) -> Box:
        return Box(across(spare_bytes) - size / 2, down(step_s) - size / 2, size, size, style, tip)

    floor = _HEIGHT - _BOTTOM
    steps = [number for number in round_steps(slowest) if number >= low]
    rooms = round_steps(most)
    return Drawing(
        width=_WIDTH,
        height=_HEIGHT,
        name="Candidates by step time and room in memory",
        description=_description(points),
        boxes=(
            *(
                dot(point.spare_bytes, point.step_bound_s, _style(point), _tip(point))
                for point in sorted(points, key=lambda point: point.on_frontier)
            ),
            dot(spare, step, "dot-plan", f"this plan: {seconds(step)}, {gib(spare)} to spare", 1.5 * _DOT),
        ),
        lines=(
            *(Line(_LEFT, down(number), _WIDTH - _RIGHT, down(number), "grid-line") for number in steps),
            Line(_LEFT, _TOP, _LEFT, floor, "limit-line"),
        ),
        words=(
            *(Words(_LEFT - 8, down(number) + 4, f"{number:g} s", anchor="end") for number in steps),
            *(Words(across(number * GIB), floor + 16, f"{number:g}", anchor="middle") for number in rooms),
            Words(_LEFT, floor + 34, "GiB to spare on the fullest GPU; the line is the limit"),
        ),
        legend=(
            Key("dot-plan", "this plan"),
            Key("dot-frontier", "none is as fast and leaves more room"),
            Key("dot-candidate", "other candidates"),
        ),
        shrinks=True,
    )


def _style(point: TradeOff) -> str:
    return "dot-frontier" if point.on_frontier else "dot-candidate"


def _tip(point: TradeOff) -> str:
    return (
        f"{point.degrees} mb{point.micro_batch}: at least {seconds(point.step_bound_s)}, "
        f"{gib(point.spare_bytes)} to spare"
    )


def _description(points: tuple[TradeOff, ...]) -> str:
    frontier = sum(point.on_frontier for point in points)
    return (
        f"{len(points)} of the candidates that fit, each at the step that it cannot beat wherever it is placed, so "
        f"dots below this plan need not be faster; {frontier} of them are beaten by none in both."
    )
