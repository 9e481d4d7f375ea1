"""Value of an option: useful FLOPs over the horizon.  The formulas stand in docs/replanning.md."""

from __future__ import annotations

from typing import Final

from cluster_models.jobs.recovery import BatchDecision, Migration
from cluster_models.jobs.running import RunningJob
from cluster_models.training.model_work import workload_flops_per_token
from cluster_models.training.workload import Choice

WORTH_MOVING: Final = 0.005
"""Share of a step, or of a job's worth, that moving live ranks must save: links drift by more from day to day
(docs/robustness.md)."""


def flops_per_token(job: RunningJob) -> float:
    """The model's own FLOPs for a token, forward and backward."""
    architecture, workload = job.plan.architecture, job.plan.workload
    assert architecture is not None
    assert workload is not None
    return workload_flops_per_token(architecture, workload)


def work_flop(job: RunningJob, tokens_per_s: float, still_s: float, horizon_s: float) -> float:
    """Weighted FLOPs of ``job`` over the horizon, of which it stands still, or repeats steps, for ``still_s``."""
    return job.weight * flops_per_token(job) * tokens_per_s * max(0.0, horizon_s - still_s)


def moves_flop(job: RunningJob, moved_ranks: int) -> float:
    """Weighted FLOPs that its owner asks for ``moved_ranks`` moves that only serve other jobs."""
    return job.weight * job.recovery.move_price_s * job.flops_per_s * moved_ranks


def least_gain_flop(job: RunningJob, horizon_s: float) -> float:
    """Weighted FLOPs that stopping ``job`` must gain where nothing that it holds is lost."""
    return job.recovery.least_gain_share * work_flop(job, job.plan.tokens_per_s, 0.0, horizon_s)


def new_shape_share(job: RunningJob) -> float:
    """Share of its own work that another shape must gain: none where the owner takes the fastest, however close."""
    assert job.plan.workload is not None
    return 0.0 if job.plan.workload.choice is Choice.FASTEST else job.recovery.least_gain_share


def new_shape_flop(job: RunningJob, tokens_per_s: float, migration: Migration, horizon_s: float) -> float:
    """Weighted FLOPs that another shape at this pace must gain over what keeps the old one."""
    return new_shape_share(job) * work_flop(job, tokens_per_s, migration.downtime.middle_s, horizon_s)


def spares_flop(job: RunningJob, gpus: int, share: float, horizon_s: float) -> float:
    """Weighted FLOPs that ``gpus`` spares must be worth to ``job``: ``share`` of the work of as many of its own."""
    return share * job.weight * job.plan.model_flops_per_s_per_gpu * gpus * horizon_s


def transfer_flop(job: RunningJob, transferred_bytes: float) -> float:
    """Weighted FLOPs that ``transferred_bytes`` over network cards or from storage must be worth."""
    gpu_s = job.recovery.transfer_price_gpu_s_per_byte * transferred_bytes
    return job.weight * job.plan.model_flops_per_s_per_gpu * gpu_s


def option_value(
    job: RunningJob,
    tokens_per_s: float,
    migration: Migration,
    *,
    horizon_s: float,
    starts_s: float = 0.0,
    for_others: bool = False,
) -> float:
    """``value_flop`` of running at ``tokens_per_s`` after ``migration``, which begins ``starts_s`` from now.

    ``for_others``: no failure touched the job, so what its owner asks for moves is due.
    """
    value = work_flop(job, tokens_per_s, starts_s + migration.downtime.middle_s, horizon_s)
    value -= transfer_flop(job, migration.bytes.outside)
    return value - (moves_flop(job, len(migration.moved)) if for_others else 0.0)


def moves_less_for_the_same(decision: BatchDecision, other: BatchDecision) -> bool:
    """Whether ``decision`` moves fewer ranks than ``other``, and each of its jobs loses too little to tell."""
    own, worth = (_values(each) for each in (decision, other))
    moved, most = (sum(len(made.migration.moved) for made in each.jobs) for each in (decision, other))
    return moved < most and all(value - own[job] <= WORTH_MOVING * abs(value) for job, value in worth.items())


def _values(decision: BatchDecision) -> dict[str, float]:
    """The value of each job's part in a decision, by job id."""
    values = {made.job_id: made.value_flop for made in decision.jobs}
    return values | {made.job_id: made.value_flop for made in decision.serving}
