"""Cost of failures to a plan, and of surviving more of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import PlanPath, ServiceDep
from app.db.engine import transaction
from app.documents.plan_parts import SurvivedLossesDocument
from app.documents.reading import Document, NotNegative, Positive, Text
from app.documents.running_jobs import LONGEST_S, PlanReference, RecoveryDocument
from app.services import given_plans, resilience, running_plans
from app.services.field_paths import errors_under
from app.services.resilience import Resilience, ResilienceQuestion
from app.services.running_plans import PlanSource
from cluster_models.running import RecoveryPolicy
from solver.replanning.resilience import FAILURES_PER_NODE_DAY, EffectiveTraining, Hardening, HardeningKind

MOST_FAILURES_PER_NODE_DAY = 1000.0
LONGEST_SEARCH_S = 60.0
"""A request is answered when the search has ended."""

router = APIRouter(tags=["failures"], route_class=BodyRoute)

FailuresQuery = Annotated[
    float,
    Query(
        ge=0,
        le=MOST_FAILURES_PER_NODE_DAY,
        allow_inf_nan=False,
        description="Failures of one node a day; the default is published of nodes of eight GPUs.",
        examples=[FAILURES_PER_NODE_DAY],
    ),
]
LabelQuery = Annotated[
    str,
    Query(
        min_length=1,
        max_length=200,
        description="Failure domains of which one more is to be survived: node, nvlink_domain or a node label.",
        examples=["leaf"],
    ),
]


class ResilienceRequest(Document):
    """A plan whose resilience is asked for."""

    plan: PlanReference
    cluster: Text | None = Field(
        None,
        description="Name or id of a stored cluster, as it is now; absent = as it was for the plan.",
        examples=[None],
    )
    recovery: RecoveryDocument = Field(
        default_factory=RecoveryDocument, description="How the job keeps its state, and what a restart costs it."
    )
    failures_per_node_day: Annotated[NotNegative, Field(le=MOST_FAILURES_PER_NODE_DAY)] = Field(
        FAILURES_PER_NODE_DAY, description="Failures of one node a day.", examples=[FAILURES_PER_NODE_DAY]
    )
    checkpoint_write_s: Annotated[NotNegative, Field(le=LONGEST_S)] | None = Field(
        None,
        description="Seconds for which writing a checkpoint holds up the job; absent = what storage takes for the "
        "whole state; 0 where it is written beside the step.",
        examples=[0.0],
    )
    label: Text = Field(
        "node",
        description="Failure domains of which one more is to be survived: node, nvlink_domain or a node label.",
        examples=["leaf"],
    )
    search_time_limit_s: Annotated[Positive, Field(le=LONGEST_SEARCH_S)] | None = Field(
        None,
        description="Seconds for which the planner looks for another plan that survives one more, answered among "
        "the hardenings as spread; absent = it does not look.",
        examples=[15.0],
    )


class EffectiveTrainingAnswer(BaseModel):
    """The share of time in which a job makes progress that lasts."""

    ratio: float = Field(description="With the interval between checkpoints as it is, 0 to 1.", examples=[0.94])
    best_ratio: float = Field(description="With the best interval.", examples=[0.96])
    interval_s: float = Field(description="Seconds between checkpoints.", examples=[1240.0])
    best_interval_s: float | None = Field(
        description="The best interval; null where a lost node takes no state, so that rarer is better.",
        examples=[640.0],
    )
    failures_per_day: float = Field(description="Failures of the whole job a day.", examples=[0.8])
    restart_s: float = Field(description="Seconds from a failure to the first step.", examples=[210.0])
    checkpoint_write_s: float = Field(
        description="Seconds for which writing a checkpoint holds up the job.", examples=[12.0]
    )

    @classmethod
    def from_training(cls, training: EffectiveTraining) -> EffectiveTrainingAnswer:
        """The answer for a domain value."""
        same = {name: getattr(training, name) for name in cls.model_fields if name != "checkpoint_write_s"}
        return cls(**same, checkpoint_write_s=training.write_s)


class HardeningAnswer(BaseModel):
    """One way to survive more, and its price."""

    kind: HardeningKind = Field(description="What is done.", examples=["memory_checkpoint"])
    label: str = Field(description="Failure domains that it is about.", examples=["node"])
    count: int = Field(description="How many may be lost then.", examples=[1])
    extra_gpu_bytes: float = Field(description="More memory of the fullest GPU.", examples=[0.0])
    extra_host_bytes: float = Field(description="More memory of each node itself.", examples=[2.1e11])
    extra_step_s: float = Field(description="How much longer a step takes (estimated).", examples=[0.004])
    is_possible: bool = Field(description="Whether it fits into the GPUs' memory.", examples=[True])
    sentence: str = Field(description="In words.", examples=["Keep 2 instances of the optimizer instead of 1."])

    @classmethod
    def from_hardening(cls, hardening: Hardening) -> HardeningAnswer:
        """The answer for a domain value."""
        return cls(
            kind=hardening.kind,
            label=hardening.label,
            count=hardening.count,
            extra_gpu_bytes=hardening.gpu_bytes,
            extra_host_bytes=hardening.host_bytes,
            extra_step_s=hardening.step_s,
            is_possible=hardening.is_possible,
            sentence=hardening.sentence,
        )


class ResilienceAnswer(BaseModel):
    """What a plan survives, what failures cost it, and what surviving more would."""

    survives: list[SurvivedLossesDocument] = Field(
        description="Losses that leave all state alive, by failure domain."
    )
    effective_training: EffectiveTrainingAnswer = Field(
        description="The share of time in which the job makes progress that lasts."
    )
    hardenings: list[HardeningAnswer] = Field(
        description="Ways to survive one more, the cheapest first; another plan (spread) is among them where the "
        "planner was to look for one (search_time_limit_s)."
    )

    @classmethod
    def make(cls, found: Resilience) -> ResilienceAnswer:
        """The answer for a domain value."""
        return cls(
            survives=[SurvivedLossesDocument.from_value(each) for each in found.survives],
            effective_training=EffectiveTrainingAnswer.from_training(found.training),
            hardenings=[HardeningAnswer.from_hardening(each) for each in found.hardenings],
        )


@router.get("/plans/{plan}/resilience")
def get_plan_resilience(
    plan: PlanPath,
    service: ServiceDep,
    failures_per_node_day: FailuresQuery = FAILURES_PER_NODE_DAY,
    label: LabelQuery = "node",
) -> ResilienceAnswer:
    """What a finished plan survives, and the share of time in which it makes progress (usual checkpoints)."""
    with transaction(service.sessions) as session:
        found, snapshot = resilience.plan_and_snapshot(session, source=PlanSource(plan_id=plan), cluster=None)
    question = ResilienceQuestion(found, snapshot, RecoveryPolicy(), label, failures_per_node_day, None)
    return ResilienceAnswer.make(resilience.judge(question))


@router.post("/resilience")
def judge_resilience(document: ResilienceRequest, service: ServiceDep) -> ResilienceAnswer:
    """The same of any plan, with the checkpoints, restart times and failures of its job; nothing is stored."""
    with errors_under("recovery"):
        recovery = document.recovery.to_recovery()
    with errors_under("plan"):
        source = given_plans.source_of(document.plan)
    searches = document.search_time_limit_s is not None
    with transaction(service.sessions) as session:
        plan, snapshot = resilience.plan_and_snapshot(session, source=source, cluster=document.cluster)
        fitted = running_plans.fitted_of(session, source=source) if searches else None
    question = ResilienceQuestion(
        plan=plan,
        snapshot=snapshot,
        recovery=recovery,
        label=document.label,
        failures_per_node_day=document.failures_per_node_day,
        write_s=document.checkpoint_write_s,
        search_s=document.search_time_limit_s,
        fitted=fitted,
    )
    return ResilienceAnswer.make(resilience.judge_beside(question) if searches else resilience.judge(question))
