"""What is left of a plan's lead when links change, as users receive it."""

from __future__ import annotations

from pydantic import Field

from app.documents.reading import Document
from cluster_models.plan import Drifted, Rival, Robustness


class DriftedDocument(Document):
    """Step time over draws of all links around their medians."""

    step_p10_s: float = Field(description="One draw in ten is faster.", examples=[12.3])
    step_median_s: float = Field(description="Half of the draws are faster.", examples=[12.4])
    step_p90_s: float = Field(description="One draw in ten is slower.", examples=[12.7])

    def to_drifted(self) -> Drifted:
        """The domain value."""
        return Drifted(**self.model_dump())

    @classmethod
    def from_drifted(cls, step: Drifted) -> DriftedDocument:
        """The document of a domain value."""
        return cls(step_p10_s=step.step_p10_s, step_median_s=step.step_median_s, step_p90_s=step.step_p90_s)


class RivalDocument(Document):
    """An alternative in the same draws as the plan."""

    alternative: int = Field(ge=0, description="Its place in the list of alternatives, from 0.", examples=[0])
    step: DriftedDocument = Field(description="Its step time.")
    plan_ahead_fraction: float = Field(
        description="Share of draws in which the plan is no worse by the objective.", examples=[0.93]
    )

    def to_rival(self) -> Rival:
        """The domain value."""
        return Rival(self.alternative, self.step.to_drifted(), self.plan_ahead_fraction)

    @classmethod
    def from_rival(cls, rival: Rival) -> RivalDocument:
        """The document of a domain value."""
        return cls(
            alternative=rival.alternative,
            step=DriftedDocument.from_drifted(rival.step),
            plan_ahead_fraction=rival.plan_ahead,
        )


class RobustnessDocument(Document):
    """What is left of the plan's lead when links change by the spread seen."""

    summary: str = Field(
        description="In one sentence.", examples=["The plan stays ahead of the runner-up in 93 % of cases."]
    )
    draws: int = Field(description="How often all links were drawn.", examples=[400])
    slow_link_fraction: float = Field(
        description="Share of its median bandwidth that one link in ten loses at least.", examples=[0.05]
    )
    spread_from: str = Field(
        description="Where that is known from.", examples=["56 repeated tests on links of the same class"]
    )
    step: DriftedDocument = Field(description="Step time of the plan.")
    rivals: list[RivalDocument] = Field(description="The alternatives that were placed, the runner-up first.")
    mean_loss_fraction: float = Field(
        description="What the plan loses by the objective to the best of them, on average.", examples=[0.002]
    )
    worst_loss_fraction: float = Field(description="The same in the worst draw.", examples=[0.031])
    safer_alternative: int | None = Field(
        None, description="The alternative that is best at p90 where the plan is not.", examples=[1]
    )

    def to_robustness(self) -> Robustness:
        """The domain value."""
        return Robustness(
            draws=self.draws,
            slow_link=self.slow_link_fraction,
            spread_from=self.spread_from,
            step=self.step.to_drifted(),
            rivals=tuple(rival.to_rival() for rival in self.rivals),
            mean_loss=self.mean_loss_fraction,
            worst_loss=self.worst_loss_fraction,
            safer=self.safer_alternative,
            summary=self.summary,
        )

    @classmethod
    def from_robustness(cls, found: Robustness) -> RobustnessDocument:
        """The document of a domain value."""
        return cls(
            summary=found.summary,
            draws=found.draws,
            slow_link_fraction=found.slow_link,
            spread_from=found.spread_from,
            step=DriftedDocument.from_drifted(found.step),
            rivals=[RivalDocument.from_rival(rival) for rival in found.rivals],
            mean_loss_fraction=found.mean_loss,
            worst_loss_fraction=found.worst_loss,
            safer_alternative=found.safer,
        )
