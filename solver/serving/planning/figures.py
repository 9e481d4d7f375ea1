"""From placed groups to the replicas, groups and figures that a serving plan holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from cluster_models.serving.figures import Interval, LimitedLatencies
from cluster_models.serving.goal import ServedModel
from cluster_models.serving.plan import ModelFigures
from cluster_models.serving.replicas import CacheTransfer, GpuPlace, Phase, Replica, ReplicaGroup, ReplicaMemory
from solver.serving.cases import ServingCase, arrays_of
from solver.serving.loads import WorkerLinks
from solver.serving.planning.islands import Site
from solver.serving.planning.placing import PlacedGroup, PlacedReplica
from solver.serving.planning.settle import Settled
from solver.serving.planning.zones import Zone
from solver.serving.predict import PoolMemory, ServingPrediction, predict_serving


def replica_groups(
    model: int, served: ServedModel, settled: Settled, site: Site
) -> tuple[list[ReplicaGroup], bool]:
    """The groups of one model, their replicas numbered 0, and whether their engine was measured on such GPUs."""
    total = float(settled.at.requests_per_s.sum())
    known: dict[ServingCase, ServingPrediction] = {}
    closed = served.workload.concurrency is not None
    loads = settled.at.concurrency if closed else settled.at.requests_per_s
    groups = []
    for row, (placed, zone) in enumerate(zip(settled.groups, settled.zones, strict=True)):
        case = case_of(served, placed, zone, float(loads[row]))
        known[case] = prediction = known.get(case) or predict_serving(case)
        share = float(settled.at.requests_per_s[row]) / total
        most = max(float(settled.most.concurrency[row]), prediction.concurrency)
        groups.append(
            ReplicaGroup(
                model=model,
                replicas=tuple(_replicas(case, placed, prediction, most, share, site)),
                share=share,
                concurrency=prediction.concurrency,
                requests_per_s=prediction.requests_per_s,
                most_requests_per_s=max(float(settled.most.requests_per_s[row]), prediction.requests_per_s),
                first_token_s=_raised(prediction.first_token_s, float(settled.at.first_token_s[row])),
                token_s=prediction.token_s,
                output_tokens_per_s=prediction.output_tokens_per_s,
                limited_s=LimitedLatencies.of(settled.at.limited_s[row].tolist(), served.workload.class_names),
                transfer=_transfer(case, placed),
                drawn_watts=prediction.drawn_watts,
            )
        )
    return groups, all(prediction.measured_engine for prediction in known.values())


def case_of(served: ServedModel, placed: PlacedGroup, zone: Zone, load: float) -> ServingCase:
    """The group as a case of ``predict_serving``, under its own load."""
    workload = served.workload
    own = (
        replace(workload, concurrency=load)
        if workload.concurrency is not None
        else replace(workload, requests_per_s=load)
    )
    return ServingCase(
        architecture=served.architecture,
        gpu=zone.gpu,
        power_caps_watts=(zone.prefill_cap_watts, zone.cap_watts),
        links=_links(placed, zone),
        workload=own,
        configuration=placed.group.configuration,
        transfer_bytes_per_s=zone.transfer_bytes_per_s,
        own=served.own,
    )


def model_figures(model: int, groups: Sequence[ReplicaGroup], *, is_measured: bool) -> ModelFigures:
    """Sums over ``groups``, latencies as means by share."""
    return ModelFigures(
        model=model,
        gpus=sum(each.gpus for each in groups),
        concurrency=sum(each.concurrency for each in groups),
        requests_per_s=sum(each.requests_per_s for each in groups),
        most_requests_per_s=sum(each.most_requests_per_s for each in groups),
        first_token_s=_joined(groups, lambda each: each.first_token_s, lambda each: each.share),
        token_s=_joined(groups, lambda each: each.token_s, lambda each: each.share),
        output_tokens_per_s=_joined(groups, lambda each: each.output_tokens_per_s, lambda _: 1.0),
        limited_s=groups[0].limited_s.largest(each.limited_s for each in groups),
        measured_engine=is_measured,
    )


def _raised(interval: Interval, value: float) -> Interval:
    """The interval moved up to ``value`` where it lies below."""
    times = max(1.0, value / interval.value)
    return Interval(times * interval.value, times * interval.low, times * interval.high)


def _joined(
    groups: Sequence[ReplicaGroup],
    figure: Callable[[ReplicaGroup], Interval],
    weight: Callable[[ReplicaGroup], float],
) -> Interval:
    """Weighted sum of intervals: groups err together, as one model predicts them all."""
    return Interval(
        *(sum(weight(each) * getattr(figure(each), end) for each in groups) for end in ("value", "low", "high"))
    )


def _links(placed: PlacedGroup, zone: Zone) -> WorkerLinks:
    shapes = {replica.shape for replica in placed.replicas}
    islands = max(shape.islands for shape in shapes)
    return zone.links(islands, max(shape.slot for shape in shapes))


def _transfer(case: ServingCase, placed: PlacedGroup) -> CacheTransfer | None:
    if not placed.prefill:
        return None
    seconds = float(arrays_of([case]).traffic.transfer_s[0])
    return CacheTransfer(
        cache_bytes=seconds * case.transfer_bytes_per_s,
        bytes_per_s=case.transfer_bytes_per_s,
        seconds=seconds,
        crosses_nodes=len({part.island for replica in placed.replicas for part in replica.parts}) > 1,
    )


def _replicas(
    case: ServingCase, placed: PlacedGroup, prediction: ServingPrediction, most: float, share: float, site: Site
) -> Iterator[Replica]:
    """Replicas of one group, prefill first, all numbered 0."""
    answering = prediction.decoding if placed.prefill else prediction.concurrency / len(placed.decode)
    waiting = prediction.concurrency - answering * len(placed.decode)
    roles = (
        (Phase.PREFILL, placed.prefill, waiting, prediction.memory[0]),
        (
            Phase.DECODE if placed.prefill else Phase.BOTH,
            placed.decode,
            answering * len(placed.decode),
            prediction.memory[-1],
        ),
    )
    for phase, replicas, sequences, memory in roles:
        for replica in replicas:
            yield Replica(
                number=0,
                phase=phase,
                worker=replica.shape.worker,
                gpu_kind=case.gpu.name,
                places=_places(replica, site),
                share=share / len(replicas),
                sequences=sequences / len(replicas),
                sequence_limit=_sequence_limit(case, replica, memory, most / len(replicas)),
                token_limit=case.workload.engine.chunk_tokens,
                memory=_memory(case, memory),
                prefill=None if phase is Phase.DECODE else prediction.prefill,
                decode=None if phase is Phase.PREFILL else prediction.decode,
                power_cap_watts=placed.group.prefill_cap_watts
                if phase is Phase.PREFILL
                else placed.group.cap_watts,
            )


def _sequence_limit(case: ServingCase, replica: PlacedReplica, memory: PoolMemory, most: float) -> int:
    """Sequences of an attention rank at once: those of the highest load within the limits."""
    worker = replica.shape.worker
    held = min(memory.most_sequences, math.ceil(most)) / worker.attention_data
    return max(1, min(math.ceil(held), case.workload.engine.most_sequences * worker.pipeline))


def _memory(case: ServingCase, memory: PoolMemory) -> ReplicaMemory:
    return ReplicaMemory(
        gpu_bytes=case.gpu.memory_bytes,
        weight_bytes=memory.weight_bytes,
        step_bytes=memory.step_bytes,
        cache_bytes=memory.cache_bytes,
        sequence_bytes=memory.sequence_bytes,
        most_sequences=math.floor(memory.most_sequences),
    )


def _places(replica: PlacedReplica, site: Site) -> tuple[GpuPlace, ...]:
    gpus = [
        gpu for part in replica.parts for gpu in site.islands[part.island].gpus[part.start : part.start + part.size]
    ]
    return tuple(
        GpuPlace(node, tuple(number for _, number in own)) for node, own in groupby(gpus, key=lambda gpu: gpu[0])
    )
