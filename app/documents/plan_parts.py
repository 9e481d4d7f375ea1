"""The parts of a plan document: time, memory, ranks, certificate, alternatives, timeline, provenance."""

from __future__ import annotations

from pydantic import Field

from app.documents.configuration import ConfigurationDocument
from app.documents.reading import Document
from cluster_models.failure_domains import FailureDomainLosses
from cluster_models.plan import (
    MEMORY_PARTS,
    Alternative,
    Certificate,
    Confidence,
    Provenance,
    RankPlace,
    StageMemory,
    StageTime,
    StopReason,
    TimeBreakdown,
    TimelineEvent,
)
from cluster_models.units import GIB
from cluster_models.workload import LinkBandwidth


class TimeDocument(Document):
    """The step of the busiest pipeline rank; the parts add up to ``step_time_s``."""

    step_time_s: float = Field(description="Predicted seconds of one optimizer step.", examples=[12.4])
    compute_s: float = Field(description="Matrix products, attention and memory-bound work.", examples=[8.9])
    tensor_s: float = Field(description="Tensor parallel collectives that nothing hides.", examples=[0.9])
    context_s: float = Field(description="Context parallel traffic that nothing hides.", examples=[0.0])
    expert_s: float = Field(description="Expert all-to-alls that nothing hides.", examples=[0.0])
    pipeline_bubble_s: float = Field(description="Idle time with transfers at no cost.", examples=[1.5])
    pipeline_transfer_s: float = Field(description="What transfers between stages add.", examples=[0.1])
    data_exposed_s: float = Field(description="Gradient and parameter traffic not hidden.", examples=[0.8])
    optimizer_s: float = Field(description="The optimizer step itself.", examples=[0.2])

    def to_time(self) -> TimeBreakdown:
        """The domain value."""
        values = self.model_dump()
        return TimeBreakdown(step_s=values.pop("step_time_s"), **values)

    @classmethod
    def from_time(cls, time: TimeBreakdown) -> TimeDocument:
        """The document of a domain value."""
        parts = {name: getattr(time, name) for name in cls.model_fields if name != "step_time_s"}
        return cls(step_time_s=time.step_s, **parts)


class StageDocument(Document):
    """One micro-batch on one pipeline rank, all its virtual stages together."""

    stage: int = Field(description="Pipeline rank.", examples=[0])
    forward_s: float = Field(description="Forward seconds.", examples=[0.031])
    backward_s: float = Field(description="Backward seconds.", examples=[0.064])
    data_parallel_s: float = Field(description="Gradient and parameter traffic of a step.", examples=[0.4])
    gpu_kind: str = Field("", description="GPUs that the stage runs on.", examples=["H100-SXM5-80GB"])

    def to_stage(self) -> StageTime:
        """The domain value."""
        return StageTime(**self.model_dump())

    @classmethod
    def from_stage(cls, stage: StageTime) -> StageDocument:
        """The document of a domain value."""
        return cls(**{name: getattr(stage, name) for name in cls.model_fields})


class SurvivedLossesDocument(Document):
    """How many failure domains of one kind may be lost together, whichever, with all training state alive."""

    label: str = Field(description="What joins nodes to a domain: node, leaf, rack, ...", examples=["leaf"])
    count: int = Field(description="Domains that may be lost.", examples=[1])
    domains: int = Field(description="Domains that the plan uses.", examples=[4])
    weakest: list[str] = Field(
        description="Domains whose loss together takes the last copy of something.", examples=[["leaf-0", "leaf-1"]]
    )

    def to_losses(self) -> FailureDomainLosses:
        """The domain value."""
        return FailureDomainLosses(self.label, self.count, self.domains, tuple(self.weakest))

    @classmethod
    def from_losses(cls, losses: FailureDomainLosses) -> SurvivedLossesDocument:
        """The document of a domain value."""
        return cls(label=losses.label, count=losses.count, domains=losses.domains, weakest=list(losses.weakest))


class MemoryDocument(Document):
    """Predicted peak of each GPU of one pipeline rank, in GiB; the parts add up to ``total_gib``."""

    stage: int = Field(description="Pipeline rank.", examples=[0])
    weights_gib: float = Field(description="Parameters.", examples=[8.2])
    gradients_gib: float = Field(description="Gradients.", examples=[16.4])
    optimizer_gib: float = Field(description="Optimizer states and master weights.", examples=[12.3])
    activations_gib: float = Field(description="Activations of the micro-batches in flight.", examples=[20.1])
    logits_gib: float = Field(description="Logits and loss buffers.", examples=[0.0])
    communication_gib: float = Field(description="Communication buffers.", examples=[1.5])
    runtime_gib: float = Field(description="Driver context, libraries, workspaces.", examples=[1.2])
    fragmentation_gib: float = Field(description="What the allocator cannot use.", examples=[1.0])
    total_gib: float = Field(description="All parts together.", examples=[60.7])
    limit_gib: float = Field(description="What may be used.", examples=[75.2])

    def to_memory(self) -> StageMemory:
        """The domain value; the total follows from its parts."""
        parts = {part: getattr(self, _in_gib(part)) * GIB for part in MEMORY_PARTS}
        return StageMemory(stage=self.stage, limit_bytes=self.limit_gib * GIB, **parts)

    @classmethod
    def from_memory(cls, memory: StageMemory) -> MemoryDocument:
        """The document of a domain value."""
        parts = {_in_gib(part): getattr(memory, part) / GIB for part in MEMORY_PARTS}
        return cls(
            stage=memory.stage,
            total_gib=memory.total_bytes / GIB,
            limit_gib=memory.limit_bytes / GIB,
            **parts,
        )


def _in_gib(part: str) -> str:
    """What a part of a GPU's memory is called where it is counted in GiB."""
    return part.removesuffix("_bytes") + "_gib"


class RankDocument(Document):
    """Where one rank sits, and its coordinates."""

    rank: int = Field(description="Global rank.", examples=[0])
    node: str = Field(description="Host.", examples=["cnode2-001"])
    gpu: int = Field(description="GPU of the host.", examples=[0])
    tensor: int = Field(description="Tensor parallel rank.", examples=[0])
    context: int = Field(description="Context parallel rank.", examples=[0])
    data: int = Field(description="Data parallel rank.", examples=[0])
    pipeline: int = Field(description="Pipeline rank.", examples=[0])

    def to_rank(self) -> RankPlace:
        """The domain value."""
        return RankPlace(**self.model_dump())

    @classmethod
    def from_rank(cls, place: RankPlace) -> RankDocument:
        """The document of a domain value."""
        return cls(**{name: getattr(place, name) for name in cls.model_fields})


class CertificateDocument(Document):
    """How far from optimal the plan can be, within the cost model."""

    objective: float = Field(description="Objective of the plan, in its own unit.", examples=[12.4])
    bound: float = Field(description="No plan of the search space can be below.", examples=[12.39])
    gap: float = Field(description="(objective - bound) / objective.", examples=[0.001])
    stopped_by: StopReason = Field(description="What ended the search.", examples=["proven"])
    candidates_total: int = Field(description="Legal combinations of degrees.", examples=[5120])
    candidates_infeasible: int = Field(description="Of these, too large for the memory.", examples=[2311])
    candidates_pruned: int = Field(description="Of these, ruled out by their bound.", examples=[2790])
    candidates_placed: int = Field(description="Of these, placed on the cluster.", examples=[19])
    solver: str = Field(description="Integer programming solver.", examples=["cbc 2.10.3"])
    explanation: str = Field(description="The proof in words.", examples=["Nothing left can beat 12.39 s."])

    def to_certificate(self) -> Certificate:
        """The domain value."""
        return Certificate(**self.model_dump())

    @classmethod
    def from_certificate(cls, certificate: Certificate) -> CertificateDocument:
        """The document of a domain value."""
        return cls(**{name: getattr(certificate, name) for name in cls.model_fields})


class AlternativeDocument(Document):
    """A configuration that lost, and why."""

    configuration: ConfigurationDocument = Field(description="What it is.")
    step_time_s: float = Field(description="Its predicted step time.", examples=[12.9])
    slower_by_fraction: float = Field(description="How much worse it is; 0.04 = 4 %.", examples=[0.04])
    peak_memory_gib: float = Field(description="Its highest memory on one GPU.", examples=[70.3])
    reason: str = Field(
        description="Why it lost; gains and losses add up.", examples=["waits longer for its pipeline"]
    )
    time: TimeDocument | None = Field(None, description="Its step by part, where it was placed.", examples=[None])

    def to_alternative(self) -> Alternative:
        """The domain value."""
        return Alternative(
            configuration=self.configuration.to_bare_configuration(),
            step_s=self.step_time_s,
            slower_by=self.slower_by_fraction,
            peak_memory_bytes=self.peak_memory_gib * GIB,
            reason=self.reason,
            time=self.time.to_time() if self.time else None,
        )

    @classmethod
    def from_alternative(cls, alternative: Alternative) -> AlternativeDocument:
        """The document of a domain value."""
        return cls(
            configuration=ConfigurationDocument.from_configuration(alternative.configuration),
            step_time_s=alternative.step_s,
            slower_by_fraction=alternative.slower_by,
            peak_memory_gib=alternative.peak_memory_bytes / GIB,
            reason=alternative.reason,
            time=alternative.time and TimeDocument.from_time(alternative.time),
        )


class StepIntervalDocument(Document):
    """How sure the step time is, from the errors of predictions on measured runs."""

    low_s: float = Field(description="Lower end of the interval of the step time.", examples=[11.9])
    high_s: float = Field(description="Upper end.", examples=[13.2])
    level_fraction: float = Field(
        description="Share of measured steps expected inside; 0.8 = 80 %.", examples=[0.8]
    )
    family: str = Field(
        description="The measured runs whose errors were taken.", examples=["nemo-25.02 on H100, dense models"]
    )
    runs: int = Field(description="How many there are.", examples=[31])
    outside_calibration: list[str] = Field(
        description="In what the plan is unlike any of them.",
        examples=[["Tensor parallel size 16 lies outside the calibrated 1..8."]],
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

    def to_confidence(self) -> Confidence:
        """The domain value."""
        return Confidence(
            step_low_s=self.low_s,
            step_high_s=self.high_s,
            level=self.level_fraction,
            family=self.family,
            runs=self.runs,
            outside=tuple(self.outside_calibration),
            independent_runs=self.independent_runs,
            doublings_outside=self.doublings_outside,
        )

    @classmethod
    def from_confidence(cls, confidence: Confidence) -> StepIntervalDocument:
        """The document of a domain value."""
        return cls(
            low_s=confidence.step_low_s,
            high_s=confidence.step_high_s,
            level_fraction=confidence.level,
            family=confidence.family,
            runs=confidence.runs,
            outside_calibration=list(confidence.outside),
            independent_runs=confidence.independent_runs,
            doublings_outside=confidence.doublings_outside,
        )


class TimelineEventDocument(Document):
    """One box of the predicted schedule."""

    name: str = Field(description="What runs.", examples=["F0"])
    category: str = Field(description="Kind of work.", examples=["forward"])
    replica: int = Field(description="Data parallel rank.", examples=[0])
    stage: int = Field(description="Pipeline rank.", examples=[0])
    start_s: float = Field(description="Start in the step.", examples=[0.0])
    duration_s: float = Field(description="How long.", examples=[0.031])

    def to_event(self) -> TimelineEvent:
        """The domain value."""
        return TimelineEvent(self.name, self.category, self.replica, self.stage, self.start_s, self.duration_s)

    @classmethod
    def from_event(cls, event: TimelineEvent) -> TimelineEventDocument:
        """The document of a domain value."""
        return cls(
            name=event.name,
            category=event.category,
            replica=event.replica,
            stage=event.track,
            start_s=event.start_s,
            duration_s=event.duration_s,
        )


class ProvenanceDocument(Document):
    """What the plan was made from; the same values give the same plan."""

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

    def to_provenance(self) -> Provenance:
        """The domain value."""
        return Provenance(**self.model_dump())

    @classmethod
    def from_provenance(cls, provenance: Provenance) -> ProvenanceDocument:
        """The document of a domain value."""
        return cls(**{name: getattr(provenance, name) for name in cls.model_fields})
