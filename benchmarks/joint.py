"""How long a full plan takes on large clusters: degrees, layers and placement together, and how far it is proven.

    python -m benchmarks.joint [--gpus 8192] [--json]

The clusters are made up (``benchmarks.large_clusters``); nothing is asserted.  Seconds are of processor time, by
which the search is limited here as well: a busy machine takes longer and finds the same.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final
from unittest.mock import patch

from app.cli.files import read_architecture, read_workload
from benchmarks.large_clusters import HOST_GPUS, cluster_by_class, measured_cluster
from benchmarks.speed import MODEL, WORKLOAD
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.training.plan import Plan
from solver.problem import PlanningProblem, SearchOptions
from solver.search import plan

SMALL: Final = "llama-3-8b"
"""Model that fits one node and two."""
CASES: Final[tuple[tuple[str, Callable[[int, int], ClusterSnapshot], int, str, int, float], ...]] = (
    *(("every pair measured", measured_cluster, nodes, SMALL, 512, 10.0) for nodes in (1, 2)),
    *(("every pair measured", measured_cluster, nodes, MODEL, 512, 20.0) for nodes in (4, 8, 16, 32)),
    *(("every pair measured", measured_cluster, nodes, MODEL, 1024, 30.0) for nodes in (64, 128)),
    ("by class", cluster_by_class, 128, MODEL, 1024, 30.0),
    ("by class", cluster_by_class, 256, MODEL, 1024, 60.0),
    ("by class", cluster_by_class, 512, MODEL, 2048, 120.0),
    ("by class", cluster_by_class, 1024, MODEL, 2048, 120.0),
)
"""Knowledge of the links, the cluster, its nodes, the model, the global batch, and the seconds aimed at."""
SEARCH_SHARE: Final = 0.8
"""Share of the seconds aimed at for the search; the rest is for what comes after it."""


@dataclass(frozen=True, slots=True)
class Joint:
    """One plan: seconds from snapshot to plan, what it found and how far it is from proven optimal."""

    links: str
    gpus: int
    model: str
    seconds: float
    aim_s: float
    degrees: str
    step_s: float
    gap: float
    stopped_by: str


def processor_s() -> float:
    """Seconds of processor time of this process and of those that it waited for."""
    return sum(os.times()[:4])


def measured(most_gpus: int) -> Iterator[Joint]:
    """Plan each case of at most so many GPUs, one after the other."""
    workload = read_workload(str(WORKLOAD))
    for links, cluster, nodes, model, batch, aim_s in CASES:
        if nodes * HOST_GPUS > most_gpus:
            continue
        architecture = read_architecture(model)
        problem = PlanningProblem(cluster(nodes, 0), architecture, replace(workload, global_batch=batch))
        started = processor_s()
        with patch("time.monotonic", processor_s):
            answer = plan(problem, SearchOptions(time_limit_s=SEARCH_SHARE * aim_s))
        seconds = processor_s() - started
        assert isinstance(answer, Plan)
        certificate = answer.certificate
        yield Joint(
            links=links,
            gpus=nodes * HOST_GPUS,
            model=model,
            seconds=seconds,
            aim_s=aim_s,
            degrees=str(answer.configuration.degrees),
            step_s=answer.time.step_s,
            gap=certificate.gap,
            stopped_by=str(certificate.stopped_by),
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joint", description="plans for large clusters")
    parser.add_argument("--gpus", type=int, default=8192, help="the largest cluster")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args(arguments)
    if asked.json:
        print(json.dumps([asdict(joint) for joint in measured(asked.gpus)], indent=2))
        return 0
    print("  GPUs  model        links                seconds  aim  step, s    gap  ended by      degrees")
    for joint in measured(asked.gpus):
        print(
            f"{joint.gpus:6,}  {joint.model:<11}  {joint.links:<19}  {joint.seconds:7.1f}  {joint.aim_s:3.0f}  "
            f"{joint.step_s:7.3f}  {joint.gap:5.2%}  {joint.stopped_by:<12}  {joint.degrees}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
