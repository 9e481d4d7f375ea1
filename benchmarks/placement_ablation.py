"""Worth of each part of the placement bound: the bound after the same processor time without it.

    python -m benchmarks.placement_ablation [--clusters steep] [--nodes 64] [--seed 11] [--seconds 20]

Each run starts from the same incumbent, that of a short search; seconds are of one processor, so other work on the
machine changes little.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from benchmarks.placement_clusters import CLUSTERS, SHAPES
from benchmarks.placement_grid import grid_problem
from solver.candidates import BoolArray
from solver.placement import branching, pricing
from solver.placement.branch_and_price import branch_and_price_of, priced_bound_s
from solver.placement.critical_paths import CriticalPaths
from solver.placement.local_search import Found, search_placement
from solver.placement.period_bound import period_bound_s
from solver.placement.problem import PlacementProblem

MOVES_PER_SLOT: Final = 5_000
SEARCHES: Final = 5
WARM_S: Final = 30.0
"""Most processor time for compiling, which no row is charged for."""
HEAD: Final = "| without | bound | gap |"


def _nothing_ruled_out(_: object, __: object, branch: branching.Branch, *___: object) -> BoolArray:
    return np.zeros(branch.may.shape, dtype=np.bool_)


def _any_time(_: object, __: float, may: BoolArray) -> np.ndarray:
    return np.full((*may.shape, len(may)), np.inf)


PARTS: Final[dict[str, tuple[object, str, object]]] = {
    "nothing": (pricing, "NEAR", pricing.NEAR),
    "slow nodes first": (branching, "SLOW", np.inf),
    "time left by other nodes": (CriticalPaths, "latest_s", _any_time),
    "rows of neighbours": (branching, "FEW", -1),
    "memory of visits": (pricing, "NEAR", 0),
    "several labels of a node": (pricing, "MOST_WIDTH", 1),
    "nodes ruled out by prices": (pricing.Pricing, "ruled_out", _nothing_ruled_out),
}
"""The name of each part, and what stands for it when it is switched off."""


@contextmanager
def without(part: str) -> Iterator[None]:
    """Switch a part off for a while."""
    owner, name, value = PARTS[part]
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def bound_of(problem: PlacementProblem, incumbent: Found, known_s: float, out_of_time: Callable[[], bool]) -> float:
    """The bound of one problem from what the fast bound knows."""
    return priced_bound_s(
        problem,
        upper_s=incumbent.step_s,
        work=np.inf,
        out_of_time=out_of_time,
        assignment=incumbent.assignment,
        known_s=known_s,
        search=branch_and_price_of(problem),
    )


def rows(problem: PlacementProblem, *, seconds: float) -> Iterator[str]:
    """A row of the table for each part."""
    moves = MOVES_PER_SLOT * problem.slots
    searches = (search_placement(problem, moves=moves, seed=seed) for seed in range(SEARCHES))
    incumbent = min(searches, key=lambda found: found.step_s)
    known_s = period_bound_s(problem, upper_s=incumbent.step_s, work=2e10)
    for part in PARTS:
        with without(part):
            ends_s = time.process_time() + seconds
            bound_s = bound_of(problem, incumbent, known_s, lambda ends_s=ends_s: time.process_time() > ends_s)
        yield f"| {part} | {bound_s:.4f} | {1 - bound_s / incumbent.step_s:.2%} |"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.placement_ablation", description=__doc__)
    parser.add_argument("--clusters", choices=list(CLUSTERS), default="steep")
    parser.add_argument("--nodes", type=int, choices=list(SHAPES), default=64)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--seconds", type=float, default=20.0, help="of processor time for each row (default 20)")
    asked = parser.parse_args()
    clusters = CLUSTERS[asked.clusters]
    problem = grid_problem(clusters.links(asked.nodes, asked.seed), clusters.training(asked.nodes))
    small = grid_problem(clusters.links(16, 0), clusters.training(16))
    warm_s = time.process_time() + WARM_S
    bound_of(small, search_placement(small, moves=100, seed=0), 0.0, lambda: time.process_time() > warm_s)
    print(HEAD, "|---" * (HEAD.count("|") - 1) + "|", sep="\n", flush=True)
    for row in rows(problem, seconds=asked.seconds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
