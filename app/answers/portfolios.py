"""Answers about portfolios of plans."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import Field

from app.answers.addresses import Links, Moment, addresses
from app.db.status import PlanStatus
from app.documents.values import Computed, Holds, ValueAnswer
from app.presentation.portfolios import portfolio_words
from app.services.planning.portfolios import MemberRecord, Portfolio, PortfolioHead
from solver.answer.portfolio import Proof


def _bound(proof: Proof) -> float | None:
    return None if proof.bound is None or math.isinf(proof.bound) else proof.bound


class ProofAnswer(ValueAnswer[Proof]):
    """How good the best of several plans is."""

    objective: Annotated[float | None, Holds("value")] = Field(
        description="The best value known, in the unit of the objective; null while there is none.", examples=[9.31]
    )
    bound: Annotated[float | None, Computed(_bound)] = Field(
        description="Value that no plan beats; null before one is proven, and where nothing fits.", examples=[9.25]
    )
    gap: float | None = Field(description="Distance between the two, as a fraction.", examples=[0.006])
    nothing_fits: Annotated[bool, Computed(lambda proof: proof.bound == math.inf)] = Field(
        description="Whether it is proven that no plan fits.", examples=[False]
    )


class PortfolioMemberAnswer(ValueAnswer[MemberRecord]):
    """A plan of a portfolio."""

    name: str = Field(description="Its name there.", examples=["16 GPUs"])
    plan: Annotated[str, Holds("plan_id")] = Field(
        description="Id of the plan.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"]
    )
    status: PlanStatus = Field(description="Where the plan is.", examples=["succeeded"])
    most_gpus: int | None = Field(description="GPUs that it may use; null = all.", examples=[16])
    gpus: int | None = Field(description="GPUs that it uses; null without a plan.", examples=[16])
    step_s: float | None = Field(description="Seconds of its step.", examples=[9.31])
    tokens_per_s: float | None = Field(description="Its throughput.", examples=[338000.0])
    proof: ProofAnswer = Field(
        description="The best of all plans that it may use: one on fewer GPUs is one on more, and what nothing on "
        "more GPUs beats nothing on fewer does."
    )
    best: str | None = Field(description="Name of the member that has that plan.", examples=["16 GPUs"])


class PortfolioSummary(ValueAnswer[PortfolioHead]):
    """A portfolio without what came out."""

    id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    plans: dict[str, str] = Field(
        description="Ids of its plans by their names.", examples=[{"16 GPUs": "0f4d2c8e6b7a4c55a1b2c3d4e5f60718"}]
    )
    is_open: bool = Field(description="Whether one of them waits or runs.", examples=[False])
    created_at: Moment
    links: Annotated[Links, Computed(lambda head: addresses("portfolios", head.id, parts=("cancel",)))]


class PortfolioAnswer(ValueAnswer[Portfolio]):
    """A portfolio with what came out so far."""

    id: Annotated[str, Holds("head.id")] = Field(
        description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"]
    )
    is_open: Annotated[bool, Holds("head.is_open")] = Field(
        description="Whether one of its plans waits or runs.", examples=[False]
    )
    members: list[PortfolioMemberAnswer] = Field(description="Its plans, as asked for, but those forgotten since.")
    best: str | None = Field(
        description="Name of the member with the best plan of all; null before there is one, and where models, "
        "tokens of a step or objectives differ.",
        examples=["16 GPUs"],
    )
    certificate: Annotated[ProofAnswer | None, Holds("joint")] = Field(
        description="How far from the best of all plans of all members that is; null where they cannot be compared."
    )
    explanation: Annotated[str, Computed(portfolio_words)] = Field(
        description="In words.", examples=["4 of 4 plans have ended."]
    )
    created_at: Annotated[Moment, Holds("head.created_at")]
    links: Annotated[Links, Computed(lambda found: addresses("portfolios", found.head.id, parts=("cancel",)))]
