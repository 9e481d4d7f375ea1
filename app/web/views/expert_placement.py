"""A placement of experts as figures, tables and a drawing of every layer before and after."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.experts.answer import ExpertMapDocument, JudgedWorkload, LayerAnswer, PlacementAnswer
from app.experts.exporting import FORMATS, files_of
from app.imports.sources import SentFile
from app.presentation.figures import NOT_KNOWN, count, percent, plural
from app.web.carried import pack
from app.web.views.drawing import Box, Drawing, Key, Line, Words, round_steps
from cluster_models.errors import InvalidInput

_WIDTH: Final = 760.0
_HEIGHT: Final = 230.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 38.0, 8.0, 12.0, 30.0
_TIPS: Final = 128
"""Layers of a drawing up to which every bar says its figure."""
_MOST_DRAWN: Final = 12
_BEFORE, _AFTER = "part-3", "part-0"


@dataclass(frozen=True, slots=True)
class BalanceLine:
    """One workload: balance in order, with the map, and at most."""

    name: str
    planned: bool
    weight: str
    in_order: str
    reached: str
    bound: str
    slowest: str
    local: str


@dataclass(frozen=True, slots=True)
class TimeLine:
    """Predicted times of all layers of one workload, and the nodes that its tokens cross."""

    name: str
    in_order: str
    balance_alone: str
    reached: str
    least: str
    parts: str
    crossed: str


@dataclass(frozen=True, slots=True)
class LayerLine:
    """One layer: slowest rank over mean."""

    layer: int
    in_order: str
    reached: str
    least: str


@dataclass(frozen=True, slots=True)
class LayersOf:
    """Every layer of one workload, drawn and as rows."""

    name: str
    drawing: Drawing
    rows: tuple[LayerLine, ...]


@dataclass(frozen=True, slots=True)
class FormatLine:
    """A file that the map can be taken as, or why it cannot."""

    name: str
    description: str
    refused: str


@dataclass(frozen=True, slots=True)
class PlacementPage:
    """A whole answer; ``carried`` brings the map back for its files."""

    layout: str
    balance: tuple[tuple[str, str], ...]
    gain: str
    workloads: tuple[BalanceLine, ...]
    several_nodes: bool
    times: tuple[TimeLine, ...]
    speed: str
    layers: tuple[LayersOf, ...]
    not_drawn: int
    warnings: tuple[str, ...]
    next_steps: tuple[str, ...]
    assumptions: tuple[str, ...]
    formats: tuple[FormatLine, ...]
    carried: str


def placement_page(answer: PlacementAnswer, model_layers: int) -> PlacementPage:
    """Everything that the page tells of a placement; ``model_layers``: decoder layers, dense ones included."""
    found = answer.placement
    told = [each for each in answer.workloads if each.layers]
    told.sort(key=lambda each: (not each.planned, each.balancedness or 0.0))
    speed = answer.between_nodes_gbit_per_s_per_gpu
    copies = answer.slots - found.experts
    nodes = f" of {plural(answer.nodes, 'node')}" if answer.nodes > 1 else ""
    more = f", {plural(copies, 'slot')} of them for copies" if copies else ", no copies"
    return PlacementPage(
        layout=f"{plural(answer.slots, 'slot')} of a layer on {plural(found.ranks, 'rank')}{nodes}{more}.",
        balance=_balance(answer),
        gain=_gain(told[0]) if told else "",
        workloads=tuple(map(_balance_line, answer.workloads)),
        several_nodes=answer.nodes > 1,
        times=tuple(line for each in answer.workloads if (line := _time_line(each)) is not None),
        speed="" if speed is None else f"{speed:,.4g} Gb/s per GPU between nodes",
        layers=tuple(_layers_of(each) for each in told[:_MOST_DRAWN]),
        not_drawn=max(0, len(told) - _MOST_DRAWN),
        warnings=tuple(answer.warnings),
        next_steps=tuple(answer.next_steps),
        assumptions=tuple(answer.assumptions),
        formats=_formats(found, model_layers),
        carried=pack([SentFile("map.json", found.model_dump_json().encode())]),
    )


def _balance(answer: PlacementAnswer) -> tuple[tuple[str, str], ...]:
    """The balance before, after and at most, over the workloads planned for as they were weighed."""
    planned = [each for each in answer.workloads if each.planned and each.in_order is not None]
    weights = [each.weight for each in planned]
    orders = [each.in_order or 0.0 for each in planned]
    if any(weight is None for weight in weights):
        before = min(orders, default=0.0)
    else:
        total = sum(weight or 0.0 for weight in weights)
        before = sum((weight or 0.0) * order for weight, order in zip(weights, orders, strict=True)) / total
    return (
        (f"{before:.3f}", "contiguous order"),
        (f"{answer.balancedness:.3f}", "this map"),
        (f"{answer.bound:.3f}", "no map exceeds"),
    )


def _gain(each: JudgedWorkload) -> str:
    """What the map saves on the workload that stays furthest behind."""
    times = each.times
    if times is not None:
        saved = 1 - times.layers_ms / times.in_order_ms
        least = f"no map takes less than {_ms(times.least_ms)}"
        return (
            f"All sparse layers of {each.name} are predicted to take {_ms(times.layers_ms)} instead of "
            f"{_ms(times.in_order_ms)} ({percent(saved)} less); {least}."
        )
    before, after = _mean_slowest(each, "in_order"), _mean_slowest(each, "balancedness")
    return (
        f"In a mean layer of {each.name} the slowest rank carries {after:.2f} times the mean load instead of "
        f"{before:.2f} times, so that its products take {percent(1 - after / before)} less time."
    )


def _mean_slowest(each: JudgedWorkload, field: str) -> float:
    return sum(_slowest(getattr(layer, field)) for layer in each.layers) / len(each.layers)


def _slowest(balancedness: float) -> float:
    """Slowest rank over mean."""
    return 1 / balancedness if balancedness > 0 else 1.0


def _balance_line(each: JudgedWorkload) -> BalanceLine:
    told = bool(each.layers)
    slowest = (_mean_slowest(each, field) for field in ("in_order", "balancedness"))
    return BalanceLine(
        name=each.name,
        planned=each.planned,
        weight="" if each.weight is None else f"weight {each.weight:g}",
        in_order=_share(each.in_order),
        reached=_share(each.balancedness),
        bound=_share(each.bound),
        slowest=" → ".join(f"{value:.2f}" for value in slowest) if told else NOT_KNOWN,
        local=f"{percent(each.in_order_node_local_share)} → {percent(each.node_local_share)}",
    )


def _time_line(each: JudgedWorkload) -> TimeLine | None:
    times = each.times
    if times is None:
        return None
    return TimeLine(
        name=each.name,
        in_order=_ms(times.in_order_ms),
        balance_alone=_ms(times.balance_alone_ms),
        reached=_ms(times.layers_ms),
        least=_ms(times.least_ms),
        parts=" + ".join(map(_ms, (times.compute_ms, times.between_nodes_ms, times.inside_node_ms))).replace(
            " ms +", " +"
        ),
        crossed=f"{times.in_order_nodes_crossed:.2f} → {times.nodes_crossed:.2f}",
    )


def _layers_of(each: JudgedWorkload) -> LayersOf:
    rows = tuple(
        LayerLine(
            layer.layer,
            *(f"{_slowest(value):.3f}" for value in (layer.in_order, layer.balancedness, layer.bound)),
        )
        for layer in each.layers
    )
    return LayersOf(each.name, layer_drawing(each.name, each.layers), rows)


def layer_drawing(name: str, layers: Sequence[LayerAnswer]) -> Drawing:
    """Two bars for each layer: slowest rank over mean in contiguous order and with the map; 1 is even."""
    highest = max(_slowest(min(layer.in_order, layer.balancedness)) for layer in layers)
    scale = (_HEIGHT - _TOP - _BOTTOM) / highest
    floor = _HEIGHT - _BOTTOM
    pitch = (_WIDTH - _LEFT - _RIGHT) / len(layers)
    steps = round_steps(highest, wanted=4)
    worst = max(layers, key=lambda layer: _slowest(layer.balancedness))
    before = max(layers, key=lambda layer: _slowest(layer.in_order))
    every = max(1, round(len(layers) / 8))
    return Drawing(
        width=_WIDTH,
        height=_HEIGHT,
        name=f"Slowest rank over mean by layer, {name}",
        description=(
            f"The worst layer in contiguous order is {before.layer} with {_slowest(before.in_order):.2f} times the "
            f"mean load; with this map {worst.layer} with {_slowest(worst.balancedness):.2f}. 1 is even."
        ),
        boxes=tuple(_bars(layers, pitch, scale)),
        lines=(
            *(
                Line(_LEFT, floor - step * scale, _WIDTH - _RIGHT, floor - step * scale, "grid-line")
                for step in steps
            ),
            Line(_LEFT, floor - scale, _WIDTH - _RIGHT, floor - scale, "axis"),
            Line(_LEFT, floor, _WIDTH - _RIGHT, floor, "axis"),
        ),
        words=(
            *(Words(_LEFT - 6, floor - step * scale + 4, f"{step:g}", anchor="end") for step in steps),
            *(
                Words(_LEFT + (index + 0.5) * pitch, floor + 18, str(layer.layer), anchor="middle")
                for index, layer in enumerate(layers)
                if index % every == 0
            ),
        ),
        legend=(Key(_BEFORE, "contiguous order"), Key(_AFTER, "this map")),
        shrinks=True,
    )


def _bars(layers: Sequence[LayerAnswer], pitch: float, scale: float) -> Iterator[Box]:
    """Two boxes for each layer, side by side around the middle of its ``pitch``."""
    width = min(pitch * 0.42, 26.0)
    for index, layer in enumerate(layers):
        middle = _LEFT + (index + 0.5) * pitch
        for left, value, style, words in (
            (middle - width, layer.in_order, _BEFORE, "contiguous"),
            (middle, layer.balancedness, _AFTER, "this map"),
        ):
            height = _slowest(value) * scale
            tip = f"Layer {layer.layer}, {words}: {_slowest(value):.2f}" if len(layers) <= _TIPS else ""
            yield Box(left, _HEIGHT - _BOTTOM - height, width, height, style, tip)


def _formats(document: ExpertMapDocument, model_layers: int) -> tuple[FormatLine, ...]:
    slots = document.to_slots()
    lines = []
    for name, form in FORMATS.items():
        refused = ""
        try:
            files_of(name, slots, model_layers)
        except InvalidInput as error:
            refused = "; ".join(filter(None, (error.problem, error.remedy)))
        lines.append(FormatLine(name, form.description, refused))
    return tuple(lines)


def _share(value: float | None) -> str:
    return NOT_KNOWN if value is None else f"{value:.3f}"


def _ms(value: float) -> str:
    return f"{count(value)} ms" if value >= 1000 else f"{value:.3g} ms"
