"""The states of a plan."""

from __future__ import annotations

from enum import StrEnum


class PlanKind(StrEnum):
    """Purpose of a plan."""

    TRAINING = "training"
    SERVING = "serving"
    FLEET = "fleet"
    """How many GPUs each of several training jobs gets."""
    REINFORCEMENT = "reinforcement"
    """Where a trainer and the engine that generates for it run."""


class PlanStatus(StrEnum):
    """Status of a plan; the last four never change again."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    INFEASIBLE = "infeasible"
    """An answer: nothing in the search space fits."""
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_STATUSES = (PlanStatus.QUEUED, PlanStatus.RUNNING)


class RunningPlanStatus(StrEnum):
    """Status of a plan of a running job; the last two never change again."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    """It is to be started: its GPUs are the job's."""
    APPLIED = "applied"
    """The job runs by it; no job has two of these."""
    SUPERSEDED = "superseded"
    CANCELLED = "cancelled"


class JobStanding(StrEnum):
    """Whether a job works."""

    IDLE = "idle"
    """No plan of it was applied yet."""
    RUNNING = "running"
    WAITING = "waiting"
    """It stands still on its GPUs until lost ones are back."""
    PAUSED = "paused"
    """It ended at its last checkpoint and holds no GPU."""
    DOWN = "down"
    """Never stored: a job that should run by its plan, of which a part that it uses is reported as failed."""


STORED_STANDINGS = tuple(each for each in JobStanding if each is not JobStanding.DOWN)


class ReplanStatus(StrEnum):
    """Status of a decision on failures; the last four never change again."""

    COLLECTING = "collecting"
    """Reports that come within the window join it; the safe answer is there."""
    SOLVING = "solving"
    PROPOSED = "proposed"
    APPROVED = "approved"
    """It is to be carried out: the GPUs it needs are held for its jobs."""
    APPLYING = "applying"
    APPLIED = "applied"
    CANCELLED = "cancelled"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    """A later failure was added to it: ``superseded_by`` decides about all."""


OPEN_REPLANS = (
    ReplanStatus.COLLECTING,
    ReplanStatus.SOLVING,
    ReplanStatus.PROPOSED,
    ReplanStatus.APPROVED,
    ReplanStatus.APPLYING,
)


class ReplanStep(StrEnum):
    """Something that somebody did with a decision."""

    APPROVED = "approved"
    STARTED = "started"
    JOB_COMPLETED = "job_completed"
    """One of its jobs runs, or stands still, as decided."""
    APPLIED = "applied"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SUPERSEDED = "superseded"


class DeliveryStatus(StrEnum):
    """Status of a webhook message to one endpoint."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    """Every attempt failed, or the endpoint is gone or disabled."""
