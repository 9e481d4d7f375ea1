"""The parts of a serving plan document: replicas, groups, figures, certificate, alternatives, front."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.documents.values import Holds, ValueDocument
from cluster_models.serving.figures import (
    ClassLatencies,
    Interval,
    LimitedLatencies,
    Percentiles,
    Replay,
    StepShares,
)
from cluster_models.serving.plan import (
    FrontPoint,
    IdleGpus,
    IdleReason,
    LossReason,
    ModelFigures,
    ServingAlternative,
    ServingCertificate,
    ServingWarning,
    ServingWarningKind,
)
from cluster_models.serving.refusal import NearestServing, Remedy, RemedyKind
from cluster_models.serving.replicas import CacheTransfer, GpuPlace, Phase, Replica, ReplicaGroup, ReplicaMemory
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker
from cluster_models.training.plan import StopReason
from cluster_models.units import GBYTE, GIB, MILLISECOND


class LatencyDocument(ValueDocument[Interval]):
    """A latency and the range that four measurements in five fall into, in milliseconds."""

    value_ms: Annotated[float, Holds("value", MILLISECOND)] = Field(description="Prediction.", examples=[412.0])
    low_ms: Annotated[float, Holds("low", MILLISECOND)] = Field(description="Lower end.", examples=[350.0])
    high_ms: Annotated[float, Holds("high", MILLISECOND)] = Field(description="Upper end.", examples=[480.0])


class ThroughputDocument(ValueDocument[Interval]):
    """Output tokens a second and the range that four measurements in five fall into."""

    value: float = Field(description="Prediction.", examples=[2500.0])
    low: float = Field(description="Lower end.", examples=[2300.0])
    high: float = Field(description="Upper end.", examples=[2700.0])


class PowerDocument(ValueDocument[Interval]):
    """Watts and the range that four measurements in five fall into."""

    value: float = Field(description="Estimate.", examples=[2100.0])
    low: float = Field(description="Lower end.", examples=[1650.0])
    high: float = Field(description="Upper end, at most the boards' power or caps.", examples=[2670.0])


class StepSharesDocument(ValueDocument[StepShares]):
    """Milliseconds of one step by part."""

    total_ms: Annotated[float, Holds("total_s", MILLISECOND)] = Field(description="All parts.", examples=[18.0])
    dense_products_ms: Annotated[float, Holds("dense_s", MILLISECOND)] = Field(
        description="Attention projections, dense MLPs, shared experts, output layer.", examples=[9.0]
    )
    experts_ms: Annotated[float, Holds("expert_s", MILLISECOND)] = Field(
        description="Routed experts.", examples=[0.0]
    )
    attention_ms: Annotated[float, Holds("attention_s", MILLISECOND)] = Field(
        description="Attention over the cache.", examples=[4.0]
    )
    collectives_ms: Annotated[float, Holds("collective_s", MILLISECOND)] = Field(
        description="Traffic between GPUs.", examples=[2.0]
    )
    overhead_ms: Annotated[float, Holds("overhead_s", MILLISECOND)] = Field(
        description="Launches, scheduling, sampling and host work.", examples=[3.0]
    )


class WorkerDocument(ValueDocument[Worker]):
    """Degrees of one copy of the model."""

    tensor: int = Field(description="Tensor parallel GPUs.", examples=[4])
    pipeline: int = Field(description="Pipeline stages.", examples=[1])
    attention_data: int = Field(description="Attention data parallel ranks.", examples=[1])
    expert: int = Field(description="Groups of GPUs among which experts are divided.", examples=[1])


class PlannedPoolDocument(ValueDocument[Pool]):
    """Equal workers."""

    worker: WorkerDocument = Field(description="Degrees of each.")
    replicas: int = Field(description="How many.", examples=[2])


class PlannedConfigurationDocument(ValueDocument[ServingConfiguration]):
    """Workers that do both phases (decode alone), or a pool for each."""

    decode: PlannedPoolDocument = Field(description="Workers that decode; without prefill they do both phases.")
    prefill: PlannedPoolDocument | None = Field(description="Workers that prefill only.")


class ClassLatenciesDocument(ValueDocument[ClassLatencies]):
    """The same in one class of requests."""

    name: str = Field(description="The class.", examples=["chat"])
    time_to_first_token_ms: Annotated[float, Holds("first_token_s", MILLISECOND)] = Field(
        description="Time to the first token.", examples=[480.0]
    )
    time_per_output_token_ms: Annotated[float, Holds("token_s", MILLISECOND)] = Field(
        description="Time per output token after the first.", examples=[24.0]
    )
    end_to_end_ms: Annotated[float, Holds("answer_s", MILLISECOND)] = Field(
        description="Time to the last token.", examples=[25000.0]
    )


class LimitedLatenciesDocument(ValueDocument[LimitedLatencies]):
    """Latencies that the limits hold for: means, or the percentile of the workload, in milliseconds."""

    time_to_first_token_ms: Annotated[float, Holds("first_token_s", MILLISECOND)] = Field(
        description="Time to the first token.", examples=[480.0]
    )
    time_per_output_token_ms: Annotated[float, Holds("token_s", MILLISECOND)] = Field(
        description="Time per output token after the first.", examples=[24.0]
    )
    end_to_end_ms: Annotated[float, Holds("answer_s", MILLISECOND)] = Field(
        description="Time to the last token.", examples=[25000.0]
    )
    classes: list[ClassLatenciesDocument] = Field(
        [], description="Those of each class, at its own percentile.", examples=[[]]
    )


class GpuPlaceDocument(ValueDocument[GpuPlace]):
    """GPUs of one node, in the order of their ranks."""

    node: str = Field(description="Host.", examples=["cnode2-001"])
    gpus: list[int] = Field(description="Numbers of its GPUs, as CUDA_VISIBLE_DEVICES.", examples=[[0, 1, 2, 3]])


class ReplicaMemoryDocument(ValueDocument[ReplicaMemory]):
    """Memory of each GPU of a replica, in GiB."""

    gpu_gib: Annotated[float, Holds("gpu_bytes", GIB)] = Field(description="Memory of the GPU.", examples=[80.0])
    weights_gib: Annotated[float, Holds("weight_bytes", GIB)] = Field(description="Weights.", examples=[33.0])
    steps_gib: Annotated[float, Holds("step_bytes", GIB)] = Field(
        description="Activations of a step and what the engine reserves.", examples=[5.0]
    )
    cache_gib: Annotated[float, Holds("cache_bytes", GIB)] = Field(
        description="Kept for keys and values.", examples=[34.0]
    )
    cache_of_a_request_gib: Annotated[float, Holds("sequence_bytes", GIB)] = Field(
        description="Mean cache of one request.", examples=[0.2]
    )
    most_requests: Annotated[int, Holds("most_sequences")] = Field(
        description="Requests that the whole replica holds at once.", examples=[170]
    )


class ReplicaDocument(ValueDocument[Replica]):
    """One worker on its GPUs."""

    number: int = Field(description="Number of the replica in the plan.", examples=[0])
    phase: Phase = Field(description="Part of a request's work that it does.", examples=["both"])
    worker: WorkerDocument = Field(description="Its degrees.")
    gpu_kind: str = Field(description="Kind of its GPUs.", examples=["H100-SXM5-80GB"])
    places: list[GpuPlaceDocument] = Field(
        description="Its GPUs in rank order: pipeline stages slowest, then attention data ranks, tensor fastest."
    )
    share: float = Field(description="Its part of the requests to its model and phase.", examples=[0.5])
    sequences: float = Field(description="Requests that it works on at once, on average.", examples=[31.5])
    sequence_limit: int = Field(description="Most sequences of an attention rank at once.", examples=[64])
    token_limit: int = Field(description="Most tokens of a step.", examples=[8192])
    memory: ReplicaMemoryDocument = Field(description="Memory of each of its GPUs.")
    prefill: StepSharesDocument | None = Field(description="One prompt; null where it does not prefill.")
    decode: StepSharesDocument | None = Field(description="One decode step; null where it does not decode.")
    power_cap_watts: float | None = Field(None, description="Power cap of each GPU; null: none.", examples=[None])


class CacheTransferDocument(ValueDocument[CacheTransfer]):
    """The cache of one prompt on its way to a decode replica."""

    cache_gib: Annotated[float, Holds("cache_bytes", GIB)] = Field(description="Its size.", examples=[0.4])
    bandwidth_gbytes_per_s: Annotated[float, Holds("bytes_per_s", GBYTE)] = Field(
        description="Slowest link of the group, in 10^9 bytes a second.", examples=[48.0]
    )
    time_ms: Annotated[float, Holds("seconds", MILLISECOND)] = Field(
        description="How long it takes.", examples=[9.0]
    )
    crosses_nodes: bool = Field(description="Whether it leaves the node.", examples=[True])


class ReplicaGroupDocument(ValueDocument[ReplicaGroup]):
    """Replicas that answer requests to one model together."""

    model: int = Field(description="Index in models.", examples=[0])
    replicas: list[ReplicaDocument] = Field(description="Its replicas.")
    share: float = Field(description="Its part of the requests to the model.", examples=[0.5])
    concurrency: float = Field(description="Requests in flight.", examples=[32.0])
    requests_per_s: float = Field(description="Requests answered a second.", examples=[1.9])
    most_requests_per_s: float = Field(description="Most that it answers within the limits.", examples=[2.6])
    time_to_first_token: Annotated[LatencyDocument, Holds("first_token_s")] = Field(description="Mean.")
    time_per_output_token: Annotated[LatencyDocument, Holds("token_s")] = Field(
        description="Mean, after the first token."
    )
    output_tokens_per_s: ThroughputDocument = Field(description="Output of the group.")
    limited: Annotated[LimitedLatenciesDocument, Holds("limited_s")] = Field(
        description="Latencies that the limits hold for: means, or the workload's limit_percentile of the requests."
    )
    transfer: CacheTransferDocument | None = Field(description="Way of the cache; null where phases share GPUs.")
    drawn_watts: PowerDocument | None = Field(
        None, description="Mean power of its GPUs as they serve, estimated; null in plans that did not say it."
    )


class LatencyPercentilesDocument(ValueDocument[Percentiles]):
    """Milliseconds that half, nine in ten and 99 in 100 requests do not exceed."""

    p50_ms: Annotated[float, Holds("p50_s", MILLISECOND)] = Field(description="Half of them.", examples=[300.0])
    p90_ms: Annotated[float, Holds("p90_s", MILLISECOND)] = Field(description="Nine in ten.", examples=[700.0])
    p99_ms: Annotated[float, Holds("p99_s", MILLISECOND)] = Field(description="99 in 100.", examples=[1500.0])


class ReplayDocument(ValueDocument[Replay]):
    """The workload's trace, or requests drawn from its classes, simulated step by step beside the closed form."""

    requests: int = Field(description="Requests simulated.", examples=[19366])
    time_to_first_token: Annotated[LatencyPercentilesDocument, Holds("first_token")] = Field(
        description="Simulated."
    )
    time_per_output_token: Annotated[LatencyPercentilesDocument, Holds("token")] = Field(
        description="Simulated, of answers of more than one token."
    )
    expected_time_to_first_token: Annotated[LatencyPercentilesDocument, Holds("expected_first_token")] = Field(
        description="By the closed form."
    )
    expected_time_per_output_token: Annotated[LatencyPercentilesDocument, Holds("expected_token")] = Field(
        description="By the closed form."
    )
    limited: Annotated[LimitedLatenciesDocument, Holds("limited_s")] = Field(
        description="Simulated latencies that the limits hold for: means, or the limit_percentile."
    )


class ModelFiguresDocument(ValueDocument[ModelFigures]):
    """Prediction for all requests to one model."""

    model: int = Field(description="Index in models.", examples=[0])
    gpus: int = Field(description="GPUs that serve it.", examples=[8])
    concurrency: float = Field(description="Requests in flight.", examples=[64.0])
    requests_per_s: float = Field(description="Requests answered a second.", examples=[3.8])
    most_requests_per_s: float = Field(description="Most that are answered within the limits.", examples=[5.2])
    time_to_first_token: Annotated[LatencyDocument, Holds("first_token_s")] = Field(description="Mean.")
    time_per_output_token: Annotated[LatencyDocument, Holds("token_s")] = Field(
        description="Mean, after the first token."
    )
    output_tokens_per_s: ThroughputDocument = Field(description="Output for the model.")
    limited: Annotated[LimitedLatenciesDocument, Holds("limited_s")] = Field(
        description="Latencies that the limits hold for, means or the limit_percentile of the workload, "
        "of the group where each is longest."
    )
    measured_engine: bool = Field(
        description="Whether runs of this engine on this kind of GPU were measured.", examples=[True]
    )
    replay: ReplayDocument | None = Field(
        None,
        description="The workload's trace on the plan, or requests drawn from classes at a rate; else null.",
        examples=[None],
    )


class IdleGpusDocument(ValueDocument[IdleGpus]):
    """Free GPUs of one node that the plan does not use."""

    node: str = Field(description="Host.", examples=["cnode2-016"])
    gpus: list[int] = Field(description="Their numbers.", examples=[[6, 7]])
    reason: IdleReason = Field(description="Why they are idle.", examples=["no_gain"])


class ServingCertificateDocument(ValueDocument[ServingCertificate]):
    """How far from optimal the plan can be, within the performance model."""

    objective: float = Field(description="Objective of the plan, in its own unit.", examples=[5000.0])
    bound: float = Field(
        description="No choice and placement of the enumerated groups beats it.", examples=[5020.0]
    )
    gap: float = Field(description="|bound - objective| / objective.", examples=[0.004])
    stopped_by: StopReason = Field(description="What ended the search.", examples=["proven"])
    shapes: int = Field(description="Workers enumerated, by GPU kind, degrees and links.", examples=[48])
    shapes_too_large: int = Field(description="Those of them that hold no request.", examples=[7])
    groups: int = Field(description="Groups that were priced.", examples=[96])
    groups_over_limits: int = Field(description="Those of them that meet the limits at no load.", examples=[12])
    operating_points: int = Field(description="Loads at which groups were priced, in all.", examples=[1900])
    solver: str = Field(description="Integer programming solver.", examples=["cbc 2.10.3"])


class ServingAlternativeDocument(ValueDocument[ServingAlternative]):
    """The best that workers of one shape alone reach, and why they are not the plan."""

    model: int = Field(description="Index in models.", examples=[0])
    gpu_kind: str = Field(description="Kind of GPU.", examples=["H100-SXM5-80GB"])
    configuration: PlannedConfigurationDocument = Field(description="The workers.")
    time_to_first_token_ms: Annotated[float | None, Holds("first_token_s", MILLISECOND)] = Field(
        description="Mean; null where it was not priced.", examples=[390.0]
    )
    time_per_output_token_ms: Annotated[float | None, Holds("token_s", MILLISECOND)] = Field(
        description="Mean; null where it was not priced.", examples=[17.0]
    )
    output_tokens_per_s: float | None = Field(description="Its output.", examples=[4700.0])
    objective: float | None = Field(description="Null where limits or the load are missed.", examples=[4700.0])
    worse_by: float | None = Field(description="Distance from the plan; 0.06 = 6 %.", examples=[0.06])
    reason: LossReason = Field(description="What decides against it.", examples=["objective"])
    reason_value: float = Field(
        description="Seconds for a limit, bytes missing for memory, requests a second for the load, else worse_by.",
        examples=[0.06],
    )
    slowest_part: str = Field(
        description="Largest part of its decode step that the plan's has less of; may be empty.",
        examples=["collective_s"],
    )
    power_cap_watts: float | None = Field(None, description="Power cap of each GPU; null: none.", examples=[None])


class FrontPointDocument(ValueDocument[FrontPoint]):
    """A point of the Pareto front of throughput per GPU against speed for each user."""

    model: int = Field(description="Index in models.", examples=[0])
    gpu_kind: str = Field(description="Kind of GPU.", examples=["H100-SXM5-80GB"])
    configuration: PlannedConfigurationDocument = Field(description="Workers of one group.")
    concurrency: float = Field(description="Requests in flight in the group.", examples=[32.0])
    tokens_per_s_per_gpu: float = Field(description="Output of a GPU.", examples=[620.0])
    tokens_per_s_per_user: float = Field(description="Tokens a second that a user sees.", examples=[58.0])
    time_to_first_token_ms: Annotated[float, Holds("first_token_s", MILLISECOND)] = Field(
        description="Mean.", examples=[390.0]
    )
    meets_limits: bool = Field(description="Whether it meets the limits.", examples=[True])
    is_chosen: bool = Field(description="Whether the plan runs at this point.", examples=[False])
    power_cap_watts: float | None = Field(None, description="Power cap of each GPU; null: none.", examples=[None])


class ServingWarningDocument(ValueDocument[ServingWarning]):
    """A doubt about the plan."""

    kind: ServingWarningKind = Field(description="What to doubt.", examples=["estimated_links"])
    subject: list[str] = Field(description="About what: nodes, or engine and GPU kind.", examples=[["cnode2-001"]])


class NearestServingDocument(ValueDocument[NearestServing]):
    """The configuration that comes nearest to the limits, at one request in flight a group."""

    gpu_kind: str = Field(description="Kind of GPU.", examples=["H100-SXM5-80GB"])
    configuration: PlannedConfigurationDocument = Field(description="The workers.")
    time_to_first_token_ms: Annotated[float, Holds("first_token_s", MILLISECOND)] = Field(
        description="Mean.", examples=[210.0]
    )
    time_per_output_token_ms: Annotated[float, Holds("token_s", MILLISECOND)] = Field(
        description="Mean, after the first token.", examples=[11.0]
    )
    requests_per_s: float = Field(description="Requests answered a second.", examples=[0.4])
    limited: Annotated[LimitedLatenciesDocument, Holds("limited_s")] = Field(
        description="Latencies that the limits hold for: means, or the workload's limit_percentile of the requests."
    )


class RemedyDocument(ValueDocument[Remedy]):
    """One change that would help, by itself."""

    kind: RemedyKind = Field(description="What to change.", examples=["token_limit"])
    value: float | None = Field(
        description="New value in SI units; null where it is not a figure.", examples=[0.011]
    )
    name: str = Field(description="Name of a kind or format; may be empty.", examples=[""])
