"""Plan of a step of reinforcement learning: both parts, what passes between them, and the proof."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from cluster_models.model.architecture import Architecture
from cluster_models.reinforcement.workload import Arrangement, ReinforcementWorkload
from cluster_models.serving.plan import ServingPlan
from cluster_models.training.plan import Plan, Provenance, StopReason

NEXT_RATIO: Final = (1.02, 1.95)
"""Between which a measured step over the predicted one lies in nine cases of ten: ``python -m
benchmarks.reinforcement``, nine steps of NeMo RL, to which nothing is fitted."""


@dataclass(frozen=True, slots=True)
class StepParts:
    """Seconds of a step by part, and of the whole.

    ``rollout_s`` until the last response of the batch ends; ``training_s`` all updates with their forward passes;
    ``weights_s`` until the engine has the weights of the last update; ``offload_s`` the trainer's states to the
    nodes' memory and back.  ``is_overlapped``: rollout and training run at once, the shorter hides.
    """

    rollout_s: float
    training_s: float
    weights_s: float
    offload_s: float
    is_overlapped: bool

    @property
    def step_s(self) -> float:
        """Seconds from one step to the next."""
        both = (self.rollout_s, self.training_s)
        return (max(both) if self.is_overlapped else sum(both)) + self.weights_s + self.offload_s

    @property
    def low_s(self) -> float:
        """The least that a step took in nine cases of ten, as far as published steps tell."""
        return NEXT_RATIO[0] * self.step_s

    @property
    def high_s(self) -> float:
        """The most, likewise."""
        return NEXT_RATIO[1] * self.step_s


@dataclass(frozen=True, slots=True)
class Rollout:
    """Seconds of a batch on the replicas of a plan of serving, simulated.

    ``mean_s`` is when a replica is done on average, ``half_s`` when half of the responses have ended: after it the
    tail of long responses runs.
    """

    finish_s: float
    mean_s: float
    half_s: float


@dataclass(frozen=True, slots=True)
class WeightMove:
    """Weights on their way from trainer to engine.

    ``weight_bytes`` of the whole policy; ``network_bytes`` pass the link that is busiest, at ``bytes_per_s``;
    ``domain_bytes`` come to each GPU inside its node.
    """

    weight_bytes: float
    network_bytes: float
    bytes_per_s: float
    domain_bytes: float
    seconds: float


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Bytes of one GPU that both parts use in turns, the fullest of the trainer's.

    ``resident_bytes`` of the trainer stay while the engine generates, ``offloaded_bytes`` leave to the node's
    memory.  The engine may take ``engine_fraction`` of the GPU then, and keeps ``asleep_bytes`` while the trainer
    works.
    """

    gpu_bytes: float
    resident_bytes: float
    offloaded_bytes: float
    asleep_bytes: float
    engine_fraction: float


class SplitEnd(StrEnum):
    """End of a split in the search."""

    CHOSEN = "chosen"
    SLOWER = "slower"
    """It was planned, and its step takes longer."""
    RULED_OUT = "ruled_out"
    """Its bound is above the step of the plan, or too little below it to matter."""
    NO_TRAINING = "no_training"
    """The trainer does not fit."""
    NO_ROLLOUT = "no_rollout"
    """The engine does not fit."""
    NOT_REACHED = "not_reached"
    """The search ended before."""


@dataclass(frozen=True, slots=True)
class Split:
    """A way to share the nodes out, and what came of it.

    The trainer has at most ``training_nodes``, the engine ``rollout_nodes``; colocated both have the same.
    ``offloads``: the trainer's states leave the GPUs while the engine generates.  ``training_bound_s`` and
    ``rollout_bound_s`` are beaten by no plan of that part on so many nodes, ``bound_s`` by no step; ``None`` where
    nothing fits.
    """

    arrangement: Arrangement
    training_nodes: int
    rollout_nodes: int
    offloads: bool
    training_bound_s: float | None
    rollout_bound_s: float | None
    bound_s: float | None
    end: SplitEnd
    parts: StepParts | None = None


@dataclass(frozen=True, slots=True)
class JointCertificate:
    """How far from optimal the step can be.

    No step of the ``splits`` looked at is shorter than ``bound_s``: ``gap = (step_s - bound_s) / step_s``.
    ``plans_made`` of them have plans, ``ruled_out`` are not planned for their bounds.
    """

    step_s: float
    bound_s: float
    gap: float
    stopped_by: StopReason
    splits: int
    plans_made: int
    ruled_out: int


@dataclass(frozen=True, slots=True)
class ReinforcementPlan:
    """Both parts on their nodes, the step, and the splits that lost."""

    architecture: Architecture
    workload: ReinforcementWorkload
    arrangement: Arrangement
    training: Plan
    serving: ServingPlan
    parts: StepParts
    rollout: Rollout
    weights: WeightMove
    memory: SharedMemory | None
    """``None`` where the parts have nodes of their own."""
    splits: tuple[Split, ...]
    certificate: JointCertificate
    provenance: Provenance

    @property
    def training_nodes(self) -> tuple[str, ...]:
        """Nodes of the trainer, each once."""
        return tuple(dict.fromkeys(self.training.placement.hosts))

    @property
    def rollout_nodes(self) -> tuple[str, ...]:
        """Nodes of the engine, each once."""
        places = (place for replica in self.serving.replicas for place in replica.places)
        return tuple(dict.fromkeys(place.node for place in places))

    @property
    def responses_per_s(self) -> float:
        """Responses that are generated and learned from each second."""
        return self.workload.responses / self.parts.step_s


@dataclass(frozen=True, slots=True)
class NoReinforcementPlan:
    """Nothing fits: every split, with the part that does not."""

    splits: tuple[Split, ...]
    provenance: Provenance
