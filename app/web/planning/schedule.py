"""The predicted schedule of one replica: a row per pipeline stage, a box per forward and backward."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from app.presentation.figures import plural, round_seconds, seconds
from app.web.drawing import Box, Drawing, Key, Line, Words, round_steps
from cluster_models.training.plan import TimelineEvent

MOST_BOXES: Final = 4000
"""More boxes than this make a page heavy: more of the short ones are then drawn as one, and the page says so."""
ZOOMS: Final = (1, 2, 4, 8, 16, 32)
"""Magnifications offered; the window shows one part in so many of the step."""
_SHORTEST: Final = 1.2
"""Length of the shortest box that is drawn alone."""

_LEFT, _RIGHT, _TOP, _ROW, _BAR = 74.0, 16.0, 8.0, 30.0, 24.0
_WIDTH: Final = 1100.0
_ROOM_FOR_A_DIGIT: Final = 8.0
_KNOWN: Final = ("forward", "backward", "weights", "several", "reduce", "optimizer", "gather")
_MICRO_BATCH: Final = re.compile(r"\d+")
_NAMES: Final = {
    "weights": "gradients of weights",
    "several": "forward and backward in turn",
    "reduce": "gradient reduction",
    "gather": "parameter gather",
    "optimizer": "optimizer step",
}
_COMPUTE: Final = ("forward", "backward", "weights", "optimizer")


@dataclass(frozen=True, slots=True)
class Window:
    """Part of the step that is shown: ``part`` (from 0) of ``zoom`` equal parts, of one replica."""

    replica: int = 0
    zoom: int = 1
    part: int = 0


@dataclass(frozen=True, slots=True)
class TrackRow:
    """One line of the table beside the drawing: what a stage does within the window.

    ``busy`` counts compute only: transfers run beside it.
    """

    stage: int
    boxes: int
    busy: str
    idle: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """The drawing, its table, and whether boxes were left out."""

    window: Window
    replicas: tuple[int, ...]
    drawing: Drawing
    rows: tuple[TrackRow, ...]
    begins: str
    ends: str
    left_out: str
    earlier: Window | None
    later: Window | None
    closer: Window | None
    """The first half of this window; ``None`` where it cannot be magnified further."""
    wider: Window | None


def schedule(events: Sequence[TimelineEvent], wanted: Window) -> Schedule | None:
    """The schedule within a window; ``None`` where the plan came without a timeline."""
    if not events:
        return None
    replicas = tuple(sorted({event.replica for event in events}))
    window = _inside(wanted, replicas)
    end_of_step = max(event.start_s + event.duration_s for event in events)
    begin = end_of_step * window.part / window.zoom
    end = end_of_step * (window.part + 1) / window.zoom
    seen = sorted(
        (
            event
            for event in events
            if event.replica == window.replica and event.start_s < end and event.start_s + event.duration_s > begin
        ),
        key=lambda event: (event.start_s, event.track),
    )
    shortest_s = (end - begin) * _SHORTEST / (_WIDTH - _LEFT - _RIGHT)
    shown = _merged(seen, shortest_s)
    while len(shown) > MOST_BOXES:
        shortest_s *= 2
        shown = _merged(shown, shortest_s)
    left_out = ""
    if len(shown) < len(seen):
        left_out = "Boxes too short to tell apart are drawn as one; look closer to see each."
    return Schedule(
        window=window,
        replicas=replicas,
        drawing=_drawing(shown, begin, end),
        rows=_rows(seen, begin, end),
        begins=seconds(begin),
        ends=seconds(end),
        left_out=left_out,
        earlier=replace(window, part=window.part - 1) if window.part else None,
        later=replace(window, part=window.part + 1) if window.part + 1 < window.zoom else None,
        closer=replace(window, zoom=2 * window.zoom, part=2 * window.part) if window.zoom < ZOOMS[-1] else None,
        wider=replace(window, zoom=window.zoom // 2, part=window.part // 2) if window.zoom > 1 else None,
    )


def _merged(events: Sequence[TimelineEvent], shortest_s: float) -> list[TimelineEvent]:
    """``events`` in order of their beginning; one too short to be seen is joined with the next on its track.

    A run of equal ones keeps its category, others become "several"; a gap that could be seen ends a run.
    """
    runs: dict[int, list[TimelineEvent]] = {}
    done: list[list[TimelineEvent]] = []
    for event in events:
        run = runs.get(event.track)
        if run is not None:
            begin, end = run[0].start_s, run[-1].start_s + run[-1].duration_s
            if event.start_s - end < shortest_s and end - begin < shortest_s:
                run.append(event)
                continue
            done.append(run)
        runs[event.track] = [event]
    found = map(_one, (*done, *runs.values()))
    return sorted(found, key=lambda event: (event.start_s, event.track))


def _one(run: Sequence[TimelineEvent]) -> TimelineEvent:
    """The events of a run as one."""
    first, last = run[0], run[-1]
    if first is last:
        return first
    category = first.category if len({event.category for event in run}) == 1 else "several"
    name = _NAMES["several"] if category == "several" else f"several {category}"
    length_s = last.start_s + last.duration_s - first.start_s
    return replace(first, name=name, category=category, duration_s=length_s)


def _inside(wanted: Window, replicas: Sequence[int]) -> Window:
    """The offered window nearest to the one asked for."""
    zoom = max((offered for offered in ZOOMS if offered <= wanted.zoom), default=1)
    return Window(
        replica=wanted.replica if wanted.replica in replicas else replicas[0],
        zoom=zoom,
        part=min(max(wanted.part, 0), zoom - 1),
    )


def _drawing(events: Sequence[TimelineEvent], begin: float, end: float) -> Drawing:
    tracks = sorted({event.track for event in events})
    row_of = {track: index for index, track in enumerate(tracks)}
    scale = (_WIDTH - _LEFT - _RIGHT) / (end - begin)
    bottom = _TOP + _ROW * len(tracks)
    boxes: list[Box] = []
    words = [
        Words(_LEFT - 8, _TOP + _ROW * row + 20, f"stage {track}", anchor="end") for track, row in row_of.items()
    ]
    for event in events:
        left = _LEFT + (max(event.start_s, begin) - begin) * scale
        width = (min(event.start_s + event.duration_s, end) - max(event.start_s, begin)) * scale
        y = _TOP + _ROW * row_of[event.track] + (_ROW - _BAR) / 2
        tip = f"{event.name}, stage {event.track}: {seconds(event.start_s)}, lasts {seconds(event.duration_s)}"
        boxes.append(Box(left, y, width, _BAR, f"event-{_style(event)}", tip))
        number = _MICRO_BATCH.search(event.name)
        if number and width >= _ROOM_FOR_A_DIGIT * (len(number[0]) + 1):
            words.append(Words(left + width / 2, y + 16, number[0], "in-box", "middle"))
    lines, ticks = _axis(begin, end, scale, bottom)
    present = {_style(event): _NAMES.get(event.category, event.category) for event in events}
    return Drawing(
        width=_WIDTH,
        height=bottom + 28,
        name="Predicted schedule of the pipeline",
        description=f"{plural(len(tracks), 'stage')} from {seconds(begin)} to {seconds(end)} of the step.",
        boxes=tuple(boxes),
        lines=lines,
        words=(*words, *ticks),
        legend=tuple(Key(f"event-{style}", present[style]) for style in (*_KNOWN, "other") if style in present),
    )


def _axis(begin: float, end: float, scale: float, bottom: float) -> tuple[tuple[Line, ...], tuple[Words, ...]]:
    step = round_steps(end - begin, wanted=8)[1]
    first = math.ceil(begin / step - 1e-9)
    places = [
        (number * step, _LEFT + (number * step - begin) * scale) for number in range(first, int(end / step) + 1)
    ]
    lines = tuple(Line(x, _TOP, x, bottom + 4, "grid-line") for _, x in places)
    words = tuple(
        Words(x, bottom + 20, round_seconds(moment), anchor="middle") for moment, x in places if x < _WIDTH - 24
    )
    return lines, words


def _style(event: TimelineEvent) -> str:
    return event.category if event.category in _KNOWN else "other"


def _rows(events: Sequence[TimelineEvent], begin: float, end: float) -> tuple[TrackRow, ...]:
    by_track: dict[int, list[TimelineEvent]] = {}
    for event in events:
        by_track.setdefault(event.track, []).append(event)
    rows = []
    for track, own in sorted(by_track.items()):
        busy = sum(
            min(event.start_s + event.duration_s, end) - max(event.start_s, begin)
            for event in own
            if event.category in _COMPUTE
        )
        rows.append(TrackRow(track, len(own), seconds(busy), seconds(max(end - begin - busy, 0.0))))
    return tuple(rows)
