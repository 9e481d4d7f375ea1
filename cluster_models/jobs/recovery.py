"""The answer to failures: for each job what is done, what moves and what it costs; for the batch the proof."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from cluster_models.jobs.serving import ServingAction, ServingDecision
from cluster_models.jobs.times import NO_TIME, TimeRange
from cluster_models.remarks import Remark
from cluster_models.training.failure_domains import FailureDomainLosses
from cluster_models.training.plan import Plan, StopReason


class RecoveryAction(StrEnum):
    """Action on a job."""

    NONE = "none"
    """It runs on as it is: nothing it uses failed, or leaving would cost more than it gains."""
    RESTART_IN_PLACE = "restart_in_place"
    """The same ranks on the same GPUs, started again from the last checkpoint."""
    SWAP = "swap"
    """The same shape; the lost coordinates go to spare GPUs."""
    SHRINK_DATA_PARALLEL = "shrink_data_parallel"
    """The replicas that lost ranks are dropped, their live GPUs become free."""
    REROUTE = "reroute"
    """Data ranks of the same stage take over the micro-batches of the lost ones."""
    RESHAPE = "reshape"
    """Other degrees."""
    WAIT = "wait"
    """It stands still on its GPUs until the lost ones are back."""
    PAUSE = "pause"
    """It ends at its last checkpoint and frees its GPUs."""


AS_RECOVERY: Final[Mapping[ServingAction, RecoveryAction]] = MappingProxyType(
    {
        ServingAction.CARRY_ON: RecoveryAction.NONE,
        ServingAction.START_REPLICAS: RecoveryAction.SWAP,
        ServingAction.REPLAN: RecoveryAction.RESHAPE,
        ServingAction.STOP: RecoveryAction.PAUSE,
    }
)
"""The action on a training job that each action on a deployment is like."""


class StateKind(StrEnum):
    """Kind of state that a rank holds and a new one needs."""

    WEIGHTS = "weights"
    OPTIMIZER = "optimizer"
    EXPERT_WEIGHTS = "expert_weights"
    EXPERT_OPTIMIZER = "expert_optimizer"


class StateSource(StrEnum):
    """Sources of a rank's state, the nearest first."""

    SAME_GPU = "same_gpu"
    SAME_NODE = "same_node"
    PEER = "peer"
    """A rank that holds a live copy."""
    HOST_MEMORY = "host_memory"
    """A checkpoint in another node's memory."""
    CHECKPOINT = "checkpoint"
    """The last checkpoint on storage; the whole job falls back to its step."""


@dataclass(frozen=True, slots=True)
class MovedState:
    """Bytes of one kind that a rank gets; ``rank`` and ``node`` name the giver, ``None`` and empty for storage."""

    kind: StateKind
    source: StateSource
    rank: int | None
    node: str
    bytes: float


@dataclass(frozen=True, slots=True)
class MovedRank:
    """A rank of the new plan on a GPU that did not run that rank's part before.

    ``old_rank`` is the rank whose part it takes over (its own number may differ), ``None`` where no old rank had
    this part; ``from_node`` and ``from_gpu`` are where that sat.
    """

    rank: int
    old_rank: int | None
    from_node: str
    from_gpu: int | None
    to_node: str
    to_gpu: int
    state: tuple[MovedState, ...]


@dataclass(frozen=True, slots=True)
class MigrationBytes:
    """Bytes that cross each class of links; those that stay on their GPU count nowhere."""

    nvlink: float = 0.0
    """Inside a node or an NVLink domain."""
    leaf: float = 0.0
    """Bytes between nodes of one leaf."""
    fabric: float = 0.0
    """Bytes between leaves, and wherever leaves are not known."""
    storage: float = 0.0

    @property
    def total(self) -> float:
        """All bytes that move."""
        return self.nvlink + self.outside

    @property
    def outside(self) -> float:
        """Bytes that cross network cards or come from storage."""
        return self.leaf + self.fabric + self.storage


@dataclass(frozen=True, slots=True)
class Migration:
    """From the running plan to the new one.

    ``downtime`` adds up ``save``, ``transfer``, ``restart``, ``warm_up`` and the steps to repeat.  ``steps_lost``
    are those since the checkpoint, 0 where live state is handed over, or a checkpoint saved first: that takes
    ``save``.
    """

    moved: tuple[MovedRank, ...] = ()
    bytes: MigrationBytes = MigrationBytes()
    save: TimeRange = NO_TIME
    transfer: TimeRange = NO_TIME
    restart: TimeRange = NO_TIME
    warm_up: TimeRange = NO_TIME
    downtime: TimeRange = NO_TIME
    steps_lost: float = 0.0
    state_without_copy_bytes: float = 0.0
    """State that has no live copy anywhere: what forces the fall back to the checkpoint."""
    recut_bytes: float = 0.0
    """Part of ``bytes`` for ranks that do not move, because optimizer states are shared out anew."""

    @property
    def saves_first(self) -> bool:
        """Whether a checkpoint is to be saved before the job is stopped."""
        return self.save.high_s > 0


@dataclass(frozen=True, slots=True)
class ConsideredAction:
    """An action that lost (or could not be taken), and why; ``value_flop`` as in the decision."""

    action: RecoveryAction
    value_flop: float | None
    reasons: tuple[Remark, ...]


@dataclass(frozen=True, slots=True)
class JobDecision:
    """Decision about one job.

    ``plan`` is the plan it runs by afterwards, ``None`` where it stands still.  Throughput in tokens per second
    before the failure and after the decision.  ``value_flop``: useful FLOPs over the horizon times the job's
    weight, less what the move costs.  ``lost_gpu_hours``: GPU-hours without useful work because of the move, low
    and high.  ``causes``: what the job lost; ``reasons``: what is done, and what speaks for it.
    """

    job_id: str
    job_name: str
    action: RecoveryAction
    plan: Plan | None
    migration: Migration
    tokens_per_s_before: float
    tokens_per_s_after: float
    limited_by: Remark
    value_flop: float
    lost_gpu_hours: tuple[float, float]
    survives: tuple[FailureDomainLosses, ...]
    causes: tuple[Remark, ...]
    reasons: tuple[Remark, ...]
    considered: tuple[ConsideredAction, ...] = ()


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A node that should stay out: it, or its ``device``, failed ``failures`` times in ``within_s`` seconds.

    ``seen_on`` are the nodes on which the device failed; empty where the node itself did.
    """

    node: str
    failures: int
    within_s: float = 0.0
    device: str = ""
    seen_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """One decision for all jobs that a batch of failures touched: training in ``jobs``, deployments in ``serving``.

    ``objective`` is the sum of the values of both, ``bound`` what no decision of the same options can beat,
    ``gap = (bound - objective) / bound``.  ``fallback`` marks the safe answer that was prepared in advance.
    ``objective_if_waiting``: every touched job stands still for the horizon, and deployments start nothing.
    """

    jobs: tuple[JobDecision, ...]
    untouched: tuple[str, ...]
    spares_before: tuple[str, ...]
    spares_used: tuple[str, ...]
    spares_left: tuple[str, ...]
    quarantine: tuple[Quarantine, ...]
    horizon_s: float
    objective: float
    objective_if_waiting: float
    bound: float
    gap: float
    stopped_by: StopReason
    fallback: bool
    solver: str
    snapshot_id: str
    serving: tuple[ServingDecision, ...] = ()
