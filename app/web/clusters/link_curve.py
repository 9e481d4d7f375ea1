"""The bandwidth of one link over message sizes, beside the median of its class, and the tests it comes from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Final

from app.presentation.figures import data_bytes, gbytes_per_s, plural
from app.web.drawing import Box, Drawing, Key, Line, Words, round_steps
from cluster_models.cluster.measurements import Sample, SampleStatus
from cluster_models.links.model import LinkModel
from cluster_models.links.slow_links import Rates
from cluster_models.units import GBYTE

_WIDTH, _HEIGHT = 760.0, 260.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 56.0, 120.0, 14.0, 34.0
_DOT: Final = 6.0
_MOST_TESTS: Final = 60


@dataclass(frozen=True, slots=True)
class TestRow:
    """One measurement as a tool reported it."""

    test: str
    size: str
    load: str
    result: str
    moment: str


@dataclass(frozen=True, slots=True)
class LinkCurve:
    """A link: how close its ends are, its curve where it was measured, and its tests."""

    title: str
    link_class: str
    drawing: Drawing | None
    tests: tuple[TestRow, ...]


Points = list[tuple[float, float]]


def link_curve(
    model: LinkModel, rates: Rates, samples: Sequence[Sample], source: str, destination: str
) -> LinkCurve | None:
    """The curve from ``source`` to ``destination``; ``None`` where one of them is not a node of the cluster."""
    if source == destination or not {source, destination} <= set(model.nodes):
        return None
    position = {name: index for index, name in enumerate(model.nodes)}
    k = model.link_classes[position[source], position[destination]]
    own: dict[float, Points] = {}
    usual: dict[float, Points] = {}
    for (flows, size), by_pair in sorted(rates.items()):
        if (rate := by_pair.get((source, destination))) is None:
            continue
        own.setdefault(flows, []).append((size, rate))
        alike = [value for (a, b), value in by_pair.items() if model.link_classes[position[a], position[b]] == k]
        usual.setdefault(flows, []).append((size, median(alike)))
    ends = {source, destination}
    return LinkCurve(
        title=f"{source} to {destination}",
        link_class=model.link_class(source, destination),
        drawing=_drawing(own, usual) if own else None,
        tests=tuple(_test(sample) for sample in samples if {sample.source, sample.destination} == ends)[
            :_MOST_TESTS
        ],
    )


def _drawing(own: Mapping[float, Points], usual: Mapping[float, Points]) -> Drawing:
    points = [point for curves in (own, usual) for curve in curves.values() for point in curve]
    smallest, largest = (pick(math.log2(size) for size, _ in points) for pick in (min, max))
    highest = max(rate for _, rate in points) * 1.05
    across = (_WIDTH - _LEFT - _RIGHT) / max(largest - smallest, 1.0)
    up = (_HEIGHT - _TOP - _BOTTOM) / highest
    bottom = _HEIGHT - _BOTTOM

    def at(point: tuple[float, float]) -> tuple[float, float]:
        return _LEFT + (math.log2(point[0]) - smallest) * across, bottom - point[1] * up

    lines, words, boxes, keys = [], [], [], []
    for step in round_steps(highest / GBYTE):
        y = bottom - step * GBYTE * up
        lines.append(Line(_LEFT, y, _WIDTH - _RIGHT, y, "grid-line"))
        words.append(Words(_LEFT - 8, y + 4, f"{step:g}", anchor="end"))
    for size in sorted({size for size, _ in points}):
        x = at((size, 0))[0]
        if x - max((word.x for word in words if word.style == "tick size"), default=-99.0) > 56:
            words.append(Words(x, bottom + 18, data_bytes(size), "tick size", "middle"))
    for index, flows in enumerate(own):
        for style, curve in ((f"line-{index % 4}", own[flows]), (f"line-{index % 4} usual", usual[flows])):
            places = [at(point) for point in curve]
            lines += [Line(*a, *b, style) for a, b in pairwise(places)]
        for size, rate in own[flows]:
            x, y = at((size, rate))
            tip = f"{data_bytes(size)}, {plural(int(flows), 'flow')}: {gbytes_per_s(rate)}"
            boxes.append(Box(x - _DOT / 2, y - _DOT / 2, _DOT, _DOT, f"dot-{index % 4}", tip))
        keys.append(Key(f"dot-{index % 4}", f"{plural(int(flows), 'flow')}; dashed: median of its class"))
    words.append(Words(4, 10, "GB/s"))
    return Drawing(
        width=_WIDTH,
        height=_HEIGHT,
        name="Bandwidth over message size",
        description="Bandwidth of each flow by message size; dashed, the median of the links of the same class.",
        boxes=tuple(boxes),
        lines=tuple(lines),
        words=tuple(words),
        legend=tuple(keys),
        shrinks=True,
    )


def _test(sample: Sample) -> TestRow:
    arrow = f"{sample.source} to {sample.destination}"
    return TestRow(
        test=f"{sample.tool} {sample.collective}, {arrow} ({sample.direction})",
        size=data_bytes(sample.message_bytes),
        load=f"{plural(sample.ranks_per_node, 'rank')} a node, {plural(sample.pairs_active, 'pair')} at once",
        result="failed" if sample.status is SampleStatus.FAILED else gbytes_per_s(sample.bytes_per_s),
        moment="no date" if sample.measured_at is None else f"{sample.measured_at:%d %b %Y %H:%M}",
    )
