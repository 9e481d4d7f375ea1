"""Contiguous, random, the published balancer and ours, on the workload they were made for and on others."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.eplb import eplb_global, eplb_hierarchical
from cluster_models.routing.counts import RoutedWorkload
from solver.candidates import IntArray
from solver.experts.layout import ExpertLayout
from solver.experts.loads import balancedness
from solver.experts.place import place_experts

LAYOUTS: Final = {
    256: (
        ExpertLayout(32, 4, 256),
        ExpertLayout(32, 4, 288),
        ExpertLayout(64, 8, 320),
        ExpertLayout(144, 18, 288),
    ),
    64: (ExpertLayout(8, 1, 64), ExpertLayout(8, 1, 72), ExpertLayout(32, 4, 96)),
    8: (ExpertLayout(4, 1, 8), ExpertLayout(4, 1, 12), ExpertLayout(8, 2, 16)),
}
GROUPS: Final = 8
"""Router groups of the hierarchical mode, where they divide experts and nodes divide them."""
RULES: Final = ("contiguous", "random", "eplb_hierarchical", "eplb_global", "ours")


def compare(
    sets: Mapping[str, Sequence[RoutedWorkload]], warm_up: Callable[[ExpertLayout], None]
) -> list[dict[str, Any]]:
    """For each set and layout: balancedness by rule, in and out of sample, bound, seconds, the plan for all."""
    results = []
    for name, workloads in sets.items():
        for layout in LAYOUTS.get(workloads[0].experts, ()):
            warm_up(layout)
            results.append({"set": name, **_compared(workloads, layout)})
    return results


def _compared(workloads: Sequence[RoutedWorkload], layout: ExpertLayout) -> dict[str, Any]:
    maps: dict[str, list[IntArray]] = {rule: [] for rule in RULES}
    seconds = dict.fromkeys(RULES, 0.0)
    bounds = []
    for workload in workloads:
        for rule in RULES:
            started = time.perf_counter()
            if rule == "ours":
                placed = place_experts([workload], layout)
                rows: IntArray | None = placed.rows()
                bounds.append(placed.bound)
            else:
                rows = _by_rule(rule, workload, layout)
            seconds[rule] += time.perf_counter() - started
            if rows is not None:
                maps[rule].append(rows)
    together = place_experts(workloads, layout).rows() if len(workloads) > 1 else None
    return {
        "ranks": layout.ranks,
        "nodes": layout.nodes,
        "slots": layout.slots,
        "workloads": [workload.name for workload in workloads],
        "in_sample": {
            rule: [
                balancedness(rows, workload.loads, layout) for rows, workload in zip(found, workloads, strict=True)
            ]
            for rule, found in maps.items()
            if found
        },
        "bound": bounds,
        "worst_out_of_sample": {
            rule: [min(balancedness(rows, other.loads, layout) for rows in found) for other in workloads]
            for rule, found in maps.items()
            if found
        },
        "together": None
        if together is None
        else [balancedness(together, workload.loads, layout) for workload in workloads],
        "seconds": {rule: spent / len(workloads) for rule, spent in seconds.items()},
    }


def _by_rule(rule: str, workload: RoutedWorkload, layout: ExpertLayout) -> IntArray | None:
    """(L, S) the map of a rule other than ours; ``None`` where it does not apply."""
    layers, experts = workload.loads.shape
    if rule == "contiguous":
        return np.tile(np.arange(layout.slots) % experts, (layers, 1))
    if rule == "random":
        random = np.random.default_rng(0)
        return np.array([random.permutation(np.arange(layout.slots) % experts) for _ in range(layers)])
    if rule == "eplb_global":
        return eplb_global(workload.loads, layout)
    if layout.nodes == 1 or GROUPS % layout.nodes or experts % GROUPS:
        return None
    return eplb_hierarchical(workload.loads, layout, GROUPS)


def page(results: Sequence[Mapping[str, Any]]) -> str:
    """The comparison as a table for people: means over the workloads of a set, and its worst cases."""
    head = "| workloads | slots on ranks / nodes | " + " | ".join(rule.replace("_", " ") for rule in RULES)
    lines = [
        head
        + " | bound | least gain over EPLB | EPLB, worst other | ours, worst other | ours, planned on all | s |",
        "|---|---|" + "---|" * (len(RULES) + 6),
    ]
    for result in results:
        sample, other = result["in_sample"], result["worst_out_of_sample"]
        means = [f"{np.mean(sample[rule]):.3f}" if rule in sample else "-" for rule in RULES]
        gain = min(np.array(sample["ours"]) - np.array(sample["eplb_global"]))
        together = "-" if result["together"] is None else f"{min(result['together']):.3f}"
        cells = [
            f"{result['set']}, {len(result['workloads'])} workloads",
            f"{result['slots']} on {result['ranks']} / {result['nodes']}",
            *means,
            f"{np.mean(result['bound']):.3f}",
            f"{gain:+.4f}",
            f"{min(other['eplb_global']):.3f}",
            f"{min(other['ours']):.3f}",
            together,
            f"{result['seconds']['ours']:.2f}",
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
