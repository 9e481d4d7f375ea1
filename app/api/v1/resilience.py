"""Cost of failures to a plan, and of surviving more of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from app.answers.resilience import ResilienceAnswer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import PlanPath, ServiceDep
from app.db.engine import transaction
from app.documents.reading import LONGEST_S, Document, NotNegative, Positive, Text
from app.documents.running_jobs import PlanReference, RecoveryDocument
from app.services.field_paths import errors_under
from app.services.planning import given_plans, resilience
from app.services.planning.resilience import ResilienceQuestion
from app.services.running import running_plans
from app.services.running.running_plans import PlanSource
from cluster_models.jobs.running import RecoveryPolicy
from solver.replanning.resilience import FAILURES_PER_NODE_DAY

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


@router.get("/plans/{plan}/resilience")
def get_plan_resilience(
    plan: PlanPath,
    service: ServiceDep,
    failures_per_node_day: FailuresQuery = FAILURES_PER_NODE_DAY,
    label: LabelQuery = "node",
) -> ResilienceAnswer:
    """Losses that a finished plan survives, and its share of time with progress (usual checkpoints)."""
    with transaction(service.sessions) as session:
        found, snapshot = resilience.plan_and_snapshot(session, source=PlanSource(plan_id=plan), cluster=None)
    question = ResilienceQuestion(found, snapshot, RecoveryPolicy(), label, failures_per_node_day, None)
    return ResilienceAnswer.from_value(resilience.judge(question))


@router.post("/resilience")
def judge_resilience(document: ResilienceRequest, service: ServiceDep) -> ResilienceAnswer:
    """The same of any plan, with the checkpoints, restart times and failures of its job; nothing is stored."""
    with errors_under("recovery"):
        recovery = document.recovery.to_value()
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
    return ResilienceAnswer.from_value(
        resilience.judge_beside(question) if searches else resilience.judge(question)
    )
