"""A comparison on a terminal: verdicts first, then the figures side by side."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, section
from app.presentation.comparison import ComparisonReport, ComparisonTable


def comparison_view(report: ComparisonReport) -> RenderableType:
    """The figures that an engineer decides by, most important first."""
    return Group(
        *(section(f"{name}, beside the plan", bullets(sentences)) for name, sentences in report.verdicts),
        *(section(table.title, _table(table, report.columns)) for table in report.tables),
    )


def _table(content: ComparisonTable, columns: tuple[str, ...]) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("")
    for name in columns:
        table.add_column(Text(name), justify="right", overflow="fold")
    for row in content.rows:
        table.add_row(Text(row.name, style="dim"), *map(Text, row.values))
    return table
