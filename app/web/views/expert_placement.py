"""A placement of experts as figures, tables and a drawing of every layer before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.experts.answer import JudgedWorkload, PlacementAnswer
from app.experts.locality_answer import FollowedAnswer
from app.presentation.figures import NOT_KNOWN, count, percent, plural, ratio
from app.web.views.drawing import Drawing
from app.web.views.layer_balance import LayerPair, layer_drawing, slowest
from app.web.views.map_files import MapFiles, map_files
from cluster_models.architecture import Architecture

_MOST_DRAWN: Final = 12
_COUNTED: Final = {
    "nearest": "the nearest copy of an expert serves a token",
    "any": "each copy of an expert is as likely to serve a token",
    "both": "the copies that make it slower serve a token",
}


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
    """Predicted times of all layers of one workload, and the nodes that its tokens cross.

    ``choices``: with the map where the nearest copy of an expert serves a token, and where any does.
    """

    name: str
    in_order: str
    balance_alone: str
    reached: str
    least: str
    parts: str
    choices: str
    crossed: str


@dataclass(frozen=True, slots=True)
class StaysLine:
    """Transitions of one workload that stay on their GPU, and in their node."""

    name: str
    in_order: str
    balance_alone: str
    reached: str


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
class PlacementPage:
    """A whole answer."""

    layout: str
    balance: tuple[tuple[str, str], ...]
    gain: str
    workloads: tuple[BalanceLine, ...]
    several_nodes: bool
    times: tuple[TimeLine, ...]
    copies_choice: str
    speed: str
    stays: tuple[StaysLine, ...]
    followed: str
    layers: tuple[LayersOf, ...]
    not_drawn: int
    warnings: tuple[str, ...]
    next_steps: tuple[str, ...]
    assumptions: tuple[str, ...]
    files: MapFiles


def placement_page(answer: PlacementAnswer, model: Architecture | None) -> PlacementPage:
    """Everything that the page tells of a placement; the ``model``, where it is known, says how many layers."""
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
        copies_choice=_COUNTED.get(answer.copy_choice or "", ""),
        speed="" if speed is None else f"{speed:,.4g} Gb/s per GPU between nodes",
        stays=tuple(stay for each in answer.workloads if (stay := _stays_line(each)) is not None),
        followed=_followed(answer.locality),
        layers=tuple(_layers_of(each) for each in told[:_MOST_DRAWN]),
        not_drawn=max(0, len(told) - _MOST_DRAWN),
        warnings=tuple(answer.warnings),
        next_steps=tuple(answer.next_steps),
        assumptions=tuple(answer.assumptions),
        files=map_files(found, model),
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
        share = times.layers_ms / times.in_order_ms
        least = f"no map takes less than {_ms(times.least_ms)}"
        return (
            f"All sparse layers of {each.name} are predicted to take {_ms(times.layers_ms)} instead of "
            f"{_ms(times.in_order_ms)} ({_less(share)}); {least}."
        )
    before, after = _mean_slowest(each, "in_order"), _mean_slowest(each, "balancedness")
    return (
        f"In a mean layer of {each.name} the slowest rank carries {after:.2f} times the mean load instead of "
        f"{before:.2f} times, so that its products take {_less(after / before)} time."
    )


def _less(share: float) -> str:
    """How much less a share is than all, or more: a map for locality may give balance away."""
    return f"{percent(1 - share)} less" if share <= 1 else f"{percent(share - 1)} more"


def _mean_slowest(each: JudgedWorkload, field: str) -> float:
    return sum(slowest(getattr(layer, field)) for layer in each.layers) / len(each.layers)


def _balance_line(each: JudgedWorkload) -> BalanceLine:
    told = bool(each.layers)
    means = (_mean_slowest(each, field) for field in ("in_order", "balancedness"))
    return BalanceLine(
        name=each.name,
        planned=each.planned,
        weight="" if each.weight is None else f"weight {each.weight:g}",
        in_order=ratio(each.in_order),
        reached=ratio(each.balancedness),
        bound=ratio(each.bound),
        slowest=" → ".join(f"{value:.2f}" for value in means) if told else NOT_KNOWN,
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
        choices=f"{_ms(times.nearest_ms)}, {_ms(times.any_ms)}".replace(" ms,", ","),
        crossed=f"{times.in_order_nodes_crossed:.2f} → {times.nodes_crossed:.2f}",
    )


def _stays_line(each: JudgedWorkload) -> StaysLine | None:
    if each.locality is None:
        return None
    found = each.locality
    maps = (found.in_order, found.balance_alone, found.this_map)
    return StaysLine(each.name, *(f"{percent(stays.on_gpu)}, {percent(stays.in_node)}" for stays in maps))


def _followed(found: FollowedAnswer | None) -> str:
    """What a map by transitions keeps beside what could be kept."""
    if found is None:
        return ""
    most = "no map keeps more" if found.exact else f"no map keeps more than {percent(found.bound)}"
    return (
        f"This map keeps {percent(found.worth)} of the transitions, one that stays in its node alone counted "
        f"{percent(1 - found.inside_node_price)}; the best found without regard to balance keeps "
        f"{percent(found.most_worth)}, and {most}."
    )


def _layers_of(each: JudgedWorkload) -> LayersOf:
    rows = tuple(
        LayerLine(
            layer.layer,
            *(f"{slowest(value):.3f}" for value in (layer.in_order, layer.balancedness, layer.bound)),
        )
        for layer in each.layers
    )
    pairs = [LayerPair(layer.layer, layer.in_order, layer.balancedness) for layer in each.layers]
    return LayersOf(each.name, layer_drawing(each.name, pairs, ("contiguous order", "new map")), rows)


def _ms(value: float) -> str:
    return f"{count(value)} ms" if value >= 1000 else f"{value:.3g} ms"
