"""A training run that somebody measured, or that somebody asks about without naming a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_models.architecture import Architecture
from cluster_models.gpus import GpuKind
from cluster_models.plan import Configuration
from cluster_models.workload import TrainingWorkload


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A whole configuration on nodes that are all alike, joined by links that are all alike.

    ``workload`` carries the framework.  ``network_bytes_per_s`` is the nominal rate of the network between nodes
    per GPU and direction; groups of up to ``gpus_per_domain`` consecutive GPUs stay inside an NVLink domain.
    ``step_s`` and ``peak_memory_bytes`` are what was measured (``None``: was not), ``recompute_known`` whether the
    recomputation is stated, without which the memory cannot be judged.
    """

    name: str
    architecture: Architecture
    workload: TrainingWorkload
    configuration: Configuration
    gpu: GpuKind
    gpus_per_node: int
    gpus_per_domain: int
    network_bytes_per_s: float
    step_s: float | None = None
    peak_memory_bytes: float | None = None
    recompute_known: bool = True
