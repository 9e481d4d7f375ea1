"""A plan (or the reason why there is none) as users receive it, with units in every name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

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
)
from app.documents.reading import Document, parse_text, read_document
from app.documents.robustness import RobustnessDocument
from app.documents.selection import SelectionDocument
from app.documents.workload import WorkloadDocument
from cluster_models.errors import InvalidInput
from cluster_models.plan import NoPlan, Placement, Plan
from cluster_models.units import GIB, TFLOP


class PlanDocument(Document):
    """A placed, priced and proven plan."""

    result: Literal["plan"] = Field("plan", description="plan; no_plan where nothing fits.")
    model: str = Field(description="The model.", examples=["llama-3-70b"])
    warnings: list[str] = Field(description="What to know before trusting it.", examples=[[]])
    step_interval: StepIntervalDocument | None = Field(None, description="How sure the step time is.")
    selection: SelectionDocument | None = Field(
        None, description="Why it was taken among plans as good, and what may be better."
    )
    configuration: ConfigurationDocument = Field(
        description="What the framework is told, with the hosts in rank order."
    )
    ranks: list[RankDocument] = Field(description="Where every rank sits.")
    time: TimeDocument = Field(description="Predicted step time by part.")
    stages: list[StageDocument] = Field(description="Times of one micro-batch by pipeline rank.")
    memory: list[MemoryDocument] = Field(description="Predicted peak memory by pipeline rank.")
    tokens_per_s: float = Field(description="Predicted throughput.", examples=[338000.0])
    tokens_per_s_per_gpu: float = Field(description="The same per GPU used.", examples=[2640.0])
    model_tflops_per_s_per_gpu: float = Field(
        description="Model FLOP (recomputation not counted) per second and GPU.", examples=[420.0]
    )
    mfu: float = Field(description="The same over the GPU's dense peak, 0 to 1.", examples=[0.42])
    certificate: CertificateDocument = Field(description="How far from optimal the plan can be.")
    alternatives: list[AlternativeDocument] = Field(description="The next best, and why each lost.")
    expert_slots: list[ExpertLayersDocument] = Field(
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
    robustness: RobustnessDocument | None = Field(None, description="What drift of links leaves of its lead.")
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
        events = [TimelineEventDocument.from_value(event) for event in plan.timeline] if timeline else None
        return cls(
            model=plan.model,
            configuration=ConfigurationDocument.from_value(
                plan.configuration, plan.placement.hosts, plan.placement.gpus_per_node
            ),
            ranks=[RankDocument.from_value(place) for place in plan.placement.ranks],
            time=TimeDocument.from_value(plan.time),
            stages=[StageDocument.from_value(stage) for stage in plan.stages],
            memory=[MemoryDocument.from_value(memory) for memory in plan.memory],
            tokens_per_s=plan.tokens_per_s,
            tokens_per_s_per_gpu=plan.tokens_per_s_per_gpu,
            model_tflops_per_s_per_gpu=plan.model_flops_per_s_per_gpu / TFLOP,
            mfu=plan.mfu,
            certificate=CertificateDocument.from_value(plan.certificate),
            warnings=list(plan.warnings),
            alternatives=[AlternativeDocument.from_value(other) for other in plan.alternatives],
            expert_slots=layer_documents(plan.expert_slots),
            expert_balance=plan.expert_balance and ExpertBalanceDocument.from_value(plan.expert_balance),
            unused_nodes=list(plan.unused_nodes),
            spare_nodes=list(plan.spare_nodes),
            survives=[SurvivedLossesDocument.from_value(losses) for losses in plan.survives],
            provenance=ProvenanceDocument.from_value(plan.provenance),
            architecture=plan.architecture and ArchitectureDocument.from_value(plan.architecture),
            workload=plan.workload and WorkloadDocument.from_workload(plan.workload),
            step_interval=plan.confidence and StepIntervalDocument.from_value(plan.confidence),
            selection=plan.selection and SelectionDocument.from_value(plan.selection),
            robustness=plan.robustness and RobustnessDocument.from_value(plan.robustness),
            timeline=events,
        )

    def to_plan(self) -> Plan:
        """The domain value; raises ``InvalidInput`` where the document lacks its hosts."""
        hosts = self.configuration.host_order()
        if hosts is None or self.configuration.gpus_per_node is None:
            raise InvalidInput(
                "configuration.hosts", None, "a plan names its hosts and GPUs per node", "export a complete plan"
            )
        return Plan(
            model=self.model,
            configuration=self.configuration.to_value(),
            placement=Placement(
                hosts=hosts,
                gpus_per_node=self.configuration.gpus_per_node,
                ranks=tuple(place.to_value() for place in self.ranks),
            ),
            time=self.time.to_value(),
            stages=tuple(stage.to_value() for stage in self.stages),
            memory=tuple(memory.to_value() for memory in self.memory),
            tokens_per_s=self.tokens_per_s,
            tokens_per_s_per_gpu=self.tokens_per_s_per_gpu,
            model_flops_per_s_per_gpu=self.model_tflops_per_s_per_gpu * TFLOP,
            mfu=self.mfu,
            certificate=self.certificate.to_value(),
            warnings=tuple(self.warnings),
            alternatives=tuple(other.to_value() for other in self.alternatives),
            timeline=tuple(event.to_value() for event in self.timeline or ()),
            expert_slots=slots_of(self.expert_slots),
            expert_balance=self.expert_balance.to_value() if self.expert_balance else None,
            unused_nodes=tuple(self.unused_nodes),
            spare_nodes=tuple(self.spare_nodes),
            survives=tuple(losses.to_value() for losses in self.survives),
            provenance=self.provenance.to_value(),
            architecture=self.architecture.to_value() if self.architecture else None,
            workload=self.workload.to_workload() if self.workload else None,
            confidence=self.step_interval.to_value() if self.step_interval else None,
            selection=self.selection.to_value() if self.selection else None,
            robustness=self.robustness.to_value() if self.robustness else None,
        )


class NoPlanDocument(Document):
    """Why nothing fits, and what would."""

    result: Literal["no_plan"] = Field("no_plan", description="no_plan; plan where something fits.")
    reason: str = Field(description="Why.", examples=["Every configuration needs more memory than there is."])
    closest: ConfigurationDocument | None = Field(None, description="What misses the limit by least.")
    missing_gib: float | None = Field(None, description="By how much, on each GPU.", examples=[3.5])
    remedies: list[str] = Field(description="What would help.", examples=[["allow full recomputation"]])
    provenance: ProvenanceDocument = Field(description="What the answer was made from.")

    @classmethod
    def from_no_plan(cls, answer: NoPlan) -> NoPlanDocument:
        """The document of a domain value."""
        closest = answer.closest
        return cls(
            reason=answer.reason,
            closest=None if closest is None else ConfigurationDocument.from_value(closest),
            missing_gib=None if answer.missing_bytes is None else answer.missing_bytes / GIB,
            remedies=list(answer.remedies),
            provenance=ProvenanceDocument.from_value(answer.provenance),
        )


def result_document(result: Plan | NoPlan, *, timeline: bool = True) -> PlanDocument | NoPlanDocument:
    """The document of whatever a search returns."""
    if isinstance(result, NoPlan):
        return NoPlanDocument.from_no_plan(result)
    return PlanDocument.from_plan(result, timeline=timeline)


def plan_from_text(text: str, *, what: str = "plan") -> Plan:
    """The plan in the text of a plan document; raises ``InvalidInput`` for anything else."""
    data = parse_text(text, what=what)
    if isinstance(data, Mapping) and data.get("result") == "no_plan":
        raise InvalidInput(what, "no_plan", "says that no plan fits: there is nothing to export")
    if isinstance(data, Mapping) and str(data.get("result")).endswith("serving_plan"):
        raise InvalidInput(what, data["result"], "is of serving, a plan of training belongs here")
    return read_document(PlanDocument, data, what=what).to_plan()
