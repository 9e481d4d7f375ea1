"""Report of a finished run: what was measured, and what the plan had predicted."""

from __future__ import annotations

import math
from dataclasses import dataclass

from cluster_models.calibration.training_run import MemoryCounter
from cluster_models.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class NodeTime:
    """Mean seconds that the ranks of a node computed in a step, as the framework's own timers say."""

    node: str
    compute_s: float


@dataclass(frozen=True, slots=True)
class RunReport:
    """Figures of a measured run, in seconds and bytes.

    ``step_s`` is the median step after warm-up, ``step_low_s`` and ``step_high_s`` the 10th and 90th percentile,
    and ``steps`` how many were measured.  ``peak_memory_bytes`` is of the fullest GPU, by ``memory_counter``.
    Raises ``InvalidInput`` where percentiles are out of order, or a node is named twice.
    """

    step_s: float
    step_low_s: float | None = None
    step_high_s: float | None = None
    steps: int | None = None
    peak_memory_bytes: float | None = None
    memory_counter: MemoryCounter = MemoryCounter.DRIVER
    nodes: tuple[NodeTime, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        low, high = self.step_low_s or self.step_s, self.step_high_s or self.step_s
        if not 0.0 < low <= self.step_s <= high < math.inf:
            raise InvalidInput(
                "step_time_s",
                self.step_s,
                f"is not between its percentiles {low:g} and {high:g}",
                "give the median",
            )
        names = [each.node for each in self.nodes]
        if len(set(names)) < len(names):
            raise InvalidInput("nodes", names, "name a node twice", "give one figure for each node")


@dataclass(frozen=True, slots=True)
class PredictedRun:
    """Prediction of the plan of a run, and where it ran.

    ``low_s`` and ``high_s`` bound the plan's prediction interval, ``peak_memory_bytes`` is what the report's
    counter should have shown.  ``hosts`` are in rank order; ``pairs`` of them exchange most.
    """

    step_s: float
    low_s: float | None
    high_s: float | None
    peak_memory_bytes: float
    degrees: str
    gpus: int
    gpu_kinds: tuple[str, ...]
    hosts: tuple[str, ...]
    pairs: tuple[tuple[str, str], ...]
    calibration: str
