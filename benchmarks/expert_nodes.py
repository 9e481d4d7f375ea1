"""Expert maps over several nodes: options, what the command prints of them, and a comparison by link speed."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from benchmarks.eplb import eplb_global, eplb_hierarchical
from benchmarks.routing_files import generated
from cluster_models.architecture import Architecture
from cluster_models.catalogue import gpu_kind
from cluster_models.errors import InvalidInput
from cluster_models.gpus import Precision
from cluster_models.model_catalogue import catalogue_models
from cluster_models.routing import RoutedWorkload
from solver.experts.dispatch import LayerRates, LayerTimes, RouterRule, layer_times, routing, token_bytes
from solver.experts.layout import ExpertLayout
from solver.experts.loads import balancedness, node_local_share
from solver.experts.nodewise import PROPOSALS, USUAL_AIM, place_nodewise, usual_rates

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
    parser.add_argument("--tokens-per-gpu", type=float, default=4096.0, help="tokens of a pass on each GPU")


def model_of(workload: RoutedWorkload) -> tuple[str, Architecture] | None:
    """The one model of the catalogue with so many experts and sparse layers, if there is one."""
    fitting = [
        (name, model)
        for name, model in catalogue_models().items()
        if model.experts is not None
        and model.experts.count == workload.experts
        and len(range(model.experts.dense_layers, model.layers, model.experts.layer_period)) == len(workload.layers)
    ]
    return fitting[0] if len(fitting) == 1 else None


def rule_of(workload: RoutedWorkload, given: argparse.Namespace) -> RouterRule:
    """The router's rule as given, else of the model that fits, else 8 experts of all (2 of up to 8)."""
    found = model_of(workload)
    rule = RouterRule(8 if workload.experts > 8 else min(2, workload.experts))
    if found is not None and found[1].experts is not None:
        rule = RouterRule.of(found[1].experts)
    groups = rule.groups if given.router_groups is None else given.router_groups
    active_groups = rule.active_groups if given.router_groups is None else groups
    return RouterRule(
        rule.active if given.active is None else given.active,
        groups,
        active_groups if given.active_groups is None else given.active_groups,
    )


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
    aim = USUAL_AIM if given.gbit_per_s is None else 0.0
    placed = place_nodewise(routed, layout, rates, seed=seed, threads=THREADS, aim=aim)
    seconds = time.perf_counter() - started
    model = model_of(workload)
    worth = balancedness(placed.slots, workload.loads, layout)
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
        "layer_ms": float(placed.times.total_s.mean()) * 1e3,
        "layer_ms_bound": float(placed.bound_s.mean()) * 1e3,
        "nodes_crossed": float(placed.times.crossing.mean()),
    }


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
    proposals: int = PROPOSALS,
) -> list[dict[str, Any]]:
    """For each workload and speed: milliseconds of a layer under both modes of the published balancer and ours.

    ``unaware``: of the one map that is made without a speed.
    """
    warm_up()
    rows = []
    for workload in workloads:
        rule = rule_of(workload, given)
        routed = routing(workload.loads, rule)
        groups = rule.groups if rule.groups % layout.nodes == 0 else layout.nodes
        maps = {"eplb_global": eplb_global(workload.loads, layout)}
        if workload.experts % groups == 0:
            maps["eplb_hierarchical"] = eplb_hierarchical(workload.loads, layout, groups)
        usual = rates_of(workload, None, given.tokens_per_gpu)
        unaware = place_nodewise(routed, layout, usual, proposals=proposals, threads=THREADS, aim=USUAL_AIM)
        maps["unaware"] = unaware.slots
        for speed in SPEEDS:
            rates = rates_of(workload, speed, given.tokens_per_gpu)
            started = time.perf_counter()
            placed = place_nodewise(routed, layout, rates, proposals=proposals, threads=THREADS)
            seconds = time.perf_counter() - started
            times = {name: layer_times(slots, routed, layout, rates) for name, slots in maps.items()}
            times["ours"] = placed.times
            best = np.min([times[name].total_s.sum() for name in times if name in MODES])
            rows.append(
                {
                    "workload": workload.name,
                    "gbit_per_s": speed,
                    **{name: _figures(each) for name, each in times.items()},
                    "gain": float(best / times["ours"].total_s.sum() - 1.0),
                    "unaware_gain": float(best / times["unaware"].total_s.sum() - 1.0),
                    "balancedness": balancedness(placed.slots, workload.loads, layout),
                    "unaware_balancedness": balancedness(unaware.slots, workload.loads, layout),
                    "bound_ms": float(placed.bound_s.mean()) * 1e3,
                    "seconds": seconds,
                }
            )
    return rows


def _figures(times: LayerTimes) -> dict[str, float]:
    return {
        "ms": float(times.total_s.mean()) * 1e3,
        "compute_ms": float(times.compute_s.mean()) * 1e3,
        "nodes_crossed": float(times.crossing.mean()),
        "busiest_crossing": float(times.busiest_crossing.mean()),
    }


def speed_table(rows: Sequence[dict[str, Any]]) -> str:
    """A table of ``compare_speeds`` by speed: means over workloads, the least gains."""
    heads = ["Gb/s per GPU", "EPLB hierarchical", "EPLB global", "ours", "gain", "without a speed", "gain", "bound"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for speed in sorted({row["gbit_per_s"] for row in rows}):
        mine = [row for row in rows if row["gbit_per_s"] == speed]
        cells = [f"{speed:.0f}"]
        for name in ("eplb_hierarchical", "eplb_global", "ours", "unaware"):
            cells.append(
                f"{np.mean([row[name]['ms'] for row in mine]):.2f} ms" if all(name in row for row in mine) else "-"
            )
            gains = {"ours": "gain", "unaware": "unaware_gain"}.get(name)
            if gains is not None:
                least, most = min(row[gains] for row in mine), max(row[gains] for row in mine)
                cells.append(f"{least:+.1%} to {most:+.1%}")
        cells.append(f"{np.mean([row['bound_ms'] for row in mine]):.2f} ms")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)
