"""A worker's own signs of life, and its care for jobs whose worker is gone or that were never queued.

The engine's open-source part never notices a dead machine.  Here every worker counts up a row, and every worker
watches the others' rows with its own clock.  A worker whose row stands still (or whose process is surely gone) is
struck off; the one who strikes it off queues its jobs again.  A worker that was merely frozen may then solve a
plan a second time, but only the first result is kept (``app.services.planning.solves``).  Work that lacks its job
(plans, windows of replans that ended, messages) is queued in ``app.jobs.due_work``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from app.access import sign_ins
from app.db.engine import SessionFactory, transaction
from app.db.replan_tables import ReplanRow
from app.db.tenancy import for_owner
from app.jobs import due_work
from app.jobs.client import JobClient, RunningJob
from app.jobs.context import JobContext
from app.jobs.names import JobKind
from app.jobs.process_scope import is_surely_gone
from app.services import idempotency, workers
from app.services.decisions import replan_solves
from app.services.health import health_events
from app.services.planning import solves
from app.services.webhooks import webhook_deliveries
from app.services.workers import Worker

TIDY_EVERY_S: Final = 3600.0

log = structlog.get_logger(__name__)


class Keeper:
    """Repeats ``round`` in a thread until it is stopped."""

    def __init__(self, context: JobContext, client: JobClient) -> None:
        self._context = context
        self._client = client
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)
        self._seen: dict[str, tuple[int, float]] = {}
        self._idle: dict[str, float] = {}
        self._next_tidy = 0.0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread and take our own row away."""
        self._stop.set()
        self._thread.join()
        with transaction(self._context.sessions) as session:
            workers.remove(session, executor_id=self._context.executor_id)

    def beat(self) -> None:
        """Give one sign of life."""
        context = self._context
        with transaction(context.sessions) as session:
            workers.beat(session, executor_id=context.executor_id, pid=os.getpid(), pid_scope=context.pid_scope)

    def round(self) -> None:
        """Look after everybody's jobs once."""
        running = self._client.running()
        self._take_over_from_the_vanished(running)
        self.put_back_the_stranded(running)
        due_work.queue_all(self._context.sessions, self._client)
        if time.monotonic() >= self._next_tidy:
            self._tidy()
            self._next_tidy = time.monotonic() + TIDY_EVERY_S

    def _run(self) -> None:
        while not self._stop.wait(self._context.settings.heartbeat_s):
            try:
                self.beat()
                self.round()
            except Exception:  # the database may be away for a while; the next round tries again
                log.exception("keeper_round_failed")

    def _take_over_from_the_vanished(self, running: Sequence[RunningJob]) -> None:
        with transaction(self._context.sessions) as session:
            executors = {job.executor_id for job in running}
            for executor_id in workers.list_unregistered(session, executor_ids=executors):
                workers.register_silent(session, executor_id=executor_id)
            others = [
                worker
                for worker in workers.list_workers(session)
                if worker.executor_id != self._context.executor_id
            ]
        for worker in others:
            if self._has_vanished(worker):
                self._take_over(worker.executor_id)
        self._seen = {worker.executor_id: self._seen[worker.executor_id] for worker in others}

    def _has_vanished(self, worker: Worker) -> bool:
        """Whether a worker's process is gone, or its row stood still for too long by our clock."""
        now = time.monotonic()
        beats, since = self._seen.get(worker.executor_id, (-1, now))
        if beats != worker.beats:
            since = now
        self._seen[worker.executor_id] = (worker.beats, since)
        silent = now - since > self._context.settings.worker_lost_after_s
        return silent or is_surely_gone(worker.pid, worker.pid_scope)

    def _take_over(self, executor_id: str) -> None:
        """Queue a vanished worker's jobs again, unless another worker is already doing it."""
        with transaction(self._context.sessions) as session:
            if not workers.remove(session, executor_id=executor_id):
                return
            lost = [job for job in self._client.running() if job.executor_id == executor_id]
        again = [job.id for job in lost if _may_be_tried_again(self._context.sessions, job)]
        # A plan that was given up runs on as a job that finds its row closed, and ends.
        self._client.put_back(lost)
        self._context.metrics.rescues.inc(len(again))
        log.warning("worker_vanished", executor_id=executor_id, jobs_taken_over=again)

    def put_back_the_stranded(self, running: Sequence[RunningJob]) -> None:
        """Queue those of the ``running`` jobs again that the engine says run here, though nobody works on them.

        That happens where the engine's own database is away at the moment in which it would record an outcome.
        Between the engine's record and the work on a job, and after it, lies a moment: only what was so in two
        rounds as far apart as silence may last is stranded.
        """
        now, context = time.monotonic(), self._context
        mine = [
            job
            for job in running
            if job.executor_id == context.executor_id
            and job.kind in (JobKind.SOLVE, JobKind.DECIDE, JobKind.WHAT_IF)
            and job.id not in context.solving
        ]
        self._idle = {job.id: self._idle.get(job.id, now) for job in mine}
        stranded = [job for job in mine if now - self._idle[job.id] > context.settings.worker_lost_after_s]
        if stranded:
            self._client.put_back(stranded)
            log.warning("jobs_stranded", jobs_put_back=[job.id for job in stranded])

    def _tidy(self) -> None:
        """Delete what only the engine still remembers; it keeps every finished job for ever."""
        keep = timedelta(days=self._context.settings.job_retention_days)
        while self._client.delete_finished(before=datetime.now(UTC) - keep):
            pass
        now, messages = datetime.now(UTC), timedelta(days=self._context.settings.webhook_retention_days)
        with transaction(self._context.sessions) as session:
            idempotency.forget(session, before=now - idempotency.KEPT_FOR)
            sign_ins.forget_ended(session, now=now)
            webhook_deliveries.forget(session, before=now - messages)
            health_events.forget_old(session, now=now)


def _may_be_tried_again(sessions: SessionFactory, job: RunningJob) -> bool:
    """Count one more worker lost under a solve or a decision; the other jobs are small, and tried for ever."""
    if job.kind is JobKind.SOLVE:
        with transaction(sessions) as session:
            return solves.count_rescue(session, plan_id=job.id)
    if job.kind is not JobKind.DECIDE:
        return True
    with transaction(for_owner(sessions, ReplanRow, job.id)) as session:
        return replan_solves.count_rescue(session, replan_id=job.id)
