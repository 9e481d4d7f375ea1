"""A drawing of where the seconds of a step go, one stacked bar for each pipeline stage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.presentation.figures import percent, round_seconds, seconds
from app.web.drawing import Box, Drawing, Key, Line, Words, round_steps
from cluster_models.training.rank_costs import TIME_PARTS, StageTime, TimeBreakdown

_WIDTH, _LEFT, _RIGHT, _TOP = 570.0, 104.0, 24.0, 8.0
_TALL: Final = ((20, 26.0, 18.0), (40, 18.0, 12.0), (10_000, 10.0, 7.0))
"""Row and bar heights by the most stages that they are for."""


def stage_times(stages: Sequence[StageTime], step_s: float) -> Drawing | None:
    """The bars; ``None`` in plans of before parts were kept for each stage."""
    parts = [stage.time for stage in stages if stage.time is not None]
    if len(parts) < len(stages):
        return None
    row_height, bar_height = next(sizes for most, *sizes in _TALL if len(parts) <= most)
    slowest = max(range(len(parts)), key=lambda index: _work(parts[index]))
    scale = (_WIDTH - _LEFT - _RIGHT) / step_s
    bottom = _TOP + row_height * len(parts)
    boxes: list[Box] = []
    words: list[Words] = []
    for row, (stage, time) in enumerate(zip(stages, parts, strict=True)):
        y = _TOP + row_height * row + (row_height - bar_height) / 2
        if row == slowest or row_height > 12 or row % 4 == 0:
            name = (
                f"\N{BLACK RIGHT-POINTING TRIANGLE} stage {stage.stage}"
                if row == slowest
                else f"stage {stage.stage}"
            )
            style = "strong-word" if row == slowest else "tick"
            words.append(Words(_LEFT - 8, y + bar_height - 4, name, style, "end"))
        boxes += _bar(stage.stage, time, y, bar_height, scale)
    lines = [
        Line(_LEFT + step * scale, _TOP, _LEFT + step * scale, bottom + 4, "grid-line")
        for step in round_steps(step_s)
    ]
    words += [
        Words(_LEFT + step * scale, bottom + 18, round_seconds(step), anchor="middle")
        for step in round_steps(step_s)
    ]
    used = [(index, field) for index, field in enumerate(TIME_PARTS) if any(getattr(time, field) for time in parts)]
    return Drawing(
        width=_WIDTH,
        height=bottom + 24,
        name="Parts of a step by stage",
        description=(
            f"Stage {stages[slowest].stage} works longest, {seconds(_work(parts[slowest]))} of the step, "
            f"{percent(_work(parts[slowest]) / step_s)}: it sets the pace."
        ),
        boxes=tuple(boxes),
        lines=tuple(lines),
        words=tuple(words),
        legend=tuple(Key(f"part-{index}", TIME_PARTS[field]) for index, field in used),
        shrinks=True,
    )


def _work(time: TimeBreakdown) -> float:
    """Seconds in which a stage computes or communicates for its own micro-batches."""
    return time.compute_s + time.tensor_s + time.context_s + time.expert_s


def _bar(stage: int, time: TimeBreakdown, y: float, height: float, scale: float) -> list[Box]:
    boxes, x = [], _LEFT
    for index, (field, name) in enumerate(TIME_PARTS.items()):
        part: float = getattr(time, field)
        if part > 0:
            boxes.append(
                Box(x, y, part * scale, height, f"part-{index}", f"stage {stage}, {name}: {seconds(part)}")
            )
            x += part * scale
    return boxes
