"""Answers about plans."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, Field

from app.answers.addresses import Links, Moment, addresses
from app.db.status import PlanKind, PlanStatus
from app.documents.fleet import FleetPlanDocument, NoFleetPlanDocument
from app.documents.plan import NoPlanDocument, PlanDocument
from app.documents.reinforcement_plan import NoReinforcementPlanDocument, ReinforcementPlanDocument
from app.documents.serving_plan import NoServingPlanDocument, ServingPlanDocument
from app.documents.values import Computed, Given, Holds, ValueAnswer
from app.services.planning.plans import PlanError, PlanRecord
from cluster_models.serving.goal import ServingObjective
from solver.problem import Backend, Progress, SearchOptions

ResultDocument = (
    PlanDocument
    | NoPlanDocument
    | ServingPlanDocument
    | NoServingPlanDocument
    | FleetPlanDocument
    | NoFleetPlanDocument
    | ReinforcementPlanDocument
    | NoReinforcementPlanDocument
)


class ProgressAnswer(ValueAnswer[Progress]):
    """How far a search is."""

    elapsed_s: float = Field(description="Seconds since the search began.", examples=[3.2])
    phase: str = Field(description="Phase of the search.", examples=["placement"])
    candidates_total: int = Field(
        description="Combinations of degrees at the start; of serving: groups of workers priced.", examples=[41250]
    )
    candidates_left: int = Field(description="Those not ruled out yet.", examples=[17])
    incumbent_s: float | None = Field(description="Step time of the best plan so far, in seconds.", examples=[9.31])
    bound_s: float | None = Field(description="Step time that no plan can beat, in seconds.", examples=[9.25])
    gap: float | None = Field(description="Distance between the two, as a fraction.", examples=[0.006])
    incumbent: str | None = Field(description="Degrees of the best plan so far.", examples=["tp8 pp4 dp4"])
    objective: ServingObjective | None = Field(
        description="The goal of a search for serving; null of training.", examples=["goodput"]
    )
    best: float | None = Field(
        description="The objective of the best plan so far, of serving: tokens/s, GPUs, US dollars an hour or W.",
        examples=[19260.0],
    )
    bound: float | None = Field(description="The objective that no plan can beat.", examples=[19410.0])


class OptionsAnswer(ValueAnswer[SearchOptions]):
    """How hard the search tries."""

    time_limit_s: float = Field(description="Seconds after which it stops.", examples=[60.0])
    effort: int = Field(description="Scale of its work budgets.", examples=[1])
    seed: int = Field(description="Equal seeds give equal plans.", examples=[0])
    gap: float = Field(description="It stops at this proven distance from the optimum.", examples=[0.001])
    backend: Backend = Field(description="Integer programming solver.", examples=["cbc"])
    alternatives: int = Field(description="Next-best configurations it lists.", examples=[5])


class FailureAnswer(ValueAnswer[PlanError]):
    """Why a plan failed."""

    problem: str = Field(
        description="The problem.", examples=["The solver was still running 15 s after its time limit."]
    )
    remedy: str = Field(description="The remedy; may be empty.", examples=["Give it more time."])


def plan_links(plan_id: str, kind: PlanKind = PlanKind.TRAINING) -> dict[str, str]:
    """Addresses of what belongs to a plan."""
    own = {PlanKind.TRAINING: ("timeline", "exports"), PlanKind.FLEET: ()}.get(kind, ("exports",))
    return addresses("plans", plan_id, parts=("events", "cancel", *own))


class PlanSummary(ValueAnswer[PlanRecord]):
    """A plan that was asked for, without its result."""

    id: str = Field(description="Id of the plan.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    kind: PlanKind = Field(
        description="Training, serving, a fleet or reinforcement learning; decides the kind of result.",
        examples=["training"],
    )
    status: PlanStatus = Field(
        description="queued and running change; succeeded, infeasible (nothing fits), failed and cancelled stay.",
        examples=["running"],
    )
    cluster: Annotated[str, Holds("cluster_name")] = Field(
        description="Name of the cluster.", examples=["h100-17-nodes"]
    )
    snapshot: Annotated[str, Holds("snapshot_id")] = Field(
        description="Snapshot it is made from.", examples=["7f6d1c0f9a3b2e45"]
    )
    model: Annotated[str, Holds("model_name")] = Field(description="Name of the model.", examples=["llama-3-70b"])
    options: OptionsAnswer = Field(description="How hard the search tries.")
    progress: ProgressAnswer | None = Field(description="The newest progress; null before the first.")
    error: FailureAnswer | None = Field(description="Why it failed; null otherwise.")
    created_at: Moment
    started_at: datetime | None = Field(
        description="When a solver first took it, in UTC; null before.", examples=["2026-11-21T09:00:01Z"]
    )
    finished_at: datetime | None = Field(
        description="When it ended, in UTC; null before.", examples=["2026-11-21T09:00:19Z"]
    )
    attempts: int = Field(description="How often a solve was started.", examples=[1])
    rescues: int = Field(description="How often it was taken over from a worker that vanished.", examples=[0])
    is_stopping: bool = Field(
        description="Whether it was asked to end with the best plan so far and has not yet.", examples=[False]
    )
    links: Annotated[Links, Computed(lambda record: plan_links(record.id, record.kind))]


class PlanAnswer(PlanSummary):
    """A plan, with its result once there is one."""

    result: Annotated[ResultDocument | None, Given()] = Field(
        description="The plan, or why nothing fits; null until it has ended.  The timeline of a training plan has "
        "an address of its own; of serving it is serving_plan, or no_serving_plan, of a fleet "
        "fleet_plan or no_fleet_plan, of reinforcement learning reinforcement_plan or no_reinforcement_plan."
    )


class PlanAccepted(BaseModel):
    """A plan is on its way."""

    id: str = Field(description="Id of the plan.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    status: PlanStatus = Field(description="Where it is.", examples=["queued"])
    links: Links


class PlanEvent(ValueAnswer[PlanRecord]):
    """One event of a plan's stream."""

    status: PlanStatus = Field(description="Where the plan is.", examples=["running"])
    progress: ProgressAnswer | None = Field(description="The newest progress.")
    error: FailureAnswer | None = Field(description="Why it failed.")
