"""Jobs that run on a cluster: the plan each was started with, and what a failure costs it."""

from __future__ import annotations

from dataclasses import dataclass

from cluster_models.errors import InvalidInput
from cluster_models.training.plan import Plan
from cluster_models.units import HOUR, TBYTE


class InvalidRunningJob(InvalidInput):
    """A statement about a running job is wrong or contradicts itself."""


@dataclass(frozen=True, slots=True)
class RecoveryPolicy:
    """How a job keeps its state and what may be done with it after a failure.

    State: a checkpoint every ``checkpoint_interval_steps``, ``steps_since_checkpoint`` done since the last
    (``None``: half an interval is expected), read back at ``storage_bytes_per_s`` by all ranks together.
    ``optimizer_instances`` copies of every optimizer shard live among the data ranks (Megatron's
    ``num-distributed-optimizer-instances``); ``memory_checkpoint``: each node's newest checkpoint also lies in the
    host memory of another node.  Storage then has a step of its own, every ``storage_interval_steps`` (``None``: as
    often as memory) with ``steps_since_storage_checkpoint`` done since; without checkpoints in memory these two say
    nothing.  ``hands_over_state`` where the framework restarts in process and ranks give what lies on their GPUs to
    others; without it a restart is cold: processes end, and everything is read from a checkpoint, saved first where
    nothing failed yet.

    Costs: ``restart_low_s`` to ``restart_high_s`` from the order to the first step (processes, communicators,
    compilation), without the transfer of state.  Bytes that cross network cards or come from storage get in the way
    of others: each must be worth ``transfer_price_gpu_s_per_byte`` of the useful work of one of its GPUs, beside
    the time that they take.

    Freedom: ``may_reroute`` where the framework lets the data ranks of a stage take over micro-batches of a lost
    one; ``survives_lost_card`` where its communication goes on over the other network cards of a node when one
    fails (stock NCCL ends the job); ``may_change_batch`` where the global batch may shrink with the data parallel
    size; ``may_reshape`` where degrees may change; ``may_move`` where the job may be moved for
    the good of others although no failure touched it, at ``move_price_s`` seconds of its own work for each rank
    that moves.  It needs ``least_gpus`` and takes ``most_gpus`` (``None``: what it ran on or wants).

    ``least_gain_share``: where the job still runs on all that it holds, whatever is done with it must gain this
    share of the useful work that it would do over the horizon as planned; what gains less leaves it alone.  Where
    it lost something, another shape must gain this share of its work, unless the owner takes the fastest plan.
    """

    checkpoint_interval_steps: int = 100
    steps_since_checkpoint: int | None = None
    storage_bytes_per_s: float = 25e9
    optimizer_instances: int = 1
    memory_checkpoint: bool = False
    hands_over_state: bool = False
    storage_interval_steps: int | None = None
    steps_since_storage_checkpoint: int | None = None
    restart_low_s: float = 90.0
    restart_high_s: float = 240.0
    transfer_price_gpu_s_per_byte: float = 10 * HOUR / TBYTE
    may_reroute: bool = False
    survives_lost_card: bool = False
    may_change_batch: bool = False
    may_reshape: bool = True
    may_move: bool = False
    move_price_s: float = 0.0
    least_gpus: int = 1
    most_gpus: int | None = None
    least_gain_share: float = 0.02

    def __post_init__(self) -> None:
        for name in ("checkpoint_interval_steps", "optimizer_instances", "least_gpus"):
            if getattr(self, name) < 1:
                raise InvalidRunningJob(f"recovery.{name}", getattr(self, name), "must be at least 1")
        self._check_steps()
        if not 0 < self.storage_bytes_per_s < float("inf"):
            raise InvalidRunningJob("recovery.storage_bytes_per_s", self.storage_bytes_per_s, "must be positive")
        if not 0 <= self.restart_low_s <= self.restart_high_s < float("inf"):
            raise InvalidRunningJob(
                "recovery.restart_high_s",
                self.restart_high_s,
                "must be at least restart_low_s, and that not negative",
            )
        for name in ("transfer_price_gpu_s_per_byte", "move_price_s"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise InvalidRunningJob(f"recovery.{name}", getattr(self, name), "must not be negative")
        if not 0 <= self.least_gain_share <= 1:
            raise InvalidRunningJob("recovery.least_gain_share", self.least_gain_share, "must lie between 0 and 1")
        if self.most_gpus is not None and self.most_gpus < self.least_gpus:
            raise InvalidRunningJob("recovery.most_gpus", self.most_gpus, "is less than least_gpus")

    def _check_steps(self) -> None:
        for name in ("steps_since_checkpoint", "steps_since_storage_checkpoint"):
            steps = getattr(self, name)
            if steps is not None and steps < 0:
                raise InvalidRunningJob(f"recovery.{name}", steps, "is negative")
        interval, often = self.storage_interval_steps, self.checkpoint_interval_steps
        if interval is not None and interval < often:
            problem = f"is less than checkpoint_interval_steps, {often}: memory has all that storage gets"
            raise InvalidRunningJob("recovery.storage_interval_steps", interval, problem)
        since, least = self.steps_since_storage_checkpoint, self.steps_since_checkpoint or 0
        if since is not None and since < least:
            problem = f"is less than steps_since_checkpoint, {least}: memory is never behind storage"
            raise InvalidRunningJob("recovery.steps_since_storage_checkpoint", since, problem)

    def repeated_steps(self, *, from_storage: bool) -> tuple[float, float]:
        """Least and most steps to repeat after falling back to the newest checkpoint, or to that on storage.

        One of an unknown step is none to a whole interval old, that on storage no newer than that in memory.
        """
        known, interval = self.steps_since_checkpoint, self.checkpoint_interval_steps
        if from_storage and self.memory_checkpoint:
            least = float(known or 0)
            own, interval = self.steps_since_storage_checkpoint, self.storage_interval_steps or interval
            if own is None and self.storage_interval_steps is not None:
                return least, max(least, float(interval))
            known = known if own is None else own
        return (0.0, float(interval)) if known is None else (float(known), float(known))


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job with the plan it runs by (never one without ``architecture`` and ``workload``).

    ``weight`` is what a FLOP of its useful work is worth against those of other jobs.  A job ``is_paused`` where it
    ended at its last checkpoint and holds no GPU: ``plan`` is the one that it ran by last.  ``wanted_gpus``: what
    it was meant to run on, where a failure left it less; it grows back when GPUs come free.  ``wanted_batch``: the
    global batch that it was meant to have, where that shrank with its replicas; any other shape has it again.
    """

    id: str
    name: str
    plan: Plan
    weight: float = 1.0
    recovery: RecoveryPolicy = RecoveryPolicy()
    is_paused: bool = False
    wanted_gpus: int | None = None
    wanted_batch: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.weight < float("inf"):
            raise InvalidRunningJob("weight", self.weight, "must be positive")
        if self.plan.architecture is None or self.plan.workload is None:
            raise InvalidRunningJob("plan", self.plan.model, "does not say which model and workload it is for")

    @property
    def nodes(self) -> tuple[str, ...]:
        """The nodes that it occupies, in rank order."""
        return () if self.is_paused else self.plan.placement.hosts

    @property
    def flops_per_s(self) -> float:
        """Useful work: the model's own FLOPs per second of all its GPUs, as planned."""
        return self.plan.model_flops_per_s_per_gpu * self.plan.configuration.degrees.gpus

    @property
    def gpus_at_most(self) -> int:
        """GPUs that a decision may give it: what it runs on or wants, unless its owner says otherwise."""
        most = max(self.plan.configuration.degrees.gpus, self.wanted_gpus or 0)
        return most if self.recovery.most_gpus is None else self.recovery.most_gpus
