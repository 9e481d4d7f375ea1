"""The parts of a plan document: time, memory, ranks, certificate, alternatives, timeline, provenance."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.documents.configuration import ConfigurationDocument, DegreesDocument
from app.documents.remarks import RemarkDocument
from app.documents.values import Computed, Holds, ValueDocument
from app.presentation.proof import explanation_of
from cluster_models.training.failure_domains import FailureDomainLosses
from cluster_models.training.plan import (
    Alternative,
    BusiestStage,
    Certificate,
    Confidence,
    Provenance,
    RankPlace,
    StopReason,
    TimelineEvent,
    TradeOff,
)
from cluster_models.training.rank_costs import StageMemory, StageTime, TimeBreakdown
from cluster_models.training.workload import LinkBandwidth
from cluster_models.units import GIB


class TimeDocument(ValueDocument[TimeBreakdown]):
    """The step of the busiest pipeline rank; the parts add up to ``step_time_s``."""

    step_time_s: Annotated[float, Holds("step_s")] = Field(
        description="Predicted seconds of one optimizer step.", examples=[12.4]
    )
    compute_s: float = Field(description="Matrix products, attention and memory-bound work.", examples=[8.9])
    tensor_s: float = Field(description="Tensor parallel collectives that nothing hides.", examples=[0.9])
    context_s: float = Field(description="Context parallel traffic that nothing hides.", examples=[0.0])
    expert_s: float = Field(description="Expert all-to-alls that nothing hides.", examples=[0.0])
    pipeline_bubble_s: float = Field(description="Idle time with transfers at no cost.", examples=[1.5])
    pipeline_transfer_s: float = Field(description="What transfers between stages add.", examples=[0.1])
    data_exposed_s: float = Field(description="Gradient and parameter traffic not hidden.", examples=[0.8])
    optimizer_s: float = Field(description="The optimizer step itself.", examples=[0.2])
    offload_s: float = Field(
        0.0, description="The optimizer step in the node's memory, with transfers not hidden.", examples=[0.0]
    )


class StageDocument(ValueDocument[StageTime]):
    """One micro-batch on one pipeline rank, all its virtual stages together."""

    stage: int = Field(description="Pipeline rank.", examples=[0])
    forward_s: float = Field(description="Forward seconds.", examples=[0.031])
    backward_s: float = Field(description="Backward seconds.", examples=[0.064])
    data_parallel_s: float = Field(description="Gradient and parameter traffic of a step.", examples=[0.4])
    gpu_kind: str = Field("", description="GPUs that the stage runs on.", examples=["H100-SXM5-80GB"])
    time: TimeDocument | None = Field(
        None, description="Parts of the step on this rank, in the replica that ends last."
    )


class SurvivedLossesDocument(ValueDocument[FailureDomainLosses]):
    """How many failure domains of one kind may be lost together, whichever, with all training state alive."""

    label: str = Field(description="What joins nodes to a domain: node, leaf, rack, ...", examples=["leaf"])
    count: int = Field(description="Domains that may be lost.", examples=[1])
    domains: int = Field(description="Domains that the plan uses.", examples=[4])
    weakest: list[str] = Field(
        description="Domains whose loss together takes the last copy of something.", examples=[["leaf-0", "leaf-1"]]
    )


class MemoryDocument(ValueDocument[StageMemory]):
    """Predicted peak of each GPU of one pipeline rank, in GiB; the parts add up to ``total_gib``."""

    stage: int = Field(description="Pipeline rank.", examples=[0])
    weights_gib: Annotated[float, Holds("weights_bytes", GIB)] = Field(description="Parameters.", examples=[8.2])
    gradients_gib: Annotated[float, Holds("gradients_bytes", GIB)] = Field(
        description="Gradients.", examples=[16.4]
    )
    optimizer_gib: Annotated[float, Holds("optimizer_bytes", GIB)] = Field(
        description="Optimizer states and master weights.", examples=[12.3]
    )
    activations_gib: Annotated[float, Holds("activations_bytes", GIB)] = Field(
        description="Activations of the micro-batches in flight.", examples=[20.1]
    )
    logits_gib: Annotated[float, Holds("logits_bytes", GIB)] = Field(
        description="Logits and loss buffers.", examples=[0.0]
    )
    communication_gib: Annotated[float, Holds("communication_bytes", GIB)] = Field(
        description="Communication buffers.", examples=[1.5]
    )
    runtime_gib: Annotated[float, Holds("runtime_bytes", GIB)] = Field(
        description="Driver context, libraries, workspaces.", examples=[1.2]
    )
    fragmentation_gib: Annotated[float, Holds("fragmentation_bytes", GIB)] = Field(
        description="What the allocator cannot use.", examples=[1.0]
    )
    total_gib: Annotated[float, Holds("total_bytes", GIB)] = Field(
        description="All parts together.", examples=[60.7]
    )
    limit_gib: Annotated[float, Holds("limit_bytes", GIB)] = Field(description="What may be used.", examples=[75.2])
    host_gib: Annotated[float, Holds("host_bytes", GIB)] = Field(
        0.0, description="Optimizer states in the node's memory, no part of the total.", examples=[0.0]
    )
    disk_gib: Annotated[float, Holds("disk_bytes", GIB)] = Field(
        0.0, description="Optimizer states on the node's disks, no part of the total.", examples=[0.0]
    )


class RankDocument(ValueDocument[RankPlace]):
    """GPU of one rank, and its coordinates."""

    rank: int = Field(description="Global rank.", examples=[0])
    node: str = Field(description="Host.", examples=["cnode2-001"])
    gpu: int = Field(description="GPU of the host.", examples=[0])
    tensor: int = Field(description="Tensor parallel rank.", examples=[0])
    context: int = Field(description="Context parallel rank.", examples=[0])
    data: int = Field(description="Data parallel rank.", examples=[0])
    pipeline: int = Field(description="Pipeline rank.", examples=[0])


class CertificateDocument(ValueDocument[Certificate]):
    """How far from optimal the plan can be, within the cost model."""

    objective: float = Field(description="Objective of the plan, in its own unit.", examples=[12.4])
    bound: float = Field(description="No plan of the search space can be below.", examples=[12.39])
    gap: float = Field(description="(objective - bound) / objective.", examples=[0.001])
    stopped_by: StopReason = Field(description="What ended the search.", examples=["proven"])
    candidates_total: int = Field(description="Legal combinations of degrees.", examples=[5120])
    candidates_infeasible: int = Field(description="Candidates too large for the memory.", examples=[2311])
    candidates_pruned: int = Field(description="Candidates ruled out by their bound.", examples=[2790])
    candidates_placed: int = Field(description="Candidates placed on the cluster.", examples=[19])
    solver: str = Field(description="Integer programming solver.", examples=["cbc 2.10.3"])
    explanation: Annotated[str, Computed(explanation_of)] = Field(
        "", description="The proof in words.", examples=["Nothing left can beat 12.39 s."]
    )
    limits: list[RemarkDocument] = Field(
        default_factory=list, description="Limits of the space that was searched.", examples=[[]]
    )
    unpriced_candidates: Annotated[int, Holds("unpriced")] = Field(
        0, description="Candidates that there was no time to price; none of them beats bound.", examples=[0]
    )
    unlisted_gpu_counts: Annotated[int, Holds("unlisted")] = Field(
        0, description="Numbers of GPUs whose candidates there was no time to list.", examples=[0]
    )
    basis: RemarkDocument | None = Field(
        None, description="Origin of the configuration where nothing was searched.", examples=[None]
    )


class BusiestStageDocument(ValueDocument[BusiestStage]):
    """The pipeline stage that the parts of a step are told of."""

    stage: int = Field(description="Its number, from 0.", examples=[1])
    nodes: list[str] = Field(description="Nodes that it lies on.", examples=[["n3", "n7"]])
    micro_batch_s: float = Field(description="Seconds of one micro-batch on it.", examples=[0.136])
    median_micro_batch_s: Annotated[float, Holds("median_s")] = Field(
        description="The same on the median stage.", examples=[0.07]
    )


class AlternativeDocument(ValueDocument[Alternative]):
    """A configuration that lost, and why."""

    configuration: ConfigurationDocument = Field(description="What it is.")
    step_time_s: Annotated[float, Holds("step_s")] = Field(description="Its predicted step time.", examples=[12.9])
    slower_by_fraction: Annotated[float, Holds("slower_by")] = Field(
        description="How much worse it is; 0.04 = 4 %.", examples=[0.04]
    )
    peak_memory_gib: Annotated[float, Holds("peak_memory_bytes", GIB)] = Field(
        description="Its highest memory on one GPU.", examples=[70.3]
    )
    reason: RemarkDocument = Field(description="Why it lost; gains and losses add up.")
    time: TimeDocument | None = Field(None, description="Its step by part, where it was placed.", examples=[None])
    busiest: BusiestStageDocument | None = Field(
        None, description="The stage that these parts are of, and where it lies.", examples=[None]
    )


class TradeOffDocument(ValueDocument[TradeOff]):
    """A candidate that fits into memory, as a point of time against memory."""

    degrees: DegreesDocument = Field(description="Sizes of its parallel groups.")
    micro_batch_sequences: Annotated[int, Holds("micro_batch")] = Field(
        description="Sequences of one micro-batch.", examples=[1]
    )
    step_bound_s: float = Field(description="A step time that no placement of it beats.", examples=[12.1])
    spare_gib: Annotated[float, Holds("spare_bytes", GIB)] = Field(
        description="What its fullest GPU has left below the limit.", examples=[7.4]
    )
    on_frontier: bool = Field(description="Whether no other is as fast and leaves more.", examples=[True])


class StepIntervalDocument(ValueDocument[Confidence]):
    """How sure the step time is, from the errors of predictions on measured runs."""

    low_s: Annotated[float, Holds("step_low_s")] = Field(
        description="Lower end of the interval of the step time.", examples=[11.9]
    )
    high_s: Annotated[float, Holds("step_high_s")] = Field(description="Upper end.", examples=[13.2])
    level_fraction: Annotated[float, Holds("level")] = Field(
        description="Share of measured steps expected inside; 0.8 = 80 %.", examples=[0.8]
    )
    family: str = Field(
        description="The measured runs whose errors were taken.", examples=["nemo-25.02 on H100, dense models"]
    )
    runs: int = Field(description="How many there are.", examples=[31])
    outside_calibration: Annotated[list[RemarkDocument], Holds("outside")] = Field(
        description="In what the plan is unlike any of them."
    )

    independent_runs: float = Field(
        0.0,
        description="Independent runs that they are worth, since runs of one source err together; 0: not known.",
        examples=[11.4],
    )
    doublings_outside: float = Field(
        0.0,
        description="By how many doublings of a size, or settings never met, the plan lies outside of them.",
        examples=[0.0],
    )


class TimelineEventDocument(ValueDocument[TimelineEvent]):
    """One box of the predicted schedule."""

    name: str = Field(description="What runs.", examples=["F0"])
    category: str = Field(description="Kind of work.", examples=["forward"])
    replica: int = Field(description="Data parallel rank.", examples=[0])
    stage: Annotated[int, Holds("track")] = Field(description="Pipeline rank.", examples=[0])
    start_s: float = Field(description="Start in the step.", examples=[0.0])
    duration_s: float = Field(description="How long.", examples=[0.031])


class ProvenanceDocument(ValueDocument[Provenance]):
    """Inputs of the plan; the same values give the same plan."""

    product_version: str = Field(description="Version of this product.", examples=["0.1.0"])
    cost_model_version: str = Field(description="Version of the cost model.", examples=["1"])
    cluster_name: str = Field(description="The cluster.", examples=["h100-17-nodes"])
    snapshot_id: str = Field(description="Its version.", examples=["8f0c2a6b1d3e4f50"])
    seed: int = Field(description="Seed of the search.", examples=[0])
    effort: int = Field(description="Effort of the search.", examples=[1])
    solver_versions: dict[str, str] = Field(description="Solver libraries.", examples=[{"pulp": "3.3.0"}])
    calibration: str = Field(
        "",
        description="Name and content hash of the own calibration; empty: the shipped parameters.",
        examples=["our-h100 3f2a91c0d4e5b6a7"],
    )
    link_bandwidth: LinkBandwidth = Field(
        LinkBandwidth.MEDIAN, description="What links counted as having.", examples=["median"]
    )
