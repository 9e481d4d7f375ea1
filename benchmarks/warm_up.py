"""Compiles the solver's loops, which stay beside their source: no later command waits for the compiler.

``python -m benchmarks.warm_up`` does it for training, with ``experts`` for expert maps.  What Numba compiles of its
own for every loop is compiled once for all commands of a process.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from app.cli import main as meshwright
from benchmarks.placement import main as placement
from benchmarks.placement_clusters import steep_links, steep_training
from benchmarks.placement_grid import grid_problem
from solver.placement.local_search import Found
from solver.placement.relocation import relocate_slow_nodes

FEW_LOADS = [[90, 40, 21, 20, 12, 11, 10, 9]]
MAP_FILE = "expert_location.json"
Command = tuple[Callable[[list[str]], int | None], str]


def training() -> Iterator[Command]:
    """A small plan; few slots, which are enumerated, and more, which are searched and bounded; relocations."""
    examples = "--cluster examples/clusters/two-nodes.yaml --workload examples/workloads/llama-3-8b-small.yaml"
    yield meshwright, f"plan --model llama-3-8b {examples}"
    step = "--forward-s 0.03 --backward-s 0.06 --micro-batches 8 --activation-bytes 3e8 --gradient-bytes 8e9"
    for ranks in (2, 5):
        yield placement, f"--dp 2 --pp {ranks} --seconds 5 --bandwidth examples/bandwidth/ten-nodes.csv {step}"
    yield relocation, ""


def relocation(_: list[str]) -> None:
    """The search of large grids, on a small one."""
    problem = grid_problem(steep_links(16, 0), steep_training(16))
    relocate_slow_nodes(problem, Found(np.arange(16), step_s=5.0, violations=0), moves=15_000, seed=0)


def experts(folder: Path) -> Iterator[Command]:
    """A map and its renewal; then few slots, which are solved exactly, and two on each rank, which are paired."""
    loads, router = "examples/routing/decode.json", "--router 4 --link-speed 50 --format sglang"
    made = f"--loads examples/routing/prefill.json {loads} {router} --output {folder}"
    yield meshwright, f"experts place --ranks 16 --nodes 2 --slots 48 {made}"
    running = f"--running {folder / MAP_FILE} --loads {loads} --expert-bytes 44e6 --steps 10000"
    yield meshwright, f"experts rebalance --ranks 16 --nodes 2 {running}"
    few = folder / "few.json"
    few.write_text(json.dumps(FEW_LOADS))
    for ranks in (4, 6):
        yield meshwright, f"experts place --loads {few} --ranks {ranks} --nodes 2 --slots 12 --router 2"


def main(arguments: list[str]) -> int:
    """Run the commands of ``arguments``; the status of the first that fails."""
    with tempfile.TemporaryDirectory() as folder:
        for run, line in experts(Path(folder)) if "experts" in arguments else training():
            if status := run(line.split()):
                return status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
