"""Measured runs against their predictions: each with its interval, and residuals by framework and GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from app.presentation.figures import plural, seconds
from app.services.feedback.measured_runs import MeasuredRunRecord
from app.web.drawing import Box, Drawing, Key, Line, Words
from app.web.residuals import Residual, residuals_drawing

_MOST_RUNS: Final = 400
_MOST_ROWS: Final = 12
_DOT: Final = 7.0
_SIDE, _LEFT, _TOP, _BOTTOM, _RIGHT = 350.0, 56.0, 12.0, 40.0, 16.0
_TICKS: Final = tuple(factor * 10.0**power for power in range(-4, 6) for factor in (1, 2, 5))


def prediction_scatter(runs: Sequence[MeasuredRunRecord]) -> Drawing | None:
    """The newest ``runs`` on logarithmic axes; ``None`` of fewer than two."""
    if len(runs) < 2:
        return None
    drawn = runs[-_MOST_RUNS:]
    figures = [figure for run in drawn for figure in (run.report.step_s, run.predicted.step_s, *_interval(run))]
    low, high = math.log(min(figures) * 0.95), math.log(max(figures) * 1.05)
    across, up = (room / (high - low) for room in (_SIDE - _LEFT - _RIGHT, _SIDE - _TOP - _BOTTOM))
    floor = _SIDE - _BOTTOM

    def at(predicted_s: float, measured_s: float) -> tuple[float, float]:
        return _LEFT + (math.log(predicted_s) - low) * across, floor - (math.log(measured_s) - low) * up

    boxes, intervals = list[Box](), list[Line]()
    for run in drawn:
        x, y = at(run.predicted.step_s, run.report.step_s)
        if interval := _interval(run):
            lower, upper = (at(run.predicted.step_s, end)[1] for end in interval)
            intervals.append(Line(x, lower, x, upper, "interval"))
        style = "dot-plan" if run.is_within is False else "dot-0"
        boxes.append(Box(x - _DOT / 2, y - _DOT / 2, _DOT, _DOT, style, _tip(run)))
    ticks = [tick for tick in _TICKS if low <= math.log(tick) <= high]
    outside = sum(run.is_within is False for run in drawn)
    judged = sum(run.is_within is not None for run in drawn)
    return Drawing(
        width=_SIDE,
        height=_SIDE,
        name="Measured against predicted step",
        description=f"On the line steps are as predicted, above it longer. {outside} of {plural(judged, 'run')} "
        f"with an interval {'lies' if outside == 1 else 'lie'} outside of it.",
        boxes=tuple(boxes),
        lines=(
            *(Line(_LEFT, at(tick, tick)[1], _SIDE - _RIGHT, at(tick, tick)[1], "grid-line") for tick in ticks),
            Line(_LEFT, floor, _SIDE - _RIGHT, _TOP, "axis"),
            *intervals,
        ),
        words=(
            *(Words(_LEFT - 6, at(tick, tick)[1] + 4, f"{tick:g} s", anchor="end") for tick in ticks),
            *(Words(at(tick, tick)[0], floor + 16, f"{tick:g} s", anchor="middle") for tick in ticks),
            Words(_SIDE - _RIGHT, floor + 34, "predicted; upwards measured", anchor="end"),
        ),
        legend=(
            Key("dot-0", "run, with the interval in which its plan expected it"),
            *((Key("dot-plan", "outside of its interval"),) if outside else ()),
        ),
    )


def residual_rows(runs: Sequence[MeasuredRunRecord]) -> Drawing | None:
    """A row of dots for each framework on each GPU kind, those with the most runs first; ``None`` of few runs."""
    if len(runs) < 2:
        return None
    groups: dict[str, list[Residual]] = {}
    for run in runs[-_MOST_RUNS:]:
        name = f"{run.framework}, {' and '.join(dict.fromkeys(run.predicted.gpu_kinds))}"
        groups.setdefault(name, []).append(Residual(run.ratio, _tip(run)))
    rows = sorted(groups.items(), key=lambda row: -len(row[1]))[:_MOST_ROWS]
    return residuals_drawing("How far runs are off, by framework and GPU", rows)


def _interval(run: MeasuredRunRecord) -> tuple[float, ...]:
    low, high = run.predicted.low_s, run.predicted.high_s
    return () if low is None or high is None else (low, high)


def _tip(run: MeasuredRunRecord) -> str:
    span = " to ".join(map(seconds, _interval(run)))
    return (
        f"{run.model} on {run.cluster_name}, {run.framework}: measured {seconds(run.report.step_s)}, predicted "
        f"{seconds(run.predicted.step_s)}{f' ({span})' if span else ''}"
    )
