"""A plan on a terminal: what was chosen, where it sits, what it costs, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import Final

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, section
from app.presentation.experts import expert_summary
from app.presentation.figures import count, gib, interval, interval_name, percent, plural, seconds, spans, tflops
from app.presentation.robustness import drift_basis, drift_rows
from app.presentation.survival import survival_sentences
from cluster_models.plan import MEMORY_PARTS, TIME_PARTS, Plan, StageMemory, StopReason
from cluster_models.units import GIB
from cluster_models.workload import LinkBandwidth

BAR_CELLS: Final = 40
GRID_COLUMNS: Final = 6
"""Replicas side by side; more go below."""
_MEMORY_COLOURS: Final = ("blue", "cyan", "magenta", "green", "yellow", "red", "white", "bright_black")
_TIME_COLOURS: Final = (
    "green",
    "cyan",
    "blue",
    "magenta",
    "yellow",
    "bright_yellow",
    "red",
    "bright_black",
)
_HINTS: Final = {
    StopReason.TIME_LIMIT: "A longer --time-limit may narrow the gap.",
    StopReason.WORK_LIMIT: "A larger --effort may narrow the gap.",
}


def plan_view(plan: Plan) -> RenderableType:
    """Everything an engineer asks of a plan, most important first."""
    return Group(
        _headline(plan),
        section("Configuration", _configuration(plan)),
        section("Hosts: a row for each pipeline stage, a column for each replica", hosts_grid(plan)),
        *([Text(f"Kept as spares: {', '.join(plan.spare_nodes)}")] if plan.spare_nodes else []),
        *([section("What it survives", bullets(survival_sentences(plan)))] if plan.survives else []),
        section("Memory of each GPU", _memory(plan)),
        section("Where a step's time goes", _time(plan)),
        section("Proof", _proof(plan)),
        *([section("Experts", Text(expert_summary(plan)))] if plan.expert_balance else []),
        *([section("Warnings", bullets(plan.warnings))] if plan.warnings else []),
        *([section("What lost, and why", _alternatives(plan))] if plan.alternatives else []),
        *([section("When links change", _drift(plan))] if plan.robustness else []),
        Text(
            f"\nMade from snapshot {plan.provenance.snapshot_id} of {plan.provenance.cluster_name}, "
            f"seed {plan.provenance.seed}, effort {plan.provenance.effort}, "
            f"calibration {plan.provenance.calibration or 'as shipped'}, "
            f"{plan.provenance.link_bandwidth} link bandwidth.",
            style="dim",
        ),
    )


def _headline(plan: Plan) -> RenderableType:
    degrees = plan.configuration.degrees
    careful = plan.provenance.link_bandwidth is LinkBandwidth.PESSIMISTIC
    text = Text.assemble(
        (f"{plan.model}  ", "bold"),
        (str(degrees), "bold green"),
        f"  on {plural(degrees.gpus, 'GPU')} of {plural(len(plan.placement.hosts), 'node')}\n",
        (f"{seconds(plan.time.step_s)} a step", "bold"),
        f" ({interval_name(plan.confidence)} {interval(plan.confidence)})" if plan.confidence else "",
        f"   {count(plan.tokens_per_s)} tokens/s   {count(plan.tokens_per_s_per_gpu)} tokens/s/GPU\n",
        f"{tflops(plan.model_flops_per_s_per_gpu)} of model arithmetic per GPU   MFU {percent(plan.mfu)}",
        "\non pessimistic links: each at its p10" if careful else "",
    )
    return Panel(text, box=box.ROUNDED, border_style="green", expand=False)


def _configuration(plan: Plan) -> RenderableType:
    configuration, workload = plan.configuration, plan.workload
    degrees = configuration.degrees
    rows = [] if workload is None else [("framework", f"{workload.framework.title}, {workload.precision.upper()}")]
    rows += [
        ("micro-batch", f"{configuration.micro_batch} sequence{'s' if configuration.micro_batch > 1 else ''}"),
        ("recomputation", str(configuration.recompute)),
        ("sharding", str(configuration.sharding)),
        ("rank order", str(configuration.rank_order)),
        ("layers", "  then  ".join(" ".join(map(str, row)) for row in configuration.stage_layers)),
    ]
    if degrees.virtual_pipeline > 1:
        rows.append(("interleaving", f"{degrees.virtual_pipeline} model chunks on each pipeline rank"))
    rows += [("GPUs", f"{kind} under {stages}") for kind, stages in _stages_by_kind(plan)]
    return _pairs(rows)


def _stages_by_kind(plan: Plan) -> Iterator[tuple[str, str]]:
    """Which stages run on which GPUs, where these differ."""
    for kind, members in groupby(enumerate(plan.mixed_kinds), key=itemgetter(1)):
        numbers = [stage for stage, _ in members]
        yield kind, f"stage{'s' if len(numbers) > 1 else ''} {spans(numbers)}"


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


def _memory(plan: Plan) -> RenderableType:
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


def _time(plan: Plan) -> RenderableType:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    for (part, name), colour in zip(TIME_PARTS.items(), _TIME_COLOURS, strict=True):
        value = getattr(plan.time, part)
        if value <= 0:
            continue
        share = value / plan.time.step_s
        bar = Text("█" * max(1, round(share * BAR_CELLS)), style=colour)
        table.add_row(name, seconds(value), percent(share), bar)
    return table


def _proof(plan: Plan) -> RenderableType:
    proof = plan.certificate
    lines = [Text(proof.explanation)]
    if proof.stopped_by is not StopReason.NO_SEARCH:
        lines.append(Text(f"At most {percent(proof.gap, places=2)} from the best plan there can be.", style="bold"))
        lines.append(
            Text(
                f"Of {count(proof.candidates_total)} candidates {count(proof.candidates_infeasible)} do not fit "
                f"the memory, {count(proof.candidates_pruned)} are ruled out by their bound and "
                f"{count(proof.candidates_placed)} were placed ({proof.solver})."
            )
        )
    if proof.stopped_by in _HINTS:
        lines.append(Text(_HINTS[proof.stopped_by], style="dim"))
    return Group(*lines)


def _alternatives(plan: Plan) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    for name, justify in (("configuration", "left"), ("step", "right"), ("worse by", "right"), ("peak", "right")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]  # a literal that mypy widens
    table.add_column("why", overflow="fold")
    limit = max((memory.limit_bytes for memory in plan.memory), default=0.0)
    for other in plan.alternatives:
        configuration = other.configuration
        name = (
            f"{configuration.degrees} mb{configuration.micro_batch}\n"
            f"recompute {configuration.recompute}\nsharding {configuration.sharding}"
        )
        worse = percent(other.slower_by) if other.peak_memory_bytes <= limit else "too large"
        figures = (seconds(other.step_s), worse, gib(other.peak_memory_bytes))
        table.add_row(Text(name), *figures, Text(other.reason))
    return table


def _drift(plan: Plan) -> RenderableType:
    assert plan.robustness is not None
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("step of")
    for name in ("p10", "median", "p90", "plan ahead"):
        table.add_column(name, justify="right")
    for row in drift_rows(plan):
        table.add_row(row.name, row.p10, row.median, row.p90, row.plan_ahead)
    return Group(Text(plan.robustness.summary), table, Text(drift_basis(plan), style="dim"))


def _pairs(rows: list[tuple[str, str]]) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    for name, value in rows:
        table.add_row(Text(name, style="dim"), Text(value))
    return table
