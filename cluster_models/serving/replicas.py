"""Replicas of a serving plan and the groups in which they answer requests.

A *replica* is one worker on its GPUs.  A *group* is the least number of replicas that answer requests by
themselves: one that does both phases, or prefill and decode replicas that pass caches to each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from cluster_models.cluster.gpus import GpuKind
from cluster_models.serving.figures import Interval, LimitedLatencies, StepShares
from cluster_models.serving.workload import Pool, ServingConfiguration, Worker


class Phase(StrEnum):
    """Part of a request's work that a replica does."""

    BOTH = "both"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True)
class GpuPlace:
    """GPUs of one node, by number, in the order of their ranks."""

    node: str
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ReplicaMemory:
    """Bytes on each GPU of a replica, of ``gpu_bytes`` there are.

    ``cache_bytes`` is what the engine keeps for caches, ``sequence_bytes`` the mean cache of one request of the
    workload's lengths, of which the whole replica holds ``most_sequences``.
    """

    gpu_bytes: float
    weight_bytes: float
    step_bytes: float
    cache_bytes: float
    sequence_bytes: float
    most_sequences: int


@dataclass(frozen=True, slots=True)
class Replica:
    """One worker on its GPUs.

    ``places`` in rank order: pipeline stages slowest, then attention data ranks, tensor ranks fastest.
    ``share`` is the part it takes of the requests that replicas of its model and phase answer, ``sequences`` the
    mean number it works on at once.  ``sequence_limit`` and ``token_limit`` are engine options: most sequences of
    an attention rank at once, most tokens of a step.  ``prefill`` and ``decode``: seconds of one prompt and of
    one decode step, ``None`` of a phase it does not do.
    ``power_cap_watts``: cap of each of its GPUs, ``None``: none.
    """

    number: int
    phase: Phase
    worker: Worker
    gpu_kind: str
    places: tuple[GpuPlace, ...]
    share: float
    sequences: float
    sequence_limit: int
    token_limit: int
    memory: ReplicaMemory
    prefill: StepShares | None
    decode: StepShares | None
    power_cap_watts: float | None = None

    def watts(self, kinds: Mapping[str, GpuKind]) -> float:
        """Power of its GPUs: that of their data sheet, or the cap."""
        return self.worker.gpus * (self.power_cap_watts or kinds[self.gpu_kind].power_watts)


@dataclass(frozen=True, slots=True)
class CacheTransfer:
    """Key-value cache of one prompt on its way to a decode replica, over the slowest link of the group."""

    cache_bytes: float
    bytes_per_s: float
    seconds: float
    crosses_nodes: bool


@dataclass(frozen=True, slots=True)
class ReplicaGroup:
    """Replicas that answer requests to ``model`` (counted in ``ServingPlan.models``) together.

    ``share`` is its part of the requests to that model; under it ``requests_per_s`` are answered with
    ``concurrency`` in flight.  ``most_requests_per_s`` is what it answers within the limits at most.  Latencies are
    means; ``limited_s`` those that the limits hold for.  ``drawn_watts``: mean power of its GPUs, estimated;
    ``None`` in plans of releases that did not say it.
    """

    model: int
    replicas: tuple[Replica, ...]
    share: float
    concurrency: float
    requests_per_s: float
    most_requests_per_s: float
    first_token_s: Interval
    token_s: Interval
    output_tokens_per_s: Interval
    limited_s: LimitedLatencies
    transfer: CacheTransfer | None = None
    drawn_watts: Interval | None = None

    @property
    def gpus(self) -> int:
        """GPUs of all its replicas."""
        return sum(replica.worker.gpus for replica in self.replicas)

    @property
    def configuration(self) -> ServingConfiguration:
        """Its pools; within a group the replicas of a phase are of one shape."""
        pools = {
            phase: Pool(members[0].worker, len(members))
            for phase in Phase
            if (members := [each for each in self.replicas if each.phase is phase])
        }
        if Phase.BOTH in pools:
            return ServingConfiguration(pools[Phase.BOTH])
        return ServingConfiguration(pools[Phase.DECODE], pools[Phase.PREFILL])
