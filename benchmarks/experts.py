"""Expert maps from routing counts, and how they compare with others.

    python -m benchmarks.experts --loads JSON [JSON ...] --gpus G --nodes N --slots S [--json]
    python -m benchmarks.experts speeds --loads JSON [JSON ...] --gpus G --nodes N --slots S [--json]
    python -m benchmarks.experts models --loads JSON [JSON ...] --gpus G --nodes N --slots S [--json]
    python -m benchmarks.experts transitions [--folder FOLDER] [--json]
    python -m benchmarks.experts [compare [--folder FOLDER] [--page FILE] [--json]]

The first prints a map for the workloads of all files together (the worst of them counts) and what it is worth;
``--gbit-per-s`` weighs balance against what crosses nodes over such links, and one workload with copies to spare is
weighed for usual links in any case; ``--transitions`` keeps tokens on their rank from layer to layer.  The second
compares the time of layers at several link speeds with both modes of the published balancer, the third does so for
one map under every usual way to predict that time; the fourth uses maps for transitions on other tokens; the last
compares contiguous, random, both modes and ours over a folder.
Seconds are of placing alone: imports and compiling are done before, on a tiny case.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from benchmarks import expert_models, expert_nodes, transition_files
from benchmarks.chain_comparison import chain_table, compare_chains
from benchmarks.expert_comparison import compare, page
from benchmarks.marked_pages import put_part
from benchmarks.routing_files import generated, read_workloads
from cluster_models.errors import InvalidInput, MeshwrightError
from cluster_models.routing.counts import RoutedWorkload
from solver.experts.layout import ExpertLayout
from solver.experts.loads import node_local_share
from solver.experts.place import STEPS, place_experts
from solver.experts.transitions import ChangePrices

REAL: Final = Path(__file__).parents[2] / "shared" / "data" / "moe_routing"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for: 0, or 2 for wrong input."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not given or given[0] == "compare":
            _compare(given[1:])
        elif given[0] in {"speeds", "models"}:
            _speeds(given[0], given[1:])
        elif given[0] == "transitions":
            _transitions(given[1:])
        else:
            _place(given)
    except MeshwrightError as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


def placed_map(
    workloads: Sequence[RoutedWorkload], layout: ExpertLayout, *, steps: int = STEPS, seed: int = 0
) -> dict[str, Any]:
    """The map for ``workloads`` and what it is worth, as the command prints it."""
    warm_up(layout)
    started = time.perf_counter()
    placed = place_experts(workloads, layout, steps=steps, seed=seed)
    seconds = time.perf_counter() - started
    rows = placed.rows()
    return {
        "physical_to_logical_map": rows.tolist(),
        "balancedness": placed.worth,
        "bound": placed.bound,
        "node_local_share": min(node_local_share(rows, workload.loads, layout) for workload in workloads),
        "seconds": seconds,
        "layers": list(placed.slots.layers),
        "workloads": dict(placed.balancedness),
    }


def warm_up(layout: ExpertLayout) -> None:
    """Load every compiled loop that placing on ``layout`` may need, on a tiny case."""
    size = min(layout.slots_per_rank, 3)
    slots = 8 * size
    for experts in (slots, slots - 3):
        small = [generated(name, 1, experts, seed) for name, seed in (("a", 1), ("b", 2))]
        for speeds in ((), (1.0, 2.0) * 4):
            tiny = ExpertLayout(8, 2, slots, speeds)
            place_experts(small[:1], tiny, steps=2)
            place_experts(small, tiny, steps=2)


def _place(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experts", description="Place experts by their loads."
    )
    parser.add_argument("--loads", type=Path, nargs="+", required=True, help="files of counts, placed together")
    parser.add_argument("--gpus", type=int, required=True, help="expert ranks")
    parser.add_argument("--nodes", type=int, default=1, help="nodes; they divide the ranks")
    parser.add_argument("--slots", type=int, required=True, help="slots of a layer in all")
    parser.add_argument("--speeds", type=float, nargs="+", default=(), help="relative speed of each rank")
    parser.add_argument("--steps", type=int, default=STEPS, help="search steps for each layer")
    parser.add_argument("--seed", type=int, default=0)
    transition_files.add_options(parser)
    expert_nodes.add_options(parser)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    layout = ExpertLayout(given.gpus, given.nodes, given.slots, tuple(given.speeds))
    if given.transitions is not None:
        _chain(given, layout)
        return
    workloads = _named_apart([workload for path in given.loads for workload in read_workloads(path)])
    if expert_nodes.taken_by_nodes(layout, workloads, given.gbit_per_s):
        result = expert_nodes.nodewise_map(workloads[0], layout, given, seed=given.seed)
    else:
        result = placed_map(workloads, layout, steps=given.steps, seed=given.seed)
    if given.json:
        print(json.dumps(result))
        return
    for name, value in result["workloads"].items():
        print(f"{name:40} balancedness {value:.4f}")
    print(f"worst {result['balancedness']:.4f}, no map exceeds {result['bound']:.4f}")
    if "layer_ms" in result:
        print(
            f"nodes weighed: a layer takes {result['layer_ms']:.3f} ms, with no map less than "
            f"{result['layer_ms_bound']:.3f} ms; for this time some balance is given up"
        )
    print(f"node-local share {result['node_local_share']:.3f}, {result['seconds']:.2f} s")


def _named_apart(workloads: Sequence[RoutedWorkload]) -> list[RoutedWorkload]:
    """The same workloads; files of one name in several folders get a number."""
    seen: dict[str, int] = {}
    apart = []
    for workload in workloads:
        seen[workload.name] = times = seen.get(workload.name, 0) + 1
        apart.append(workload if times == 1 else replace(workload, name=f"{workload.name} ({times})"))
    return apart


def _chain(given: argparse.Namespace, layout: ExpertLayout) -> None:
    """The map for loads and transitions together."""
    counted = [workload for path in given.loads for workload in transition_files.read_counted(path)]
    workload = transition_files.with_transitions(counted, given.transitions)
    result = transition_files.chained_map(
        workload,
        layout,
        least_locality=given.least_locality,
        prices=ChangePrices(given.inside_price, 1.0),
        seed=given.seed,
    )
    if given.json:
        print(json.dumps(result))
        return
    proof = "the optimum without regard to load" if result["exact"] else "no map exceeds"
    print(f"{workload.name:40} balancedness {result['balancedness']:.4f}")
    print(f"transitions that stay on their rank {result['transition_stay_share']:.4f}")
    print(f"and in their node {result['transition_node_stay_share']:.4f}")
    print(f"worth {result['transition_worth']:.4f}; {proof} {result['transition_bound']:.4f}")
    print(f"{result['seconds']:.2f} s")


def _transitions(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.experts transitions", description="Use maps on other tokens than their own."
    )
    parser.add_argument("--folder", type=Path, default=REAL, help="files of traces, or of counts with transitions")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    rows = compare_chains(given.folder)
    print(json.dumps([asdict(row) for row in rows]) if given.json else chain_table(rows))


def _speeds(what: str, arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.experts {what}", description="Compare with EPLB.")
    parser.add_argument("--loads", type=Path, nargs="+", required=True, help="files of counts, each by itself")
    parser.add_argument("--gpus", type=int, required=True, help="expert ranks")
    parser.add_argument("--nodes", type=int, required=True, help="nodes; they divide the ranks")
    parser.add_argument("--slots", type=int, required=True, help="slots of a layer in all")
    expert_nodes.add_options(parser)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    workloads = [workload for path in given.loads for workload in read_workloads(path)]
    layout = ExpertLayout(given.gpus, given.nodes, given.slots)
    if what == "speeds":
        rows, table = expert_nodes.compare_speeds(workloads, layout, given), expert_nodes.speed_table
    else:
        rows, table = expert_models.compare_models(workloads, layout, given), expert_models.model_table
    print(json.dumps(rows) if given.json else table(rows))


def _compare(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.experts compare", description="Compare balancers.")
    parser.add_argument("--folder", type=Path, default=REAL, help="files of counts; generated ones where none are")
    parser.add_argument("--page", type=Path, help="page whose table is written anew")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    result = compare(_sets(given.folder), warm_up)
    if given.json:
        print(json.dumps(result))
    else:
        print(page(result))
    if given.page:
        put_part(given.page, "table", page(result))


def _sets(folder: Path) -> dict[str, list[RoutedWorkload]]:
    """Workloads that belong together (one model), by name: of the files under ``folder``, else generated."""
    found: dict[str, list[RoutedWorkload]] = {}
    for path in sorted(folder.rglob("*.json")) if folder.is_dir() else []:
        try:
            workloads = read_workloads(path)
        except InvalidInput as problem:
            print(f"left out: {problem}", file=sys.stderr)
            continue
        for workload in workloads:
            model = path.stem.split("__", maxsplit=1)[0] if ":" in workload.name or "__" in path.stem else ""
            name = f"{path.parent.name}/{model} {len(workload.layers)} x {workload.experts}"
            found.setdefault(name, []).append(workload)
    if found:
        return found
    kin = [("prefill 1", 1), ("prefill 2", 2), ("prefill 3", 3)]
    far = [("decode 1", 11), ("decode 2", 12)]
    return {
        "generated 58 x 256": [generated(name, 58, 256, seed, 0.95) for name, seed in kin]
        + [generated(name, 58, 256, seed, 0.8) for name, seed in far]
    }


if __name__ == "__main__":
    sys.exit(main())
