"""How long a full plan takes on large clusters: degrees, layers and placement together, and how far it is proven.

    python -m benchmarks.joint [--json]

The clusters are made up (``benchmarks.large_clusters``); nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final

from app.cli.files import read_architecture, read_workload
from benchmarks.large_clusters import cluster_by_class, measured_cluster
from benchmarks.speed import MODEL, WORKLOAD
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.training.plan import Plan
from solver.problem import PlanningProblem, SearchOptions
from solver.search import plan

CASES: Final[tuple[tuple[str, Callable[[int, int], ClusterSnapshot], int, int, float], ...]] = (
    ("128 nodes, every pair measured", measured_cluster, 128, 1024, 30.0),
    ("128 nodes by class", cluster_by_class, 128, 1024, 30.0),
    ("1,024 nodes by class", cluster_by_class, 1024, 2048, 120.0),
)
"""Name, cluster, its nodes, the global batch, and the seconds aimed at."""
SEARCH_SHARE: Final = 0.8
"""Share of the seconds aimed at for the search; the rest is for what comes after it."""


@dataclass(frozen=True, slots=True)
class Joint:
    """One plan: seconds from snapshot to plan, what it found and how far it is from proven optimal."""

    case: str
    seconds: float
    aim_s: float
    degrees: str
    step_s: float
    gap: float
    stopped_by: str


def measured() -> list[Joint]:
    """All cases, one after the other."""
    architecture, workload = read_architecture(MODEL), read_workload(str(WORKLOAD))
    found = []
    for name, cluster, nodes, batch, aim_s in CASES:
        problem = PlanningProblem(cluster(nodes, 0), architecture, replace(workload, global_batch=batch))
        started = time.perf_counter()
        answer = plan(problem, SearchOptions(time_limit_s=SEARCH_SHARE * aim_s))
        seconds = time.perf_counter() - started
        assert isinstance(answer, Plan)
        certificate, degrees = answer.certificate, str(answer.configuration.degrees)
        found.append(
            Joint(name, seconds, aim_s, degrees, answer.time.step_s, certificate.gap, str(certificate.stopped_by))
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.joint", description="plans for large clusters")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    asked = parser.parse_args(arguments)
    found = measured()
    if asked.json:
        print(json.dumps([asdict(joint) for joint in found], indent=2))
        return 0
    print(f"{MODEL}; seconds aimed at are for two cores of a common server")
    for joint in found:
        print(
            f"{joint.case:<32} {joint.seconds:6.1f} s (aim {joint.aim_s:.0f})  step {joint.step_s:.3f} s, "
            f"gap {100 * joint.gap:.2f} % ({joint.stopped_by}), {joint.degrees}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
