"""Measurements of the profiler script on one GPU node (``app/profiler/gpu_profile.py``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from cluster_models.cluster.gpus import Precision
from cluster_models.cluster.measurements import Collective
from cluster_models.errors import InvalidInput
from cluster_models.training.framework_choices import AttentionKernels


@dataclass(frozen=True, slots=True)
class KernelTime:
    """Seconds of one call: the median of ``samples``, and their 10th and 90th percentile."""

    median_s: float
    low_s: float
    high_s: float
    samples: int

    def __post_init__(self) -> None:
        if not 0 < self.low_s <= self.median_s <= self.high_s:
            raise InvalidInput(
                "median_s",
                [self.low_s, self.median_s, self.high_s],
                "10th percentile, median and 90th percentile must be positive and in this order",
            )


@dataclass(frozen=True, slots=True)
class MatmulTiming:
    """``batch`` products (m x k) @ (k x n) in one call; ``sustained``: in a long run under the power limit."""

    precision: Precision
    m: int
    n: int
    k: int
    batch: int
    sustained: bool
    time: KernelTime


class StreamOperation(StrEnum):
    """Work of a memory-bound kernel."""

    COPY = "copy"
    TRIAD = "triad"


@dataclass(frozen=True, slots=True)
class StreamTiming:
    """A memory-bound kernel that moves ``nbytes``, reads and writes together."""

    operation: StreamOperation
    nbytes: int
    time: KernelTime


@dataclass(frozen=True, slots=True)
class AttentionTiming:
    """Fused causal attention of ``batch`` sequences, forward or ``backward``."""

    kernels: AttentionKernels
    backward: bool
    precision: Precision
    batch: int
    heads: int
    head_size: int
    sequence: int
    time: KernelTime


@dataclass(frozen=True, slots=True)
class CollectiveTiming:
    """One collective among ``ranks`` GPUs on ``nodes`` nodes; ``message_bytes`` as nccl-tests counts them."""

    collective: Collective
    ranks: int
    nodes: int
    message_bytes: int
    time: KernelTime


@dataclass(frozen=True, slots=True)
class HardwareProfile:
    """One run of the profiler.

    ``device`` is the product name that the driver reports, ``is_gpu`` false where the script was only tried on a
    CPU.  ``facts`` holds what the machine says of itself: versions, host, clocks.  ``skipped`` names what could
    not be measured, with the reason.
    """

    device: str
    is_gpu: bool
    taken_at: datetime
    matmuls: tuple[MatmulTiming, ...]
    streams: tuple[StreamTiming, ...]
    attentions: tuple[AttentionTiming, ...]
    launches: tuple[KernelTime, ...]
    collectives: tuple[CollectiveTiming, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    facts: dict[str, str] = field(default_factory=dict, hash=False)
