"""Jobs of a fleet, the pools of nodes that they may run on, and the goal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.errors import InvalidInput
from cluster_models.model.architecture import Architecture
from cluster_models.training.workload import TrainingWorkload


class FleetObjective(StrEnum):
    """Quantity that a fleet plan makes as good as it can."""

    WORK = "work"
    """Model FLOP a second of all jobs, each weighted: as many as possible within the budget."""
    COST = "cost"
    """US dollars an hour of what is rented: as few as possible, with every deadline kept."""


@dataclass(frozen=True, slots=True)
class FleetJob:
    """A job that is to have GPUs.

    ``weight``: worth of a FLOP of its work.  ``tokens``: still to be trained on; ``deadline_s``: seconds within
    which they must be, and ``budget_usd``: what they may cost in all.  ``least_gpus`` and ``most_gpus`` bound what
    it gets; ``required``: it must run, others may wait.  Raises ``InvalidInput`` of a deadline or a budget without
    tokens.
    """

    name: str
    architecture: Architecture
    workload: TrainingWorkload
    weight: float = 1.0
    tokens: float | None = None
    deadline_s: float | None = None
    budget_usd: float | None = None
    least_gpus: int = 1
    most_gpus: int | None = None
    required: bool = False
    fitted: FittedParameters | None = None

    def __post_init__(self) -> None:
        for name in ("weight", "tokens", "deadline_s", "budget_usd"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise InvalidInput(name, value, "must be positive")
        if self.tokens is None and (self.deadline_s is not None or self.budget_usd is not None):
            what = "deadline" if self.deadline_s is not None else "budget"
            problem, remedy = f"has a {what} but no tokens", "say how many tokens it still has to be trained on"
            raise InvalidInput("tokens", None, problem, remedy)
        if self.workload.choose_power_caps:
            remedy = "give gpu_power_cap_watts, or plan the job alone"
            raise InvalidInput("workload.choose_power_caps", True, "is not decided for jobs of a fleet", remedy)
        if not 1 <= self.least_gpus <= (self.most_gpus or self.least_gpus):
            problem = f"does not lie in 1..{self.most_gpus}"
            raise InvalidInput("least_gpus", self.least_gpus, problem)

    @property
    def must_run(self) -> bool:
        """Whether it may not wait."""
        return self.required or self.deadline_s is not None


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes of one GPU kind that are given out whole: ``nodes`` of the snapshot, and what an hour of each costs.

    ``is_rented``: they are paid for only while a job has them.
    """

    name: str
    snapshot: ClusterSnapshot
    nodes: tuple[str, ...]
    gpus_per_node: int
    gpu_kind: str
    usd_per_node_hour: float = 0.0
    is_rented: bool = False


@dataclass(frozen=True, slots=True)
class FleetProblem:
    """Jobs and pools.  ``budget_usd_per_hour`` limits what is rented at once; ``None``: any for the objective cost.

    Raises ``InvalidInput`` where names of jobs repeat, there is no job or no node, nodes could be rented without
    end, or cost is to be least and no job must run.
    """

    pools: tuple[Pool, ...]
    jobs: tuple[FleetJob, ...]
    objective: FleetObjective = FleetObjective.WORK
    budget_usd_per_hour: float | None = None

    def __post_init__(self) -> None:
        names = [job.name for job in self.jobs]
        if not names or len(set(names)) < len(names):
            raise InvalidInput("jobs", names, "must be one or more, each with a name of its own")
        if not any(pool.nodes for pool in self.pools):
            raise InvalidInput("cluster", [pool.name for pool in self.pools], "has no usable node")
        budget = self.budget_usd_per_hour
        if budget is not None and not (math.isfinite(budget) and budget >= 0):
            raise InvalidInput("budget_usd_per_hour", budget, "must not be negative")
        if budget is None and self.objective is FleetObjective.WORK and any(pool.is_rented for pool in self.pools):
            problem, remedy = "is missing: more work is always to be had for money", "say how much there is"
            raise InvalidInput("budget_usd_per_hour", None, problem, remedy)
        if self.objective is FleetObjective.COST and not any(job.must_run for job in self.jobs):
            problem, remedy = "need not run: no rent at all costs least", "require some, or give them deadlines"
            raise InvalidInput("jobs", names, problem, remedy)
