"""A training run that somebody measured, or that somebody asks about without naming a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from cluster_models.cluster.gpus import GpuKind
from cluster_models.errors import InvalidConfiguration
from cluster_models.model.architecture import Architecture
from cluster_models.training.plan import Configuration
from cluster_models.training.workload import TrainingWorkload


class MemoryCounter(StrEnum):
    """Memory that a measured peak counts."""

    DRIVER = "driver"
    """Memory of the GPU that is taken, all of it (nvidia-smi)."""
    RESERVED = "reserved"
    """Memory that PyTorch's allocator took: without context, libraries and communicators."""
    ALLOCATED = "allocated"
    """Memory that tensors occupied (``torch.cuda.max_memory_allocated``)."""
    FORMULA = "formula"
    """A paper's own sum of model states and kept activations; nothing was measured."""


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Consecutive ranks that run on GPUs of one kind."""

    gpu: GpuKind
    gpus: int


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A whole configuration on nodes of one size, joined by links that are all alike.

    ``workload`` carries the framework.  ``network_bytes_per_s`` is the rate of the network between nodes per GPU
    and direction, and ``flow_bytes_per_s`` the most that a single GPU gets while others are silent (``None``: its
    share); both are nominal unless ``network_measured`` says that collectives were measured to reach them.
    ``fabric`` names the network's family as node kinds do.  Groups of up to ``gpus_per_domain`` consecutive GPUs
    stay inside an NVLink domain.
    ``groups`` are the GPU kinds in rank order (data ranks vary faster than pipeline ranks); empty means that all
    GPUs are ``gpu``.  Raises ``InvalidConfiguration`` where the groups hold fewer GPUs than the configuration.
    ``step_s`` and ``peak_memory_bytes`` are what was measured (``None``: was not), ``recompute_known`` whether
    the configuration states all that the memory depends on, without which it cannot be judged, and ``assumed``
    what was filled in for what the source leaves open, in words.  ``memory_counter`` counted the peak, on pipeline
    rank ``memory_stage`` (-1 the last, ``None`` the fullest).  Activations of ``offloaded_layers`` of every
    pipeline rank wait for their backward pass in the host's memory.
    """

    name: str
    architecture: Architecture
    workload: TrainingWorkload
    configuration: Configuration
    gpu: GpuKind
    gpus_per_node: int
    gpus_per_domain: int
    network_bytes_per_s: float
    flow_bytes_per_s: float | None = None
    fabric: str = "infiniband"
    network_measured: bool = False
    groups: tuple[NodeGroup, ...] = ()
    step_s: float | None = None
    peak_memory_bytes: float | None = None
    recompute_known: bool = True
    assumed: tuple[str, ...] = ()
    memory_counter: MemoryCounter = MemoryCounter.DRIVER
    memory_stage: int | None = None
    offloaded_layers: int = 0

    def __post_init__(self) -> None:
        gpus = self.configuration.degrees.gpus
        if self.groups and sum(group.gpus for group in self.groups) < gpus:
            raise InvalidConfiguration(
                "groups", [group.gpus for group in self.groups], f"hold fewer than the {gpus} GPUs of the degrees"
            )

    def replica_kinds(self) -> tuple[tuple[tuple[GpuKind, ...], ...], ...]:
        """The distinct replicas: for each pipeline rank of one, the GPU kinds under it, each once."""
        degrees = self.configuration.degrees
        if not self.groups:
            return (((self.gpu,),) * degrees.pipeline,)
        kinds = [group.gpu for group in self.groups for _ in range(group.gpus)]
        cell, stage = degrees.tensor * degrees.context, degrees.gpus // degrees.pipeline
        replicas: dict[tuple[tuple[str, ...], ...], tuple[tuple[GpuKind, ...], ...]] = {}
        for replica in range(degrees.data):
            firsts = [rank * stage + replica * cell for rank in range(degrees.pipeline)]
            under = [{kind.name: kind for kind in kinds[first : first + cell]} for first in firsts]
            replicas.setdefault(
                tuple(tuple(names) for names in under), tuple(tuple(names.values()) for names in under)
            )
        return tuple(replicas.values())
