"""Permissions of a job after a failure, and the times that it takes, as pairs of names and words."""

from __future__ import annotations

from app.presentation.figures import duration, plural
from app.services.running.running_jobs import JobRecord
from cluster_models.jobs.running import RecoveryPolicy
from cluster_models.jobs.serving import ServingPolicy

_ALLOWED = "after a failure it may"


def policy_facts(job: JobRecord) -> tuple[tuple[str, str], ...]:
    """Policy of a training job or of a deployment."""
    training = () if job.recovery is None else _training_facts(job.recovery)
    return (*training, *(() if job.replica_start is None else _serving_facts(job.replica_start)))


def _serving_facts(policy: ServingPolicy) -> tuple[tuple[str, str], ...]:
    start = f"{duration(policy.start_low_s)} to {duration(policy.start_high_s)}, and reading its weights"
    allowed = "stop replicas that live for better ones" if policy.may_replan else "only start replicas"
    return ("a replica answers after", start), (_ALLOWED, allowed)


def _training_facts(policy: RecoveryPolicy) -> tuple[tuple[str, str], ...]:
    may = [
        ("take another shape", policy.may_reshape),
        ("shrink its global batch", policy.may_change_batch),
        ("let other replicas take over work", policy.may_reroute),
        ("be moved for other jobs", policy.may_move),
    ]
    allowed = [words for words, is_allowed in may if is_allowed]
    return (
        ("checkpoint", f"every {plural(policy.checkpoint_interval_steps, 'step')}"),
        ("a restart takes", f"{duration(policy.restart_low_s)} to {duration(policy.restart_high_s)}"),
        (_ALLOWED, "; ".join(allowed) or "only take spares, drop replicas, wait or pause"),
    )
