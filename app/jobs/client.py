"""Hands jobs to the job engine; runs none, and needs no worker to be up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from dbos import DBOSClient, EnqueueOptions, WorkflowStatus

import app.jobs.sqlite_engine  # noqa: F401 - prepares every SQLite connection of the engine
from app.db.engine import make_engine
from app.jobs.names import APPLICATION, JobKind
from app.services.planning.turns import WHAT_IFS
from app.services.webhooks.webhook_deliveries import Due
from app.tracing import carried

OPEN_JOBS: Final = ("ENQUEUED", "PENDING", "DELAYED")
DONE: Final = "SUCCESS"
_CHUNK: Final = 500


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that some executor works on."""

    id: str
    kind: JobKind
    executor_id: str
    queue: str


class JobClient:
    """A connection to the job engine's database.

    The id of a solve is its plan's, that of a decision its replan's.
    """

    def __init__(self, jobs_database_url: str) -> None:
        # The engine would wait for ever for a server that is silent; its files are its own affair.
        embedded = jobs_database_url.startswith("sqlite")
        self._database = None if embedded else make_engine(jobs_database_url)
        self._engine = DBOSClient(
            system_database_url=jobs_database_url,
            system_database_engine=self._database,
            application_name=APPLICATION,
            lazy=True,
            retry_connection_errors=False,
        )

    def enqueue(self, plan_id: str, *, turn: int = 0) -> None:
        """Queue the solve of a plan, in the current trace; nothing happens when it is queued, running or done.

        The waiting solve with the smallest ``turn`` is next.
        """
        self._enqueue(JobKind.SOLVE, plan_id, plan_id, carried(), turn=turn)

    def enqueue_decision(self, replan_id: str) -> None:
        """Queue the decision of a replan whose window has ended; nothing happens when it is queued or done."""
        self._enqueue(JobKind.DECIDE, replan_id, replan_id)

    def enqueue_preparation(self, job_id: str, cluster_id: str) -> None:
        """Queue the preparation of a cluster's running plans, under an id that says which they are."""
        self._enqueue(JobKind.PREPARE, job_id, cluster_id)

    def enqueue_what_if(self, job_id: str, sweep_id: str, number: int) -> None:
        """Queue one failure of a sweep behind all plans; sweeps take turns, each with its next failure."""
        self._enqueue(JobKind.WHAT_IF, job_id, sweep_id, number, turn=WHAT_IFS + number)

    def enqueue_delivery(self, due: Due) -> None:
        """Queue an attempt to deliver a webhook message; few at a time are made to one endpoint."""
        self._enqueue(JobKind.DELIVER, due.job_id, due.delivery_id, due.attempts, partition=due.endpoint_id)

    def states(self, job_ids: Sequence[str]) -> dict[str, str]:
        """The engine's state of each of these jobs that exists."""
        states: dict[str, str] = {}
        for start in range(0, len(job_ids), _CHUNK):
            states |= {
                job.workflow_id: job.status
                for job in self._list(workflow_ids=list(job_ids[start : start + _CHUNK]))
            }
        return states

    def running(self) -> tuple[RunningJob, ...]:
        """The jobs that are worked on."""
        return tuple(_running(job, JobKind(job.name)) for job in self._list(status="PENDING"))

    def put_back(self, jobs: Iterable[RunningJob]) -> None:
        """Queue running jobs again, for another worker to start over."""
        for job in jobs:
            self._engine.resume_workflow(job.id, queue_name=job.queue)

    def delete_finished(self, *, before: datetime) -> int:
        """Forget jobs that ended before a moment; returns how many.  Plans and replans stay."""
        done = [DONE, "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
        old = [
            job.workflow_id for job in self._list(status=done, completed_before=before.isoformat(), limit=_CHUNK)
        ]
        self.forget(old)
        return len(old)

    def forget(self, job_ids: Sequence[str]) -> None:
        """Drop the engine's record of jobs that ended; they can be queued again."""
        if job_ids:
            self._engine.delete_workflows(list(job_ids))

    def close(self) -> None:
        """Give the connections back."""
        self._engine.destroy()
        if self._database is not None:
            self._database.dispose()

    def _enqueue(
        self, kind: JobKind, job_id: str, *arguments: str | int, partition: str | None = None, turn: int = 0
    ) -> None:
        options: EnqueueOptions = {"workflow_name": kind.value, "queue_name": kind.queue, "workflow_id": job_id}
        if turn:
            options["priority"] = turn
        if partition is not None:
            options["queue_partition_key"] = partition
        self._engine.enqueue(options, *arguments)

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
            name=[kind.value for kind in JobKind],
            load_input=False,
            load_output=False,
        )


def _running(job: WorkflowStatus, kind: JobKind) -> RunningJob:
    return RunningJob(job.workflow_id, kind, job.executor_id or "", job.queue_name or kind.queue)
