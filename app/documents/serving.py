"""A serving load and the workers that answer it, as users write them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from app.documents.reading import Count, Document, Flag, Positive, Text, WholeNumber
from app.documents.serving_classes import (
    PrefixShare,
    RequestClassDocument,
    Share,
    Tokens,
    milliseconds_of,
    seconds_of,
)
from app.documents.serving_parts import ServedAdaptersDocument, ServedRoutingDocument, SpeculationDocument
from app.documents.trace import MOST_TRACE_CHARACTERS, read_trace, trace_text
from cluster_models.cluster.topology import MOST_NODES
from cluster_models.errors import InvalidConfiguration, InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.serving.engines import DEFAULT_ENGINE, serving_engine
from cluster_models.serving.goal import ServedModel, ServingGoal, ServingMode, ServingObjective
from cluster_models.serving.requests import MOST_CLASSES, RequestClass
from cluster_models.serving.workload import (
    MOST_DEGREE,
    MOST_IMBALANCE,
    MOST_REPLICAS,
    MOST_REQUESTS,
    CacheFormat,
    Pool,
    ServingConfiguration,
    ServingWorkload,
    Speculation,
    WeightFormat,
    Worker,
)

GOAL_FIELDS: Final = (
    "objective",
    "modes",
    "max_gpus",
    "max_power_watts",
    "gpu_power_cap_watts",
    "choose_power_caps",
    "avoid_nodes",
    "pinned",
)
"""Fields of a workload that say what a plan is to reach, and with what; the other fields are of the requests."""
Degree = Annotated[Count, Field(le=MOST_DEGREE)]
Imbalance = Annotated[float, Field(strict=True, ge=0, le=MOST_IMBALANCE, allow_inf_nan=False)]
_GOAL: Final = ServingGoal()


class ServingWorkloadDocument(Document):
    """Requests and the engine that answers them; for plans also what to reach, and with what.

    Degrees that may be pinned are called tensor, pipeline, attention_data and expert.
    """

    kind: Literal["serving"] = Field(description="Marks a workload of serving.", examples=["serving"])
    input_tokens: Tokens | None = Field(
        None, description="Mean tokens of a prompt; absent where classes say it.", examples=[1024]
    )
    output_tokens: Tokens | None = Field(None, description="Mean tokens of an answer, likewise.", examples=[1024])
    classes: Annotated[list[RequestClassDocument], Field(min_length=1, max_length=MOST_CLASSES)] | None = Field(
        None,
        description="Requests of several kinds, all answered by the same replicas, in place of the mean lengths; "
        "beside a trace: names and limits of classes that it has.",
        examples=[None],
    )
    trace: Annotated[str, Field(min_length=1, max_length=MOST_TRACE_CHARACTERS)] | None = Field(
        None,
        description="Content of a file of arrivals, CSV or JSON lines, in place of lengths and load: columns "
        "arrival_s, input_tokens, output_tokens, or those of Azure's, Mooncake's or BurstGPT's traces; class and "
        "cached_tokens may stand beside them.",
        examples=[None],
    )
    concurrency: Annotated[Positive, Field(le=MOST_REQUESTS)] | None = Field(
        None, description="Requests always in flight, all replicas together.", examples=[64.0]
    )
    requests_per_s: Annotated[Positive, Field(le=MOST_REQUESTS)] | None = Field(
        None, description="Requests that arrive a second instead.", examples=[None]
    )
    weights: WeightFormat = Field(WeightFormat.BF16, description="Format of the weights.", examples=["fp8"])
    attention_weights: WeightFormat | None = Field(
        None,
        description="Format of attention where it differs; absent: as the weights, 16 bits under 4-bit experts.",
        examples=[None],
    )
    kv_cache: CacheFormat | None = Field(
        None, description="Format of keys and values; absent: the engine's default.", examples=["fp8"]
    )
    engine: Text = Field(
        DEFAULT_ENGINE.name, description="Generation of the serving engine.", examples=["vllm-0.16"]
    )
    speculation: SpeculationDocument | None = Field(
        None, description="Speculative decoding; absent: none.", examples=[None]
    )
    time_to_first_token_ms: Positive | None = Field(
        None, description="Limit on the time to the first token.", examples=[2000.0]
    )
    time_per_output_token_ms: Positive | None = Field(
        None, description="Limit on the time per output token after the first.", examples=[30.0]
    )
    end_to_end_ms: Positive | None = Field(
        None, description="Limit on the time to the last token.", examples=[None]
    )
    memory_fraction: Annotated[Positive, Field(le=1)] | None = Field(
        None,
        description="Share of memory that the engine takes (gpu_memory_utilization, mem_fraction_static, "
        "free_gpu_memory_fraction); absent: its default.",
        examples=[0.9],
    )
    prefix_share: PrefixShare = Field(
        0.0,
        description="Share of a prompt's tokens whose keys and values an earlier prompt left in the cache.",
        examples=[0.0],
    )
    limit_percentile: Share | None = Field(
        None, description="Share of the requests that the limits hold for; absent: for their means.", examples=[0.9]
    )
    prefill_imbalance: Imbalance | None = Field(
        None,
        description="Excess load of the busiest of many expert ranks in prefill, as experts serving says of a map "
        "(0.1: a tenth above the mean); absent: as fitted.",
        examples=[None],
    )
    decode_imbalance: Imbalance | None = Field(None, description="The same in decoding.", examples=[0.1])
    adapters: ServedAdaptersDocument | None = Field(
        None, description="Low-rank adapters that requests name; absent: none.", examples=[None]
    )
    routing: ServedRoutingDocument | None = Field(
        None,
        description="Counts of the router, in place of both imbalances: experts are placed for them.",
        examples=[None],
    )
    objective: ServingObjective | None = Field(
        None,
        description="Quantity that a plan makes as large (throughput, goodput) or as small (gpus, cost, power, "
        "energy) as can be; absent: gpus where a latency is limited, else throughput.",
        examples=["gpus"],
    )
    modes: Annotated[list[ServingMode], Field(max_length=len(ServingMode))] = Field(
        list(_GOAL.modes),
        description="In plans: whether replicas may do both phases (aggregated), one each (split), or either.",
        examples=[["aggregated", "split"]],
    )
    max_gpus: Count | None = Field(None, description="In plans: GPUs to use at most.", examples=[None])
    max_power_watts: Positive | None = Field(
        None,
        description="In plans: power of the GPUs used at most, by their data sheets or power caps.",
        examples=[None],
    )
    gpu_power_cap_watts: Positive | None = Field(
        None,
        description="Power cap of each GPU whose board has more (nvidia-smi -pl); absent: none.",
        examples=[500.0],
    )
    choose_power_caps: Flag = Field(
        default=False,
        description="In plans: whether the search may cap the power of GPUs, at 85, 70 or 60 % of their board's.",
        examples=[False],
    )
    avoid_nodes: Annotated[list[Text], Field(max_length=MOST_NODES)] = Field(
        default_factory=list, description="In plans: nodes to keep away from.", examples=[[]]
    )
    pinned: dict[str, Degree] = Field(
        default_factory=dict, description="In plans: degrees that all workers must have.", examples=[{"tensor": 4}]
    )
    objective_weight: Positive = Field(
        1.0,
        description="In plans for several models: weight of an output token of this one in the objective.",
        examples=[1.0],
    )

    def to_workload(self) -> ServingWorkload:
        """The domain value; raises ``InvalidWorkload``."""
        given = self.speculation
        return self._with_lengths(
            concurrency=self.concurrency,
            requests_per_s=self.requests_per_s,
            weights=self.weights,
            attention_weights=self.attention_weights,
            cache=self.kv_cache,
            engine=serving_engine(self.engine),
            speculation=None if given is None else Speculation(given.draft_tokens, given.accepted_tokens),
            time_to_first_token_s=seconds_of(self.time_to_first_token_ms),
            time_per_output_token_s=seconds_of(self.time_per_output_token_ms),
            end_to_end_s=seconds_of(self.end_to_end_ms),
            prefill_imbalance=self.prefill_imbalance,
            decode_imbalance=self.decode_imbalance,
            adapters=None if self.adapters is None else self.adapters.to_value(),
            routing=None if self.routing is None else self.routing.to_value(),
            memory_fraction=self.memory_fraction,
            prefix_share=self.prefix_share,
            limit_percentile=self.limit_percentile,
        )

    def _with_lengths(self, **given: Any) -> ServingWorkload:
        """The workload of the lengths and whatever else is ``given``."""
        lengths = ("input_tokens", "output_tokens")
        if self.trace is not None:
            self._refuse(*lengths, "concurrency", "requests_per_s", beside="a trace")
            del given["concurrency"], given["requests_per_s"]
            limited = tuple(_classes(self.classes or (), traced=True))
            return ServingWorkload.traced(read_trace(self.trace), limited, **given)
        if self.classes is not None:
            self._refuse(*lengths, beside="classes")
            return ServingWorkload.mixed(tuple(_classes(self.classes)), **given)
        for name in lengths:
            if getattr(self, name) is None:
                remedy = "give input_tokens and output_tokens, classes or a trace"
                raise InvalidWorkload(f"workload.{name}", None, "is missing", remedy)
        return ServingWorkload(self.input_tokens or 0, self.output_tokens or 0, **given)

    def _refuse(self, *names: str, beside: str) -> None:
        """Raise ``InvalidWorkload`` for a field that says again what the one ``beside`` it says."""
        for name in names:
            value = getattr(self, name)
            if value is not None:
                shown = None if isinstance(value, list) else value
                raise InvalidWorkload(
                    f"workload.{name}", shown, f"conflicts with {beside}", "leave one of them out"
                )

    def to_goal(self) -> ServingGoal:
        """Goal of a plan, and the means that it may use; raises ``InvalidWorkload``."""
        return ServingGoal(
            objective=self.objective or self._usual_objective,
            modes=tuple(dict.fromkeys(self.modes)),
            max_gpus=self.max_gpus,
            max_power_watts=self.max_power_watts,
            gpu_power_cap_watts=self.gpu_power_cap_watts,
            choose_power_caps=self.choose_power_caps,
            avoid_nodes=tuple(self.avoid_nodes),
            pinned=dict(self.pinned),
        )

    @property
    def _usual_objective(self) -> ServingObjective:
        """Faster answers than the limits ask for are worth no GPUs; without limits there is nothing to stop at."""
        is_limited = any(
            (each.time_to_first_token_ms, each.time_per_output_token_ms, each.end_to_end_ms) != (None, None, None)
            for each in (self, *(self.classes or ()))
        )
        return ServingObjective.GPUS if is_limited else ServingObjective.THROUGHPUT

    def served(self, architecture: Architecture) -> ServedModel:
        """The model with these requests; raises ``InvalidWorkload``."""
        return ServedModel(architecture, self.to_workload(), self.objective_weight)

    @classmethod
    def from_served(cls, served: ServedModel, goal: ServingGoal = _GOAL) -> ServingWorkloadDocument:
        """The document of the requests to a model, with the goal of its plan."""
        load = served.workload
        drafts = load.speculation
        return cls(
            kind="serving",
            input_tokens=None if load.is_mixed else round(load.input_tokens),
            output_tokens=None if load.is_mixed else round(load.output_tokens),
            classes=[RequestClassDocument.from_class(each, traced=load.trace is not None) for each in load.classes]
            or None,
            trace=None if load.trace is None else trace_text(load.trace),
            concurrency=load.concurrency,
            requests_per_s=load.requests_per_s if load.trace is None else None,
            weights=load.weights,
            attention_weights=load.attention_weights,
            kv_cache=load.cache,
            engine=load.engine.name,
            speculation=None
            if drafts is None
            else SpeculationDocument(draft_tokens=drafts.draft_tokens, accepted_tokens=drafts.accepted_tokens),
            time_to_first_token_ms=milliseconds_of(load.time_to_first_token_s),
            time_per_output_token_ms=milliseconds_of(load.time_per_output_token_s),
            end_to_end_ms=milliseconds_of(load.end_to_end_s),
            memory_fraction=load.memory_fraction,
            prefix_share=load.prefix_share,
            limit_percentile=load.limit_percentile,
            prefill_imbalance=load.prefill_imbalance,
            decode_imbalance=load.decode_imbalance,
            adapters=None if load.adapters is None else ServedAdaptersDocument.from_value(load.adapters),
            routing=None if load.routing is None else ServedRoutingDocument.from_value(load.routing),
            objective=goal.objective,
            modes=list(goal.modes),
            max_gpus=goal.max_gpus,
            max_power_watts=goal.max_power_watts,
            gpu_power_cap_watts=goal.gpu_power_cap_watts,
            choose_power_caps=goal.choose_power_caps,
            avoid_nodes=list(goal.avoid_nodes),
            pinned=dict(goal.pinned),
            objective_weight=served.weight,
        )


def _classes(documents: Sequence[RequestClassDocument], *, traced: bool = False) -> Iterator[RequestClass]:
    for index, each in enumerate(documents):
        try:
            yield each.to_class(traced=traced)
        except InvalidWorkload as error:
            field = f"workload.classes[{index}].{error.field}"
            raise InvalidWorkload(field, error.value, error.problem, error.remedy) from error


class PoolDocument(Document):
    """Equal workers."""

    tensor: Degree = Field(1, description="Tensor parallel GPUs.", examples=[4])
    pipeline: Degree = Field(1, description="Pipeline stages.", examples=[1])
    attention_data: Degree = Field(
        1, description="Attention data parallel ranks, over which only experts are spread.", examples=[1]
    )
    expert: Degree = Field(
        1, description="Groups of GPUs among which experts are divided, each sliced over the rest.", examples=[1]
    )
    replicas: Annotated[WholeNumber, Field(ge=1, le=MOST_REPLICAS)] = Field(
        1, description="Workers of the pool.", examples=[2]
    )


class ServingConfigurationDocument(Document):
    """Workers that do both phases (``worker``), or a pool for each (``prefill`` and ``decode``)."""

    worker: PoolDocument | None = Field(None, description="Workers that prefill and decode.", examples=[None])
    prefill: PoolDocument | None = Field(None, description="Workers that prefill only.", examples=[None])
    decode: PoolDocument | None = Field(None, description="Workers that decode only.", examples=[None])

    @model_validator(mode="after")
    def _is_whole(self) -> ServingConfigurationDocument:
        given = (self.worker is not None, self.prefill is not None, self.decode is not None)
        if given not in ((True, False, False), (False, True, True)):
            raise ValueError("needs either worker, or prefill and decode")
        return self

    def to_configuration(self) -> ServingConfiguration:
        """The domain value; raises ``InvalidConfiguration`` with fields as they are called here."""
        if self.worker is not None:
            return ServingConfiguration(_pool(self.worker, "worker"))
        assert self.prefill is not None and self.decode is not None  # noqa: PT018 - checked above
        return ServingConfiguration(_pool(self.decode, "decode"), _pool(self.prefill, "prefill"))


def _pool(document: PoolDocument, field: str) -> Pool:
    try:
        worker = Worker(document.tensor, document.pipeline, document.attention_data, document.expert)
    except InvalidConfiguration as error:
        raise InvalidConfiguration(f"{field}.{error.field}", error.value, error.problem, error.remedy) from error
    return Pool(worker, document.replicas)
