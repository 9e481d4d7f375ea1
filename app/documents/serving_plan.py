"""A serving plan (or the reason why there is none) as users receive it, with units in every name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field

from app.documents.architecture import ArchitectureDocument
from app.documents.plan import plan_from_text
from app.documents.plan_parts import ProvenanceDocument
from app.documents.reading import Document, parse_text, read_document
from app.documents.serving import ServingWorkloadDocument
from app.documents.serving_plan_parts import (
    FrontPointDocument,
    IdleGpusDocument,
    ModelFiguresDocument,
    NearestServingDocument,
    RemedyDocument,
    ReplicaGroupDocument,
    ServingAlternativeDocument,
    ServingCertificateDocument,
    ServingWarningDocument,
)
from app.documents.values import ValueDocument
from cluster_models.errors import InvalidInput
from cluster_models.serving.goal import ServedModel, ServingGoal
from cluster_models.serving.own_rates import FittedServing, OwnRates
from cluster_models.serving.plan import ServingPlan
from cluster_models.serving.refusal import NoServingPlan, NoServingReason
from cluster_models.training.plan import Plan


class FittedServingDocument(ValueDocument[FittedServing]):
    """Rates of an engine on one kind of GPU, as a calibration has them."""

    factors: dict[str, float] = Field(description="Factor of each rate over the shipped one.")
    spreads: dict[str, float] = Field(description="By figure, what makes intervals.")
    points: int = Field(description="Measured points.", examples=[20])


class OwnRatesDocument(ValueDocument[OwnRates]):
    """Rates of a calibration for an engine, by GPU kind."""

    label: str = Field(description="Name and content hash of the calibration.", examples=["ours 3f2a91c0d4e5b6a7"])
    by_gpu: dict[str, FittedServingDocument] = Field(description="By GPU kind.")


class ServedModelDocument(Document):
    """A model and the requests to it; the workload of the first model also has the goal of the plan."""

    name: str = Field(description="The model.", examples=["llama-3.1-70b"])
    architecture: ArchitectureDocument = Field(description="The model in full.")
    workload: ServingWorkloadDocument = Field(description="The requests to it.")
    own_rates: OwnRatesDocument | None = Field(
        None, description="Rates of a calibration that it was priced with; null: the shipped ones."
    )

    def to_value(self) -> ServedModel:
        """The domain value; raises what its own checks raise."""
        own = None if self.own_rates is None else self.own_rates.to_value()
        return replace(self.workload.served(self.architecture.to_value()), own=own)


class ServingPlanDocument(Document):
    """Replicas on GPUs with their shares of the load, predictions and proof."""

    result: Literal["serving_plan"] = Field(
        "serving_plan", description="serving_plan; no_serving_plan where nothing meets the limits and the load."
    )
    models: Annotated[list[ServedModelDocument], Field(min_length=1)] = Field(
        description="The models, their requests and the goal."
    )
    groups: list[ReplicaGroupDocument] = Field(
        description="Replicas that answer requests together: one alone, or prefill and decode replicas."
    )
    figures: list[ModelFiguresDocument] = Field(description="Prediction for each model.")
    gpus: int = Field(description="GPUs in use.", examples=[8])
    tokens_per_s: float = Field(description="Output of all models.", examples=[5000.0])
    tokens_per_s_per_gpu: float = Field(description="The same per GPU used.", examples=[625.0])
    price_usd_per_hour: float | None = Field(
        description="List price of the GPUs used; null where a kind has none.", examples=[24.0]
    )
    power_watts: float = Field(
        description="Power of the GPUs used, by their data sheets or power caps.", examples=[5600.0]
    )
    idle: list[IdleGpusDocument] = Field(description="Free GPUs that are not used, and why.")
    certificate: ServingCertificateDocument = Field(description="How far from optimal the plan can be.")
    alternatives: list[ServingAlternativeDocument] = Field(description="Other shapes alone, and why each lost.")
    front: list[FrontPointDocument] = Field(
        description="Pareto front of throughput per GPU against speed for each user."
    )
    warnings: list[ServingWarningDocument] = Field(description="What to know before trusting it.")
    provenance: ProvenanceDocument = Field(description="What the plan was made from.")

    @classmethod
    def from_plan(cls, plan: ServingPlan) -> ServingPlanDocument:
        """The document of a domain value."""
        return cls(
            models=model_documents(plan.models, plan.goal),
            groups=[ReplicaGroupDocument.from_value(group) for group in plan.groups],
            figures=[ModelFiguresDocument.from_value(figures) for figures in plan.figures],
            gpus=plan.gpus,
            tokens_per_s=plan.tokens_per_s,
            tokens_per_s_per_gpu=plan.tokens_per_s_per_gpu,
            price_usd_per_hour=plan.price_usd_per_hour,
            power_watts=plan.power_watts,
            idle=[IdleGpusDocument.from_value(idle) for idle in plan.idle],
            certificate=ServingCertificateDocument.from_value(plan.certificate),
            alternatives=[ServingAlternativeDocument.from_value(other) for other in plan.alternatives],
            front=[FrontPointDocument.from_value(point) for point in plan.front],
            warnings=[ServingWarningDocument.from_value(warning) for warning in plan.warnings],
            provenance=ProvenanceDocument.from_value(plan.provenance),
        )

    def to_plan(self) -> ServingPlan:
        """The domain value; raises what the values' own checks raise."""
        return ServingPlan(
            goal=self.models[0].workload.to_goal(),
            models=tuple(model.to_value() for model in self.models),
            groups=tuple(group.to_value() for group in self.groups),
            figures=tuple(figures.to_value() for figures in self.figures),
            gpus=self.gpus,
            tokens_per_s=self.tokens_per_s,
            tokens_per_s_per_gpu=self.tokens_per_s_per_gpu,
            price_usd_per_hour=self.price_usd_per_hour,
            power_watts=self.power_watts,
            idle=tuple(idle.to_value() for idle in self.idle),
            certificate=self.certificate.to_value(),
            alternatives=tuple(other.to_value() for other in self.alternatives),
            front=tuple(point.to_value() for point in self.front),
            warnings=tuple(warning.to_value() for warning in self.warnings),
            provenance=self.provenance.to_value(),
        )


class NoServingPlanDocument(Document):
    """Why nothing meets the limits and the load, what comes nearest, and what would help."""

    result: Literal["no_serving_plan"] = Field(
        "no_serving_plan", description="no_serving_plan; serving_plan where something meets them."
    )
    models: list[ServedModelDocument] = Field(description="The models, their requests and the goal.")
    model: int = Field(description="Index of the model that cannot be served.", examples=[0])
    reason: NoServingReason = Field(description="The tightest of what stands against it.", examples=["token_limit"])
    nearest: NearestServingDocument | None = Field(description="What comes nearest to the limits.")
    remedies: list[RemedyDocument] = Field(description="Changes that would help, each by itself.")
    provenance: ProvenanceDocument = Field(description="What the answer was made from.")

    @classmethod
    def from_no_plan(cls, answer: NoServingPlan) -> NoServingPlanDocument:
        """The document of a domain value."""
        return cls(
            models=model_documents(answer.models, answer.goal),
            model=answer.model,
            reason=answer.reason,
            nearest=answer.nearest and NearestServingDocument.from_value(answer.nearest),
            remedies=[RemedyDocument.from_value(remedy) for remedy in answer.remedies],
            provenance=ProvenanceDocument.from_value(answer.provenance),
        )

    def to_plan(self) -> NoServingPlan:
        """The domain value; raises what the values' own checks raise."""
        return NoServingPlan(
            goal=self.models[0].workload.to_goal(),
            models=tuple(model.to_value() for model in self.models),
            model=self.model,
            reason=self.reason,
            nearest=None if self.nearest is None else self.nearest.to_value(),
            remedies=tuple(remedy.to_value() for remedy in self.remedies),
            provenance=self.provenance.to_value(),
        )


def model_documents(models: tuple[ServedModel, ...], goal: ServingGoal) -> list[ServedModelDocument]:
    """The documents of the models of a plan, the first with its goal."""
    return [
        ServedModelDocument(
            name=served.architecture.name,
            architecture=ArchitectureDocument.from_value(served.architecture),
            workload=ServingWorkloadDocument.from_served(served, *((goal,) if index == 0 else ())),
            own_rates=None if served.own is None else OwnRatesDocument.from_value(served.own),
        )
        for index, served in enumerate(models)
    ]


def serving_document(result: ServingPlan | NoServingPlan) -> ServingPlanDocument | NoServingPlanDocument:
    """The document of whatever the planner returns."""
    if isinstance(result, NoServingPlan):
        return NoServingPlanDocument.from_no_plan(result)
    return ServingPlanDocument.from_plan(result)


def any_plan_from_text(text: str, *, what: str = "plan") -> Plan | ServingPlan:
    """The plan of training or of serving in a text; raises ``InvalidInput`` for anything else."""
    data = parse_text(text, what=what)
    kind = data.get("result") if isinstance(data, Mapping) else None
    if kind == "no_serving_plan":
        raise InvalidInput(what, kind, "says that nothing serves the load: there is nothing to export")
    if kind == "serving_plan":
        return read_document(ServingPlanDocument, data, what=what).to_plan()
    return plan_from_text(text, what=what)
