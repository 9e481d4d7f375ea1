"""A plan beside other configurations of its run, as users ask for it and receive it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from app.comparing.launch_arguments import MOST_TEXT
from app.comparing.standings import MOST_CONTENDERS, Standing
from app.documents.configuration import ConfigurationDocument
from app.documents.plan_parts import StepIntervalDocument, TimeDocument
from app.documents.reading import Count, Document, Positive, Text
from app.presentation.comparison import verdict
from app.presentation.decision import DAY, NO_BUDGET, Budget, dollars_per_day, run_days, spare_bytes
from cluster_models.training.plan import Plan
from cluster_models.units import GIB


class OtherRequest(Document):
    """Something to compare with the plan: one ``plan``, ``running_plan``, ``configuration`` or ``launch``."""

    name: Text | None = Field(None, description="Name in the comparison; absent = its degrees.", examples=["ours"])
    plan: Text | None = Field(
        None, description="Id of another plan of the same model and batch.", examples=["0f4d2c8e6b7a4c55"]
    )
    running_plan: Text | None = Field(
        None, description="Id of a plan that a job runs, or ran, by.", examples=["5a1b2c3d4e5f6071"]
    )
    configuration: ConfigurationDocument | None = Field(
        None, description="A configuration given in full.", examples=[{"degrees": {"tensor": 8, "data": 8}}]
    )
    launch: Annotated[str, Field(min_length=1, max_length=MOST_TEXT)] | None = Field(
        None,
        description="Launch arguments of Megatron-LM or NeMo, as in a script, or degrees such as tp8 pp4 dp2 mb1.",
        examples=["tp8 pp4 dp2 mb1 recompute=full"],
    )

    @model_validator(mode="after")
    def _one_of_them(self) -> OtherRequest:
        if sum(each is not None for each in (self.plan, self.running_plan, self.configuration, self.launch)) != 1:
            raise ValueError("needs exactly one of plan, running_plan, configuration and launch")
        return self


class ComparisonRequest(Document):
    """A finished plan and what its owner would run instead."""

    plan: Text = Field(description="Id of a plan that succeeded.", examples=["0f4d2c8e6b7a4c55"])
    others: Annotated[list[OtherRequest], Field(min_length=1, max_length=MOST_CONTENDERS)] = Field(
        description="What is compared with it, on the same snapshot, model and workload.",
        examples=[[{"launch": "tp8 pp4 dp2 mb1"}]],
    )
    gpus: Count | None = Field(
        None,
        description="GPUs of launch arguments that do not say how many; absent = as many as the plan has.",
        examples=[64],
    )
    tokens: Positive | None = Field(
        None, description="Tokens of the whole run, for its days and price.", examples=[15e12]
    )
    usd_per_gpu_hour: Positive | None = Field(
        None, description="Price of a GPU; absent = list prices where they are known.", examples=[2.5]
    )

    def to_budget(self) -> Budget:
        """The domain value."""
        return Budget(self.tokens, self.usd_per_gpu_hour)


class ComparedDocument(Document):
    """Predictions of a configuration."""

    name: str = Field(description="Name in the comparison.", examples=["ours"])
    configuration: ConfigurationDocument = Field(description="The configuration in full, with its hosts.")
    gpus: int = Field(description="GPUs used.", examples=[64])
    time: TimeDocument = Field(description="Predicted step time by part.")
    step_interval: StepIntervalDocument | None = Field(None, description="How sure the step time is.")
    fits: bool = Field(description="Whether every GPU's memory suffices.", examples=[True])
    memory_margin_gib: float = Field(
        description="Memory of the fullest GPU below its limit; negative where it lacks it.", examples=[7.0]
    )
    tokens_per_s: float = Field(description="Predicted throughput.", examples=[338000.0])
    tokens_per_s_per_gpu: float = Field(description="The same per GPU used.", examples=[2640.0])
    tokens_per_day: float = Field(description="The same in a day without failures.", examples=[2.9e10])
    mfu: float = Field(description="Model FLOP/s over the GPUs' dense peak, 0 to 1.", examples=[0.42])
    usd_per_day: float | None = Field(
        None, description="Price of its GPUs; null where unknown.", examples=[10568.0]
    )
    run_days: float | None = Field(None, description="Days of the whole run; null without tokens.", examples=[34.2])
    run_usd: float | None = Field(None, description="Price of the whole run.", examples=[361000.0])

    @classmethod
    def from_plan(cls, name: str, plan: Plan, budget: Budget = NO_BUDGET) -> ComparedDocument:
        """The document of a plan under a name."""
        dollars, days = dollars_per_day(plan, budget), run_days(plan, budget)
        margin = spare_bytes(plan)
        return cls(
            name=name,
            configuration=ConfigurationDocument.from_plan(plan),
            gpus=plan.configuration.degrees.gpus,
            time=TimeDocument.from_value(plan.time),
            step_interval=plan.confidence and StepIntervalDocument.from_value(plan.confidence),
            fits=margin >= 0,
            memory_margin_gib=margin / GIB,
            tokens_per_s=plan.tokens_per_s,
            tokens_per_s_per_gpu=plan.tokens_per_s_per_gpu,
            tokens_per_day=plan.tokens_per_s * DAY,
            mfu=plan.mfu,
            usd_per_day=dollars,
            run_days=days,
            run_usd=None if days is None or dollars is None else days * dollars,
        )


class StandingDocument(ComparedDocument):
    """A configuration and how it stands to the plan."""

    difference: TimeDocument = Field(description="Its step and parts minus those of the plan; the parts add up.")
    slower_by: float = Field(
        description="Its step over that of the plan, minus 1; negative where it is faster.", examples=[0.032]
    )
    objective_ratio: float = Field(description="Its predicted objective over the plan's.", examples=[1.03])
    ratio_low: float = Field(description="Its measured objective over the plan's is expected between this ...")
    ratio_high: float = Field(description="... and this, at the level of step_interval.", examples=[1.12])
    chance_better: float = Field(description="Probability that it is better in truth.", examples=[0.38])
    can_be_told_apart: bool = Field(
        description="Whether 1 lies outside of that interval: predictions can tell which is better."
    )
    cautions: list[str] = Field(description="In what the two predictions were not made alike.", examples=[[]])
    verdict: list[str] = Field(description="All this in sentences.")

    @classmethod
    def from_standing(cls, plan: Plan, standing: Standing, budget: Budget = NO_BUDGET) -> StandingDocument:
        """The document of a contender beside ``plan``."""
        contender, found = standing.contender, standing.comparison
        compared = ComparedDocument.from_plan(contender.name, contender.plan, budget)
        own, its = TimeDocument.from_value(plan.time), compared.time
        return cls(
            **{name: getattr(compared, name) for name in ComparedDocument.model_fields},
            difference=TimeDocument(
                **{name: getattr(its, name) - getattr(own, name) for name in TimeDocument.model_fields}
            ),
            slower_by=contender.plan.time.step_s / plan.time.step_s - 1,
            objective_ratio=found.objective_ratio,
            ratio_low=found.ratio_low,
            ratio_high=found.ratio_high,
            chance_better=found.chance_better,
            can_be_told_apart=found.can_be_told,
            cautions=list(standing.cautions),
            verdict=list(verdict(plan, standing, budget)),
        )


class ComparisonDocument(Document):
    """A plan and each configuration beside it."""

    plan: ComparedDocument = Field(description="The plan that the others are compared with.")
    others: list[StandingDocument] = Field(description="Each as it stands to the plan, in the order asked for.")

    @classmethod
    def make(cls, plan: Plan, others: Sequence[Standing], budget: Budget = NO_BUDGET) -> ComparisonDocument:
        """The document of ``others`` beside ``plan``."""
        return cls(
            plan=ComparedDocument.from_plan("plan", plan, budget),
            others=[StandingDocument.from_standing(plan, each, budget) for each in others],
        )
