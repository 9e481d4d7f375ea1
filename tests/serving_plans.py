"""Small, consistent serving plans, built by hand, for tests of whatever shows them or writes them for engines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cluster_models.model.experts import Experts
from cluster_models.serving.engines import serving_engine
from cluster_models.serving.figures import Interval, LimitedLatencies, Percentiles, Replay, StepShares
from cluster_models.serving.goal import ServedModel, ServingGoal
from cluster_models.serving.plan import (
    FrontPoint,
    IdleGpus,
    IdleReason,
    LossReason,
    ModelFigures,
    ServingAlternative,
    ServingCertificate,
    ServingPlan,
    ServingWarning,
    ServingWarningKind,
)
from cluster_models.serving.refusal import (
    NearestServing,
    NoServingPlan,
    NoServingReason,
    Remedy,
    RemedyKind,
)
from cluster_models.serving.replicas import CacheTransfer, GpuPlace, Phase, Replica, ReplicaGroup, ReplicaMemory
from cluster_models.serving.requests import Lengths, RequestClass
from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import Pool, ServingConfiguration, ServingWorkload, WeightFormat, Worker
from cluster_models.training.plan import StopReason
from cluster_models.units import GBYTE, GIB
from tests.plans import small_architecture, small_provenance

KIND = "H100-SXM5-80GB"
STEP = StepShares(0.004, 0.0, 0.002, 0.001, 0.003)
MEMORY = ReplicaMemory(80 * GIB, 20 * GIB, 6 * GIB, 40 * GIB, GIB / 4, 640)
Places = Sequence[tuple[str, tuple[int, ...]]]


def served(engine: str = "vllm-0.16", *, experts: int = 0, **workload: Any) -> ServedModel:
    """The small model, sparse with ``experts``, under 64 requests in flight with both limits."""
    model = small_architecture()
    if experts:
        model = replace(model, experts=Experts(experts, 2, 512))
    given = {
        "input_tokens": 1024,
        "output_tokens": 512,
        "concurrency": 64.0,
        "weights": WeightFormat.FP8,
        "time_to_first_token_s": 0.5,
        "time_per_output_token_s": 0.03125,
    } | workload
    return ServedModel(model, ServingWorkload(engine=serving_engine(engine), **given))


def with_classes() -> ServedModel:
    """Chat and long prompts to the small model, four a second, chat with a limit at its 99th percentile."""
    chat = RequestClass(
        "chat", 3.0, Lengths((512.0,)), Lengths.counted([(8, 1), (64, 3)]), 0.25, 0.5, limit_percentile=0.99
    )
    long = RequestClass("long", 1.0, Lengths.from_quantiles([(0.5, 1024), (0.9, 2048)]), Lengths((16.0,)))
    load = ServingWorkload.mixed((chat, long), requests_per_s=4.0, weights=WeightFormat.FP8)
    return ServedModel(small_architecture(), load)


def replica(
    number: int, worker: Worker, places: Places, *, phase: Phase = Phase.BOTH, share: float = 1.0
) -> Replica:
    """A replica on ``places``: nodes with the numbers of their GPUs in rank order."""
    return Replica(
        number,
        phase,
        worker,
        KIND,
        tuple(GpuPlace(node, gpus) for node, gpus in places),
        share,
        16.0,
        32,
        8192,
        MEMORY,
        None if phase is Phase.DECODE else STEP,
        None if phase is Phase.PREFILL else STEP,
    )


def interval(value: float) -> Interval:
    """A quarter to either side."""
    return Interval(value, 0.75 * value, 1.25 * value)


def group(*replicas: Replica, model: int = 0, share: float = 1.0) -> ReplicaGroup:
    """A group that takes ``share`` of the requests to its model."""
    split = len(replicas) > 1
    return ReplicaGroup(
        model,
        replicas,
        share,
        64 * share,
        4 * share,
        5 * share,
        interval(0.25),
        interval(0.015625),
        interval(2048 * share),
        LimitedLatencies(0.25, 0.015625, 8.234375),
        CacheTransfer(GIB / 4, 40 * GBYTE, 0.0078125, crosses_nodes=True) if split else None,
    )


def planned(
    groups: Sequence[ReplicaGroup], models: Sequence[ServedModel] | None = None, **changes: Any
) -> ServingPlan:
    """A plan of these groups, with an alternative, a front, an idle node and a warning."""
    models = tuple(models or (served(),))
    gpus = sum(each.gpus for each in groups)
    tokens = sum(each.output_tokens_per_s.value for each in groups)
    figures = tuple(
        ModelFigures(
            index,
            sum(each.gpus for each in groups if each.model == index),
            64.0,
            4.0,
            5.0,
            interval(0.25),
            interval(0.015625),
            interval(sum(each.output_tokens_per_s.value for each in groups if each.model == index)),
            LimitedLatencies(0.25, 0.015625, 8.234375),
            measured_engine=True,
        )
        for index in range(len(models))
    )
    chosen, other = groups[0].configuration, ServingConfiguration(Pool(Worker(tensor=1)))
    plan = ServingPlan(
        goal=ServingGoal(),
        models=models,
        groups=tuple(groups),
        figures=figures,
        gpus=gpus,
        tokens_per_s=tokens,
        tokens_per_s_per_gpu=tokens / gpus,
        price_usd_per_hour=3.0 * gpus,
        power_watts=700.0 * gpus,
        idle=(IdleGpus("c", (0, 1, 2, 3), IdleReason.NO_GAIN),),
        certificate=ServingCertificate(
            tokens, 1.0625 * tokens, 0.0625, StopReason.PROVEN, 24, 3, 48, 6, 960, "cbc 2.10.3"
        ),
        alternatives=(
            ServingAlternative(
                0, KIND, other, 0.375, 0.0234375, 1024.0, 1024.0, 0.5, LossReason.OBJECTIVE, 0.5, "dense_s"
            ),
            ServingAlternative(
                0, KIND, other, 0.75, 0.0234375, 1024.0, None, None, LossReason.FIRST_TOKEN_LIMIT, 0.75
            ),
        ),
        front=(
            FrontPoint(0, KIND, chosen, 64.0, 512.0, 64.0, 0.25, meets_limits=True, is_chosen=True),
            FrontPoint(0, KIND, chosen, 8.0, 128.0, 128.0, 0.125, meets_limits=True, is_chosen=False),
            FrontPoint(0, KIND, other, 128.0, 768.0, 16.0, 0.75, meets_limits=False, is_chosen=False),
        ),
        warnings=(ServingWarning(ServingWarningKind.ESTIMATED_LINKS, ("a", "b")),),
        provenance=small_provenance(),
    )
    return replace(plan, **changes)


def two_replicas(engine: str = "vllm-0.16", **workload: Any) -> ServingPlan:
    """Two replicas of two GPUs each, side by side on node ``a``."""
    worker = Worker(tensor=2)
    groups = [
        group(replica(0, worker, [("a", (0, 1))], share=0.5), share=0.5),
        group(replica(1, worker, [("a", (2, 3))], share=0.5), share=0.5),
    ]
    return planned(groups, [served(engine, **workload)])


def replayed_plan() -> ServingPlan:
    """Two replicas for a trace of three requests, whose simulation misses the limit on the first token."""
    limits = {"time_to_first_token_s": 0.5, "limit_percentile": 0.9}
    trace = Trace((0.0, 0.1, 2.5), (8, 16, 32), (4, 2, 1))
    given = replace(served(), workload=ServingWorkload.traced(trace, weights=WeightFormat.FP8, **limits))
    slow, fast = Percentiles(0.25, 1.0, 2.0), Percentiles(0.125, 0.25, 0.5)
    replay = Replay(3, slow, fast, fast, fast, LimitedLatencies(1.0, 0.25, 2.0))
    plan = two_replicas()
    return replace(plan, models=(given,), figures=tuple(replace(each, replay=replay) for each in plan.figures))


def over_nodes(
    engine: str = "vllm-0.16", worker: Worker | None = None, *, nodes: Sequence[str] = ("b", "a"), size: int = 4
) -> ServingPlan:
    """One replica over the GPUs of several nodes, the first of which is not first by name."""
    worker = worker or Worker(tensor=4, pipeline=2)
    experts = 8 if worker.expert > 1 or worker.attention_data > 1 else 0
    places = [(node, tuple(range(size))) for node in nodes]
    return planned([group(replica(0, worker, places))], [served(engine, experts=experts)])


def split_phases(engine: str = "vllm-0.16", **workload: Any) -> ServingPlan:
    """A prefill replica of two GPUs and one for decoding with four, on two nodes."""
    prefill = replica(0, Worker(tensor=2), [("a", (0, 1))], phase=Phase.PREFILL)
    decode = replica(1, Worker(tensor=4), [("b", (0, 1, 2, 3))], phase=Phase.DECODE)
    return planned([group(prefill, decode)], [served(engine, **workload)])


def two_models() -> ServingPlan:
    """A model for each of two engines, beside each other on node ``a``."""
    groups = [
        group(replica(0, Worker(tensor=2), [("a", (0, 1))])),
        group(replica(1, Worker(tensor=1), [("a", (3,))]), model=1),
    ]
    second = served("sglang-0.5.8")
    second = replace(second, architecture=replace(second.architecture, name="other-4"), weight=2.0)
    return planned(groups, [served(), second])


def nothing_serves() -> NoServingPlan:
    """A limit on the time per output token that nothing meets."""
    limited = LimitedLatencies(0.25, 0.0078125, 4.2421875)
    nearest = NearestServing(KIND, ServingConfiguration(Pool(Worker(tensor=4))), 0.25, 0.0078125, 0.5, limited)
    remedies = (Remedy(RemedyKind.TOKEN_LIMIT, 0.0078125), Remedy(RemedyKind.WEIGHTS, name="nvfp4"))
    models = (served(time_per_output_token_s=0.00390625),)
    reason = NoServingReason.TOKEN_LIMIT
    return NoServingPlan(ServingGoal(), models, 0, reason, nearest, remedies, small_provenance())
