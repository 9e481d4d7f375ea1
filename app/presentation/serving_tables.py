"""Tables of a serving plan: who sits where, memory, steps, alternatives, the Pareto front."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Final

from app.presentation.figures import count, gib, percent, plural, seconds, spans
from app.presentation.serving_words import ANSWER, FIRST_TOKEN, PHASES, TOKEN, configuration_words, share_words
from cluster_models.serving.figures import StepShares
from cluster_models.serving.plan import FrontPoint, LossReason, PlannedPool, ServingAlternative, ServingPlan
from cluster_models.serving.replicas import Replica

STEP_PARTS: Final = {
    "dense_s": "matrix products",
    "expert_s": "experts",
    "attention_s": "attention",
    "collective_s": "collectives",
    "overhead_s": "launches and host",
}


@dataclass(frozen=True, slots=True)
class PoolRow:
    """Equal replicas of one model and phase; ``memory`` is that of each of their GPUs."""

    model: str
    phase: str
    shape: str
    replicas: str
    gpu_kind: str
    nodes: str
    share: str
    limits: str
    weights: str
    steps: str
    cache: str
    free: str
    requests: str


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """One replica: its GPUs, its part of the requests, and how full it is."""

    number: int
    model: str
    phase: str
    shape: str
    places: tuple[str, ...]
    share: str
    load: str


@dataclass(frozen=True, slots=True)
class StepRow:
    """One part of the steps of a pool, as durations; empty where the pool has no such step."""

    pool: str
    part: str
    prefill: str
    decode: str


@dataclass(frozen=True, slots=True)
class OtherShape:
    """A shape that lost, its figures, and why."""

    model: str
    workers: str
    first_token: str
    token: str
    output: str
    worse: str
    reason: str


@dataclass(frozen=True, slots=True)
class FrontRow:
    """A point of the front in words."""

    model: str
    workers: str
    concurrency: str
    per_gpu: str
    per_user: str
    first_token: str
    verdict: str


def pool_rows(plan: ServingPlan) -> tuple[PoolRow, ...]:
    """Pools in the order of models and phases."""
    return tuple(_pool_row(plan, pool) for pool in plan.pools)


def _pool_row(plan: ServingPlan, pool: PlannedPool) -> PoolRow:
    first, members = pool.replicas[0], pool.replicas
    memory = first.memory
    used = memory.weight_bytes + memory.step_bytes + memory.cache_bytes
    nodes = list(dict.fromkeys(place.node for each in members for place in each.places))
    return PoolRow(
        model=plan.models[pool.model].architecture.name,
        phase=PHASES[pool.phase],
        shape=str(first.worker),
        replicas=count(len(members)),
        gpu_kind=pool.gpu_kind + cap_words(pool.power_cap_watts),
        nodes=node_words(nodes),
        share=share_words(sum(each.share for each in members)),
        limits=f"{count(first.sequence_limit)} sequences, {count(first.token_limit)} tokens",
        weights=gib(memory.weight_bytes),
        steps=gib(memory.step_bytes),
        cache=gib(memory.cache_bytes),
        free=gib(memory.gpu_bytes - used),
        requests=count(memory.most_sequences),
    )


def node_words(nodes: list[str]) -> str:
    """Up to four nodes by name, then how many there are."""
    return (
        ", ".join(nodes) if len(nodes) <= 4 else f"{', '.join(nodes[:3])} and {plural(len(nodes) - 3, 'node')} more"
    )


def replica_rows(plan: ServingPlan) -> tuple[ReplicaRow, ...]:
    """Every replica with its GPUs."""
    rows = [_replica_row(plan, group.model, each) for group in plan.groups for each in group.replicas]
    return tuple(sorted(rows, key=lambda row: row.number))


def _replica_row(plan: ServingPlan, model: int, replica: Replica) -> ReplicaRow:
    return ReplicaRow(
        number=replica.number,
        model=plan.models[model].architecture.name,
        phase=PHASES[replica.phase],
        shape=str(replica.worker),
        places=tuple(f"{place.node} GPU {spans(place.gpus)}" for place in replica.places),
        share=share_words(replica.share),
        load=f"{replica.sequences:,.3g} of {count(replica.memory.most_sequences)} requests",
    )


def step_rows(plan: ServingPlan) -> tuple[StepRow, ...]:
    """Where the time of each pool's steps goes; parts that take none are left out."""
    return tuple(row for pool in plan.pools for row in _steps_of(pool))


def _steps_of(pool: PlannedPool) -> Iterator[StepRow]:
    first = pool.replicas[0]
    name = f"{PHASES[pool.phase]}, {first.worker}"
    for field, words in (*STEP_PARTS.items(), ("total_s", "in all")):
        times = [_part(step, field) for step in (first.prefill, first.decode)]
        if any(times):
            prefill, decode = (seconds(time) if time else "" for time in times)
            yield StepRow(name, words, prefill, decode)


def _part(step: StepShares | None, field: str) -> float:
    return 0.0 if step is None else float(getattr(step, field))


def other_shapes(plan: ServingPlan) -> tuple[OtherShape, ...]:
    """The alternatives with why each lost."""
    return tuple(
        OtherShape(
            model=plan.models[other.model].architecture.name,
            workers=configuration_words(other.configuration) + _kind_words(plan, other),
            first_token=seconds(other.first_token_s),
            token=seconds(other.token_s),
            output="" if other.output_tokens_per_s is None else f"{count(other.output_tokens_per_s)} tokens/s",
            worse="" if other.worse_by is None else percent(other.worse_by),
            reason=loss_words(other),
        )
        for other in plan.alternatives
    )


def cap_words(cap_watts: float | None) -> str:
    """The power cap of a GPU, behind its kind."""
    return "" if cap_watts is None else f", capped at {cap_watts:g} W"


def _kind_words(plan: ServingPlan, other: ServingAlternative | FrontPoint) -> str:
    """Kind of GPU that a part runs on, where all that the plan speaks of are not of one, and its power cap."""
    cap = cap_words(other.power_cap_watts)
    kinds = {other.gpu_kind for other in plan.alternatives} | {point.gpu_kind for point in plan.front}
    kinds |= {replica.gpu_kind for replica in plan.replicas}
    return (f" on {other.gpu_kind}" if len(kinds) > 1 else "") + cap


def loss_words(other: ServingAlternative) -> str:
    """Why an alternative is not the plan, as a sentence without its end."""
    match other.reason:
        case LossReason.FIRST_TOKEN_LIMIT:
            return f"its {FIRST_TOKEN} of {seconds(other.reason_value)} misses the limit"
        case LossReason.TOKEN_LIMIT:
            return f"its {TOKEN} of {seconds(other.reason_value)} misses the limit"
        case LossReason.ANSWER_LIMIT:
            return f"its {ANSWER} of {seconds(other.reason_value)} misses the limit"
        case LossReason.MEMORY:
            return f"each GPU lacks {gib(other.reason_value)} for the weights and one request"
        case LossReason.LOAD:
            return f"as many as fit keep up with {other.reason_value:,.3g} requests a second only"
    part = STEP_PARTS.get(other.slowest_part)
    worse = "worse by the objective" + (f": a decode step spends more on {part}" if part else "")
    return worse if other.worse_by else "as good by the objective"


def front_rows(plan: ServingPlan) -> tuple[FrontRow, ...]:
    """The Pareto front of each model, fastest for users first."""
    points = sorted(plan.front, key=lambda point: (point.model, -point.tokens_per_s_per_user))
    return tuple(
        _front_row(plan, point) for _, run in groupby(points, key=lambda each: each.model) for point in run
    )


def _front_row(plan: ServingPlan, point: FrontPoint) -> FrontRow:
    workload = plan.models[point.model].workload
    met = "within the limits" if workload.is_limited else ""
    verdict = "chosen" if point.is_chosen else met if point.meets_limits else "misses a limit"
    return FrontRow(
        model=plan.models[point.model].architecture.name,
        workers=configuration_words(point.configuration) + _kind_words(plan, point),
        concurrency=f"{point.concurrency:,.4g}",
        per_gpu=count(point.tokens_per_s_per_gpu),
        per_user=f"{point.tokens_per_s_per_user:,.3g}",
        first_token=seconds(point.first_token_s),
        verdict=verdict,
    )
