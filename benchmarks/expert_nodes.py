"""Expert maps over several nodes: options, what the command prints of them, and a comparison by link speed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from benchmarks.eplb import eplb_global, eplb_hierarchical
from benchmarks.routing_files import generated
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.gpus import Precision
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.model.catalogue import catalogue_models
from cluster_models.routing.counts import RoutedWorkload
from solver.candidates import IntArray
from solver.experts.dispatch import (
    LayerRates,
    LayerTimes,
    RouterRule,
    Routing,
    layer_times,
    routing,
    token_bytes,
)
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice, balancedness, node_local_share
from solver.experts.nodewise import place_nodewise, usual_rates

SPEEDS: Final = (50.0, 100.0, 200.0, 400.0)
"""Gb/s per GPU between nodes that are compared."""
GPU: Final = "H100-SXM5-80GB"
PRODUCTS, NVLINK = 0.5, 0.8
"""Shares of the FP8 peak that products of experts reach, and of NVLink's nominal bandwidth that dispatch does."""
FEWEST_SLOTS: Final = 3
"""Slots of a rank from which nodes can be packed without loss: below, maps are made by their loads alone."""
THREADS: Final = 2
MODES: Final = {"eplb_hierarchical", "eplb_global"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of maps over nodes."""
    parser.add_argument("--gbit-per-s", type=float, help="of each GPU between nodes; without: maps for any speed")
    parser.add_argument(
        "--active", type=int, help="experts of a token; else those of the model that fits the counts"
    )
    parser.add_argument("--router-groups", type=int, help="groups of consecutive experts that the router limits")
    parser.add_argument("--active-groups", type=int, help="groups from which a token's experts are taken")
    parser.add_argument(
        "--copy-choice",
        choices=[each.value for each in CopyChoice],
        help="which copies the engine takes: those on the token's own node, or any; without: both count",
    )
    parser.add_argument("--tokens-per-gpu", type=float, default=4096.0, help="tokens of a pass on each GPU")


def model_of(workload: RoutedWorkload) -> tuple[str, Architecture] | None:
    """The first model of the catalogue with so many experts and sparse layers, where all such route alike."""
    fitting = [
        (name, model)
        for name, model in catalogue_models().items()
        if model.experts is not None
        and model.experts.count == workload.experts
        and len(range(model.experts.dense_layers, model.layers, model.experts.layer_period)) == len(workload.layers)
    ]
    return fitting[0] if fitting and all(model.experts == fitting[0][1].experts for _, model in fitting) else None


def rule_of(workload: RoutedWorkload, given: argparse.Namespace) -> RouterRule:
    """The router's rule as given, else of the model that fits, else 8 experts of all (2 of up to 8).

    Raises ``InvalidInput`` where a router that was given, or is the model's, cannot select as was counted.
    """
    found = model_of(workload)
    rule = RouterRule(8 if workload.experts > 8 else min(2, workload.experts))
    if found is not None and found[1].experts is not None:
        rule = RouterRule.of(found[1].experts)
    groups = rule.groups if given.router_groups is None else given.router_groups
    active_groups = rule.active_groups if given.router_groups is None else groups
    rule = RouterRule(
        rule.active if given.active is None else given.active,
        groups,
        active_groups if given.active_groups is None else given.active_groups,
    )
    rule.check(workload.experts)
    if found is not None or given.active is not None:
        rule.check_shares(workload.shares(), workload.layers, f"loads.{workload.name}")
    return rule


def rates_of(workload: RoutedWorkload, gbit_per_s: float | None, tokens: float) -> LayerRates:
    """Rates of the model that fits on H100, else of DeepSeek-V3; ``usual_rates`` where no speed is given."""
    usual = usual_rates()
    between = usual.between_bytes_per_s if gbit_per_s is None else gbit_per_s * 1e9 / 8
    found, kind = model_of(workload), gpu_kind(GPU)
    if found is None or found[1].experts is None:
        dispatch, combine, seconds = usual.dispatch_bytes, usual.combine_bytes, usual.selection_s
    else:
        hidden = found[1].hidden
        dispatch, combine = token_bytes(hidden)
        seconds = 6 * hidden * found[1].experts.hidden / (kind.peak_flops[Precision.FP8] * PRODUCTS)
    return LayerRates(seconds, dispatch, combine, between, kind.scale_up_bytes_per_s * NVLINK, tokens)


def taken_by_nodes(layout: ExpertLayout, workloads: Sequence[RoutedWorkload], gbit_per_s: float | None) -> bool:
    """Whether nodes shape the map: where there are several, and speeds or copies that make room for them."""
    if layout.nodes == 1:
        return False
    if gbit_per_s is not None:
        if len(workloads) > 1:
            problem = "maps for given links are made for one workload"
            raise InvalidInput("loads", len(workloads), problem, "give one file, or no speed")
        return True
    room = layout.slots > workloads[0].experts and layout.slots_per_rank >= FEWEST_SLOTS
    return len(workloads) == 1 and room


def nodewise_map(
    workload: RoutedWorkload, layout: ExpertLayout, given: argparse.Namespace, *, seed: int = 0
) -> dict[str, Any]:
    """The map for one workload and what it is worth, as the command prints it."""
    rule, rates = rule_of(workload, given), rates_of(workload, given.gbit_per_s, given.tokens_per_gpu)
    layout.check(workload.experts)
    rule.check(workload.experts)
    warm_up()
    started = time.perf_counter()
    routed = routing(workload.loads, rule, workload.coactivation)
    known, choice = given.gbit_per_s is not None, choice_of(given)
    placed = place_nodewise(routed, layout, rates, choice=choice, seed=seed, threads=THREADS, speed_known=known)
    seconds = time.perf_counter() - started
    model = model_of(workload)
    worth = balancedness(placed.slots, workload.loads, layout, choice or CopyChoice.ANY)
    return {
        "physical_to_logical_map": placed.slots.tolist(),
        "balancedness": worth,
        "bound": float(placed.balancedness_bound.mean()),
        "node_local_share": node_local_share(placed.slots, workload.loads, layout),
        "seconds": seconds,
        "layers": list(workload.layers),
        "workloads": {workload.name: worth},
        "router": {
            "model": None if model is None else model[0],
            "active": rule.active,
            "groups": rule.groups,
            "active_groups": rule.active_groups,
        },
        "gbit_per_s": given.gbit_per_s,
        "assumed_gbit_per_s": rates.between_bytes_per_s * 8 / 1e9,
        "copy_choice": None if choice is None else choice.value,
        "layer_ms": float(placed.times.total_s.mean()) * 1e3,
        "layer_ms_bound": float(placed.bound_s.mean()) * 1e3,
        "nodes_crossed": float(placed.times.crossing.mean()),
        "choices": {
            each.value: {
                **_figures(layer_times(placed.slots, routed, layout, rates, each)),
                "balancedness": balancedness(placed.slots, workload.loads, layout, each),
            }
            for each in CopyChoice
        },
    }


def choice_of(given: argparse.Namespace) -> CopyChoice | None:
    """The choice of copies that is given, ``None`` where both count."""
    return None if given.copy_choice is None else CopyChoice(given.copy_choice)


def warm_up() -> None:
    """Load every compiled loop that placing over nodes may need, on a tiny case."""
    small = generated("a", 1, 8, 1)
    for slots in (8, 12):
        place_nodewise(
            routing(small.loads, RouterRule(2, 2, 1)), ExpertLayout(2, 2, slots), usual_rates(), proposals=9
        )


def compare_speeds(
    workloads: Sequence[RoutedWorkload],
    layout: ExpertLayout,
    given: argparse.Namespace,
    *,
    proposals: int | None = None,
) -> list[dict[str, Any]]:
    """For each workload, speed and choice of copies: milliseconds of a layer under both modes of EPLB and ours.

    ``unaware``: of the one map that is made without a speed; ``elsewhere``: maps made so, and those of EPLB, for
    another workload, the next one in turn, where there are several.
    """
    warm_up()
    made = [_maps(workload, layout, given, proposals) for workload in workloads]
    rows = []
    for number, workload in enumerate(workloads):
        routed, maps, seconds = made[number]
        elsewhere = made[(number + 1) % len(made)][1]
        for speed in SPEEDS:
            rates = rates_of(workload, speed, given.tokens_per_gpu)
            started = time.perf_counter()
            placed = place_nodewise(
                routed, layout, rates, choice=choice_of(given), proposals=proposals, threads=THREADS
            )
            took = time.perf_counter() - started
            for choice in CopyChoice if given.copy_choice is None else (CopyChoice(given.copy_choice),):
                times = _timed({**maps, "ours": placed.slots}, routed, layout, rates, choice)
                row: dict[str, Any] = {
                    "workload": workload.name,
                    "gbit_per_s": speed,
                    "copy_choice": choice.value,
                    **{name: _figures(each) for name, each in times.items()},
                    "gain": _gain(times, "ours"),
                    "unaware_gain": _gain(times, "unaware"),
                    "balancedness": balancedness(placed.slots, workload.loads, layout, choice),
                    "unaware_balancedness": balancedness(maps["unaware"], workload.loads, layout, choice),
                    "bound_ms": float(placed.bound_s.mean()) * 1e3,
                    "seconds": took,
                    "unaware_seconds": seconds,
                }
                if len(made) > 1 and elsewhere["unaware"].shape == maps["unaware"].shape:
                    row["elsewhere_gain"] = _gain(_timed(elsewhere, routed, layout, rates, choice), "unaware")
                rows.append(row)
    return rows


def _maps(
    workload: RoutedWorkload, layout: ExpertLayout, given: argparse.Namespace, proposals: int | None
) -> tuple[Routing, dict[str, IntArray], float]:
    """The maps of a workload that need no speed, and the seconds of ours among them."""
    rule = rule_of(workload, given)
    routed = routing(workload.loads, rule)
    groups = rule.groups if rule.groups % layout.nodes == 0 else layout.nodes
    maps = {"eplb_global": eplb_global(workload.loads, layout)}
    if workload.experts % groups == 0:
        maps["eplb_hierarchical"] = eplb_hierarchical(workload.loads, layout, groups)
    usual = rates_of(workload, None, given.tokens_per_gpu)
    started = time.perf_counter()
    unaware = place_nodewise(
        routed, layout, usual, choice=choice_of(given), proposals=proposals, threads=THREADS, speed_known=False
    )
    return routed, {**maps, "unaware": unaware.slots}, time.perf_counter() - started


def _timed(
    maps: dict[str, IntArray], routed: Routing, layout: ExpertLayout, rates: LayerRates, choice: CopyChoice
) -> dict[str, LayerTimes]:
    return {name: layer_times(slots, routed, layout, rates, choice) for name, slots in maps.items()}


def _gain(times: dict[str, LayerTimes], name: str) -> float:
    """By how much the better mode of EPLB takes longer."""
    best = min(float(times[mode].total_s.sum()) for mode in times if mode in MODES)
    return best / float(times[name].total_s.sum()) - 1.0


def _figures(times: LayerTimes) -> dict[str, float]:
    return {
        "ms": float(times.total_s.mean()) * 1e3,
        "compute_ms": float(times.compute_s.mean()) * 1e3,
        "nodes_crossed": float(times.crossing.mean()),
        "busiest_crossing": float(times.busiest_crossing.mean()),
    }


def speed_table(rows: Sequence[dict[str, Any]]) -> str:
    """A table of ``compare_speeds`` by choice of copies and speed: means over workloads, gains least to most."""
    names = {"eplb_hierarchical": "", "eplb_global": "", "ours": "gain", "unaware": "unaware_gain"}
    heads = [
        "copies",
        "Gb/s per GPU",
        "EPLB hierarchical",
        "EPLB global",
        "ours",
        "gain",
        "without a speed",
        "gain",
    ]
    heads += ["planned on another", "bound"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for choice, speed in sorted({(row["copy_choice"], row["gbit_per_s"]) for row in rows}):
        mine = [row for row in rows if (row["copy_choice"], row["gbit_per_s"]) == (choice, speed)]
        cells = [choice, f"{speed:.0f}"]
        for name, gain in names.items():
            cells.append(
                f"{np.mean([row[name]['ms'] for row in mine]):.2f} ms" if all(name in row for row in mine) else "-"
            )
            if gain:
                cells.append(_span(mine, gain))
        cells.append(_span(mine, "elsewhere_gain"))
        cells.append(f"{np.mean([row['bound_ms'] for row in mine]):.2f} ms")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _span(rows: Sequence[dict[str, Any]], field: str) -> str:
    """Least to most, mean in brackets."""
    if not all(field in row for row in rows):
        return "-"
    values = [row[field] for row in rows]
    return f"{min(values):+.1%} to {max(values):+.1%} ({np.mean(values):+.1%})"
