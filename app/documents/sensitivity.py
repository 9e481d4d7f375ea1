"""Plans on fewer GPUs and effects of changes, as users receive them."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from app.documents.configuration import ConfigurationDocument
from app.documents.reading import Document, Positive
from app.presentation.decision import dollars_per_day, spare_bytes
from cluster_models.training.framework_choices import Overlap
from cluster_models.training.plan import Plan
from cluster_models.training.sensitivity import Effect, Lever, Obstacle, Sensitivity
from cluster_models.units import GIB

LONGEST_S: Final = 60.0
"""A request is answered when the searches have ended."""
USUAL_S: Final = 30.0


class SensitivityRequest(Document):
    """How long to search."""

    time_limit_s: Annotated[Positive, Field(le=LONGEST_S)] = Field(
        USUAL_S, description="Seconds for all searches together.", examples=[USUAL_S]
    )


class FrontPointDocument(Document):
    """The fastest plan found on so many GPUs."""

    gpus: int = Field(description="GPUs that it uses.", examples=[64])
    step_time_s: float = Field(description="Predicted seconds of a step.", examples=[11.8])
    bound_step_time_s: float = Field(description="A step that no plan on so many GPUs beats.", examples=[11.7])
    tokens_per_s: float = Field(description="Tokens a second.", examples=[89000.0])
    usd_per_day: float | None = Field(
        None, description="List price of its GPUs; absent where one is not known.", examples=[3200.0]
    )
    spare_gib: float = Field(description="Free memory of the fullest GPU below its limit.", examples=[7.1])
    configuration: ConfigurationDocument = Field(description="Degrees and settings.")
    hosts: list[str] = Field(description="Hosts in rank order.", examples=[["n0", "n1"]])

    @classmethod
    def from_plan(cls, plan: Plan) -> FrontPointDocument:
        """The document of a plan."""
        return cls(
            gpus=plan.configuration.degrees.gpus,
            step_time_s=plan.time.step_s,
            bound_step_time_s=plan.certificate.bound,
            tokens_per_s=plan.tokens_per_s,
            usd_per_day=dollars_per_day(plan),
            spare_gib=spare_bytes(plan) / GIB,
            configuration=ConfigurationDocument.from_value(plan.configuration),
            hosts=list(plan.placement.hosts),
        )


class EffectDocument(Document):
    """Gain of the fastest plan from one change."""

    change: Lever | Overlap = Field(
        description="node: one more like the last host; links: twice the bandwidth between nodes; memory: 10 GiB "
        "more on each GPU; the others: the setting of the framework switched on.",
        examples=["node"],
    )
    kept_step_time_s: float | None = Field(None, description="Step of the same plan.", examples=[11.8])
    bound_step_time_s: float | None = Field(None, description="A step that no plan there beats.", examples=[10.4])
    plan: FrontPointDocument | None = Field(None, description="The fastest plan found after the change.")
    obstacle: Obstacle | None = Field(
        None, description="Why the change is not possible; absent where it is.", examples=["no_switch"]
    )

    @classmethod
    def from_effect(cls, effect: Effect) -> EffectDocument:
        """The document of an effect."""
        return cls(
            change=effect.change,
            kept_step_time_s=effect.kept_step_s,
            bound_step_time_s=effect.bound_step_s,
            plan=None if effect.plan is None else FrontPointDocument.from_plan(effect.plan),
            obstacle=effect.obstacle,
        )


class SensitivityDocument(Document):
    """Fastest plans by number of GPUs, and what other hardware or settings would bring."""

    front: list[FrontPointDocument] = Field(description="Fewest GPUs first, each faster than those before.")
    effects: list[EffectDocument] = Field(description="Measured on the last plan of the front.")
    too_few_gpus: int | None = Field(
        None, description="On as many GPUs or fewer there is no plan; absent where that was not met.", examples=[8]
    )

    @classmethod
    def from_value(cls, found: Sensitivity) -> SensitivityDocument:
        """The document of what was found."""
        return cls(
            front=[FrontPointDocument.from_plan(plan) for plan in found.front],
            effects=[EffectDocument.from_effect(effect) for effect in found.effects],
            too_few_gpus=found.too_few_gpus,
        )
