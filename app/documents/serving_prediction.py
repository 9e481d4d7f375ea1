"""A prediction of serving, as it is handed out."""

from __future__ import annotations

from pydantic import BaseModel, Field

from cluster_models.serving.figures import Interval, Percentiles, Replay, StepShares
from cluster_models.units import GIB
from solver.serving.predict import ClassPercentiles, PoolMemory, ServingPrediction

MILLI = 1000.0


class IntervalDocument(BaseModel):
    """A figure and the range that four measurements in five fall into."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, interval: Interval, scale: float = 1.0) -> IntervalDocument:
        """``interval`` in units of 1 / ``scale``."""
        return cls(value=scale * interval.value, low=scale * interval.low, high=scale * interval.high)


class PercentilesDocument(BaseModel):
    """Milliseconds that half, nine in ten and 99 in 100 requests do not exceed; estimated."""

    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, found: Percentiles) -> PercentilesDocument:
        """``found`` in milliseconds."""
        return cls(p50=MILLI * found.p50_s, p90=MILLI * found.p90_s, p99=MILLI * found.p99_s)


class ClassPercentilesDocument(BaseModel):
    """Percentiles of one class of requests."""

    name: str
    time_to_first_token_percentiles_ms: PercentilesDocument
    time_per_output_token_percentiles_ms: PercentilesDocument

    @classmethod
    def of(cls, found: ClassPercentiles) -> ClassPercentilesDocument:
        """The document of ``found``."""
        return cls(
            name=found.name,
            time_to_first_token_percentiles_ms=PercentilesDocument.of(found.first_token),
            time_per_output_token_percentiles_ms=PercentilesDocument.of(found.token),
        )


class ReplayPredictionDocument(BaseModel):
    """Percentiles of requests simulated step by step; those beside it are the closed form's."""

    requests: int
    time_to_first_token_percentiles_ms: PercentilesDocument
    time_per_output_token_percentiles_ms: PercentilesDocument

    @classmethod
    def of(cls, found: Replay) -> ReplayPredictionDocument:
        """The document of ``found``."""
        return cls(
            requests=found.requests,
            time_to_first_token_percentiles_ms=PercentilesDocument.of(found.first_token),
            time_per_output_token_percentiles_ms=PercentilesDocument.of(found.token),
        )


class StepDocument(BaseModel):
    """Milliseconds of one step by part."""

    total_ms: float
    dense_products_ms: float = Field(description="Attention projections, dense MLPs, shared experts, output layer.")
    experts_ms: float
    attention_ms: float
    collectives_ms: float
    overhead_ms: float = Field(description="Launches, scheduling, sampling and host work.")

    @classmethod
    def of(cls, step: StepShares) -> StepDocument:
        """The parts of ``step``."""
        return cls(
            total_ms=MILLI * step.total_s,
            dense_products_ms=MILLI * step.dense_s,
            experts_ms=MILLI * step.expert_s,
            attention_ms=MILLI * step.attention_s,
            collectives_ms=MILLI * step.collective_s,
            overhead_ms=MILLI * step.overhead_s,
        )


class PoolMemoryDocument(BaseModel):
    """Memory of one GPU of a pool."""

    role: str
    pool: str
    weights_gib: float
    steps_gib: float
    cache_gib: float
    cache_of_a_request_gib: float
    most_requests_of_a_worker: int = Field(description="Requests of the given lengths that a worker holds at once.")

    @classmethod
    def of(cls, memory: PoolMemory) -> PoolMemoryDocument:
        """The memory of one pool."""
        return cls(
            role=memory.role,
            pool=str(memory.pool),
            weights_gib=memory.weight_bytes / GIB,
            steps_gib=memory.step_bytes / GIB,
            cache_gib=memory.cache_bytes / GIB,
            cache_of_a_request_gib=memory.sequence_bytes / GIB,
            most_requests_of_a_worker=int(memory.most_sequences),
        )


class ServingPredictionDocument(BaseModel):
    """Predicted latencies, throughput and memory of a serving configuration under its load."""

    fits: bool = Field(description="Whether every worker holds its weights and at least one request.")
    nodes: list[str] = Field(description="Nodes it was priced on.")
    gpus: int
    time_to_first_token_ms: IntervalDocument
    time_per_output_token_ms: IntervalDocument
    time_to_first_token_percentiles_ms: PercentilesDocument
    time_per_output_token_percentiles_ms: PercentilesDocument
    classes: list[ClassPercentilesDocument] = Field(description="Percentiles of each class of requests.")
    replay: ReplayPredictionDocument | None = Field(
        description="The workload's trace, or requests drawn from classes at a rate, simulated step by step on the "
        "configuration; null without either."
    )
    output_tokens_per_s: IntervalDocument
    output_tokens_per_s_per_gpu: float
    requests_per_s: float
    drawn_watts: IntervalDocument = Field(description="Mean power of all GPUs as they serve, estimated.")
    concurrency: float = Field(description="Requests in flight.")
    decoding_per_worker: float = Field(description="Those of them that decode at once in each worker.")
    queue_ms: float = Field(description="Wait for a place, caches or the engine's limit being full.")
    most_requests: int = Field(description="Requests that the deployment holds at once.")
    memory: list[PoolMemoryDocument]
    prefill_step: StepDocument
    decode_step: StepDocument
    measured_engine: bool = Field(
        description="Whether runs of this engine generation on this kind of GPU were measured."
    )
    missed_limits: list[str]

    @classmethod
    def of(
        cls, found: ServingPrediction, *, nodes: list[str], gpus: int, replay: Replay | None = None
    ) -> ServingPredictionDocument:
        """The document of ``found``, which was priced on ``nodes``, and of the ``replay`` of its trace."""
        return cls(
            fits=found.fits,
            nodes=nodes,
            gpus=gpus,
            time_to_first_token_ms=IntervalDocument.of(found.first_token_s, MILLI),
            time_per_output_token_ms=IntervalDocument.of(found.token_s, MILLI),
            time_to_first_token_percentiles_ms=PercentilesDocument.of(found.first_token_percentiles),
            time_per_output_token_percentiles_ms=PercentilesDocument.of(found.token_percentiles),
            classes=[ClassPercentilesDocument.of(each) for each in found.classes],
            replay=None if replay is None else ReplayPredictionDocument.of(replay),
            output_tokens_per_s=IntervalDocument.of(found.output_tokens_per_s),
            output_tokens_per_s_per_gpu=found.output_tokens_per_s_per_gpu,
            requests_per_s=found.requests_per_s,
            drawn_watts=IntervalDocument.of(found.drawn_watts),
            concurrency=found.concurrency,
            decoding_per_worker=found.decoding,
            queue_ms=MILLI * found.queue_s,
            most_requests=found.most_requests,
            memory=[PoolMemoryDocument.of(each) for each in found.memory],
            prefill_step=StepDocument.of(found.prefill),
            decode_step=StepDocument.of(found.decode),
            measured_engine=found.measured_engine,
            missed_limits=[f"{name.removesuffix('_s')}_ms" for name in found.missed_limits],
        )
