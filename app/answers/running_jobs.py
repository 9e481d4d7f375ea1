"""Answers about jobs that run on a cluster, and about the plans they run by."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from app.answers.addresses import Links, Moment, addresses
from app.answers.events import ConditionAnswer
from app.db.status import JobStanding, PlanKind, RunningPlanStatus
from app.documents.plan import PlanDocument
from app.documents.running_jobs import RecoveryDocument
from app.documents.serving_plan import ServingPlanDocument
from app.documents.serving_policy import ServingPolicyDocument
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.services.running.plan_contents import AnyPlan
from app.services.running.running_jobs import JobRecord
from app.services.running.running_plans import RunningPlanRecord
from cluster_models.serving.plan import ServingPlan


def running_plan_links(running_plan_id: str) -> dict[str, str]:
    """Addresses of what belongs to a running plan."""
    return addresses("running-plans", running_plan_id, parts=("approve", "apply", "cancel", "exports"))


class RunningPlanSummaryAnswer(ValueAnswer[RunningPlanRecord]):
    """A plan of a job, without its content."""

    id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    job_id: str = Field(description="Id of its job.", examples=["1b9d6bcdbbfd4b2d9b5dab8dfbbd4bed"])
    status: RunningPlanStatus = Field(
        description="proposed, approved (its GPUs are the job's) and applied (the job runs by it) change; "
        "superseded and cancelled stay.",
        examples=["applied"],
    )
    plan: Annotated[str | None, Holds("plan_id")] = Field(
        description="Id of the finished plan it was taken from, if any.", examples=[None]
    )
    replan: Annotated[str | None, Holds("replan_id")] = Field(
        description="Id of the replan that decided it, if one did.", examples=[None]
    )
    model: Annotated[str, Holds("summary.model")] = Field(description="The model.", examples=["llama-3-70b"])
    degrees: Annotated[str, Holds("summary.degrees")] = Field(
        description="Parallel sizes; of a deployment its replicas, as 2 x tp4.", examples=["tp8 pp2 dp4"]
    )
    gpus: Annotated[int, Holds("summary.gpus")] = Field(description="GPUs that it needs.", examples=[64])
    nodes: Annotated[int, Holds("summary.hosts")] = Field(description="Nodes that they are on.", examples=[8])
    tokens_per_s: Annotated[float, Holds("summary.tokens_per_s")] = Field(
        description="Predicted throughput; of a deployment in output tokens.", examples=[338000.0]
    )
    step_time_s: Annotated[float | None, Holds("summary.step_s")] = Field(
        description="Predicted seconds of a step; null of a deployment.", examples=[12.4]
    )
    created_at: Moment
    approved_at: datetime | None = Field(description="When it took its GPUs, in UTC; null before.", examples=[None])
    applied_at: datetime | None = Field(
        description="When the job ran by it, in UTC; null before.", examples=["2026-11-21T09:00:00Z"]
    )
    ended_at: datetime | None = Field(
        description="When it was superseded or cancelled, in UTC; null before.", examples=[None]
    )
    links: Annotated[Links, Computed(lambda record: running_plan_links(record.id))]


class RunningPlanAnswer(RunningPlanSummaryAnswer):
    """A plan of a job."""

    content: Annotated[PlanDocument | ServingPlanDocument, Given()] = Field(
        description="The plan itself, without its timeline."
    )

    @classmethod
    def make(cls, record: RunningPlanRecord, plan: AnyPlan) -> RunningPlanAnswer:
        """The answer for a stored running plan with its content."""
        return cls.from_value(record, content=any_plan_document(plan))


def any_plan_document(plan: AnyPlan) -> PlanDocument | ServingPlanDocument:
    """The document of a plan that a job runs by, without a timeline."""
    if isinstance(plan, ServingPlan):
        return ServingPlanDocument.from_plan(plan)
    return PlanDocument.from_plan(plan, timeline=False)


def _job_links(record: JobRecord) -> dict[str, str]:
    return addresses("clusters", record.cluster_name, "jobs", record.name, parts=("running-plans",))


class JobAnswer(ValueAnswer[JobRecord]):
    """A job on a cluster."""

    id: str = Field(description="Its id.", examples=["1b9d6bcdbbfd4b2d9b5dab8dfbbd4bed"])
    name: str = Field(description="Its name, unique on its cluster.", examples=["pretrain-a"])
    cluster: Annotated[str, Holds("cluster_name")] = Field(
        description="Name of the cluster.", examples=["h100-17-nodes"]
    )
    kind: PlanKind = Field(description="Whether it trains or serves.", examples=["training"])
    standing: JobStanding = Field(
        description="idle: no plan was applied yet; waiting: it stands still on its GPUs until lost ones are back; "
        "paused: it ended at its checkpoint and holds no GPU; down: it should run, and a part that it uses failed.",
        examples=["running"],
    )
    weight: float = Field(description="Worth of a FLOP of its useful work against others'.", examples=[1.0])
    recovery: RecoveryDocument | None = Field(
        description="Cost of a failure, and the actions allowed then; null of a deployment."
    )
    replica_start: ServingPolicyDocument | None = Field(
        description="How replicas start again, and what may be done with those that live; null of a training job."
    )
    gpus_held: int = Field(description="GPUs that it holds, those on their way out included.", examples=[64])
    tokens_per_s: float | None = Field(
        description="Throughput now, as planned: 0 unless it runs, null where a part that it uses is slow.",
        examples=[338000.0],
    )
    trouble: list[ConditionAnswer] = Field(description="What is reported of the parts that it holds.")
    running_plan: Annotated[RunningPlanSummaryAnswer | None, Holds("plan")] = Field(
        description="The plan it runs by; null where none was applied, or it is paused."
    )
    created_at: Moment
    updated_at: Moment
    links: Annotated[Links, Computed(_job_links)]
