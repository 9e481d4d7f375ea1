"""Answers about serving deployments after failures."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from app.answers.addresses import Links
from app.answers.job_decisions import decided_links
from app.documents.serving_plan import ServingPlanDocument
from app.documents.values import Computed, Given, Holds, ValueAnswer
from cluster_models.jobs.serving import ConsideredServing, ServedLoad, ServingAction, ServingDecision
from cluster_models.serving.refusal import NoServingReason
from cluster_models.units import GBYTE


def _asked(load: ServedLoad) -> float | None:
    return load.asked_per_s if math.isfinite(load.asked_per_s) else None


class ServedLoadAnswer(ValueAnswer[ServedLoad]):
    """Requests a second to one model."""

    model: int = Field(description="Index in the models of the plan.", examples=[0])
    asked_per_s: Annotated[float | None, Computed(_asked)] = Field(
        description="Asked for; null where as many as can be.", examples=[6.0]
    )
    before_per_s: float = Field(description="Answered before the failure.", examples=[6.0])
    during_per_s: float = Field(description="Answered until replicas have started.", examples=[4.0])
    after_per_s: float = Field(description="Answered afterwards.", examples=[6.0])


class ConsideredServingAnswer(ValueAnswer[ConsideredServing]):
    """An action that lost."""

    action: ServingAction = Field(description="The action.", examples=["replan"])
    gpus: int = Field(description="GPUs that the deployment would hold.", examples=[8])
    value_flop: float | None = Field(description="Its worth; null where it cannot be.", examples=[3e19])
    refused: NoServingReason | None = Field(description="Why it cannot be.", examples=[None])


class ServingDecisionAnswer(ValueAnswer[ServingDecision]):
    """Decision about one deployment."""

    job: Annotated[str, Holds("job_name")] = Field(description="The deployment.", examples=["chat"])
    job_id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    action: ServingAction = Field(description="Action on it.", examples=["start_replicas"])
    lost: list[int] = Field(description="Replicas of the plan before that lost a GPU.", examples=[[1]])
    stopped: list[int] = Field(description="Replicas of the plan before that live and are stopped.", examples=[[]])
    kept: list[list[int]] = Field(
        description="Replicas that go on: their number in the plan before and in the new one.", examples=[[[0, 0]]]
    )
    started: list[int] = Field(description="Replicas of the new plan that start.", examples=[[2]])
    loads: list[ServedLoadAnswer] = Field(description="Requests to each model.")
    start_low_s: Annotated[float, Holds("start.low_s")] = Field(
        description="Least seconds until all of them answer.", examples=[45.0]
    )
    start_high_s: Annotated[float, Holds("start.high_s")] = Field(description="Most seconds.", examples=[195.0])
    weights_gbytes: Annotated[float, Holds("weight_bytes", GBYTE)] = Field(
        description="Weights that they read, in 10^9 bytes.", examples=[140.0]
    )
    value_flop: float = Field(description="FLOPs of the answers over the horizon, weighted.", examples=[3e19])
    considered: list[ConsideredServingAnswer] = Field(description="Actions that lost.")
    plan: Annotated[ServingPlanDocument | None, Given()] = Field(
        description="The plan afterwards; null where nothing serves."
    )
    links: Annotated[Links, Given()]

    @classmethod
    def make(cls, made: ServingDecision, place: tuple[str, ...], query: str) -> ServingDecisionAnswer:
        """The answer with its plan; ``place`` are the parts of its replan's address (none of a what-if)."""
        plan = None if made.plan is None else ServingPlanDocument.from_plan(made.plan)
        return cls.from_value(made, plan=plan, links=decided_links(made, place, query))
