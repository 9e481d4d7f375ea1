"""Drawings of a serving plan: memory of each pool's GPUs, and throughput against speed for each user."""

from __future__ import annotations

from typing import Final

from app.presentation.figures import count, gib
from app.presentation.serving_words import PHASES, configuration_words
from app.web.drawing import Box, Drawing, Key, Line, Words, round_steps
from cluster_models.serving.plan import FrontPoint, PlannedPool, ServingPlan
from cluster_models.units import GIB

_WIDTH: Final = 570.0
_LEFT, _RIGHT, _TOP, _ROW, _BAR = 150.0, 24.0, 28.0, 34.0, 20.0
_PARTS: Final = {"weight_bytes": "weights", "step_bytes": "steps and engine", "cache_bytes": "keys and values"}
_CHART: Final = 300.0
_DOT: Final = 9.0


def memory_bars(plan: ServingPlan) -> Drawing:
    """One stacked bar for a GPU of each pool, with a line at what the GPU has."""
    pools = plan.pools
    largest = max(pool.replicas[0].memory.gpu_bytes for pool in pools) * 1.04
    scale = (_WIDTH - _LEFT - _RIGHT) / largest
    bottom = _TOP + _ROW * len(pools)
    boxes: list[Box] = []
    lines: list[Line] = []
    words: list[Words] = [Words(_LEFT, bottom + 34, "GiB on each GPU")]
    for step in round_steps(largest / GIB):
        x = _LEFT + step * GIB * scale
        lines.append(Line(x, _TOP, x, bottom, "grid-line"))
        words.append(Words(x, bottom + 16, f"{step:g}", anchor="middle"))
    for row, pool in enumerate(pools):
        y = _TOP + _ROW * row + (_ROW - _BAR) / 2
        words.append(Words(_LEFT - 8, y + 14, _pool_name(pool), anchor="end"))
        boxes += _bar(pool, y, scale)
        limit = _LEFT + pool.replicas[0].memory.gpu_bytes * scale
        lines.append(Line(limit, y - 5, limit, y + _BAR + 5, "limit-line"))
    first = pools[0].replicas[0].memory
    return Drawing(
        width=_WIDTH,
        height=bottom + 42,
        name="Memory of a GPU of each pool",
        description=f"{_pool_name(pools[0])}: {gib(first.weight_bytes)} of weights, {gib(first.cache_bytes)} for "
        f"keys and values of {gib(first.gpu_bytes)}.",
        boxes=tuple(boxes),
        lines=tuple(lines),
        words=tuple(words),
        legend=tuple(Key(f"part-{index}", name) for index, name in enumerate(_PARTS.values())),
        shrinks=True,
    )


def _pool_name(pool: PlannedPool) -> str:
    return f"{pool.pool}, {PHASES[pool.phase].partition(' ')[0] if pool.phase != 'both' else 'both'}"


def _bar(pool: PlannedPool, y: float, scale: float) -> list[Box]:
    boxes, x = [], _LEFT
    for index, (field, name) in enumerate(_PARTS.items()):
        size: float = getattr(pool.replicas[0].memory, field)
        boxes.append(Box(x, y, size * scale, _BAR, f"part-{index}", f"{_pool_name(pool)}, {name}: {gib(size)}"))
        x += size * scale
    return boxes


def pareto_chart(plan: ServingPlan, model: int) -> Drawing:
    """The front of one model: a dot for each point, tokens a second of a GPU over those of a user."""
    points = [point for point in plan.front if point.model == model]
    widest = max(point.tokens_per_s_per_user for point in points) * 1.08
    highest = max(point.tokens_per_s_per_gpu for point in points) * 1.08
    bottom, right = _TOP + _CHART, _WIDTH - _RIGHT
    across, up = (right - _LEFT / 2) / widest, _CHART / highest
    left = _LEFT / 2
    lines = [Line(left, bottom, right, bottom, "axis"), Line(left, _TOP, left, bottom, "axis")]
    words = [
        Words(right, bottom + 34, "output tokens a second that a user sees", anchor="end"),
        Words(left, _TOP - 10, "output tokens a second of a GPU"),
    ]
    for step in round_steps(widest):
        x = left + step * across
        lines.append(Line(x, _TOP, x, bottom, "grid-line"))
        words.append(Words(x, bottom + 16, f"{step:g}", anchor="middle"))
    for step in round_steps(highest):
        y = bottom - step * up
        lines.append(Line(left, y, right, y, "grid-line"))
        words.append(Words(left - 6, y + 4, count(step), anchor="end"))
    name = plan.models[model].architecture.name
    return Drawing(
        width=_WIDTH,
        height=bottom + 42,
        name=f"Throughput against speed for each user, {name}",
        description=_chosen_words(points),
        boxes=tuple(
            Box(
                left + point.tokens_per_s_per_user * across - _DOT / 2,
                bottom - point.tokens_per_s_per_gpu * up - _DOT / 2,
                _DOT,
                _DOT,
                _dot(point),
                _tip(point),
            )
            for point in sorted(points, key=lambda each: each.is_chosen)
        ),
        lines=tuple(lines),
        words=tuple(words),
        legend=(
            Key("dot-plan", "the plan"),
            Key("part-1", "within the limits"),
            Key("part-7", "misses a limit"),
        ),
        shrinks=True,
    )


def _dot(point: FrontPoint) -> str:
    return "dot-plan" if point.is_chosen else "part-1" if point.meets_limits else "part-7"


def _tip(point: FrontPoint) -> str:
    return (
        f"{configuration_words(point.configuration)} with {point.concurrency:,.4g} in flight: "
        f"{count(point.tokens_per_s_per_gpu)} tokens/s of a GPU, {point.tokens_per_s_per_user:,.3g} of a user"
    )


def _chosen_words(points: list[FrontPoint]) -> str:
    chosen = next((point for point in points if point.is_chosen), None)
    return f"The plan: {_tip(chosen)}." if chosen else f"{len(points)} points; the plan runs at none of them."
