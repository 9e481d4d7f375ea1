"""Hands solves to the job engine; runs none, and needs no worker to be up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from dbos import DBOSClient, WorkflowStatus

import app.jobs.sqlite_engine  # noqa: F401 - prepares every SQLite connection of the engine
from app.jobs.names import APPLICATION, SOLVE_QUEUE, SOLVE_WORKFLOW

OPEN_JOBS: Final = ("ENQUEUED", "PENDING", "DELAYED")
_CHUNK: Final = 500


class JobClient:
    """A connection to the job engine's database.  A job's id is its plan's id."""

    def __init__(self, jobs_database_url: str) -> None:
        self._engine = DBOSClient(
            system_database_url=jobs_database_url,
            application_name=APPLICATION,
            lazy=True,
            retry_connection_errors=False,
        )

    def enqueue(self, plan_id: str) -> None:
        """Queue the solve of a plan; nothing happens when it is queued, running or done."""
        self._engine.enqueue(
            {"workflow_name": SOLVE_WORKFLOW, "queue_name": SOLVE_QUEUE, "workflow_id": plan_id}, plan_id
        )

    def states(self, plan_ids: Sequence[str]) -> dict[str, str]:
        """The engine's state of each of these jobs that exists."""
        states: dict[str, str] = {}
        for start in range(0, len(plan_ids), _CHUNK):
            states |= {
                job.workflow_id: job.status
                for job in self._list(workflow_ids=list(plan_ids[start : start + _CHUNK]))
            }
        return states

    def running(self) -> dict[str, str]:
        """The executor of each running job."""
        return {job.workflow_id: job.executor_id or "" for job in self._list(status="PENDING")}

    def put_back(self, plan_ids: Iterable[str]) -> None:
        """Queue running jobs again, for another worker to start over."""
        for plan_id in plan_ids:
            self._engine.resume_workflow(plan_id, queue_name=SOLVE_QUEUE)

    def delete_finished(self, *, before: datetime) -> int:
        """Forget jobs that ended before a moment; returns how many.  Plans stay."""
        done = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
        old = [
            job.workflow_id for job in self._list(status=done, completed_before=before.isoformat(), limit=_CHUNK)
        ]
        if old:
            self._engine.delete_workflows(old)
        return len(old)

    def close(self) -> None:
        """Give the connections back."""
        self._engine.destroy()

    def _list(
        self,
        *,
        workflow_ids: list[str] | None = None,
        status: str | list[str] | None = None,
        completed_before: str | None = None,
        limit: int | None = None,
    ) -> list[WorkflowStatus]:
        return self._engine.list_workflows(
            workflow_ids=workflow_ids,
            status=status,
            completed_before=completed_before,
            limit=limit,
            name=SOLVE_WORKFLOW,
            load_input=False,
            load_output=False,
        )
