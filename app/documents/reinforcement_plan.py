"""Joint plans of reinforcement learning as users receive them, with units in every name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from app.documents.architecture import ArchitectureDocument
from app.documents.plan import PlanDocument
from app.documents.plan_parts import ProvenanceDocument
from app.documents.reading import parse_text, read_document
from app.documents.reinforcement import ReinforcementWorkloadDocument
from app.documents.serving_plan import ServingPlanDocument, any_plan_from_text
from app.documents.values import Given, Holds, ValueDocument
from cluster_models.errors import InvalidInput
from cluster_models.reinforcement.plan import (
    JointCertificate,
    NoReinforcementPlan,
    ReinforcementPlan,
    Rollout,
    SharedMemory,
    Split,
    SplitEnd,
    StepParts,
    WeightMove,
)
from cluster_models.reinforcement.workload import Arrangement
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan, StopReason
from cluster_models.units import GBYTE, GIB


class StepPartsDocument(ValueDocument[StepParts]):
    """Predicted seconds of a step by part."""

    step_s: float = Field(description="From one step to the next.", examples=[118.4])
    low_s: float = Field(
        description="Least seconds of such a step in nine cases of ten, by published steps, to which nothing was "
        "fitted: predictions are too short.",
        examples=[120.8],
    )
    high_s: float = Field(description="Most seconds, likewise.", examples=[229.7])
    rollout_s: float = Field(description="Until the last response of the batch ends.", examples=[68.1])
    training_s: float = Field(description="All updates with their forward passes.", examples=[49.2])
    weights_s: float = Field(description="Until the engine has the weights of the last update.", examples=[0.4])
    offload_s: float = Field(
        description="The trainer's states to the nodes' memory and back; colocated only.", examples=[0.0]
    )
    is_overlapped: bool = Field(
        description="Whether rollout and training run at once, so that the longer counts.", examples=[False]
    )


class RolloutDocument(ValueDocument[Rollout]):
    """A batch on the replicas, simulated request by request."""

    finish_s: float = Field(description="When the last response ends.", examples=[68.1])
    mean_s: float = Field(description="When a replica is done on average.", examples=[66.0])
    half_s: float = Field(description="When half of all responses have ended.", examples=[20.3])


class WeightMoveDocument(ValueDocument[WeightMove]):
    """Weights on their way from trainer to engine."""

    weights_gib: Annotated[float, Holds("weight_bytes", GIB)] = Field(
        description="The policy in 16 bits.", examples=[15.0]
    )
    network_gib: Annotated[float, Holds("network_bytes", GIB)] = Field(
        description="Over the busiest link between nodes.", examples=[15.0]
    )
    network_gbyte_per_s: Annotated[float, Holds("bytes_per_s", GBYTE)] = Field(
        description="Bandwidth there, 10^9 bytes a second; 0 where nothing crosses nodes.", examples=[37.5]
    )
    domain_gib: Annotated[float, Holds("domain_bytes", GIB)] = Field(
        description="To each GPU inside its node; colocated only.", examples=[0.0]
    )
    seconds: float = Field(description="All of it.", examples=[0.43])


class SharedMemoryDocument(ValueDocument[SharedMemory]):
    """A GPU that both parts use in turns, the fullest of the trainer's."""

    gpu_gib: Annotated[float, Holds("gpu_bytes", GIB)] = Field(description="Its memory.", examples=[79.6])
    resident_gib: Annotated[float, Holds("resident_bytes", GIB)] = Field(
        description="The trainer's, while the engine generates.", examples=[22.9]
    )
    offloaded_gib: Annotated[float, Holds("offloaded_bytes", GIB)] = Field(
        description="What leaves it for the node's memory meanwhile.", examples=[0.0]
    )
    asleep_gib: Annotated[float, Holds("asleep_bytes", GIB)] = Field(
        description="What the engine keeps while the trainer works.", examples=[3.7]
    )
    engine_fraction: float = Field(
        description="Share of the memory that the engine is told to take.", examples=[0.712]
    )


class SplitDocument(ValueDocument[Split]):
    """A way to share the nodes out, and what came of it."""

    arrangement: Arrangement = Field(description="colocated or separate.", examples=["separate"])
    training_nodes: int = Field(description="Nodes of the trainer at most.", examples=[2])
    rollout_nodes: int = Field(description="Nodes of the engine at most.", examples=[2])
    offloads: bool = Field(description="Whether states leave the GPUs in turns.", examples=[False])
    training_bound_s: float | None = Field(
        description="Training that no plan there beats; null where none fits.", examples=[95.4]
    )
    rollout_bound_s: float | None = Field(
        description="Rollout that no plan there beats; null where none fits.", examples=[66.1]
    )
    bound_s: float | None = Field(description="Step that none beats; null where none fits.", examples=[96.8])
    end: SplitEnd = Field(
        description="chosen, slower (planned, and its step is longer), ruled_out (by its bound), no_training or "
        "no_rollout (does not fit), not_reached (the search ended before).",
        examples=["ruled_out"],
    )
    parts: StepPartsDocument | None = Field(description="Its step where it was planned.")


class JointCertificateDocument(ValueDocument[JointCertificate]):
    """How far from optimal the step can be."""

    step_s: float = Field(description="The step.", examples=[118.4])
    bound_s: float = Field(description="A step that none of the splits beats.", examples=[117.5])
    gap: float = Field(description="(step_s - bound_s) / step_s.", examples=[0.008])
    stopped_by: StopReason = Field(description="Why the search ended.", examples=["proven"])
    splits: int = Field(description="Splits that were looked at.", examples=[5])
    plans_made: int = Field(description="Those with plans of both parts.", examples=[2])
    ruled_out: int = Field(description="Those that their bounds rule out.", examples=[3])


class ReinforcementPlanDocument(ValueDocument[ReinforcementPlan]):
    """Both parts on their nodes, the step, and the splits that lost."""

    result: Annotated[Literal["reinforcement_plan"], Given()] = Field(
        "reinforcement_plan", description="no_reinforcement_plan: nothing fits."
    )
    model: Annotated[str, Holds("architecture.name")] = Field(description="The policy.", examples=["llama-3.1-8b"])
    architecture: ArchitectureDocument = Field(description="The policy in full.")
    workload: Annotated[ReinforcementWorkloadDocument, Given()] = Field(description="The steps it was made for.")
    arrangement: Arrangement = Field(description="colocated or separate.", examples=["colocated"])
    training_nodes: list[str] = Field(description="Nodes of the trainer.", examples=[["cnode2-001"]])
    rollout_nodes: list[str] = Field(description="Nodes of the engine.", examples=[["cnode2-002"]])
    time: Annotated[StepPartsDocument, Holds("parts")] = Field(description="Predicted step by part.")
    responses_per_s: float = Field(description="Responses generated and learned from a second.", examples=[17.3])
    rollout: RolloutDocument = Field(description="The batch on the engine's replicas.")
    weights: WeightMoveDocument = Field(description="What passes between the parts.")
    memory: SharedMemoryDocument | None = Field(
        description="Memory that both parts use in turns; null where they have nodes of their own."
    )
    certificate: JointCertificateDocument = Field(description="How far from optimal the step can be.")
    splits: list[SplitDocument] = Field(description="All ways to share the nodes out, by their bounds.")
    training: PlanDocument = Field(description="One update of the trainer in full.")
    serving: Annotated[ServingPlanDocument, Given()] = Field(description="The engine's replicas in full.")
    provenance: ProvenanceDocument = Field(description="What the plan was made from.")

    @classmethod
    def from_plan(cls, plan: ReinforcementPlan) -> ReinforcementPlanDocument:
        """The document of a domain value, without the timeline of an update."""
        return cls.from_value(
            plan,
            workload=ReinforcementWorkloadDocument.from_value(plan.workload, plan.architecture),
            training=PlanDocument.from_plan(plan.training, timeline=False),
            serving=ServingPlanDocument.from_plan(plan.serving),
        )

    def to_value(self) -> ReinforcementPlan:
        """The domain value; raises what the values' own checks raise."""
        return ReinforcementPlan(
            **self.attributes() | {"workload": self.workload.to_value(), "serving": self.serving.to_plan()}
        )


class NoReinforcementPlanDocument(ValueDocument[NoReinforcementPlan]):
    """Nothing fits: every split, with the part that does not."""

    result: Annotated[Literal["no_reinforcement_plan"], Given()] = Field(
        "no_reinforcement_plan", description="reinforcement_plan: something fits."
    )
    splits: list[SplitDocument] = Field(description="All ways to share the nodes out, and what does not fit.")
    provenance: ProvenanceDocument = Field(description="What the answer was made from.")


def reinforcement_document(
    result: ReinforcementPlan | NoReinforcementPlan,
) -> ReinforcementPlanDocument | NoReinforcementPlanDocument:
    """The document of whatever the planner returns."""
    if isinstance(result, NoReinforcementPlan):
        return NoReinforcementPlanDocument.from_value(result)
    return ReinforcementPlanDocument.from_plan(result)


def exported_plan_from_text(text: str, *, what: str = "plan") -> Plan | ServingPlan | ReinforcementPlan:
    """The plan of whatever kind in a text that formats are for; raises ``InvalidInput`` for anything else."""
    data = parse_text(text, what=what)
    kind = data.get("result") if isinstance(data, Mapping) else None
    if kind == "no_reinforcement_plan":
        raise InvalidInput(what, kind, "says that nothing fits: there is nothing to export")
    if kind == "reinforcement_plan":
        return read_document(ReinforcementPlanDocument, data, what=what).to_value()
    return any_plan_from_text(text, what=what)
