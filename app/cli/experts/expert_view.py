"""Routing statistics and expert maps on a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, command_line, more_line, report_section
from app.experts.answer import PlacementAnswer
from app.experts.request import BOTH, LOCALITY
from app.experts.statistics import RoutingStatistics, WorkloadStatistics
from app.presentation.expert_map import ExpertMapReport, expert_map_report
from app.presentation.figures import count, plural
from app.presentation.routing import RoutingReport, routing_report
from app.routing.reading import RoutingRead

if TYPE_CHECKING:
    from app.cli.experts.experts import Place

_MOST_ROWS: Final = 12
_BAR: Final = 30


def placement_view(answer: PlacementAnswer, after: list[RenderableType]) -> RenderableType:
    """Balance and times before and after a map, its weakest layers, and what to do ``after``."""
    report = expert_map_report(answer)
    parts: list[tuple[str, list[RenderableType]]] = [
        ("Balance: load of the mean rank over that of the slowest", _balance(report)),
        ("Tokens that stay on their GPU, and in their node, from layer to layer", _stays(report)),
        ("Time of all sparse layers, and nodes crossed", _times(report)),
        ("Layers that stay furthest from balance", [bullets(report.worst)] if report.worst else []),
        ("Assumptions", [bullets(report.assumptions)] if report.assumptions else []),
        ("Warnings", [bullets(report.warnings)] if report.warnings else []),
        ("Next", after),
    ]
    sections = (report_section(name, body) for name, body in parts if body)
    return Group(Text(report.layout, style="bold"), Text(report.gain), *sections)


def _balance(report: ExpertMapReport) -> list[RenderableType]:
    nodes = ("stays in its node",) if report.several_nodes else ()
    table = _figures_table("contiguous", "this map", "at most", "slowest over mean", *nodes)
    for row in report.workloads:
        about = row.weight if row.planned else "not planned for"
        local = (row.local,) if report.several_nodes else ()
        name = f"{row.name} ({about})" if about else row.name
        table.add_row(name, row.in_order, row.reached, row.bound, row.slowest, *local)
    return [table, *(Text(line, style="dim") for line in report.served)]


def _stays(report: ExpertMapReport) -> list[RenderableType]:
    if not report.stays:
        return []
    table = _figures_table("contiguous", "balance alone", "this map")
    for row in report.stays:
        table.add_row(row.name, row.in_order, row.balance_alone, row.reached)
    return [table, *([Text(report.followed, style="dim")] if report.followed else [])]


def _times(report: ExpertMapReport) -> list[RenderableType]:
    if not report.times:
        return []
    choices = ("nearest, any copy",) if report.copies_choice else ()
    table = _figures_table("contiguous", "balance alone", "this map", "at least", *choices, "nodes crossed")
    for row in report.times:
        chosen = (row.choices,) if report.copies_choice else ()
        table.add_row(row.name, row.in_order, row.balance_alone, row.reached, row.least, *chosen, row.crossed)
    where = f", where {report.copies_choice}" if report.copies_choice else ""
    return [table, Text(f"With {report.speed}{where}.", style="dim")]


def _figures_table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("workload", overflow="fold")
    for name in columns:
        table.add_column(name, justify="right")
    return table


def after_place(answer: PlacementAnswer, given: Place) -> list[RenderableType]:
    """Next steps with a map, and the command that writes it for an engine."""
    parts: list[RenderableType] = [bullets(answer.next_steps)] if answer.next_steps else []
    if written := given.files.words():
        parts.append(Text(written))
        return parts
    words = ["meshwright", "experts", "place", "--loads", *map(str, given.loads)]
    words += ["--ranks", str(answer.placement.ranks), "--nodes", str(answer.nodes), "--slots", str(answer.slots)]
    if given.workloads is not None:
        words += ["--workloads", given.workloads]
    words += given.known.words()
    if given.speeds is not None:
        words += ["--speeds", given.speeds]
    heeded = answer.nodes_weighed or answer.objective == LOCALITY
    if heeded and (speed := given.fields.get("between_nodes_gbit_per_s_per_gpu")) is not None:
        words += ["--link-speed", f"{speed:g}"]
    if answer.copy_choice not in {None, BOTH}:
        words += ["--copy-choice", str(answer.copy_choice)]
    if answer.objective == LOCALITY:
        words += ["--objective", LOCALITY]
    if answer.locality is not None and given.fields.get("least_locality") is not None:
        words += ["--least-locality", f"{answer.locality.least_locality:g}"]
    words += ["--format", "sglang", "--output", "maps"]
    parts.append(Text("write the map for an engine (sglang, trtllm, vllm-ascend or, without copies, megatron):"))
    parts.append(command_line(shlex.join(words)))
    return parts


def statistics_view(statistics: RoutingStatistics, found: RoutingRead, files: Sequence[str]) -> RenderableType:
    """Skew of each workload and layer, how alike workloads are, and what to do with that."""
    report = routing_report(statistics)
    title = Text.assemble(
        (plural(len(statistics.workloads), "workload"), "bold"),
        f" of {count(statistics.experts)} experts in a layer",
    )
    parts: list[tuple[str, list[RenderableType]]] = [
        ("Heaviest expert of a layer over the mean expert", [_skews(report)]),
        ("The layers", _layers(statistics.workloads[0])),
        ("How alike two workloads are: correlation of their loads", _likeness(report)),
        ("Next", _after_show(statistics, found, files)),
    ]
    return Group(title, *(report_section(name, body) for name, body in parts if body))


def _skews(report: RoutingReport) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("workload", overflow="fold")
    table.add_column("layers", overflow="fold")
    for name in ("selections", "median layer", "worst layer"):
        table.add_column(name, justify="right")
    table.add_column("pairs counted", overflow="fold")
    for row in report.workloads:
        table.add_row(row.name, row.layers, row.selections, row.median, row.worst, row.pairs)
    return table


def _layers(workload: WorkloadStatistics) -> list[RenderableType]:
    """The most skewed layers of a workload, as bars."""
    rows = sorted(zip(workload.hottest, workload.layers, strict=True), reverse=True)
    largest = max(rows[0][0], 1.0)
    lines: list[RenderableType] = [
        Text(f"layer {layer:>4}  {value:5.1f}  {'█' * max(1, round(_BAR * value / largest))}")
        for value, layer in rows[:_MOST_ROWS]
    ]
    head = Text(f"{workload.name}, the most skewed first", style="dim")
    return [head, *lines, *([more_line(len(rows) - _MOST_ROWS, "layer")] if len(rows) > _MOST_ROWS else [])]


def _likeness(report: RoutingReport) -> list[RenderableType]:
    lines = [Text(f"{value:>5}  {names}") for value, names in report.pairs]
    rest = [more_line(report.more_pairs, "pair")] if report.more_pairs else []
    return [Text(report.likeness), *lines, *rest]


def _after_show(statistics: RoutingStatistics, found: RoutingRead, files: Sequence[str]) -> list[RenderableType]:
    said = [f"the files also hold the map that ran: {found.maps[0].name}"] if found.maps else []
    experts = str(statistics.experts)
    command = ["meshwright", "experts", "place", "--loads", *files, "--ranks", "8", "--slots", experts]
    return [*([bullets(said)] if said else []), command_line(shlex.join(command))]
