"""A rebalancing of experts as pages and terminal report it: whether to move, what it brings, and what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.experts.rebalancing import RebalanceAnswer
from app.presentation.figures import count, data_bytes, plural, ratio, seconds
from cluster_models.units import MILLISECOND

_LOSS: Final = 0.02
"""Loss of balance from which on a workload is named."""


@dataclass(frozen=True, slots=True)
class MovesReport:
    """Report on a rebalancing; ``workloads``: name, balance before and after.

    ``losers``: a warning of the workloads that lose balance, empty where none does; ``figures`` are empty where
    nothing moves; ``nearest``: balance before and after where experts have copies and the nearest serves.
    """

    advice: str
    reason: str
    pays: bool
    balance: tuple[tuple[str, str], ...]
    figures: tuple[tuple[str, str], ...]
    workloads: tuple[tuple[str, str, str], ...]
    nearest: str
    losers: str
    assumptions: tuple[str, ...]


def moves_report(answer: RebalanceAnswer) -> MovesReport:
    """The report of a rebalancing."""
    advice, _, reason = answer.verdict.partition(": ")
    return MovesReport(
        advice=f"{advice[:1].upper()}{advice[1:]}.",
        reason=f"{reason[:1].upper()}{reason[1:]}.",
        pays=answer.pays,
        balance=_balance(answer),
        figures=_figures(answer) if answer.moves else (),
        workloads=tuple((name, ratio(before), ratio(after)) for name, (before, after) in answer.workloads.items()),
        nearest=_nearest(answer),
        losers=_losers(answer),
        assumptions=tuple(answer.assumptions),
    )


def _nearest(answer: RebalanceAnswer) -> str:
    if len(answer.placement.physical_to_logical_map[0]) == answer.placement.experts:
        return ""
    before, after = ratio(answer.nearest_balancedness_before), ratio(answer.nearest_balancedness)
    return f"{before} → {after} where the nearest copy serves, as in SGLang's static dispatch."


def _losers(answer: RebalanceAnswer) -> str:
    names = [name for name, (before, after) in answer.workloads.items() if after < before - _LOSS]
    return f"{', '.join(names)} would lose balance: name what else runs, if it does." if names else ""


def _balance(answer: RebalanceAnswer) -> tuple[tuple[str, str], ...]:
    target = answer.target_balancedness
    return (
        (ratio(answer.balancedness_before), "running map"),
        (ratio(answer.balancedness), "after the moves" if answer.moves else "without moves"),
        *(() if target is None else ((ratio(target), "to reach" if answer.reached else "not reached"),)),
    )


def _figures(answer: RebalanceAnswer) -> tuple[tuple[str, str], ...]:
    layers = len({move.layer for move in answer.moves})
    least = answer.least_moves
    even = answer.break_even_steps
    return (
        ("Experts loaded", f"{count(len(answer.moves))} in {plural(layers, 'layer')}"),
        *((("No map with that balance needs fewer", count(least)),) if least is not None else ()),
        ("Sent inside nodes", data_bytes(answer.bytes_inside_nodes)),
        ("Sent between nodes", data_bytes(answer.bytes_between_nodes)),
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
