"""The plan on one axis of step times: what no plan can beat, how sure the step is, and the losers."""

from __future__ import annotations

from typing import Final

from app.presentation.figures import interval_name, percent, seconds
from app.web.drawing import Box, Drawing, Line, Words, round_steps
from cluster_models.training.plan import Alternative, Plan
from cluster_models.training.workload import Objective

_WIDTH, _LEFT, _RIGHT = 560.0, 140.0, 16.0
_ROW, _BAR, _TOP = 24.0, 12.0, 6.0
_DIAMOND: Final = 9.0


def step_axis(plan: Plan, objective: Objective) -> Drawing:
    """Rows of one axis: the proof, both intervals by name, and each alternative that fits as a tick."""
    step = plan.time.step_s
    limit = max((memory.limit_bytes for memory in plan.memory), default=0.0)
    losers = [other for other in plan.alternatives if other.peak_memory_bytes <= limit]
    rows = _ranges(plan, objective)
    points = [step, *(end for _, low, high, _ in rows for end in (low, high)), *(other.step_s for other in losers)]
    low, high = min(points), max(points)
    margin = max(high - low, 0.02 * step) * 0.06
    low, high = low - margin, high + margin
    scale = (_WIDTH - _LEFT - _RIGHT) / (high - low)

    def at(value: float) -> float:
        return _LEFT + (value - low) * scale

    bottom = _TOP + _ROW * (len(rows) + 1 + bool(losers))
    lines = [Line(at(step), _TOP, at(step), bottom, "limit-line plan-line")]
    is_right = at(step) > (_WIDTH + _LEFT) / 2
    words = [
        Words(_LEFT - 8, _TOP + 15, "this plan", "strong-word", "end"),
        Words(
            at(step) + (-10 if is_right else 10), _TOP + 15, seconds(step), anchor="end" if is_right else "start"
        ),
    ]
    boxes = [
        Box(at(step) - _DIAMOND / 2, _TOP + 6, _DIAMOND, _DIAMOND, "dot-plan", f"this plan: {seconds(step)} a step")
    ]
    for row, (name, start, end, style) in enumerate(rows, start=1):
        y = _TOP + _ROW * row + (_ROW - _BAR) / 2
        tip = f"{name}: {seconds(start)} to {seconds(end)}"
        boxes.append(Box(at(start), y, max((end - start) * scale, 2.0), _BAR, style, tip))
        words.append(Words(_LEFT - 8, y + 11, name, anchor="end"))
    if losers:
        y = _TOP + _ROW * (len(rows) + 1)
        words.append(Words(_LEFT - 8, y + 15, "next best", anchor="end"))
        boxes += [_tick(other, at(other.step_s), y) for other in losers]
    for number in _ticks(low, high):
        lines.append(Line(at(number), bottom, at(number), bottom + 5, "axis"))
        words.append(Words(at(number), bottom + 18, f"{number:g} s", anchor="middle"))
    return Drawing(
        width=_WIDTH,
        height=bottom + 24,
        name="The step on one axis",
        description=_description(plan, losers),
        boxes=tuple(boxes),
        lines=tuple(lines),
        words=tuple(words),
        legend=(),
        shrinks=True,
    )


def _ranges(plan: Plan, objective: Objective) -> list[tuple[str, float, float, str]]:
    """Name, both ends and style of the bars."""
    rows = []
    if objective is Objective.STEP_TIME and plan.certificate.bound > 0:
        rows.append(("room for better", plan.certificate.bound, plan.certificate.objective, "bar-proof"))
    if plan.confidence is not None:
        sure = plan.confidence
        rows.append((f"model, {interval_name(sure)}", sure.step_low_s, sure.step_high_s, "bar-model"))
    if plan.robustness is not None:
        drift = plan.robustness.step
        rows.append(("link drift, p10\N{EN DASH}p90", drift.step_p10_s, drift.step_p90_s, "bar-drift"))
    return rows


def _tick(other: Alternative, x: float, y: float) -> Box:
    tip = f"{other.configuration.degrees}: {seconds(other.step_s)}, {percent(other.slower_by)} slower"
    return Box(x - 2, y + 5, 4, 14, "dot-loser", tip)


def _ticks(low: float, high: float) -> list[float]:
    steps = round_steps(high - low)
    width = steps[1] if len(steps) > 1 else high - low
    first = int(low / width) + 1
    return [round(number * width, 9) for number in range(first, int(high / width) + 1)]


def _description(plan: Plan, losers: list[Alternative]) -> str:
    text = f"The plan takes {seconds(plan.time.step_s)} a step."
    if losers:
        best = min(losers, key=lambda other: other.step_s)
        text += f" The next best, {best.configuration.degrees}, takes {seconds(best.step_s)}."
    return text
