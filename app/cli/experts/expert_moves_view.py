"""Moves of experts on a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from app.cli.terminal import bullets, pairs, report_section
from app.experts.rebalancing import RebalanceAnswer
from app.presentation.expert_moves import MovesReport, moves_report


def moves_view(answer: RebalanceAnswer, written: str) -> RenderableType:
    """Whether to move, what that brings, and what it costs."""
    report = moves_report(answer)
    parts: list[tuple[str, list[RenderableType]]] = [
        ("Balance", _balance(report)),
        ("The moves", [pairs(report.figures)] if report.figures else []),
        ("Assumptions", [bullets(report.assumptions)] if report.assumptions else []),
        ("Next", [Text(written or "--json has every move; --format sglang --output DIR writes the new map")]),
    ]
    verdict = Text.assemble((report.advice, "bold"), " ", report.reason)
    return Group(verdict, *(report_section(name, body) for name, body in parts if body))


def _balance(report: MovesReport) -> list[RenderableType]:
    workloads = pairs((name, f"{before} → {after}") for name, before, after in report.workloads)
    nearest = [Text(report.nearest, style="dim")] if report.nearest else []
    losers = [Text(report.losers, style="yellow")] if report.losers else []
    return [pairs((words, value) for value, words in report.balance), workloads, *nearest, *losers]
