"""The page of a placement of experts: its report, a drawing of every layer before and after, and files to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.experts.answer import JudgedWorkload, PlacementAnswer
from app.presentation.expert_map import ExpertMapReport, by_balance, expert_map_report, slowest
from app.web.drawing import Drawing
from app.web.experts.layer_balance import LayerPair, layer_drawing
from app.web.experts.map_files import MapFiles, map_files
from cluster_models.model.architecture import Architecture

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
    rows: tuple[LayerLine, ...]


@dataclass(frozen=True, slots=True)
class PlacementPage:
    """A whole answer."""

    report: ExpertMapReport
    layers: tuple[LayersOf, ...]
    not_drawn: int
    files: MapFiles


def placement_page(answer: PlacementAnswer, model: Architecture | None) -> PlacementPage:
    """The page of a placement; the ``model``, where it is known, says how many layers."""
    drawn = by_balance(answer)
    return PlacementPage(
        report=expert_map_report(answer),
        layers=tuple(_layers_of(each) for each in drawn[:_MOST_DRAWN]),
        not_drawn=max(0, len(drawn) - _MOST_DRAWN),
        files=map_files(answer.placement, model),
    )


def _layers_of(each: JudgedWorkload) -> LayersOf:
    rows = tuple(
        LayerLine(
            layer.layer,
            *(f"{slowest(value):.3f}" for value in (layer.in_order, layer.balancedness, layer.bound)),
        )
        for layer in each.layers
    )
    pairs = [LayerPair(layer.layer, layer.in_order, layer.balancedness) for layer in each.layers]
    return LayersOf(each.name, layer_drawing(each.name, pairs, ("contiguous order", "new map")), rows)
