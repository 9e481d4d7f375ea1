"""Remaining lead of a plan when links change, as users receive it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.documents.remarks import RemarkDocument
from app.documents.values import Given, Holds, ValueDocument
from cluster_models.training.robustness import Drifted, Rival, Robustness


class DriftedDocument(ValueDocument[Drifted]):
    """Step time over draws of all links around their medians."""

    step_p10_s: float = Field(description="One draw in ten is faster.", examples=[12.3])
    step_median_s: float = Field(description="Half of the draws are faster.", examples=[12.4])
    step_p90_s: float = Field(description="One draw in ten is slower.", examples=[12.7])


class RivalDocument(ValueDocument[Rival]):
    """An alternative in the same draws as the plan."""

    alternative: int = Field(ge=0, description="Its place in the list of alternatives, from 0.", examples=[0])
    step: DriftedDocument = Field(description="Its step time.")
    plan_ahead_fraction: Annotated[float, Holds("plan_ahead")] = Field(
        description="Share of draws in which the plan is no worse by the objective.", examples=[0.93]
    )


class RobustnessDocument(ValueDocument[Robustness]):
    """Lead of the plan that is left when links change by the spread seen."""

    summary: Annotated[str, Given()] = Field(
        "", description="In one sentence.", examples=["The plan stays ahead of the runner-up in 93 % of cases."]
    )
    draws: int = Field(description="How often all links were drawn.", examples=[400])
    slow_link_fraction: Annotated[float, Holds("slow_link")] = Field(
        description="Share of its median bandwidth that one link in ten loses at least.", examples=[0.05]
    )
    spread_from: RemarkDocument = Field(description="Where that is known from.")
    step: DriftedDocument = Field(description="Step time of the plan.")
    rivals: list[RivalDocument] = Field(description="The alternatives that were placed, the runner-up first.")
    mean_loss_fraction: Annotated[float, Holds("mean_loss")] = Field(
        description="What the plan loses by the objective to the best of them, on average.", examples=[0.002]
    )
    worst_loss_fraction: Annotated[float, Holds("worst_loss")] = Field(
        description="The same in the worst draw.", examples=[0.031]
    )
    safer_alternative: Annotated[int | None, Holds("safer")] = Field(
        None, description="The alternative that is best at p90 where the plan is not.", examples=[1]
    )
