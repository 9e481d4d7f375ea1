"""The states of a plan."""

from __future__ import annotations

from enum import StrEnum


class PlanStatus(StrEnum):
    """Where a plan is; the last four never change again."""

    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    INFEASIBLE = "infeasible"
    """An answer: nothing in the search space fits."""
    FAILED = "failed"
    CANCELLED = "cancelled"


OPEN_STATUSES = (PlanStatus.QUEUED, PlanStatus.RUNNING)
