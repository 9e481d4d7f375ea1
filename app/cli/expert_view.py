"""Routing statistics and expert maps on a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from app.cli.terminal import bullets, command_line, more_line, report_section
from app.experts.answer import JudgedWorkload, LayerAnswer, PlacementAnswer
from app.experts.request import BOTH, LOCALITY
from app.experts.statistics import RoutingStatistics, WorkloadStatistics
from app.presentation.figures import NOT_KNOWN, count, plural, ratio, spans
from app.routing.reading import RoutingRead

if TYPE_CHECKING:
    from app.cli.experts import Place

_WORST_LAYERS: Final = 3
_MOST_ROWS: Final = 12
_BAR: Final = 30
_LIKE_EACH_OTHER: Final = 0.9


def placement_view(answer: PlacementAnswer, given: Place) -> RenderableType:
    """What a map is worth before and after, where it is weak, and what to do with it."""
    found = answer.placement
    title = Text.assemble(
        (f"{plural(len(found.layers), 'layer')} of {count(found.experts)} experts", "bold"),
        f" in {count(answer.slots)} slots on {plural(found.ranks, 'rank')}",
        f" of {plural(answer.nodes, 'node')}" if answer.nodes > 1 else "",
    )
    parts: list[tuple[str, list[RenderableType]]] = [
        ("Balance: load of the mean rank over that of the slowest", [_balance(answer), *_served(answer)]),
        ("Transitions of tokens that stay on their GPU from layer to layer", _locality(answer)),
        ("Predicted time of all layers", _times(answer)),
        ("Layers that stay furthest from balance", _worst_layers(answer)),
        ("Taken for granted", [bullets(answer.assumptions)] if answer.assumptions else []),
        ("To know", [bullets(answer.warnings)] if answer.warnings else []),
        ("Next", _next(answer, given)),
    ]
    return Group(title, *(report_section(name, body) for name, body in parts if body))


def _balance(answer: PlacementAnswer) -> RenderableType:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("workload", overflow="fold")
    for name in ("in order", "this map", "at most"):
        table.add_column(name, justify="right")
    nodes = answer.nodes > 1
    if nodes:
        table.add_column("stays in its node", justify="right")
    for each in answer.workloads:
        row = [_named(each), ratio(each.in_order), ratio(each.balancedness), ratio(each.bound)]
        if nodes:
            row.append(f"{ratio(each.in_order_node_local_share)} → {ratio(each.node_local_share)}")
        table.add_row(*row)
    return table


def _served(answer: PlacementAnswer) -> list[RenderableType]:
    """The balance of planned workloads under both choices of copies; nothing where no expert has copies."""
    if answer.copy_choice is None:
        return []
    counted = "any" if answer.copy_choice == BOTH else answer.copy_choice
    return [
        Text(
            f"{each.name}: {ratio(each.nearest_balancedness)} where the nearest copy serves a token, "
            f"{ratio(each.any_balancedness)} where any does; counted above: {counted}",
            style="dim",
        )
        for each in answer.workloads
        if each.planned
    ]


def _named(each: JudgedWorkload) -> str:
    weight = "" if each.weight is None else f" (weight {each.weight:g})"
    return f"{each.name}{weight if each.planned else ' (not planned for)'}"


def _locality(answer: PlacementAnswer) -> list[RenderableType]:
    told = [(each, each.locality) for each in answer.workloads if each.locality is not None]
    if not told:
        return []
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("workload", overflow="fold")
    for name in ("in order", "balance alone", "this map"):
        table.add_column(name, justify="right")
    if answer.nodes > 1:
        table.add_column("stays in its node", justify="right")
    for each, local in told:
        row = [local.in_order.on_gpu, local.balance_alone.on_gpu, local.this_map.on_gpu]
        inside = [f"{ratio(local.in_order.in_node)} → {ratio(local.this_map.in_node)}"] if answer.nodes > 1 else []
        table.add_row(_named(each), *map(ratio, row), *inside)
    return [table, *_followed(answer)]


def _followed(answer: PlacementAnswer) -> list[RenderableType]:
    found = answer.locality
    if found is None:
        return []
    proof = "proven: no map exceeds that" if found.exact else f"no map exceeds {found.bound:.3f}"
    sentence = f"worth {found.worth:.3f}, {found.kept:.1%} of the best found without regard to load ({proof})"
    return [Text(sentence, style="dim")]


def _times(answer: PlacementAnswer) -> list[RenderableType]:
    told = [(each.name, each.times) for each in answer.workloads if each.times is not None]
    if not told:
        return []
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("workload", overflow="fold")
    for name in ("in order", "balance alone", "this map", "at least", "nodes crossed"):
        table.add_column(name, justify="right")
    for name, times in told:
        table.add_row(
            name,
            f"{times.in_order_ms:.2f} ms",
            f"{times.balance_alone_ms:.2f} ms",
            f"{times.layers_ms:.2f} ms",
            f"{times.least_ms:.2f} ms",
            f"{times.in_order_nodes_crossed:.2f} → {times.nodes_crossed:.2f}",
        )
    speed = answer.between_nodes_gbit_per_s_per_gpu
    said: list[RenderableType] = [Text(f"with {speed:.4g} Gb/s per GPU between nodes", style="dim")]
    if answer.copy_choice is not None:
        said += [
            Text(
                f"{name}: {times.nearest_ms:.2f} ms where the nearest copy serves a token, {times.any_ms:.2f} ms "
                f"where any does; counted above: {times.copy_choice}",
                style="dim",
            )
            for name, times in told
        ]
    return [table, *said]


def _worst_layers(answer: PlacementAnswer) -> list[RenderableType]:
    worst: list[tuple[LayerAnswer, str]] = [
        (layer, each.name) for each in answer.workloads if each.planned for layer in each.layers
    ]
    worst.sort(key=lambda pair: pair[0].balancedness)
    if not worst or worst[0][0].balancedness > 1 - 1e-3:
        return []
    lines = [
        f"layer {layer.layer}, {name}: {layer.balancedness:.3f}, in order {layer.in_order:.3f}, "
        f"at most {layer.bound:.3f}"
        for layer, name in worst[:_WORST_LAYERS]
    ]
    return [bullets(lines)]


def _next(answer: PlacementAnswer, given: Place) -> list[RenderableType]:
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
    title = Text.assemble(
        (plural(len(statistics.workloads), "workload"), "bold"),
        f" of {count(statistics.experts)} experts in a layer",
    )
    parts: list[tuple[str, list[RenderableType]]] = [
        ("Hottest expert of a layer over the mean", _skews(statistics)),
        ("The layers", _layers(statistics.workloads[0])),
        ("How alike loads are (1 = the same)", _correlations(statistics)),
        ("Next", _after_show(statistics, found, files)),
    ]
    return Group(title, *(report_section(name, body) for name, body in parts if body))


def _skews(statistics: RoutingStatistics) -> list[RenderableType]:
    table = Table(box=box.SIMPLE, pad_edge=False)
    table.add_column("workload", overflow="fold")
    table.add_column("layers", overflow="fold")
    for name in ("selections", "median", "worst", "transitions", "together"):
        table.add_column(name, justify="right")
    for each in statistics.workloads:
        table.add_row(
            each.name,
            spans(each.layers),
            count(each.selections) if each.selections >= len(each.layers) * 10 else NOT_KNOWN,
            f"{median(each.hottest):.1f}",
            f"{max(each.hottest):.1f}",
            count(each.transition_layers) if each.transition_layers else NOT_KNOWN,
            count(each.coactivation_layers) if each.coactivation_layers else NOT_KNOWN,
        )
    return [table]


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


def _correlations(statistics: RoutingStatistics) -> list[RenderableType]:
    names = [each.name for each in statistics.workloads]
    if len(names) == 1:
        return []
    pairs = sorted(
        (value, names[one], names[other])
        for one in range(len(names))
        for other in range(one)
        if (value := statistics.correlations[one][other]) is not None
    )
    shown = pairs if len(pairs) <= _MOST_ROWS else pairs[:_MOST_ROWS]
    lines: list[RenderableType] = [Text(f"{value:5.2f}  {other} and {one}") for value, one, other in shown]
    return [*lines, *([more_line(len(pairs) - len(shown), "pair")] if len(pairs) > len(shown) else [])]


def _after_show(statistics: RoutingStatistics, found: RoutingRead, files: Sequence[str]) -> list[RenderableType]:
    told = [value for row in statistics.correlations for value in row if value is not None]
    said = []
    if told and min(told) < _LIKE_EACH_OTHER:
        said.append("workloads differ: a map for one would serve another badly, so plan for all that run")
    if found.maps:
        said.append(f"the files also hold the map that ran: {found.maps[0].name}")
    command = [
        "meshwright",
        "experts",
        "place",
        "--loads",
        *files,
        "--ranks",
        "8",
        "--slots",
        str(statistics.experts),
    ]
    return [*([bullets(said)] if said else []), command_line(shlex.join(command))]
