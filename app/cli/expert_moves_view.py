"""Moves of experts on a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, report_section
from app.experts.rebalancing import RebalanceAnswer
from app.presentation.figures import count, gib, plural, seconds
from cluster_models.units import MILLISECOND


def moves_view(answer: RebalanceAnswer, written: str) -> RenderableType:
    """Whether to move, what that brings, and what it costs."""
    parts: list[tuple[str, list[RenderableType]]] = [
        ("Balance", [_balance(answer)]),
        ("The moves", [_moves(answer)] if answer.moves else []),
        ("Taken for granted", [bullets(answer.assumptions)] if answer.assumptions else []),
        ("Next", [Text(written or "--json has every move; --format sglang --output DIR writes the new map")]),
    ]
    return Group(Text(answer.verdict, style="bold"), *(report_section(name, body) for name, body in parts if body))


def _balance(answer: RebalanceAnswer) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for name, (before, after) in answer.workloads.items():
        table.add_row(name, f"{before:.3f} → {after:.3f}")
    if len(answer.placement.physical_to_logical_map[0]) > answer.placement.experts:
        near = f"{answer.nearest_balancedness_before:.3f} → {answer.nearest_balancedness:.3f}"
        table.add_row("where the nearest copy serves, as in SGLang's static dispatch", near)
    return table


def _moves(answer: RebalanceAnswer) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    least = "" if answer.least_moves is None else f", at least {count(answer.least_moves)} for the target"
    layers = len({move.layer for move in answer.moves})
    table.add_row("loads", f"{count(len(answer.moves))} in {plural(layers, 'layer')}{least}")
    table.add_row("inside nodes", gib(answer.bytes_inside_nodes))
    table.add_row("between nodes", gib(answer.bytes_between_nodes))
    table.add_row("take", seconds(answer.move_ms * MILLISECOND))
    table.add_row("save a step", seconds(answer.gain_ms_per_step * MILLISECOND))
    if answer.break_even_steps is not None:
        table.add_row("break even", f"after {answer.break_even_steps:,.1f} steps")
    table.add_row("spare buffers", f"{count(answer.spare_buffers)} of an expert on each rank")
    return table
