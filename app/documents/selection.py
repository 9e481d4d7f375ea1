"""Choice of a plan among those as good, and what else may be better, as users receive it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.documents.values import Holds, ValueDocument
from cluster_models.training.selection import CloseCall, Selection, Simplicity, Trial
from cluster_models.training.workload import Choice


class CloseCallDocument(ValueDocument[CloseCall]):
    """An alternative that predictions cannot tell from the plan."""

    alternative: int = Field(ge=0, description="Its place in the list of alternatives, from 0.", examples=[0])
    ratio_low: float = Field(
        description="Its measured objective over the plan's is expected between this ...", examples=[0.93]
    )
    ratio_high: float = Field(description="... and this, at the level of step_interval.", examples=[1.12])
    chance_better: float = Field(description="Probability that it is better in truth.", examples=[0.38])


class TrialDocument(ValueDocument[Trial]):
    """The cheapest trial that tells an alternative from the plan: both run so many steps."""

    alternative: int = Field(ge=0, description="What to run beside the plan.", examples=[0])
    steps: int = Field(description="Steps of each that count.", examples=[5])
    warm_up_steps: Annotated[int, Holds("warm_up")] = Field(description="Steps of each before them.", examples=[3])
    gpu_minutes: float = Field(description="GPU time of both together.", examples=[310.0])
    gain_fraction: Annotated[float, Holds("gain")] = Field(
        description="Share of the objective that taking the better of both saves, on average.", examples=[0.02]
    )


class SelectionDocument(ValueDocument[Selection]):
    """Why this plan was taken among those that predictions cannot tell from the best found."""

    choice: Choice = Field(description="What was asked for.", examples=["simplest"])
    given_up_fraction: Annotated[float, Holds("given_up")] = Field(
        description="How far its objective lies above that of the best found.", examples=[0.005]
    )
    fastest_alternative: Annotated[int | None, Holds("fastest")] = Field(
        None, description="The best found, in the list of alternatives; absent where the plan is it.", examples=[0]
    )
    simpler_in: Annotated[list[Simplicity], Holds("simpler")] = Field(
        default_factory=list, description="In what the plan is simpler than that.", examples=[["even_layers"]]
    )
    close_calls: list[CloseCallDocument] = Field(
        description="Alternatives that predictions cannot tell from the plan, likeliest to be better first."
    )
    trial: TrialDocument | None = Field(None, description="The cheapest trial that would tell.")
    regret_fraction: Annotated[float | None, Holds("regret")] = Field(
        None,
        description="Most that a robust choice loses to the best contender, in nine draws of ten.",
        examples=[None],
    )
    fastest_regret_fraction: Annotated[float | None, Holds("fastest_regret")] = Field(
        None, description="The same of the best found.", examples=[None]
    )
