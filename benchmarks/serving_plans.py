"""Serving plans of a few clusters: what they reach, how near to the bound, how long they take.

    python -m benchmarks.serving_plans

Prints the table of docs/serving.md.  Seconds are of this machine, with nothing planned before; on a busy one
processor time says more.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from app.cli.files import read_snapshot
from cluster_models.cluster.catalogue import gpu_kind
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster, NicGroup, Node
from cluster_models.model.catalogue import catalogue_model
from cluster_models.serving.goal import ServedModel, ServingGoal, ServingObjective
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.workload import ServingWorkload, WeightFormat
from solver.check.serving import check_serving_plan
from solver.problem import SearchOptions
from solver.serving.plan import plan_serving
from solver.serving.problem import ServingProblem

LONG = ServingWorkload(
    4096,
    1024,
    concurrency=512,
    weights=WeightFormat.FP8,
    time_to_first_token_s=4.0,
    time_per_output_token_s=0.05,
)
CHAT = ServingWorkload(
    1024,
    1024,
    concurrency=64,
    weights=WeightFormat.FP8,
    time_to_first_token_s=0.5,
    time_per_output_token_s=0.03,
)
OPTIONS = SearchOptions(gap=0.01)
MOST_GROUPS = 4
"""Kinds of groups that the table names."""


H100, H200, B200 = "H100-SXM5-80GB", "H200-SXM-141GB", "B200-SXM-180GB"
MEASURED = Path(__file__).parents[1] / "examples" / "clusters" / "h100-17-nodes.yaml"


@dataclass(frozen=True, slots=True)
class Case:
    """A problem of the table; ``hosts``: nodes and kind of each part of the cluster, of ``gpus`` a node.

    ``measured``: the cluster file to take instead.
    """

    hosts: tuple[tuple[int, str], ...]
    gpus: int
    models: tuple[tuple[str, ServingWorkload], ...]
    objective: ServingObjective
    measured: Path | None = None

    @property
    def cluster(self) -> str:
        """Its name in the table."""
        if self.measured is not None:
            return f"{self.measured.stem}, measured"
        return " + ".join(f"{nodes} x {self.gpus} {kind}" for nodes, kind in self.hosts)

    @property
    def problem(self) -> ServingProblem:
        """On nodes whose links nobody measured, or those of the file."""
        served = tuple(ServedModel(catalogue_model(model), workload) for model, workload in self.models)
        return ServingProblem(self._snapshot(), served, ServingGoal(self.objective))

    def _snapshot(self) -> ClusterSnapshot:
        if self.measured is not None:
            return read_snapshot(str(self.measured))
        nodes = tuple(
            Node(name, kind, self.gpus, name, NicGroup(self.gpus, 50e9, "infiniband"))
            for count, kind in self.hosts
            for name in (f"{kind}-{index}" for index in range(count))
        )
        cluster = Cluster("benchmark", nodes, {kind: gpu_kind(kind) for _, kind in self.hosts})
        return ClusterSnapshot("benchmark", cluster, ())


LLAMA, DEEPSEEK = (("llama-3.1-70b", CHAT),), (("deepseek-v3", LONG),)
THREE = (*DEEPSEEK, *LLAMA, ("qwen3-235b-a22b", LONG))
CASES = (
    Case(((1, H100),), 8, LLAMA, ServingObjective.THROUGHPUT),
    Case(((1, H100),), 7, LLAMA, ServingObjective.GOODPUT),
    Case(((1, H100),), 8, LLAMA, ServingObjective.GPUS),
    Case(((8, H100),), 8, DEEPSEEK, ServingObjective.THROUGHPUT),
    Case(((8, H200),), 8, DEEPSEEK, ServingObjective.THROUGHPUT),
    Case(((8, H200),), 8, DEEPSEEK, ServingObjective.GOODPUT),
    Case(((8, H200),), 8, DEEPSEEK, ServingObjective.GPUS),
    Case(((7, H100),), 8, DEEPSEEK, ServingObjective.GOODPUT),
    Case((), 8, DEEPSEEK, ServingObjective.GOODPUT, MEASURED),
    Case(((48, H100), (48, H200), (32, B200)), 8, THREE, ServingObjective.GOODPUT),
)


def main() -> None:
    """Print the table."""
    print("| cluster | models | objective | GPUs used | tokens/s | gap | s | processor s | plan |")
    print("|---|---|---|---|---|---|---|---|---|")
    for case in CASES:
        print(_line(case), flush=True)


def _line(case: Case) -> str:
    problem = case.problem
    started, used = time.perf_counter(), _processor_s()
    plan = plan_serving(problem, OPTIONS)
    seconds, used = time.perf_counter() - started, _processor_s() - used
    assert isinstance(plan, ServingPlan), plan
    assert not check_serving_plan(plan, problem)
    groups = Counter(
        f"{group.configuration.prefill} + {group.configuration.decode}"
        if group.transfer
        else str(group.configuration.decode.worker)
        for group in plan.groups
    )
    most = groups.most_common(MOST_GROUPS)
    chosen = ", ".join(f"{count} of ({group})" for group, count in most)
    more = f" and {len(groups) - MOST_GROUPS} more" if len(groups) > MOST_GROUPS else ""
    return (
        f"| {case.cluster} | {', '.join(model for model, _ in case.models)} | {case.objective} | {plan.gpus} | "
        f"{plan.tokens_per_s:,.0f} | {plan.certificate.gap:.2%} | {seconds:.1f} | {used:.1f} | {chosen}{more} |"
    )


def _processor_s() -> float:
    """Seconds of processor time of this process and of those that it started."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()
