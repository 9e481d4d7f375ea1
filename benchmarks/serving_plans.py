"""Serving plans of a few clusters: what they reach, how near to the bound, how long they take.

    python -m benchmarks.serving_plans

Prints the table of docs/serving.md.  The seconds are of this machine, with nothing planned before.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Case:
    """A problem of the table."""

    nodes: int
    gpus: int
    kind: str
    model: str
    workload: ServingWorkload
    objective: ServingObjective

    @property
    def problem(self) -> ServingProblem:
        """On equal nodes whose links nobody measured."""
        nodes = tuple(
            Node(f"n{index}", self.kind, self.gpus, f"n{index}", NicGroup(self.gpus, 50e9, "infiniband"))
            for index in range(self.nodes)
        )
        cluster = Cluster("benchmark", nodes, {self.kind: gpu_kind(self.kind)})
        served = ServedModel(catalogue_model(self.model), self.workload)
        return ServingProblem(ClusterSnapshot("benchmark", cluster, ()), (served,), ServingGoal(self.objective))


H100, H200 = "H100-SXM5-80GB", "H200-SXM-141GB"
CASES = (
    Case(1, 8, H100, "llama-3.1-70b", CHAT, ServingObjective.THROUGHPUT),
    Case(1, 7, H100, "llama-3.1-70b", CHAT, ServingObjective.GOODPUT),
    Case(1, 8, H100, "llama-3.1-70b", CHAT, ServingObjective.GPUS),
    Case(8, 8, H100, "deepseek-v3", LONG, ServingObjective.THROUGHPUT),
    Case(8, 8, H200, "deepseek-v3", LONG, ServingObjective.THROUGHPUT),
    Case(8, 8, H200, "deepseek-v3", LONG, ServingObjective.GOODPUT),
    Case(8, 8, H200, "deepseek-v3", LONG, ServingObjective.GPUS),
    Case(7, 8, H100, "deepseek-v3", LONG, ServingObjective.GOODPUT),
)


def main() -> None:
    """Print the table."""
    print("| cluster | model | objective | GPUs used | tokens/s | gap | s | plan |")
    print("|---|---|---|---|---|---|---|---|")
    for case in CASES:
        started = time.perf_counter()
        plan = plan_serving(case.problem, OPTIONS)
        seconds = time.perf_counter() - started
        assert isinstance(plan, ServingPlan), plan
        assert not check_serving_plan(plan, case.problem)
        groups = Counter(
            f"{group.configuration.prefill} + {group.configuration.decode}"
            if group.transfer
            else str(group.configuration.decode.worker)
            for group in plan.groups
        )
        chosen = ", ".join(f"{count} of ({group})" for group, count in groups.items())
        print(
            f"| {case.nodes} x {case.gpus} {case.kind} | {case.model} | {case.objective} | {plan.gpus} | "
            f"{plan.tokens_per_s:,.0f} | {plan.certificate.gap:.2%} | {seconds:.1f} | {chosen} |"
        )


if __name__ == "__main__":
    main()
