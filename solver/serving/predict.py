"""Prediction of one serving case: latencies, throughput, memory and where the time goes, with intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from cluster_models.errors import InvalidWorkload
from cluster_models.serving.checks import check_serving
from cluster_models.serving.figures import Interval, Percentiles, StepShares
from cluster_models.serving.hardware import check_gpu
from cluster_models.serving.requests import LATENCIES
from cluster_models.serving.traces import Trace
from cluster_models.serving.workload import Pool, ServingWorkload
from solver.serving.arrivals import open_state
from solver.serving.cases import Arrays, ServingCase, arrays_of, steady_of
from solver.serving.draw import drawn_watts
from solver.serving.memory import WorkerMemory
from solver.serving.percentiles import (
    limited_latencies,
    percentiles_of,
)
from solver.serving.rates import Effects, Fitted, Rates, held_out_spreads, known_levels, rates_of, shipped_rates
from solver.serving.simulation import Answered, simulate_trace
from solver.serving.steady_state import Steady
from solver.serving.steps import StepTime

RATE_STEPS: Final = 20
"""Halvings of the search for the largest rate that is kept up with, a millionth of the one asked for."""


@dataclass(frozen=True, slots=True)
class PoolMemory:
    """Memory of one GPU of a pool; ``most_sequences`` of a worker, below 1 where it does not hold a request."""

    role: str
    pool: Pool
    weight_bytes: float
    step_bytes: float
    cache_bytes: float
    sequence_bytes: float
    most_sequences: float


@dataclass(frozen=True, slots=True)
class ClassPercentiles:
    """Percentiles between the requests of one class."""

    name: str
    first_token: Percentiles
    token: Percentiles


@dataclass(frozen=True, slots=True)
class ServingPrediction:
    """A case under its load.

    ``concurrency`` requests are in flight, of which ``decoding`` decode in each worker; ``queue_s`` is the part of
    the time to the first token that a request waits because caches or the engine's limit are full.
    ``most_requests`` are those that the deployment holds at once.  ``missed_limits`` names limits of the workload
    that are not met, by the mean or by the percentile that the workload states; ``*_percentiles`` are those between
    requests, and of ``classes``.  ``drawn_watts``: mean power of all GPUs.
    """

    fits: bool
    first_token_s: Interval
    token_s: Interval
    output_tokens_per_s: Interval
    output_tokens_per_s_per_gpu: float
    requests_per_s: float
    concurrency: float
    decoding: float
    queue_s: float
    most_requests: int
    memory: tuple[PoolMemory, ...]
    prefill: StepShares
    decode: StepShares
    measured_engine: bool
    missed_limits: tuple[str, ...]
    first_token_percentiles: Percentiles
    token_percentiles: Percentiles
    drawn_watts: Interval
    classes: tuple[ClassPercentiles, ...] = ()


def predict_serving(case: ServingCase, effects: Effects | Fitted | None = None) -> ServingPrediction:
    """The prediction of ``case``.

    Raises ``InvalidWorkload`` or ``InvalidConfiguration`` where model, engine and degrees do not go together, and
    ``InvalidWorkload`` for a rate of arrivals beyond what the configuration serves.
    """
    check_serving(case.architecture, case.workload, case.configuration)
    check_gpu(case.workload, case.gpu)
    arrays, rates = arrays_of([case]), rates_of([case.properties], effects, [case.shifts])
    arrivals = case.workload.requests_per_s
    steady = steady_under(case, arrays, rates)
    rate = float(steady.requests_per_s[0])
    output = rate * case.workload.output_tokens
    stay = float(steady.first_token_s[0] + (case.workload.output_tokens - 1) * steady.token_s[0])
    first = _interval(case, float(steady.first_token_s[0]), "first_token")
    token = _interval(case, float(steady.token_s[0]), "token")
    pools = case.configuration.pools
    memories = (arrays.decode_memory,) if len(pools) == 1 else (arrays.prefill_memory, arrays.decode_memory)
    roles = ("prefill and decode",) if len(pools) == 1 else ("prefill", "decode")
    workload = case.workload
    limited = limited_latencies(steady, arrays.kinds, workload)[0]
    first_percentiles, token_percentiles = percentiles_of(steady, arrays.kinds, 0)
    return ServingPrediction(
        fits=bool(arrays.fits[0]),
        first_token_s=first,
        token_s=token,
        output_tokens_per_s=_interval(case, output, "throughput"),
        output_tokens_per_s_per_gpu=output / case.configuration.gpus,
        requests_per_s=rate,
        concurrency=float(arrays.traffic.concurrency[0]) if arrivals is None else rate * stay,
        decoding=float(steady.decoding[0]),
        queue_s=float(steady.queue_s[0]),
        most_requests=math.floor(float(arrays.traffic.most_sequences[0]) * case.configuration.decode.replicas),
        memory=tuple(
            _pool_memory(role, pool, memory) for role, pool, memory in zip(roles, pools, memories, strict=True)
        ),
        prefill=_shares(steady.prefill),
        decode=_shares(steady.decode),
        measured_engine=case.fitted is not None or _is_measured(case),
        missed_limits=tuple(_missed(workload, limited.tolist())),
        first_token_percentiles=first_percentiles,
        token_percentiles=token_percentiles,
        drawn_watts=drawn_watts(case, arrays, steady),
        classes=tuple(
            ClassPercentiles(name, *percentiles_of(steady, arrays.kinds, index + 1))
            for index, name in enumerate(workload.class_names)
        ),
    )


def predict_trace(case: ServingCase, trace: Trace, effects: Effects | Fitted | None = None) -> Answered:
    """Times of every request of a trace of arrivals, simulated step by step.

    Raises as ``predict_serving`` does.
    """
    check_serving(case.architecture, case.workload, case.configuration)
    check_gpu(case.workload, case.gpu)
    return simulate_trace(arrays_of([case]), rates_of([case.properties], effects, [case.shifts]), trace)


def steady_under(case: ServingCase, arrays: Arrays, rates: Rates) -> Steady:
    """The steady state of ``case`` under its load; raises ``InvalidWorkload`` where a rate is not kept up with."""
    rate = case.workload.requests_per_s
    return steady_of(arrays, rates) if rate is None else _under_arrivals(rate, arrays, rates)


def _under_arrivals(rate: float, arrays: Arrays, rates: Rates) -> Steady:
    """The state under ``rate`` requests a second; raises ``InvalidWorkload`` where it is not kept up with."""

    def state(requests_per_s: float) -> Steady:
        return open_state(arrays.decode, arrays.prefill, rates, arrays.traffic, np.array([requests_per_s]))

    found = state(rate)
    if math.isfinite(found.queue_s[0]):
        return found
    low, high = 0.0, rate
    for _ in range(RATE_STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if math.isfinite(state(middle).queue_s[0]) else (low, middle)
    raise InvalidWorkload(
        "workload.requests_per_s",
        rate,
        f"the configuration answers at most {low:.3g} requests/s, and its queue would grow without end",
        "lower the rate or add replicas",
    )


def _missed(workload: ServingWorkload, limited_s: Sequence[float]) -> Iterator[str]:
    """Names of the limits that are missed, those of a class after its name: chat.end_to_end_s."""
    prefixes = ("", *(f"{name}." for name in workload.class_names))
    for place, (limit, value) in enumerate(zip(workload.limits_s, limited_s, strict=True)):
        if value > limit:
            yield prefixes[place // 3] + LATENCIES[place % 3]


def _is_measured(case: ServingCase) -> bool:
    """Whether runs of this engine generation on this kind of GPU are among those that the rates were fitted to."""
    properties = case.properties
    return f"engine@gpu:{properties['engine']}@{properties['gpu']}" in shipped_rates().known


def _evidence(case: ServingCase) -> str:
    """The groups held out whose errors are like those of ``case``."""
    if not _is_measured(case):
        return "engine and GPU"
    return "sweep" if known_levels(case.properties) <= shipped_rates().known else "model"


def interval_spread(case: ServingCase, figure: str) -> float:
    """|log(predicted / measured)| within which four rows in five like ``case`` lie, of ``figure``."""
    if case.fitted is not None and figure in case.fitted.spreads:
        return case.fitted.spreads[figure]
    return _spreads()[(_evidence(case), figure)]


def _interval(case: ServingCase, value: float, figure: str) -> Interval:
    spread = interval_spread(case, figure)
    return Interval(value, value * math.exp(-spread), value * math.exp(spread))


@cache
def _spreads() -> dict[tuple[str, str], float]:
    return {(each.group, each.figure): each.log_spread for each in held_out_spreads()}


def _pool_memory(role: str, pool: Pool, memory: WorkerMemory) -> PoolMemory:
    return PoolMemory(
        role,
        pool,
        float(memory.weight_bytes[0]),
        float(memory.step_bytes[0]),
        float(memory.cache_bytes[0]),
        float(memory.sequence_bytes[0]),
        float(memory.most_sequences[0]),
    )


def _shares(step: StepTime) -> StepShares:
    return StepShares(*(float(getattr(step, name)[0]) for name in StepShares.__slots__))
