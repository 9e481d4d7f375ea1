"""A plan (or the reason why there is none) as users receive it, with units in every name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from app.documents.architecture import ArchitectureDocument
from app.documents.configuration import ConfigurationDocument
from app.documents.expert_slots import (
    ExpertBalanceDocument,
    ExpertLayersDocument,
    layer_documents,
    slots_of,
    without_old_map,
)
from app.documents.plan_parts import (
    AlternativeDocument,
    CertificateDocument,
    MemoryDocument,
    ProvenanceDocument,
    RankDocument,
    StageDocument,
    StepIntervalDocument,
    SurvivedLossesDocument,
    TimeDocument,
    TimelineEventDocument,
    TradeOffDocument,
)
from app.documents.reading import parse_text, read_document
from app.documents.remarks import RemarkDocument
from app.documents.robustness import RobustnessDocument
from app.documents.selection import SelectionDocument
from app.documents.values import Computed, Given, Holds, ValueDocument
from app.documents.workload import WorkloadDocument
from app.presentation.refusal import reason_of
from app.presentation.robustness import drift_summary
from cluster_models.errors import InvalidInput
from cluster_models.training.plan import NoPlan, Placement, Plan
from cluster_models.units import GIB, TFLOP


class PlanDocument(ValueDocument[Plan]):
    """A placed, priced and proven plan."""

    result: Annotated[Literal["plan"], Given()] = Field("plan", description="plan; no_plan where nothing fits.")
    model: str = Field(description="The model.", examples=["llama-3-70b"])
    warnings: list[RemarkDocument] = Field(description="What to know before trusting it.", examples=[[]])
    step_interval: Annotated[StepIntervalDocument | None, Holds("confidence")] = Field(
        None, description="How sure the step time is."
    )
    selection: SelectionDocument | None = Field(
        None, description="Why it was taken among plans as good, and what may be better."
    )
    configuration: Annotated[ConfigurationDocument, Computed(ConfigurationDocument.from_plan)] = Field(
        description="What the framework is told, with the hosts in rank order."
    )
    ranks: Annotated[list[RankDocument], Holds("placement.ranks")] = Field(description="Where every rank sits.")
    time: TimeDocument = Field(description="Predicted step time by part.")
    stages: list[StageDocument] = Field(description="Times of one micro-batch by pipeline rank.")
    memory: list[MemoryDocument] = Field(description="Predicted peak memory by pipeline rank.")
    tokens_per_s: float = Field(description="Predicted throughput.", examples=[338000.0])
    tokens_per_s_per_gpu: float = Field(description="The same per GPU used.", examples=[2640.0])
    model_tflops_per_s_per_gpu: Annotated[float, Holds("model_flops_per_s_per_gpu", TFLOP)] = Field(
        description="Model FLOP (recomputation not counted) per second and GPU.", examples=[420.0]
    )
    mfu: float = Field(description="The same over the GPU's dense peak, 0 to 1.", examples=[0.42])
    certificate: CertificateDocument = Field(description="How far from optimal the plan can be.")
    alternatives: list[AlternativeDocument] = Field(description="The next best, and why each lost.")
    trade_offs: list[TradeOffDocument] = Field(
        default_factory=list,
        description="A sample of the candidates that were priced and fit, the fastest first: time against memory.",
        examples=[[]],
    )
    expert_slots: Annotated[
        list[ExpertLayersDocument], Computed(lambda plan: layer_documents(plan.expert_slots))
    ] = Field(
        default_factory=list,
        description="Experts of each expert parallel rank, layer by layer; empty for dense models.  "
        "With expert_tensor above 1 as many consecutive ranks hold a share of the width of each.",
        examples=[[]],
    )
    expert_balance: ExpertBalanceDocument | None = Field(
        None, description="How evenly they share out the routing that was given."
    )
    unused_nodes: list[str] = Field(description="Usable nodes left free.", examples=[["cnode2-016"]])
    spare_nodes: list[str] = Field(
        default_factory=list,
        description="Free nodes kept as the spares that the workload asks for; unused_nodes are the others.",
        examples=[["cnode2-017"]],
    )
    survives: list[SurvivedLossesDocument] = Field(
        default_factory=list,
        description="Losses that leave every part of the training state alive, by kind of failure domain.",
        examples=[[]],
    )
    provenance: ProvenanceDocument = Field(description="What the plan was made from.")
    architecture: ArchitectureDocument | None = Field(None, description="The model in full.")
    workload: WorkloadDocument | None = Field(None, description="The workload it was made for.")
    robustness: RobustnessDocument | None = Field(None, description="How often it stays ahead when links drift.")
    timeline: list[TimelineEventDocument] | None = Field(
        None, description="The predicted schedule of one step; absent where it was not asked for."
    )

    @model_validator(mode="before")
    @classmethod
    def _told_by_layer(cls, data: object) -> object:
        return without_old_map(data)

    @classmethod
    def from_plan(cls, plan: Plan, *, timeline: bool = True) -> PlanDocument:
        """The document of a plan, with or without its timeline."""
        given: dict[str, Any] = {} if timeline else {"timeline": None}
        if plan.robustness is not None:
            summary = drift_summary(plan)
            given["robustness"] = RobustnessDocument.from_value(plan.robustness, summary=summary)
        return cls.from_value(plan, **given)

    def to_value(self) -> Plan:
        """The domain value; raises ``InvalidInput`` where the document lacks its hosts."""
        hosts, per_node = self.configuration.host_order(), self.configuration.gpus_per_node
        if hosts is None or per_node is None:
            raise InvalidInput(
                "configuration.hosts", None, "a plan names its hosts and GPUs per node", "export a complete plan"
            )
        read = self.attributes()
        return Plan(
            **read
            | {
                "configuration": self.configuration.to_value(),
                "placement": Placement(hosts, per_node, tuple(rank.to_value() for rank in self.ranks)),
                "expert_slots": slots_of(self.expert_slots),
                "timeline": read["timeline"] or (),
            }
        )


class NoPlanDocument(ValueDocument[NoPlan]):
    """Why nothing fits, and what would."""

    result: Annotated[Literal["no_plan"], Given()] = Field(
        "no_plan", description="no_plan; plan where something fits."
    )
    reason: Annotated[str, Computed(reason_of)] = Field(
        "", description="Why, in words.", examples=["Every configuration needs more memory than there is."]
    )
    reasons: list[RemarkDocument] = Field(default_factory=list, description="Why.")
    closest: ConfigurationDocument | None = Field(None, description="What misses the limit by least.")
    missing_gib: Annotated[float | None, Holds("missing_bytes", GIB)] = Field(
        None, description="By how much, on each GPU.", examples=[3.5]
    )
    remedies: list[RemarkDocument] = Field(description="What would help.")
    provenance: ProvenanceDocument = Field(description="What the answer was made from.")


def result_document(result: Plan | NoPlan, *, timeline: bool = True) -> PlanDocument | NoPlanDocument:
    """The document of whatever a search returns."""
    if isinstance(result, NoPlan):
        return NoPlanDocument.from_value(result)
    return PlanDocument.from_plan(result, timeline=timeline)


def plan_from_text(text: str, *, what: str = "plan") -> Plan:
    """The plan in the text of a plan document; raises ``InvalidInput`` for anything else."""
    data = parse_text(text, what=what)
    if isinstance(data, Mapping) and data.get("result") == "no_plan":
        raise InvalidInput(what, "no_plan", "says that no plan fits: there is nothing to export")
    if isinstance(data, Mapping) and str(data.get("result")).endswith("serving_plan"):
        raise InvalidInput(what, data["result"], "is of serving, a plan of training belongs here")
    return read_document(PlanDocument, data, what=what).to_value()
