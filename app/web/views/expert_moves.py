"""A rebalancing as figures and tables: whether to move, what it brings, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.experts.rebalancing import RebalanceAnswer, RebalancedLayer
from app.presentation.figures import count, gib, plural, seconds
from app.web.views.drawing import Drawing
from app.web.views.layer_balance import LayerPair, layer_drawing
from app.web.views.map_files import MapFiles, map_files
from cluster_models.architecture import Architecture
from cluster_models.units import MILLISECOND

_MOST_MOVES: Final = 1_000
"""That are listed one by one."""

_LOSS: Final = 0.02
"""Of balance: a workload that loses more is warned of."""


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
    """A whole answer; ``losers`` are workloads that lose balance, ``more_moves`` are not listed."""

    mood: str
    advice: str
    reason: str
    balance: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, str], ...]
    workloads: tuple[tuple[str, str, str], ...]
    losers: tuple[str, ...]
    layers: tuple[LayerMoves, ...]
    unmoved: int
    drawing: Drawing
    moves: tuple[MoveLine, ...]
    more_moves: int
    assumptions: tuple[str, ...]
    files: MapFiles


def moves_page(answer: RebalanceAnswer, model: Architecture | None) -> MovesPage:
    """Everything that the page tells of a rebalancing; the ``model``, where it is known, says how many layers."""
    advice, _, reason = answer.verdict.partition(": ")
    moved = [each for each in answer.layers if each.moves]
    each_bytes = _bytes_of_one(answer)
    pairs = [LayerPair(each.layer, each.balancedness_before, each.balancedness) for each in answer.layers]
    return MovesPage(
        mood="good" if answer.pays else "",
        advice=f"{advice[:1].upper()}{advice[1:]}.",
        reason=f"{reason[:1].upper()}{reason[1:]}.",
        balance=_balance(answer),
        figures=_figures(answer, len(moved)) if answer.moves else (),
        workloads=tuple(
            (name, f"{before:.3f}", f"{after:.3f}") for name, (before, after) in answer.workloads.items()
        ),
        losers=tuple(name for name, (before, after) in answer.workloads.items() if after < before - _LOSS),
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
        assumptions=tuple(answer.assumptions),
        files=map_files(answer.placement, model),
    )


def _balance(answer: RebalanceAnswer) -> tuple[tuple[str, str], ...]:
    target = answer.target_balancedness
    return (
        (f"{answer.balancedness_before:.3f}", "running map"),
        (f"{answer.balancedness:.3f}", "after the moves" if answer.moves else "without moves"),
        *(() if target is None else ((f"{target:.3f}", "to reach" if answer.reached else "not reached"),)),
    )


def _figures(answer: RebalanceAnswer, layers: int) -> tuple[tuple[str, str], ...]:
    least = answer.least_moves
    even = answer.break_even_steps
    return (
        ("Experts loaded", f"{count(len(answer.moves))} in {plural(layers, 'layer')}"),
        *((("No map with that balance needs fewer", count(least)),) if least is not None else ()),
        ("Sent inside nodes", gib(answer.bytes_inside_nodes)),
        ("Sent between nodes", gib(answer.bytes_between_nodes)),
        ("Time of the moves", seconds(answer.move_ms * MILLISECOND)),
        ("Saved in a step", seconds(answer.gain_ms_per_step * MILLISECOND)),
        ("Earned back after", "never" if even is None else _steps(even)),
        ("Spare buffers of a rank", _buffers(answer.spare_buffers)),
    )


def _steps(steps: float) -> str:
    """Steps until moves are earned back, with a decimal where there are few."""
    return f"{steps:,.1f} steps" if steps < 100 else f"{steps:,.0f} steps"


def _buffers(spare: int) -> str:
    return f"{count(spare)} of one expert" if spare else "none"


def _bytes_of_one(answer: RebalanceAnswer) -> float:
    total = answer.bytes_inside_nodes + answer.bytes_between_nodes
    return total / len(answer.moves) if answer.moves else 0.0


def _layer_line(each: RebalancedLayer, each_bytes: float) -> LayerMoves:
    return LayerMoves(
        layer=each.layer,
        moves=count(each.moves),
        between=count(each.moves_between_nodes),
        size=gib(each.moves * each_bytes),
        before=f"{each.balancedness_before:.3f}",
        after=f"{each.balancedness:.3f}",
    )


def _how(same_node: bool, buffered: bool) -> str:
    way = "inside the node" if same_node else "between nodes"
    return f"{way}, waits in a spare buffer" if buffered else way
