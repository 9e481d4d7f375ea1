"""Sizes and numbers of GPUs of the tests of one pair: both ends of the curve of time over bytes.

A transfer takes latency plus bytes over bandwidth.  Small messages tell the first, large ones the second; the sizes
that a plan sends lie between, and the large end reaches beyond the largest of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cluster_models.cluster.measurements import Collective
from cluster_models.training.plan import Plan
from cluster_models.units import GIB, MIB

LATENCY_BYTES: Final = (8, 8 * 1024)
"""At this range's end 10 GB/s takes 0.8 us, a tenth and less of what a transfer between nodes begins with."""
BANDWIDTH_BYTES: Final = (1 * MIB, 1 * GIB)
"""From some hundred latencies' worth of bytes to where 50 GB/s takes 20 ms: latency is lost in it."""
MOST_BYTES: Final = 4 * GIB
_LATENCY_STEP: Final = 32
_BANDWIDTH_STEP: Final = 4
_RUNS: Final = 2 * (5 + 20)
"""Runs of each size: 5 to warm up and 20 timed, out of place and in place, as nccl-tests does by default."""
LAUNCH_S: Final = 20.0
"""Seconds to start a test on two nodes and to set up its connections; assumed, only the budget hangs on it."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One call of nccl-tests: from ``smallest_bytes`` to ``largest_bytes``, each size ``factor`` times the last."""

    collective: Collective
    ranks_per_node: int
    smallest_bytes: int
    largest_bytes: int
    factor: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes in bytes."""
        sizes, size = [], self.smallest_bytes
        while size <= self.largest_bytes:
            sizes.append(size)
            size *= self.factor
        return tuple(sizes)

    def seconds(self, latency_s: float, bytes_per_s: float) -> float:
        """About how long it takes where each flow has this latency and bandwidth."""
        return LAUNCH_S + _RUNS * sum(latency_s + size / bytes_per_s for size in self.sizes)


def trials(gpus: int, plan: Plan | None = None) -> tuple[Trial, ...]:
    """The tests of a pair of nodes with ``gpus`` GPUs each.

    One flow alone: ``sendrecv`` of one GPU, small and large.  All at once: ``alltoall`` of all GPUs, large only.
    Both are exact for the link model (docs/links.md), which other collectives are not.
    """
    smallest, largest = _large_range(plan)
    alone = [
        Trial(Collective.SEND_RECV, 1, *LATENCY_BYTES, _LATENCY_STEP),
        Trial(Collective.SEND_RECV, 1, smallest, largest, _BANDWIDTH_STEP),
    ]
    if gpus == 1:
        return tuple(alone)
    return (*alone, Trial(Collective.ALL_TO_ALL, gpus, smallest, largest, _BANDWIDTH_STEP))


def _large_range(plan: Plan | None) -> tuple[int, int]:
    """The large range, widened by powers of two until the plan's own messages lie inside."""
    low, high = BANDWIDTH_BYTES
    for message in plan_messages(plan):
        low = min(low, max(64 * 1024, 1 << max(0, int(message).bit_length() - 1)))
        high = max(high, min(MOST_BYTES, 1 << int(message).bit_length()))
    while (high // low).bit_length() % 2 == 0 and high < MOST_BYTES:
        high *= 2  # so that steps of four end at the largest size
    return low, high


def plan_messages(plan: Plan | None) -> tuple[float, ...]:
    """Bytes that one GPU of the plan sends at once: activations to the next stage, gradients of its layers.

    Activations of a micro-batch have 2 bytes an element and are split over tensor and context ranks; gradients are
    4 bytes a parameter, split over tensor and pipeline ranks.  Empty where the plan does not say what it trains.
    """
    if plan is None or plan.architecture is None or plan.workload is None:
        return ()
    degrees, model = plan.configuration.degrees, plan.architecture
    tokens = plan.configuration.micro_batch * plan.workload.sequence_length
    activations = 2.0 * tokens * model.hidden / (degrees.tensor * degrees.context)
    gradients = 4.0 * model.parameters() / (degrees.tensor * degrees.pipeline)
    return (activations,) * (degrees.pipeline > 1) + (gradients,) * (degrees.data > 1)
