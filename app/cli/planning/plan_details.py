"""Details that a plan's terminal page shows on request: hosts, memory by part, and drift of links."""

from __future__ import annotations

from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.presentation.figures import gib, percent, spans
from app.presentation.plan import PlanReport
from cluster_models.training.plan import Plan
from cluster_models.training.rank_costs import MEMORY_PARTS, StageMemory
from cluster_models.units import GIB

BAR_CELLS: Final = 40
GRID_COLUMNS: Final = 6
"""Replicas side by side; more go below."""
_MEMORY_COLOURS: Final = ("blue", "cyan", "magenta", "green", "yellow", "red", "white", "bright_black")


def hosts_grid(plan: Plan) -> RenderableType:
    """The host, or hosts, of every pipeline stage and replica, with the GPUs where a host is shared."""
    cells: dict[tuple[int, int], dict[str, list[int]]] = {}
    for place in plan.placement.ranks:
        hosts = cells.setdefault((place.pipeline, place.data), {})
        hosts.setdefault(place.node, []).append(place.gpu)
    degrees, whole = plan.configuration.degrees, plan.placement.gpus_per_node
    tables = []
    for first in range(0, degrees.data, GRID_COLUMNS):
        replicas = range(first, min(first + GRID_COLUMNS, degrees.data))
        table = Table(box=box.SIMPLE, pad_edge=False)
        table.add_column("stage", justify="right")
        for replica in replicas:
            table.add_column(f"dp {replica}", overflow="fold")
        for stage in range(degrees.pipeline):
            seats = [
                "\n".join(_seat(host, gpus, whole) for host, gpus in cells[stage, replica].items())
                for replica in replicas
            ]
            table.add_row(str(stage), *map(Text, seats))
        tables.append(table)
    return Group(*tables)


def _seat(host: str, gpus: list[int], whole: int) -> str:
    if len(gpus) == whole:
        return host
    numbers = spans(gpus).replace("\N{EN DASH}", "-").replace(", ", ",")
    return f"{host}:{numbers}"


def memory_account(plan: Plan) -> RenderableType:
    """A bar for each stage and its parts in GiB."""
    table = Table(box=None, show_header=False, pad_edge=False)
    for memory in plan.memory:
        share = memory.total_bytes / memory.limit_bytes
        style = "red" if share > 1 else "yellow" if share > 0.97 else ""
        figures = f"{memory.total_bytes / GIB:.1f} of {gib(memory.limit_bytes)}  {percent(share, places=0)}"
        kind = plan.mixed_kinds[memory.stage] if plan.mixed_kinds else ""
        table.add_row(f"stage {memory.stage}  {kind}".rstrip(), _memory_bar(memory), Text(figures, style=style))
    parts = Table(box=box.SIMPLE, pad_edge=False)
    parts.add_column("GiB", justify="right")
    shown = [
        (part, colour)
        for part, colour in zip(MEMORY_PARTS, _MEMORY_COLOURS, strict=True)
        if any(getattr(memory, part) for memory in plan.memory)
    ]
    for part, colour in shown:
        parts.add_column(Text(_column(part), style=colour), justify="right")
    for memory in plan.memory:
        figures_row = [f"{getattr(memory, part) / GIB:.1f}" for part, _ in shown]
        parts.add_row(f"stage {memory.stage}", *figures_row)
    return Group(table, parts)


def _memory_bar(memory: StageMemory) -> Text:
    """Parts side by side; the whole width is the limit."""
    bar, drawn, reached = Text(), 0, 0.0
    for part, colour in zip(MEMORY_PARTS, _MEMORY_COLOURS, strict=True):
        reached += getattr(memory, part) / memory.limit_bytes * BAR_CELLS
        cells = min(round(reached), BAR_CELLS) - drawn
        bar.append("█" * cells, style=colour)
        drawn += cells
    bar.append("·" * (BAR_CELLS - drawn), style="dim")
    return bar


def _column(part: str) -> str:
    """The first word of a part's name, cut to what fits side by side."""
    word = MEMORY_PARTS[part].split()[0]
    return word if len(word) <= 9 else f"{word[:5]}."


def drift_account(report: PlanReport) -> RenderableType:
    """Deciles of the plan and its alternatives when links change; only for plans that were drawn."""
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("step of")
    for name in ("p10", "median", "p90", "plan ahead"):
        table.add_column(name, justify="right")
    for row in report.drift:
        table.add_row(row.name, row.p10, row.median, row.p90, row.plan_ahead)
    return Group(Text(report.drift_summary), table, Text(report.drift_basis, style="dim"))
