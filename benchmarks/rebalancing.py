"""Moves from the map of one workload to a balance under the counts of another, beside a complete new map.

python -m benchmarks.rebalancing --running JSON --loads JSON --gpus G --nodes N --slots S [--target B ...] [--json]
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import linear_sum_assignment

from benchmarks.transition_files import read_counted
from cluster_models.errors import MeshwrightError
from cluster_models.training.expert_slots import ExpertSlots
from solver.experts.layout import ExpertLayout
from solver.experts.moves import MoveCosts
from solver.experts.place import place_experts
from solver.experts.rebalance import Pace, Rebalanced, rebalance

TARGETS: Final = (0.8, 0.85, 0.9, 0.95, 0.97, 0.99)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what each target takes: 0, or 2 for wrong input."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.rebalancing", description="Rebalance a running map."
    )
    parser.add_argument("--running", type=Path, required=True, help="counts for which the running map was made")
    parser.add_argument("--loads", type=Path, required=True, help="new counts")
    parser.add_argument("--gpus", type=int, required=True, help="expert ranks")
    parser.add_argument("--nodes", type=int, default=1, help="nodes; they divide the ranks")
    parser.add_argument("--slots", type=int, required=True, help="slots of a layer in all")
    parser.add_argument("--target", type=float, nargs="+", default=TARGETS, help="balancedness to reach")
    parser.add_argument("--expert-mb", type=float, default=44.0, help="one expert of one layer, in 1e6 bytes")
    parser.add_argument("--inside-gb-per-s", type=float, default=300.0, help="of a rank inside its node")
    parser.add_argument("--between-gb-per-s", type=float, default=40.0, help="of a rank between nodes")
    parser.add_argument("--layer-s", type=float, default=2e-4, help="seconds of a layer at perfect balance")
    parser.add_argument("--steps", type=float, default=2000.0, help="steps until the map is looked at again")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    try:
        _print(given)
    except MeshwrightError as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


def _print(given: argparse.Namespace) -> None:
    layout = ExpertLayout(given.gpus, given.nodes, given.slots)
    (old, *_), (new, *_) = read_counted(given.running), read_counted(given.loads)
    running = place_experts([old], layout).slots
    costs = MoveCosts(given.expert_mb * 1e6, 1e-9 / given.inside_gb_per_s, 1e-9 / given.between_gb_per_s)
    pace = Pace(given.layer_s, given.steps)
    answers = [rebalance(running, new, layout, costs=costs, pace=pace, target=target) for target in given.target]
    rows = [_row(answer) for answer in answers]
    whole = changed_slots(running, place_experts([new], layout).slots)
    if given.json:
        print(json.dumps({"before": answers[0].balancedness_before, "complete_new_map": whole, "targets": rows}))
        return
    for row in rows:
        print(
            f"| {row['target']} | {row['balancedness']:.3f} | {row['moves']} | {row['least_moves']} "
            f"| {row['bytes_inside'] / 1e9:.1f} | {row['bytes_between'] / 1e9:.1f} | {1e3 * row['move_s']:.1f} |"
        )
    print(f"from {answers[0].balancedness_before:.3f}; a complete new map changes {whole} slots")


def _row(answer: Rebalanced) -> dict[str, Any]:
    names = ("target", "balancedness", "least_moves", "bytes_inside", "bytes_between", "move_s", "gain_s_per_step")
    return {
        **{name: getattr(answer, name) for name in names},
        "moves": len(answer.moves),
        "break_even_steps": answer.break_even_steps,
        "pays": answer.pays,
    }


def changed_slots(running: ExpertSlots, new: ExpertSlots) -> int:
    """Experts that must be loaded for a whole new map, with its ranks matched to the running ones at best."""
    changed = 0
    for old_row, new_row in zip(running.slots, new.slots, strict=True):
        common = np.array(
            [[len(set(old) & set(fresh)) for fresh in new.by_rank(new_row)] for old in running.by_rank(old_row)]
        )
        changed += running.count - int(common[linear_sum_assignment(-common)].sum())
    return changed


if __name__ == "__main__":
    sys.exit(main())
