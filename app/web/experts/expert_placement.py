"""The page of a placement of experts: its report, a drawing of every layer before and after, and files to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from app.experts.answer import ExpertMapDocument, JudgedWorkload, PlacementAnswer
from app.experts.judging import in_order
from app.experts.request import Prepared
from app.experts.wanted import Ask
from app.presentation.expert_map import ExpertMapReport, by_balance, expert_map_report, slowest
from app.web.drawing import Drawing
from app.web.experts.layer_balance import LayerPair, layer_drawing
from app.web.experts.load_map import MOST_NODES, traffic_map
from app.web.experts.map_files import MapFiles, map_files
from app.web.experts.rank_curve import rank_curve
from cluster_models.model.architecture import Architecture
from cluster_models.routing.counts import RoutedWorkload
from solver.experts.loads import rank_loads

_MOST_DRAWN: Final = 12


@dataclass(frozen=True, slots=True)
class LayerLine:
    """One layer: slowest rank over mean."""

    layer: int
    in_order: str
    reached: str
    least: str


@dataclass(frozen=True, slots=True)
class LayersOf:
    """Every layer of one workload, drawn and as rows."""

    name: str
    drawing: Drawing
    ranks: Drawing
    traffic: tuple[Drawing, ...]
    """Contiguous order and new map, where nodes were weighed."""
    rows: tuple[LayerLine, ...]


@dataclass(frozen=True, slots=True)
class PlacementPage:
    """A whole answer."""

    report: ExpertMapReport
    layers: tuple[LayersOf, ...]
    not_drawn: int
    files: MapFiles


def placement_page(answer: PlacementAnswer, asked: Prepared, model: Architecture | None) -> PlacementPage:
    """The page of a placement; the ``model``, where it is known, says how many layers."""
    drawn = by_balance(answer)
    workloads = {workload.name: workload for workload in asked.workloads}
    return PlacementPage(
        report=expert_map_report(answer),
        layers=tuple(
            _layers_of(each, workloads[each.name], answer.placement, asked.ask) for each in drawn[:_MOST_DRAWN]
        ),
        not_drawn=max(0, len(drawn) - _MOST_DRAWN),
        files=map_files(answer.placement, model),
    )


def _layers_of(each: JudgedWorkload, workload: RoutedWorkload, placed: ExpertMapDocument, ask: Ask) -> LayersOf:
    rows = tuple(
        LayerLine(
            layer.layer,
            *(f"{slowest(value):.3f}" for value in (layer.in_order, layer.balancedness, layer.bound)),
        )
        for layer in each.layers
    )
    pairs = [LayerPair(layer.layer, layer.in_order, layer.balancedness) for layer in each.layers]
    shared = [layer.layer for layer in each.layers]
    shares = workload.at(shared).shares()
    held = np.array([placed.physical_to_logical_map[placed.layers.index(layer)] for layer in shared])
    maps = in_order(len(shared), workload.experts, ask.layout.slots), held
    return LayersOf(
        each.name,
        layer_drawing(each.name, pairs, ("contiguous order", "new map")),
        rank_curve(each.name, *(rank_loads(slots, shares, ask.layout, ask.judged) for slots in maps)),
        _traffic(each),
        rows,
    )


def _traffic(each: JudgedWorkload) -> tuple[Drawing, ...]:
    if each.times is None or len(each.times.traffic) > MOST_NODES:
        return ()
    maps = (("contiguous order", each.times.in_order_traffic), ("new map", each.times.traffic))
    highest = max(share for _, rows in maps for row in rows for share in row)
    return tuple(traffic_map(rows, highest, f"{title}, {each.name}") for title, rows in maps)
