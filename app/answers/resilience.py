"""Answers about what failures cost a plan, and what surviving more of them would."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.documents.plan_parts import SurvivedLossesDocument
from app.documents.remarks import RemarkDocument
from app.documents.values import Holds, ValueAnswer
from app.services.planning.resilience import Resilience
from solver.replanning.resilience import EffectiveTraining, Hardening, HardeningKind


class EffectiveTrainingAnswer(ValueAnswer[EffectiveTraining]):
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
    checkpoint_write_s: Annotated[float, Holds("write_s")] = Field(
        description="Seconds for which writing a checkpoint holds up the job.", examples=[12.0]
    )


class HardeningAnswer(ValueAnswer[Hardening]):
    """One way to survive more, and its price."""

    kind: HardeningKind = Field(description="What is done.", examples=["memory_checkpoint"])
    label: str = Field(description="Failure domains that it is about.", examples=["node"])
    count: int = Field(description="How many may be lost then.", examples=[1])
    extra_gpu_bytes: Annotated[float, Holds("gpu_bytes")] = Field(
        description="More memory of the fullest GPU.", examples=[0.0]
    )
    extra_host_bytes: Annotated[float, Holds("host_bytes")] = Field(
        description="More memory of each node itself.", examples=[2.1e11]
    )
    extra_step_s: Annotated[float, Holds("step_s")] = Field(
        description="How much longer a step takes (estimated).", examples=[0.004]
    )
    is_possible: bool = Field(description="Whether it fits into the GPUs' memory.", examples=[True])
    means: RemarkDocument = Field(description="What is to be done.")


class ResilienceAnswer(ValueAnswer[Resilience]):
    """Losses that a plan survives, the cost of failures to it, and the price of surviving more."""

    survives: list[SurvivedLossesDocument] = Field(
        description="Losses that leave all state alive, by failure domain."
    )
    effective_training: Annotated[EffectiveTrainingAnswer, Holds("training")] = Field(
        description="The share of time in which the job makes progress that lasts."
    )
    hardenings: list[HardeningAnswer] = Field(
        description="Ways to survive one more, the cheapest first; another plan (spread) is among them where the "
        "planner was to look for one (search_time_limit_s)."
    )
