"""A drawing of the memory of each pipeline stage, against the limit of the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.presentation.figures import gib
from app.web.drawing import Box, Drawing, Key, Line, Words, round_steps
from cluster_models.training.rank_costs import MEMORY_PARTS, StageMemory
from cluster_models.units import GIB

_LEFT, _RIGHT, _TOP, _ROW, _BAR = 104.0, 24.0, 28.0, 30.0, 20.0
_WIDTH: Final = 570.0
_WORD: Final = 72.0
"""Limits closer than this share one word."""


def memory_bars(stages: Sequence[StageMemory], cards: Sequence[float] = ()) -> Drawing:
    """One stacked bar per stage, with a line at the limit of its GPUs.

    ``cards``: the whole memory of each stage's GPUs; what lies between it and the limit is kept free.
    """
    cards = cards or [stage.limit_bytes for stage in stages]
    largest = max(max(stage.total_bytes, card) for stage, card in zip(stages, cards, strict=True)) * 1.04
    scale = (_WIDTH - _LEFT - _RIGHT) / largest
    bottom = _TOP + _ROW * len(stages)
    boxes: list[Box] = []
    lines: list[Line] = []
    words: list[Words] = []
    for step in round_steps(largest / GIB):
        x = _LEFT + step * GIB * scale
        lines.append(Line(x, _TOP, x, bottom, "grid-line"))
        words.append(Words(x, bottom + 16, f"{step:g}", anchor="middle"))
    for row, stage in enumerate(stages):
        y = _TOP + _ROW * row + (_ROW - _BAR) / 2
        words.append(Words(_LEFT - 8, y + 14, f"stage {stage.stage}", anchor="end"))
        boxes += _bar(stage, y, scale)
        limit = _LEFT + stage.limit_bytes * scale
        if cards[row] > stage.limit_bytes:
            tip = f"kept free: {gib(cards[row] - stage.limit_bytes)} of {gib(cards[row])}"
            boxes.append(Box(limit, y, (cards[row] - stage.limit_bytes) * scale, _BAR, "kept-free", tip))
        lines.append(Line(limit, y - 5, limit, y + _BAR + 5, "limit-line"))
    last = -_WIDTH
    for x in sorted({_LEFT + stage.limit_bytes * scale for stage in stages}):
        if x - last > _WORD:
            words.append(Words(x, _TOP - 8, f"limit {(x - _LEFT) / scale / GIB:.1f}", "tick strong", "middle"))
            last = x
    words.append(Words(_LEFT, bottom + 34, "GiB on each GPU of the stage"))
    fullest = max(stages, key=lambda stage: stage.total_bytes / stage.limit_bytes)
    return Drawing(
        width=_WIDTH,
        height=bottom + 42,
        name="Memory of each stage against its limit",
        description=f"Stage {fullest.stage} is the fullest: {gib(fullest.total_bytes)} of "
        f"{gib(fullest.limit_bytes)}.",
        boxes=tuple(boxes),
        lines=tuple(lines),
        words=tuple(words),
        legend=(
            *(Key(f"part-{index}", name) for index, name in enumerate(MEMORY_PARTS.values())),
            *([Key("kept-free", "kept free of the card")] if max(cards) > stages[0].limit_bytes else []),
        ),
        shrinks=True,
    )


def _bar(stage: StageMemory, y: float, scale: float) -> list[Box]:
    boxes, x = [], _LEFT
    for index, (field, name) in enumerate(MEMORY_PARTS.items()):
        size: float = getattr(stage, field)
        if size > 0:
            tip = f"stage {stage.stage}, {name}: {gib(size)}"
            boxes.append(Box(x, y, size * scale, _BAR, f"part-{index}", tip))
            x += size * scale
    return boxes
