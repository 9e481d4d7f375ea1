"""Serving: what requests ask for, and the workers that answer them.

A *worker* is one copy of the model: ``tensor x pipeline x attention_data`` GPUs that step together.  A *pool* is a
number of equal workers.  Aggregated serving has one pool that prefills and decodes; split serving has a pool for
each and sends the key-value cache from one to the other.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean
from typing import Any, Final

from cluster_models.cluster.gpus import GpuKind, Precision
from cluster_models.errors import InvalidConfiguration, InvalidWorkload
from cluster_models.model.architecture import Architecture
from cluster_models.serving.adapters import ServedAdapters
from cluster_models.serving.engines import DEFAULT_ENGINE, ServingEngine
from cluster_models.serving.requests import MOST_CLASSES, Lengths, RequestClass, check_limits, limits_of
from cluster_models.serving.routing import ServedRouting
from cluster_models.serving.traces import Trace

MOST_REQUESTS: Final = 10**6
MOST_DEGREE: Final = 4096
MOST_REPLICAS: Final = 100_000
MOST_DRAFTS: Final = 16
MOST_IMBALANCE: Final = 1000.0


class WeightFormat(StrEnum):
    """How the weights of matrix products lie in memory."""

    BF16 = "bf16"
    FP8 = "fp8"
    """8 bits, a scale per tensor, row or block."""
    INT8 = "int8"
    INT4 = "int4"
    """4-bit weights with a 16-bit scale per 32 of them, computed in 16 bits (w4a16)."""
    NVFP4 = "nvfp4"
    """4 bits with an 8-bit scale per 16 elements."""
    MXFP4 = "mxfp4"
    """4 bits with an 8-bit scale per 32 elements (OCP Microscaling Formats 1.0)."""

    @property
    def element_bytes(self) -> float:
        """Bytes of a weight with its share of the scales."""
        return {"bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5625, "nvfp4": 0.5625, "mxfp4": 0.53125}[self]

    @property
    def is_four_bit(self) -> bool:
        """Whether a weight has four bits."""
        return self in (WeightFormat.INT4, WeightFormat.NVFP4, WeightFormat.MXFP4)

    def peak_flops(self, gpu: GpuKind) -> float:
        """Dense peak (FLOP/s) of the products that ``gpu`` computes with such weights.

        A format that the tensor cores lack is widened to the next one they have: weights are dequantised in
        registers. MXFP4 weights meet FP8 activations (gpt-oss' reference kernels), which run at the speed of FP8.
        """
        chain = {
            WeightFormat.BF16: (Precision.BF16, Precision.FP16),
            WeightFormat.FP8: (Precision.FP8, Precision.BF16, Precision.FP16),
            WeightFormat.INT8: (Precision.FP8, Precision.BF16, Precision.FP16),
            WeightFormat.INT4: (Precision.BF16, Precision.FP16),
            WeightFormat.NVFP4: (Precision.NVFP4, Precision.BF16, Precision.FP16),
            WeightFormat.MXFP4: (
                (Precision.FP8, Precision.BF16)
                if Precision.NVFP4 in gpu.peak_flops or gpu.vendor == "AMD"
                else (Precision.BF16, Precision.FP16)
            ),
        }[self]
        return next(gpu.peak_flops[each] for each in (*chain, *gpu.peak_flops) if each in gpu.peak_flops)


class CacheFormat(StrEnum):
    """How keys and values lie in memory."""

    BF16 = "bf16"
    FP8 = "fp8"

    @property
    def element_bytes(self) -> float:
        """Bytes of an element."""
        return 1.0 if self is CacheFormat.FP8 else 2.0


@dataclass(frozen=True, slots=True)
class Speculation:
    """Multi-token prediction or a draft model.

    On average ``accepted_tokens`` of the ``draft_tokens`` of a step stay: a step yields ``1 + accepted_tokens``
    tokens (Leviathan et al. 2023, arXiv 2211.17192, section 3).
    """

    draft_tokens: int
    accepted_tokens: float

    def __post_init__(self) -> None:
        if not 1 <= self.draft_tokens <= MOST_DRAFTS:
            raise InvalidWorkload(
                "workload.speculation.draft_tokens", self.draft_tokens, f"must lie in 1..{MOST_DRAFTS}"
            )
        if not 0 <= self.accepted_tokens <= self.draft_tokens:
            raise InvalidWorkload(
                "workload.speculation.accepted_tokens",
                self.accepted_tokens,
                f"must lie in 0..{self.draft_tokens}, the tokens that are drafted",
            )


@dataclass(frozen=True, slots=True)
class ServingWorkload:
    """Requests and the engine that answers them.

    ``input_tokens`` and ``output_tokens`` are means; ``classes`` say more of the lengths, all of them answered by
    the same replicas, or a ``trace`` does (``mixed`` and ``traced`` make such workloads).  Either ``concurrency``
    requests are always in flight (a closed loop: a client sends its next request when the last is answered) or
    ``requests_per_s`` arrive on average.

    ``attention_weights`` is the format of attention where it differs from ``weights``; ``None`` leaves attention of
    expert models in 16 bits under 4-bit experts, as published checkpoints do.  ``cache`` ``None`` is the engine's
    default.  ``time_to_first_token_s``, ``time_per_output_token_s`` and ``end_to_end_s`` (to the last token) are
    limits, on means or on ``limit_percentile`` of the requests; ``memory_fraction`` is the share of a GPU's memory
    that the engine may take (``None``: the engine's default).  ``prefix_share`` of a prompt's tokens have their
    keys and values in the cache already, as the start of an earlier prompt.  ``prefill_imbalance`` and
    ``decode_imbalance`` are the excess load of the busiest of many expert ranks in a phase, as its map leaves it
    (``None``: as fitted).  ``adapters`` are low-rank ones that requests name;
    ``routing`` are counts for which experts are placed, which say the imbalance of every number of ranks.
    """

    input_tokens: float
    output_tokens: float
    concurrency: float | None = None
    requests_per_s: float | None = None
    weights: WeightFormat = WeightFormat.BF16
    attention_weights: WeightFormat | None = None
    cache: CacheFormat | None = None
    engine: ServingEngine = DEFAULT_ENGINE
    speculation: Speculation | None = None
    time_to_first_token_s: float | None = None
    time_per_output_token_s: float | None = None
    memory_fraction: float | None = None
    prefix_share: float = 0.0
    limit_percentile: float | None = None
    end_to_end_s: float | None = None
    prefill_imbalance: float | None = None
    decode_imbalance: float | None = None
    adapters: ServedAdapters | None = None
    routing: ServedRouting | None = None
    classes: tuple[RequestClass, ...] = ()
    trace: Trace | None = None

    @classmethod
    def traced(cls, trace: Trace, limited: Sequence[RequestClass] = (), **given: Any) -> ServingWorkload:
        """Requests as in ``trace``, with its means and at its rate; raises ``InvalidWorkload``.

        ``limited`` have the limits of classes that the trace names, their lengths and shares being the trace's.
        """
        inputs, outputs = fmean(trace.input_tokens), fmean(trace.output_tokens)
        classes = tuple(_traced_classes(trace, limited))
        return cls(inputs, outputs, requests_per_s=trace.requests_per_s, classes=classes, trace=trace, **given)

    @classmethod
    def mixed(cls, classes: tuple[RequestClass, ...], **given: Any) -> ServingWorkload:
        """Requests of ``classes``, with means over them; raises ``InvalidWorkload``."""
        total = sum(each.share for each in classes) or 1.0
        inputs, outputs = (
            sum(each.share / total * getattr(each, name).mean for each in classes) for name in ("inputs", "outputs")
        )
        return cls(inputs, outputs, classes=classes, **given)

    def __post_init__(self) -> None:
        for name in ("input_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise InvalidWorkload(f"workload.{name}", getattr(self, name), "must be at least 1")
        if (self.concurrency is None) == (self.requests_per_s is None):
            raise InvalidWorkload(
                "workload.concurrency",
                self.concurrency,
                "a load is either a number of requests in flight or a rate of arrivals",
                "give exactly one of concurrency and requests_per_s",
            )
        for name, most in (("concurrency", MOST_REQUESTS), ("requests_per_s", MOST_REQUESTS)):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and 0 < value <= most):
                raise InvalidWorkload(f"workload.{name}", value, f"must be above 0 and at most {most}")
        check_limits(self, "workload.")
        self._check_classes()
        self._check_shares()

    def _check_classes(self) -> None:
        names = [each.name for each in self.classes]
        if len(names) > MOST_CLASSES:
            raise InvalidWorkload("workload.classes", len(names), f"must be at most {MOST_CLASSES}")
        for index, name in enumerate(names):
            if name in names[:index]:
                raise InvalidWorkload(f"workload.classes[{index}].name", name, "another class has this name")
        if self.trace is not None:
            if self.trace.cached_tokens and self.prefix_share:
                problem = "conflicts with a trace that says which tokens are cached"
                raise InvalidWorkload("workload.prefix_share", self.prefix_share, problem, "leave it out")
        elif self.classes and self.prefix_share:
            remedy = "give prefix_share of each class"
            raise InvalidWorkload("workload.prefix_share", self.prefix_share, "belongs to classes here", remedy)

    def _check_shares(self) -> None:
        for name in ("prefill_imbalance", "decode_imbalance"):
            value = getattr(self, name)
            if value is not None and self.routing is not None:
                problem = "conflicts with routing, from which it follows"
                raise InvalidWorkload(f"workload.{name}", value, problem, "leave one of them out")
            if value is not None and not 0 <= value <= MOST_IMBALANCE:
                remedy = "0.1 is a busiest rank a tenth above the mean; experts serving says what a map leaves"
                raise InvalidWorkload(f"workload.{name}", value, f"must lie in 0..{MOST_IMBALANCE:g}", remedy)
        if self.memory_fraction is not None and not 0 < self.memory_fraction <= 1:
            raise InvalidWorkload("workload.memory_fraction", self.memory_fraction, "must lie in (0, 1]")
        if not 0 <= self.prefix_share < 1:
            raise InvalidWorkload("workload.prefix_share", self.prefix_share, "must lie in [0, 1)")

    def attention_format(self, architecture: Architecture) -> WeightFormat:
        """The format of the attention weights and the shared part of ``architecture``."""
        if self.attention_weights is not None:
            return self.attention_weights
        sparse = architecture.experts is not None
        return WeightFormat.BF16 if sparse and self.weights.is_four_bit else self.weights

    @property
    def limits_s(self) -> tuple[float, ...]:
        """Limits in the order of ``LATENCIES``, infinite where there is none: all requests, then each class."""
        return (*limits_of(self), *(limit for each in self.classes for limit in limits_of(each)))

    @property
    def is_mixed(self) -> bool:
        """Whether its requests may differ in length."""
        return bool(self.classes) or self.trace is not None

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes."""
        return tuple(each.name for each in self.classes)

    @property
    def limit_shares(self) -> tuple[float | None, ...]:
        """Share of the requests that each three of ``limits_s`` hold for, ``None`` for the mean."""
        own = (each.limit_percentile or self.limit_percentile for each in self.classes)
        return (self.limit_percentile, *own)

    @property
    def new_tokens(self) -> float:
        """Mean tokens of a prompt that are prefilled, the others being cached."""
        if self.trace is not None and self.trace.new_tokens is not None:
            return self.trace.new_tokens
        if self.trace is not None or not self.classes:
            return self.input_tokens * (1.0 - self.prefix_share)
        total = sum(each.share for each in self.classes)
        return sum(each.share / total * each.inputs.mean * (1.0 - each.prefix_share) for each in self.classes)

    @property
    def longest_prompt(self) -> float:
        """Tokens of the longest prompt."""
        if self.trace is not None:
            return max(self.trace.input_tokens)
        return max((each.inputs.tokens[-1] for each in self.classes), default=self.input_tokens)

    @property
    def held_tokens(self) -> float:
        """Mean tokens that a sequence holds while it decodes: longer answers decode for longer."""
        if self.trace is not None:
            return self.trace.held_tokens
        if not self.classes:
            return self.input_tokens + self.output_tokens / 2.0
        held = sum(each.share * each.held_tokens for each in self.classes)
        return held / sum(each.share * each.outputs.mean for each in self.classes)

    @property
    def is_limited(self) -> bool:
        """Whether it limits a latency."""
        return min(self.limits_s) < math.inf

    @property
    def cache_format(self) -> CacheFormat:
        """The format of keys and values."""
        if self.cache is not None:
            return self.cache
        narrow = self.engine.narrow_cache and self.weights is not WeightFormat.BF16
        return CacheFormat.FP8 if narrow else CacheFormat.BF16


def _traced_classes(trace: Trace, limited: Sequence[RequestClass]) -> Iterator[RequestClass]:
    """The classes of ``trace`` in its order, with mean lengths, and limits where ``limited`` has some."""
    names = trace.class_names
    for index, each in enumerate(limited):
        if each.name not in names:
            known = f"the trace names {', '.join(names)}" if names else "give the trace a column class"
            raise InvalidWorkload(f"workload.classes[{index}].name", each.name, "is not one of the trace", known)
    limits = {each.name: each for each in limited}
    for name in names:
        rows = [row for row, own in enumerate(trace.classes) if own == name]
        inputs, outputs = (
            Lengths((fmean(column[row] for row in rows),)) for column in (trace.input_tokens, trace.output_tokens)
        )
        own = limits.get(name) or RequestClass(name, 1.0, inputs, outputs)
        yield replace(own, share=float(len(rows)), inputs=inputs, outputs=outputs)


@dataclass(frozen=True, slots=True)
class Worker:
    """Degrees of one copy of the model.

    ``attention_data`` ranks hold attention whole and answer requests of their own, while the experts (and nothing
    else) are spread over all of them; ``expert`` is the number of groups among which experts are divided, each
    expert sliced over ``expert_tensor`` GPUs.
    """

    tensor: int = 1
    pipeline: int = 1
    attention_data: int = 1
    expert: int = 1

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not 1 <= getattr(self, name) <= MOST_DEGREE:
                raise InvalidConfiguration(name, getattr(self, name), f"must lie in 1..{MOST_DEGREE}")
        if self.stage_gpus % self.expert:
            raise InvalidConfiguration(
                "expert",
                self.expert,
                f"must divide tensor x attention_data = {self.stage_gpus}",
                f"use a divisor of {self.stage_gpus}",
            )

    @property
    def stage_gpus(self) -> int:
        """GPUs of one pipeline stage."""
        return self.tensor * self.attention_data

    @property
    def gpus(self) -> int:
        """GPUs of the worker."""
        return self.stage_gpus * self.pipeline

    @property
    def expert_tensor(self) -> int:
        """GPUs over which each expert is sliced."""
        return self.stage_gpus // self.expert

    def __str__(self) -> str:
        names = (
            ("tp", self.tensor),
            ("pp", self.pipeline),
            ("attention dp", self.attention_data),
            ("ep", self.expert),
        )
        return " ".join(f"{name}{value}" for name, value in names if value > 1) or "tp1"


@dataclass(frozen=True, slots=True)
class Pool:
    """``replicas`` equal workers."""

    worker: Worker
    replicas: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.replicas <= MOST_REPLICAS:
            raise InvalidConfiguration("replicas", self.replicas, f"must lie in 1..{MOST_REPLICAS}")

    @property
    def gpus(self) -> int:
        """GPUs of the pool."""
        return self.worker.gpus * self.replicas

    def __str__(self) -> str:
        return f"{self.replicas} x {self.worker}"


@dataclass(frozen=True, slots=True)
class ServingConfiguration:
    """The pools of a deployment: ``decode`` alone does both phases, with ``prefill`` the phases are split."""

    decode: Pool
    prefill: Pool | None = None

    @property
    def is_split(self) -> bool:
        """Whether prefill and decode run on GPUs of their own."""
        return self.prefill is not None

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools, prefill first."""
        return (self.decode,) if self.prefill is None else (self.prefill, self.decode)

    @property
    def gpus(self) -> int:
        """GPUs of all pools."""
        return sum(pool.gpus for pool in self.pools)
