"""Inputs of a decision about one serving deployment after failures, and what it can do."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Node, NodeState
from cluster_models.jobs.running import InvalidRunningJob
from cluster_models.jobs.serving import ServingJob, plan_gpus
from cluster_models.model.flops import forward_flops_per_token
from cluster_models.serving.goal import ServedModel, ServingObjective

Gpu = tuple[str, int]
LEAVING = frozenset({NodeState.FAILED, NodeState.DRAINING})
"""States of nodes that no replica stays on."""


@dataclass(frozen=True)
class RecoveryProblem:
    """A deployment on its cluster as it is now.

    ``snapshot``: states, links and GPUs after the failures, with the GPUs of all other jobs in use and those of
    this one not.  ``spares`` are the nodes whose free GPUs it may take.  A spare GPU that it takes must be worth
    ``spare_worth_share`` of what one of its GPUs did over the horizon.  Raises ``InvalidRunningJob`` where the plan
    names a GPU that the cluster does not have.
    """

    snapshot: ClusterSnapshot
    job: ServingJob
    spares: tuple[str, ...]
    horizon_s: float
    spare_worth_share: float = 0.0

    def __post_init__(self) -> None:
        for name, gpu in sorted(self.job.gpus):
            if name not in self.nodes or gpu >= self.nodes[name].gpu_count:
                raise InvalidRunningJob(
                    f"jobs.{self.job.name}.plan",
                    f"{name}:{gpu}",
                    "is not a GPU of the cluster",
                    "name the cluster it runs on",
                )

    @cached_property
    def nodes(self) -> Mapping[str, Node]:
        """The nodes by name, as they are now."""
        return {node.name: node for node in self.snapshot.cluster.nodes}

    @cached_property
    def lost(self) -> frozenset[Gpu]:
        """GPUs of the plan that failed, or sit on a node that failed or is to be left; all of a paused one."""
        if self.job.is_paused:
            return plan_gpus(self.job.plan)
        return frozenset(
            (name, gpu)
            for name, gpu in self.job.gpus
            if self.nodes[name].state in LEAVING or gpu in self.nodes[name].gpus_in_use
        )

    @cached_property
    def spare_gpus(self) -> frozenset[Gpu]:
        """Free GPUs of usable spare nodes, and those beside its own on the nodes that it runs on."""
        own = {name for name, _ in self.job.gpus}
        nodes = (self.nodes[name] for name in {*self.spares, *own} if name in self.nodes)
        free = {(node.name, gpu) for node in nodes if node.usable for gpu in node.free_gpus}
        return frozenset(free - self.job.gpus)

    @cached_property
    def asked_per_s(self) -> tuple[float, ...]:
        """Requests a second asked for of each model: as planned; infinite where it was as many as can be."""
        if self.job.asked.goal.objective is ServingObjective.GOODPUT:
            return tuple(math.inf for _ in self.job.plan.models)
        return tuple(each.requests_per_s for each in self.job.asked.figures)

    @cached_property
    def before_per_s(self) -> tuple[float, ...]:
        """Requests a second to each model that were answered until now."""
        return tuple(0.0 if self.job.is_paused else each.requests_per_s for each in self.job.plan.figures)

    def worth_flop(self, requests_per_s: tuple[float, ...]) -> float:
        """Weighted FLOPs a second of answers to so many requests of each model."""
        pairs = zip(self.job.plan.models, requests_per_s, strict=True)
        return self.job.weight * sum(rate * request_flop(served) for served, rate in pairs)


def request_flop(served: ServedModel) -> float:
    """The model's own FLOPs of one request, weighted as its tokens are: each token once through the model."""
    workload = served.workload
    prompt = workload.new_tokens
    length = round(workload.input_tokens + workload.output_tokens)
    each = forward_flops_per_token(served.architecture, length).total
    return served.weight * each * (prompt + workload.output_tokens)
