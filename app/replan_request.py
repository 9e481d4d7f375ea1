"""A question about failures as JSON values, for the solver's child process and for whoever asks in this one.

Light on purpose: the child reads it and must not load the database.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from app.serialization import load
from cluster_models.calibration.fitted import FittedParameters
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.health.events import HealthEvent
from cluster_models.jobs.running import RecoveryPolicy, RunningJob
from cluster_models.jobs.serving import ServingJob, ServingPolicy
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan
from solver.replanning.problem import SPARE_WORTH_SHARE, ReplanOptions, ReplanProblem
from solver.replanning.shared import SharedProblem


@dataclass(frozen=True, slots=True)
class ReplanRequest:
    """Input of a decision, as ``app.serialization.jsonable`` writes it.

    ``jobs`` have the fields of ``RunningJob``, and fitted (the user's own parameters, or ``None``);
    ``deployments`` those of ``ServingJob``, with its policy as recovery.
    """

    snapshot: dict[str, Any]
    jobs: list[dict[str, Any]]
    spares: list[str]
    horizon_s: float
    back_after_s: float
    gpu_budget: int | None
    events: list[dict[str, Any]]
    options: dict[str, Any]
    spare_worth_share: float = SPARE_WORTH_SHARE
    jobs_back_after_s: dict[str, float] = field(default_factory=dict)
    deployments: list[dict[str, Any]] = field(default_factory=list)

    def to_problem(self, snapshot: ClusterSnapshot | None = None) -> ReplanProblem:
        """The problem of the training jobs alone; ``snapshot`` where it was read already."""
        return ReplanProblem(
            snapshot=snapshot or load(ClusterSnapshot, self.snapshot),
            jobs=tuple(_job(job) for job in self.jobs),
            spares=tuple(self.spares),
            horizon_s=self.horizon_s,
            back_after_s=self.back_after_s,
            jobs_back_after_s=self.jobs_back_after_s,
            gpu_budget=self.gpu_budget,
            spare_worth_share=self.spare_worth_share,
            events=load(tuple[HealthEvent, ...], self.events),
            fitted={job["id"]: load(FittedParameters, job["fitted"]) for job in self.jobs if job["fitted"]},
        )

    def to_shared(self, snapshot: ClusterSnapshot | None = None) -> SharedProblem:
        """The problem with its deployments; ``snapshot`` where it was read already."""
        return SharedProblem(self.to_problem(snapshot), tuple(_deployment(each) for each in self.deployments))

    def to_options(self) -> ReplanOptions:
        """The budget of the decision."""
        return load(ReplanOptions, self.options)


def _deployment(document: dict[str, Any]) -> ServingJob:
    return ServingJob(
        id=document["id"],
        name=document["name"],
        plan=load(ServingPlan, document["plan"]),
        weight=document["weight"],
        policy=load(ServingPolicy, document["recovery"]),
        is_paused=document["is_paused"],
        meant=None if document["meant"] is None else load(ServingPlan, document["meant"]),
    )


def _job(document: dict[str, Any]) -> RunningJob:
    return RunningJob(
        id=document["id"],
        name=document["name"],
        plan=load(Plan, document["plan"]),
        weight=document["weight"],
        recovery=load(RecoveryPolicy, document["recovery"]),
        is_paused=document["is_paused"],
        wanted_gpus=document["wanted_gpus"],
        wanted_batch=document["wanted_batch"],
    )
