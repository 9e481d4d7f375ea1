"""Time and memory of pipeline ranks, by part."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class TimeBreakdown:
    """Parts of the step of a pipeline rank, in seconds; they add up to ``step_s``.  A plan's is its busiest rank's.

    ``pipeline_bubble_s`` is idle time with transfers at zero cost, ``pipeline_transfer_s`` what the transfers
    add to it; ``*_exposed_s`` is the part that nothing hides.
    """

    step_s: float
    compute_s: float
    tensor_s: float
    context_s: float
    expert_s: float
    pipeline_bubble_s: float
    pipeline_transfer_s: float
    data_exposed_s: float
    optimizer_s: float
    offload_s: float = 0.0
    """Transfers to and from the node's memory and the update there, as far as nothing hides them."""


TIME_PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "compute_s": "compute",
        "tensor_s": "tensor parallel communication",
        "context_s": "context parallel communication",
        "expert_s": "expert parallel communication",
        "pipeline_bubble_s": "pipeline bubble",
        "pipeline_transfer_s": "pipeline transfers",
        "data_exposed_s": "exposed data parallel communication",
        "optimizer_s": "optimizer step",
        "offload_s": "optimizer step in the node's memory",
    }
)
"""The fields of ``TimeBreakdown`` that add up to the step, in the order they are shown, and their names."""
_RARE: Final = "offload_s"


def parts_shown(*times: TimeBreakdown) -> tuple[str, ...]:
    """The fields of ``TIME_PARTS``, without that of offloading where none of ``times`` has any."""
    return tuple(part for part in TIME_PARTS if part != _RARE or any(getattr(time, part) for time in times))


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Predicted peak bytes on each GPU of one pipeline rank, by part, against the limit."""

    stage: int
    weights_bytes: float
    gradients_bytes: float
    optimizer_bytes: float
    activations_bytes: float
    logits_bytes: float
    communication_bytes: float
    runtime_bytes: float
    fragmentation_bytes: float
    limit_bytes: float
    host_bytes: float = 0.0
    """Bytes in the node's memory, which are not part of the total."""
    disk_bytes: float = 0.0
    """The same on its disks."""

    @property
    def total_bytes(self) -> float:
        """Sum of all parts."""
        return float(sum(getattr(self, part) for part in MEMORY_PARTS))


MEMORY_PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "weights_bytes": "weights",
        "gradients_bytes": "gradients",
        "optimizer_bytes": "optimizer state",
        "activations_bytes": "activations",
        "logits_bytes": "logits and loss",
        "communication_bytes": "communication buffers",
        "runtime_bytes": "runtime and context",
        "fragmentation_bytes": "fragmentation",
    }
)
"""The fields of ``StageMemory`` that add up to its total, in the order they are shown, and their names."""


@dataclass(frozen=True, slots=True)
class StageTime:
    """Forward and backward seconds of one micro-batch on one pipeline rank (all its virtual stages).

    ``gpu_kind`` names the GPUs that it runs on; empty in plans made by hand.  ``time`` has the parts of the step on
    this rank, in the replica that ends last; ``None`` in plans of before they were kept.
    """

    stage: int
    forward_s: float
    backward_s: float
    data_parallel_s: float
    gpu_kind: str = ""
    time: TimeBreakdown | None = None
