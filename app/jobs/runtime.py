"""Starts and stops what runs jobs in this process."""

from __future__ import annotations

import os
import platform
import shutil
import time
import uuid
from typing import Final

import structlog
from dbos import DBOS, DBOSConfig
from filelock import FileLock, Timeout
from sqlalchemy import make_url

from app.db.engine import OWN_FOLDER, SessionFactory, transaction
from app.db.postgres import with_link_timeouts
from app.jobs import forks, workflows
from app.jobs.client import JobClient
from app.jobs.context import JobContext
from app.jobs.keeper import Keeper
from app.jobs.names import APPLICATION, APPLICATION_VERSION, FORMER_QUEUES, KIND_OF_QUEUE, JobKind
from app.jobs.process_scope import current_pid_scope
from app.metrics import Metrics
from app.services.planning import solves
from app.settings import Role, Settings
from cluster_models.errors import MeshwrightError

QUEUE_POLL_S: Final = 0.25
IDLE_QUEUE_POLL_S: Final = 1.0
"""Seconds between looks at queues whose jobs can wait a second."""
DELIVERIES_AT_ONCE: Final = 48
DELIVERIES_OF_ONE_ENDPOINT: Final = 4
"""Messages to one endpoint at once: eleven endpoints which let their messages hang leave room for the others."""
STOP_WITHIN_S: Final = 5.0
NOTIFICATION_POLL_S: Final = 0.05
"""We send no notifications, but on SQLite a stop waits until the engine's listener has slept this long."""

log = structlog.get_logger(__name__)


class DataFolderInUse(MeshwrightError):
    """Another process serves from the same data folder."""


def lock_data_folder(settings: Settings) -> FileLock:
    """The lock that lets one process at a time serve from a data folder; release it at the end."""
    settings.data_dir.mkdir(mode=OWN_FOLDER, parents=True, exist_ok=True)
    lock = FileLock(settings.data_dir / "serve.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise DataFolderInUse(
            f"Another Meshwright serves from {settings.data_dir}; "
            "stop it, or set MESHWRIGHT_DATA_DIR to another folder."
        ) from None
    return lock


class JobRuntime:
    """The engine, our keeper and the context of the solves; at most one per process."""

    def __init__(self, settings: Settings, sessions: SessionFactory, metrics: Metrics) -> None:
        self._context = JobContext(
            settings=settings,
            sessions=sessions,
            metrics=metrics,
            executor_id=f"{platform.node()}-{os.getpid()}-{uuid.uuid4().hex}",
            pid_scope=current_pid_scope(),
        )
        self._client = JobClient(settings.resolved_jobs_database_url)
        self._keeper = Keeper(self._context, self._client)

    def start(self) -> None:
        """Begin to take solves: first those that an earlier process left behind, then the queue."""
        settings = self._context.settings
        if settings.role is Role.ALL:
            # We hold the data folder's lock, so whoever made these files is gone.
            shutil.rmtree(settings.data_dir / "scratch", ignore_errors=True)
        self._keeper.beat()
        workflows.bind(self._context)
        DBOS(config=self._engine_config())
        DBOS.listen_queues([*KIND_OF_QUEUE, *FORMER_QUEUES])
        DBOS.launch()
        # Kept in the engine's database, one value for all workers: hence one solve per process outside role all.
        slots = settings.solver_slots if settings.role is Role.ALL else 1
        at_once = {JobKind.SOLVE: slots, JobKind.DELIVER: DELIVERIES_AT_ONCE}
        for queue, kind in KIND_OF_QUEUE.items():
            DBOS.register_queue(
                queue,
                worker_concurrency=at_once.get(kind, 1),
                partition_worker_concurrency=DELIVERIES_OF_ONE_ENDPOINT if kind is JobKind.DELIVER else None,
                polling_interval_sec=QUEUE_POLL_S if kind in (JobKind.SOLVE, JobKind.DECIDE) else IDLE_QUEUE_POLL_S,
                on_conflict="always_update",
            )
        if forks.can_fork(settings.solve_command):
            forks.prepare()
        self._keeper.round()
        self._keeper.start()
        log.info("solving", executor_id=self._context.executor_id, slots=slots)

    def stop(self) -> None:
        """End running solves and queue them again for whoever comes next."""
        self._context.stopping.set()
        until = time.monotonic() + STOP_WITHIN_S
        while self._context.solving and time.monotonic() < until:
            time.sleep(0.05)
        DBOS.destroy()
        mine = [job for job in self._client.running() if job.executor_id == self._context.executor_id]
        with transaction(self._context.sessions) as session:
            solves.wait_again(session, plan_ids=[job.id for job in mine if job.kind is JobKind.SOLVE])
        self._client.put_back(mine)
        self._keeper.stop()
        self._client.close()
        workflows.bind(None)

    def _engine_config(self) -> DBOSConfig:
        url = make_url(self._context.settings.resolved_jobs_database_url)
        if url.get_backend_name() == "postgresql":
            url = with_link_timeouts(url)
        return {
            "name": APPLICATION,
            "system_database_url": url.render_as_string(hide_password=False),
            "application_version": APPLICATION_VERSION,
            "executor_id": self._context.executor_id,
            "log_level": "WARNING",
            "notification_listener_polling_interval_sec": NOTIFICATION_POLL_S,
        }
