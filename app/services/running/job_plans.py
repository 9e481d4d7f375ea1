"""The plan that each job of a cluster runs by, and what its owner meant it to have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.running_tables import RunningJobRow, RunningPlanRow
from app.db.status import JobStanding

_NOTHING: Final[tuple[str | None, dict[str, Any]]] = (None, {})


@dataclass(frozen=True, slots=True)
class JobPlan:
    """A job with the running plan that it runs by, or ran by last where ``is_paused``.

    ``gpus`` are those of that plan, ``wanted_gpus`` and ``wanted_batch`` what the last plan had that its owner
    applied, not a replan; ``meant_id`` is that plan.
    """

    job: RunningJobRow
    running_plan_id: str
    is_paused: bool
    gpus: int
    wanted_gpus: int | None
    wanted_batch: int | None
    meant_id: str | None = None


def job_plans(session: Session, *, cluster_id: str) -> dict[str, JobPlan]:
    """Jobs by id that run, wait or are paused, in the order of their names."""
    at_work = (JobStanding.RUNNING, JobStanding.WAITING, JobStanding.PAUSED)
    jobs = select(RunningJobRow).where(RunningJobRow.cluster_id == cluster_id, RunningJobRow.standing.in_(at_work))
    plans = (
        select(RunningPlanRow.job_id, RunningPlanRow.id, RunningPlanRow.replan_id, RunningPlanRow.summary)
        .join(RunningJobRow, RunningJobRow.id == RunningPlanRow.job_id)
        .where(RunningJobRow.cluster_id == cluster_id, RunningPlanRow.applied_at.is_not(None))
        .order_by(RunningPlanRow.applied_at)
    )
    newest: dict[str, tuple[str, int]] = {}
    meant: dict[str, tuple[str | None, dict[str, Any]]] = {}
    for job_id, plan_id, replan_id, summary in session.execute(plans):
        newest[job_id] = plan_id, summary["gpus"]
        if replan_id is None:
            meant[job_id] = plan_id, summary
    return {
        row.id: JobPlan(
            job=row,
            running_plan_id=newest[row.id][0],
            is_paused=row.standing == JobStanding.PAUSED,
            gpus=newest[row.id][1],
            wanted_gpus=meant.get(row.id, _NOTHING)[1].get("gpus"),
            wanted_batch=meant.get(row.id, _NOTHING)[1].get("global_batch"),
            meant_id=meant.get(row.id, _NOTHING)[0],
        )
        for row in session.scalars(jobs.order_by(RunningJobRow.name))
    }
