"""Drawings of what failures and the answer to them do to jobs: throughput, and how long each stands still."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from app.presentation.figures import duration
from app.presentation.recovery import duration_range, tokens_per_s
from app.web.drawing import Box, Drawing, Key, Words
from cluster_models.jobs.recovery import JobDecision, Migration
from cluster_models.jobs.serving import ServingDecision

Made = JobDecision | ServingDecision

_WIDTH, _LEFT, _RIGHT, _ROW, _BAR = 350.0, 84.0, 112.0, 20.0, 14.0
_MOST_JOBS: Final = 8
_PARTS: Final = ("save a checkpoint", "move state", "start again", "warm up", "repeat steps")


def throughput_bars(made: Sequence[Made], safe: Mapping[str, Made]) -> Drawing:
    """Bars for each job: before, by the safe answer if it is in ``safe`` (by job id), and as decided."""
    boxes, words, y = list[Box](), list[Words](), 0.0
    across = _WIDTH - _LEFT - _RIGHT
    for each in made[:_MOST_JOBS]:
        before, after = _rates(each)
        bars = [("before", before, "part-6"), ("after", after, "part-1")]
        if each.job_id in safe:
            bars.insert(1, ("safe answer", _rates(safe[each.job_id])[1], "part-7"))
        most = max(rate for _, rate, _ in bars) or 1.0
        words.append(Words(0, y + 14, each.job_name, "place"))
        y += _ROW
        for name, rate, style in bars:
            length, figure = max(rate / most * across, 1.0), _rate_words(each, rate)
            boxes.append(Box(_LEFT, y, length, _BAR, style, f"{each.job_name}, {name}: {figure}"))
            words.append(Words(_LEFT - 8, y + 11, name, anchor="end"))
            words.append(Words(_LEFT + length + 6, y + 11, figure))
            y += _ROW
        y += 6
    left_out = len(made) - _MOST_JOBS
    return Drawing(
        width=_WIDTH,
        height=y,
        name="Throughput before and after",
        description="Each job against its own largest figure."
        + (f" {left_out} more are not drawn." if left_out > 0 else ""),
        boxes=tuple(boxes),
        words=tuple(words),
    )


def standstill_bars(made: Sequence[Made]) -> Drawing | None:
    """One bar for each training job that stands still for a while, by what it does meanwhile, at the worst."""
    moving = [each for each in made if isinstance(each, JobDecision) and each.migration.downtime.high_s > 0]
    if not moving:
        return None
    drawn = moving[:_MOST_JOBS]
    across = _WIDTH / max(each.migration.downtime.high_s for each in drawn)
    boxes, words, used, y = list[Box](), list[Words](), set[int](), 0.0
    for each in drawn:
        words.append(Words(0, y + 14, each.job_name, "place"))
        words.append(Words(_WIDTH, y + 14, duration_range(each.migration.downtime), anchor="end"))
        x, y = 0.0, y + _ROW
        for index, part_s in enumerate(_parts(each.migration)):
            if part_s > 0:
                used.add(index)
                tip = f"{each.job_name}, {_PARTS[index]}: {duration(part_s)}"
                boxes.append(Box(x, y, part_s * across, _BAR, f"part-{index}", tip))
                x += part_s * across
        y += _ROW
    return Drawing(
        width=_WIDTH,
        height=y,
        name="How long jobs stand still",
        description="Figures from the best to the worst case; bars are the worst.",
        boxes=tuple(boxes),
        words=tuple(words),
        legend=tuple(Key(f"part-{index}", _PARTS[index]) for index in sorted(used)),
    )


def _parts(migration: Migration) -> tuple[float, ...]:
    """Seconds of each part at the worst; those that no other part takes go to steps repeated."""
    named = (migration.save, migration.transfer, migration.restart, migration.warm_up)
    highs = [part.high_s for part in named]
    return (*highs, max(0.0, migration.downtime.high_s - math.fsum(highs)))


def _rates(made: Made) -> tuple[float, float]:
    """Tokens per second, of a deployment requests per second to all its models, before and after."""
    if isinstance(made, JobDecision):
        return made.tokens_per_s_before, made.tokens_per_s_after
    return (
        math.fsum(load.before_per_s for load in made.loads),
        math.fsum(load.after_per_s for load in made.loads),
    )


def _rate_words(made: Made, rate: float) -> str:
    if isinstance(made, JobDecision):
        return tokens_per_s(rate)
    return f"{rate:,.3g} requests/s" if rate else "answers nothing"
