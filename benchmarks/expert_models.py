"""One map against both modes of the published balancer under every way to predict its time that is usual."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from benchmarks.eplb import eplb_global, eplb_hierarchical
from benchmarks.expert_nodes import SPEEDS, THREADS, choice_of, rates_of, rule_of, warm_up
from cluster_models.routing.counts import RoutedWorkload
from solver.candidates import FloatArray, IntArray
from solver.experts.dispatch import LayerRates, RouterRule, Routing, routing, times_by_choice
from solver.experts.layout import ExpertLayout
from solver.experts.loads import CopyChoice
from solver.experts.nodewise import place_nodewise

BYTES: Final = {"8 bits": False, "16 bits": True}
PACES: Final = ("busiest node", "mean of nodes")


def compare_models(
    workloads: Sequence[RoutedWorkload], layout: ExpertLayout, given: argparse.Namespace
) -> list[dict[str, Any]]:
    """By workload and model: how much longer the better mode of EPLB takes than the map made without a speed."""
    warm_up()
    rows = []
    for workload in workloads:
        rule = rule_of(workload, given)
        routed = routing(workload.loads, rule)
        usual = rates_of(workload, None, given.tokens_per_gpu)
        placed = place_nodewise(routed, layout, usual, choice=choice_of(given), speed_known=False, threads=THREADS)
        groups = rule.groups if rule.groups % layout.nodes == 0 else layout.nodes
        maps = [placed.slots, eplb_global(workload.loads, layout)]
        if workload.experts % groups == 0:
            maps.append(eplb_hierarchical(workload.loads, layout, groups))
        routers = {"groups": routed}
        if rule.groups > 1:
            routers["no groups"] = routing(workload.loads, RouterRule(rule.active))
        for router, each in routers.items():
            for name, seconds in _models(maps, each, layout, usual).items():
                choice, pace, dispatch = name
                gains = seconds[1:].min(axis=0) / seconds[0] - 1.0
                rows.append(
                    {
                        "workload": workload.name,
                        "router": router,
                        "copy_choice": choice,
                        "pace": pace,
                        "dispatch": dispatch,
                        "gains": dict(zip(map(str, SPEEDS), gains.tolist(), strict=True)),
                    }
                )
    return rows


def _models(
    maps: Sequence[IntArray], routed: Routing, layout: ExpertLayout, usual: LayerRates
) -> dict[tuple[str, str, str], FloatArray]:
    """(maps, speeds) seconds of all layers by choice of copies, pace and dispatch."""
    found: dict[tuple[str, str, str], list[list[float]]] = {}
    for slots in maps:
        for dispatch, wide in BYTES.items():
            rates = replace(usual, dispatch_bytes=usual.combine_bytes) if wide else usual
            for choice, times in zip(
                CopyChoice, times_by_choice(slots, routed, layout, rates, tuple(CopyChoice)), strict=True
            ):
                here = float((times.compute_s + times.inside_s).sum())
                for pace, crossing in zip(PACES, (times.busiest_crossing, times.crossing), strict=True):
                    sent = rates.tokens * rates.copy_bytes * float(crossing.sum())
                    seconds = [here + sent / (speed * 1e9 / 8) for speed in SPEEDS]
                    found.setdefault((choice.value, pace, dispatch), []).append(seconds)
    return {name: np.array(seconds) for name, seconds in found.items()}


def model_table(rows: Sequence[dict[str, Any]]) -> str:
    """A table of ``compare_models``: least and mean gain of the workloads."""
    lines = [
        "| router | copies | pace | dispatch | " + " | ".join(f"{speed:.0f} Gb/s" for speed in SPEEDS) + " |",
        "|---" * (4 + len(SPEEDS)) + "|",
    ]
    parts = ("router", "copy_choice", "pace", "dispatch")
    for name in dict.fromkeys(tuple(row[part] for part in parts) for row in rows):
        mine = [row["gains"] for row in rows if tuple(row[part] for part in parts) == name]
        at = [[gains[str(speed)] for gains in mine] for speed in SPEEDS]
        cells = [f"{min(gains):+.2%} / {np.mean(gains):+.2%}" for gains in at]
        lines.append(f"| {' | '.join([*name, *cells])} |")
    return "\n".join(lines)
