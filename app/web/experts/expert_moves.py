"""The page of a rebalancing: its report, layers and moves one by one, a drawing, and files to take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.experts.rebalancing import RebalanceAnswer, RebalancedLayer
from app.presentation.expert_moves import MovesReport, moves_report
from app.presentation.figures import count, data_bytes
from app.web.drawing import Drawing
from app.web.experts.layer_balance import LayerPair, layer_drawing
from app.web.experts.map_files import MapFiles, map_files
from cluster_models.model.architecture import Architecture

_MOST_MOVES: Final = 1_000
"""Moves that are listed one by one."""


@dataclass(frozen=True, slots=True)
class LayerMoves:
    """One layer: what is loaded, and its balance."""

    layer: int
    moves: str
    between: str
    size: str
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class MoveLine:
    """One expert that is loaded into a slot."""

    layer: int
    expert: int
    source: int
    rank: int
    slot: int
    leaves: int
    how: str


@dataclass(frozen=True, slots=True)
class MovesPage:
    """A whole answer; ``more_moves`` are not listed."""

    report: MovesReport
    layers: tuple[LayerMoves, ...]
    unmoved: int
    drawing: Drawing
    moves: tuple[MoveLine, ...]
    more_moves: int
    files: MapFiles


def moves_page(answer: RebalanceAnswer, model: Architecture | None) -> MovesPage:
    """The page of a rebalancing; the ``model``, where it is known, says how many layers."""
    moved = [each for each in answer.layers if each.moves]
    each_bytes = _bytes_of_one(answer)
    pairs = [LayerPair(each.layer, each.balancedness_before, each.balancedness) for each in answer.layers]
    return MovesPage(
        report=moves_report(answer),
        layers=tuple(_layer_line(each, each_bytes) for each in moved),
        unmoved=len(answer.layers) - len(moved),
        drawing=layer_drawing("the workloads that run", pairs, ("running map", "new map")),
        moves=tuple(
            MoveLine(
                move.layer,
                move.new,
                move.source,
                move.rank,
                move.slot,
                move.old,
                _how(move.same_node, move.buffered),
            )
            for move in answer.moves[:_MOST_MOVES]
        ),
        more_moves=max(0, len(answer.moves) - _MOST_MOVES),
        files=map_files(answer.placement, model),
    )


def _bytes_of_one(answer: RebalanceAnswer) -> float:
    total = answer.bytes_inside_nodes + answer.bytes_between_nodes
    return total / len(answer.moves) if answer.moves else 0.0


def _layer_line(each: RebalancedLayer, each_bytes: float) -> LayerMoves:
    return LayerMoves(
        layer=each.layer,
        moves=count(each.moves),
        between=count(each.moves_between_nodes),
        size=data_bytes(each.moves * each_bytes),
        before=f"{each.balancedness_before:.3f}",
        after=f"{each.balancedness:.3f}",
    )


def _how(same_node: bool, buffered: bool) -> str:
    way = "inside the node" if same_node else "between nodes"
    return f"{way}, waits in a spare buffer" if buffered else way
