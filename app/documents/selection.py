"""Which plan was taken among those as good, and what else may be better, as users receive it."""

from __future__ import annotations

from pydantic import Field

from app.documents.reading import Document
from cluster_models.selection import CloseCall, Selection, Simplicity, Trial
from cluster_models.workload import Choice


class CloseCallDocument(Document):
    """An alternative that predictions cannot tell from the plan."""

    alternative: int = Field(ge=0, description="Its place in the list of alternatives, from 0.", examples=[0])
    ratio_low: float = Field(
        description="Its measured objective over the plan's is expected between this ...", examples=[0.93]
    )
    ratio_high: float = Field(description="... and this, at the level of step_interval.", examples=[1.12])
    chance_better: float = Field(description="Probability that it is better in truth.", examples=[0.38])

    def to_close_call(self) -> CloseCall:
        """The domain value."""
        return CloseCall(**self.model_dump())

    @classmethod
    def from_close_call(cls, call: CloseCall) -> CloseCallDocument:
        """The document of a domain value."""
        return cls(**{name: getattr(call, name) for name in cls.model_fields})


class TrialDocument(Document):
    """The cheapest trial that tells an alternative from the plan: both run so many steps."""

    alternative: int = Field(ge=0, description="What to run beside the plan.", examples=[0])
    steps: int = Field(description="Steps of each that count.", examples=[5])
    warm_up_steps: int = Field(description="Steps of each before them.", examples=[3])
    gpu_minutes: float = Field(description="GPU time of both together.", examples=[310.0])
    gain_fraction: float = Field(
        description="Share of the objective that taking the better of both saves, on average.", examples=[0.02]
    )

    def to_trial(self) -> Trial:
        """The domain value."""
        return Trial(self.alternative, self.steps, self.warm_up_steps, self.gpu_minutes, self.gain_fraction)

    @classmethod
    def from_trial(cls, trial: Trial) -> TrialDocument:
        """The document of a domain value."""
        return cls(
            alternative=trial.alternative,
            steps=trial.steps,
            warm_up_steps=trial.warm_up,
            gpu_minutes=trial.gpu_minutes,
            gain_fraction=trial.gain,
        )


class SelectionDocument(Document):
    """Why this plan was taken among those that predictions cannot tell from the best found."""

    choice: Choice = Field(description="What was asked for.", examples=["simplest"])
    given_up_fraction: float = Field(
        description="How far its objective lies above that of the best found.", examples=[0.005]
    )
    fastest_alternative: int | None = Field(
        None, description="The best found, in the list of alternatives; absent where the plan is it.", examples=[0]
    )
    simpler_in: list[Simplicity] = Field(
        default_factory=list, description="In what the plan is simpler than that.", examples=[["even_layers"]]
    )
    close_calls: list[CloseCallDocument] = Field(
        description="Alternatives that predictions cannot tell from the plan, likeliest to be better first."
    )
    trial: TrialDocument | None = Field(None, description="The cheapest trial that would tell.")
    regret_fraction: float | None = Field(
        None,
        description="Of a robust choice: what it loses at most to the best contender, in nine draws of ten.",
        examples=[None],
    )
    fastest_regret_fraction: float | None = Field(None, description="The same of the best found.", examples=[None])

    def to_selection(self) -> Selection:
        """The domain value."""
        return Selection(
            choice=self.choice,
            given_up=self.given_up_fraction,
            fastest=self.fastest_alternative,
            simpler=tuple(self.simpler_in),
            close_calls=tuple(call.to_close_call() for call in self.close_calls),
            trial=self.trial.to_trial() if self.trial else None,
            regret=self.regret_fraction,
            fastest_regret=self.fastest_regret_fraction,
        )

    @classmethod
    def from_selection(cls, found: Selection) -> SelectionDocument:
        """The document of a domain value."""
        return cls(
            choice=found.choice,
            given_up_fraction=found.given_up,
            fastest_alternative=found.fastest,
            simpler_in=list(found.simpler),
            close_calls=[CloseCallDocument.from_close_call(call) for call in found.close_calls],
            trial=found.trial and TrialDocument.from_trial(found.trial),
            regret_fraction=found.regret,
            fastest_regret_fraction=found.fastest_regret,
        )
