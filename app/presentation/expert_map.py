"""A map of experts as pages and terminal report it: balance, times and locality before and after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.experts.answer import JudgedWorkload, PlacementAnswer
from app.experts.locality_answer import FollowedAnswer
from app.presentation.figures import NOT_KNOWN, count, percent, plural, ratio

_WORST_LAYERS: Final = 3
_EVEN: Final = 1 - 1e-3
"""Balance from which on a layer is not worth naming."""
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
class ExpertMapReport:
    """Report on a placement in words and rows.

    ``copies_choice``: which copy of an expert the figures count; empty where no expert has copies.
    ``served``: the balance of the workloads that were planned for under either choice of copies.
    ``worst``: the layers that stay furthest from balance, if any does.
    """

    layout: str
    balance: tuple[tuple[str, str], ...]
    gain: str
    workloads: tuple[BalanceLine, ...]
    several_nodes: bool
    times: tuple[TimeLine, ...]
    copies_choice: str
    served: tuple[str, ...]
    speed: str
    stays: tuple[StaysLine, ...]
    followed: str
    worst: tuple[str, ...]
    warnings: tuple[str, ...]
    next_steps: tuple[str, ...]
    assumptions: tuple[str, ...]


def expert_map_report(answer: PlacementAnswer) -> ExpertMapReport:
    """The report of a placement."""
    placed = answer.placement
    worst_first = by_balance(answer)
    speed = answer.between_nodes_gbit_per_s_per_gpu
    copies = answer.slots - placed.experts
    nodes = f" of {plural(answer.nodes, 'node')}" if answer.nodes > 1 else ""
    more = f", {plural(copies, 'slot')} of them for copies" if copies else ", no copies"
    return ExpertMapReport(
        layout=(
            f"{plural(len(placed.layers), 'layer')} of {count(placed.experts)} experts in {count(answer.slots)} "
            f"slots on {plural(placed.ranks, 'rank')}{nodes}{more}."
        ),
        balance=_balance(answer),
        gain=_gain(worst_first[0]) if worst_first else "",
        workloads=tuple(map(_balance_line, answer.workloads)),
        several_nodes=answer.nodes > 1,
        times=tuple(line for each in answer.workloads if (line := _time_line(each)) is not None),
        copies_choice=_COUNTED.get(answer.copy_choice or "", ""),
        served=_served(answer),
        speed="" if speed is None else f"{speed:,.4g} Gb/s per GPU between nodes",
        stays=tuple(stays for each in answer.workloads if (stays := _stays_line(each)) is not None),
        followed=_followed(answer.locality),
        worst=_worst(answer),
        warnings=tuple(answer.warnings),
        next_steps=tuple(answer.next_steps),
        assumptions=tuple(answer.assumptions),
    )


def by_balance(answer: PlacementAnswer) -> list[JudgedWorkload]:
    """Workloads with figures by layer, those planned for first, the least balanced first of each."""
    judged = [each for each in answer.workloads if each.layers]
    return sorted(judged, key=lambda each: (not each.planned, each.balancedness or 0.0))


def slowest(balancedness: float) -> float:
    """Load of the slowest rank over the mean."""
    return 1 / balancedness if balancedness > 0 else 1.0


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
    """Saving by the map on the workload that stays furthest behind."""
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
    means = (_mean_slowest(each, field) for field in ("in_order", "balancedness"))
    return BalanceLine(
        name=each.name,
        planned=each.planned,
        weight="" if each.weight is None else f"weight {each.weight:g}",
        in_order=ratio(each.in_order),
        reached=ratio(each.balancedness),
        bound=ratio(each.bound),
        slowest=" → ".join(f"{value:.2f}" for value in means) if each.layers else NOT_KNOWN,
        local=f"{percent(each.in_order_node_local_share)} → {percent(each.node_local_share)}",
    )


def _served(answer: PlacementAnswer) -> tuple[str, ...]:
    if answer.copy_choice is None:
        return ()
    return tuple(
        f"{each.name}: {ratio(each.nearest_balancedness)} where the nearest copy serves a token, "
        f"{ratio(each.any_balancedness)} where any does."
        for each in answer.workloads
        if each.planned
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
    """Transitions that a map by them keeps, beside the most possible."""
    if found is None:
        return ""
    most = "no map keeps more" if found.exact else f"no map keeps more than {percent(found.bound)}"
    return (
        f"This map keeps {percent(found.worth)} of the transitions, one that stays in its node alone counted "
        f"{percent(1 - found.inside_node_price)}; the best found without regard to balance keeps "
        f"{percent(found.most_worth)}, and {most}."
    )


def _worst(answer: PlacementAnswer) -> tuple[str, ...]:
    layers = [(layer, each.name) for each in answer.workloads if each.planned for layer in each.layers]
    layers.sort(key=lambda pair: pair[0].balancedness)
    return tuple(
        f"layer {layer.layer}, {name}: {ratio(layer.balancedness)}, contiguous {ratio(layer.in_order)}, "
        f"at most {ratio(layer.bound)}"
        for layer, name in layers[:_WORST_LAYERS]
        if layer.balancedness < _EVEN
    )


def _ms(value: float) -> str:
    return f"{count(value)} ms" if value >= 1000 else f"{value:.3g} ms"
