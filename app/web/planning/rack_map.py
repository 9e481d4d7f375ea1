"""Seats of ranks as racks: every host under its place, every GPU in the colour of its pipeline stage."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from app.presentation.crossings import Places
from app.presentation.figures import plural, spans
from app.web.drawing import Box, Drawing, Line, Words
from app.web.planning.seats import HUES
from cluster_models.training.plan import Plan, RankPlace

_CELL, _CELL_HEIGHT, _GAP = 14.0, 18.0, 12.0
_LABEL, _HOST_HEIGHT, _HEAD = 16.0, 42.0, 24.0
_WIDTH: Final = 570.0
_NODE: Final = 22.0
"""Width of a host as one cell."""
_MOST_HOSTS: Final = 40
"""Hosts drawn GPU by GPU; of more, each is one cell."""
_MOST_NUMBERED: Final = 160
"""Hosts with the number of their stage; of more, places stand in columns, a line or two each."""
_TINY, _NAME, _MOST_IN_LINE = 11.0, 96.0, 24


def rack_map(plan: Plan, where: Places, crossing: Mapping[str, Collection[int]]) -> Drawing:
    """The racks of ``plan``; GPUs of stages with a ``crossing`` tensor, context or expert group are outlined."""
    ranks: dict[str, list[RankPlace]] = {}
    for rank in plan.placement.ranks:
        ranks.setdefault(rank.node, []).append(rank)
    groups: dict[str, list[str]] = {}
    for host in plan.placement.hosts:
        groups.setdefault(where.of_node.get(host, host) if where.kind != "node" else "", []).append(host)
    ringed = {stage for kind, stages in crossing.items() if kind != "data parallel" for stage in stages}
    if len(ringed) == plan.configuration.degrees.pipeline > 1:
        ringed, crosses = set(), " Every stage has a group that crosses."
    else:
        crosses = f" Outlined: {plural(len(ringed), 'stage')} with a group that crosses." if ringed else ""
    if len(ranks) > _MOST_NUMBERED:
        return _many(groups, ranks, ringed, f"Each cell is a node; colours are pipeline stages.{crosses}")
    is_large = len(ranks) > _MOST_HOSTS
    host_width = _NODE if is_large else _CELL * max(plan.placement.gpus_per_node, 6)
    columns = max(1, int((_WIDTH - 2 * _GAP) // (host_width + (0 if is_large else _GAP))))
    boxes, words, lines, y = list[Box](), list[Words](), list[Line](), 0.0
    for name, hosts in groups.items():
        used = list(dict.fromkeys(hosts))
        if name:
            words.append(Words(_GAP, y + 16, f"{where.kind} {name}", "place"))
            y += _HEAD
        for start in range(0, len(used), columns):
            for index, host in enumerate(used[start : start + columns]):
                x = _GAP + index * (host_width + (0 if is_large else _GAP))
                if is_large:
                    boxes.append(_node_cell(host, ranks[host], x, y, ringed))
                    first = min(rank.pipeline for rank in ranks[host])
                    words.append(Words(x + _NODE / 2 - 1, y + 13, str(first), "on-hue", "middle"))
                else:
                    words.append(Words(x, y + 11, host, "tick host-name"))
                    drawn = _gpu_cells(ranks[host], x, y + _LABEL, ringed)
                    boxes += drawn[0]
                    words += drawn[1]
            y += _CELL_HEIGHT + 2 if is_large else _HOST_HEIGHT
        lines.append(Line(_GAP, y + 2, _WIDTH - _GAP, y + 2, "grid-line"))
        y += 8
    return Drawing(
        width=_WIDTH,
        height=y + 4,
        name="Racks with the stages of the pipeline",
        description=f"Numbers and colours are pipeline stages.{crosses}",
        boxes=tuple(boxes),
        lines=tuple(lines[:-1]),
        words=tuple(words),
        shrinks=True,
    )


def _many(
    groups: Mapping[str, Sequence[str]], ranks: Mapping[str, list[RankPlace]], ringed: Collection[int], words: str
) -> Drawing:
    """Places in columns by name, a small cell for each host."""
    places = {name: list(dict.fromkeys(hosts)) for name, hosts in sorted(groups.items())}
    line = min(max(map(len, places.values())), _MOST_IN_LINE)
    column = _NAME + line * _TINY + _GAP
    columns = max(1, int(_WIDTH // column))
    lines = {name: -(-len(hosts) // line) for name, hosts in places.items()}
    most = -(-sum(lines.values()) // columns)
    boxes, names, at, row, deepest = list[Box](), list[Words](), 0, 0, 0
    for name, hosts in places.items():
        if row >= most:
            at, row = at + 1, 0
        x, y = at * column, row * (_TINY + 3)
        names.append(Words(x + _NAME - 6, y + 10, name if len(name) <= 16 else f"{name[:15]}…", "host-name", "end"))
        for index, host in enumerate(hosts):
            left, top = x + _NAME + index % line * _TINY, y + index // line * (_TINY + 3)
            boxes.append(replace(_node_cell(host, ranks[host], left, top, ringed), width=_TINY - 1, height=_TINY))
        row += lines[name]
        deepest = max(deepest, row)
    return Drawing(
        width=_WIDTH,
        height=deepest * (_TINY + 3) + 4,
        name="Racks with the stages of the pipeline",
        description=words,
        boxes=tuple(boxes),
        words=tuple(names),
        shrinks=True,
    )


def stage_style(stage: int) -> str:
    """Colour of a pipeline stage; neighbours differ."""
    return f"hue-{stage % HUES}"


def _gpu_cells(
    ranks: list[RankPlace], x: float, y: float, ringed: Collection[int]
) -> tuple[list[Box], list[Words]]:
    """Runs of GPUs of one stage and replica, with the stage's number."""
    boxes, words = [], []
    at = x
    for (stage, data), group in groupby(sorted(ranks, key=lambda r: r.gpu), key=lambda r: (r.pipeline, r.data)):
        members = list(group)
        width = _CELL * len(members)
        tip = (
            f"{members[0].node}, GPU {spans(rank.gpu for rank in members)}: stage {stage}, replica {data}, "
            f"rank {spans(rank.rank for rank in members)}"
        )
        ring = " ringed" if stage in ringed else ""
        boxes.append(Box(at, y, width - 1.5, _CELL_HEIGHT, f"{stage_style(stage)} seat-cell{ring}", tip))
        words.append(Words(at + width / 2 - 1, y + 13, str(stage), "on-hue", "middle"))
        at += width
    return boxes, words


def _node_cell(host: str, ranks: list[RankPlace], x: float, y: float, ringed: Collection[int]) -> Box:
    stages = sorted({rank.pipeline for rank in ranks})
    ring = " ringed" if set(stages).intersection(ringed) else ""
    tip = f"{host}: stage {spans(stages)}, rank {spans(rank.rank for rank in ranks)}"
    return Box(x, y, _NODE - 1.5, _CELL_HEIGHT, f"{stage_style(stages[0])} seat-cell{ring}", tip)
