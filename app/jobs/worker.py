"""A process that only solves."""

from __future__ import annotations

import signal
import threading

from prometheus_client import start_http_server

from app.db.engine import make_session_factory
from app.db.migrate import prepared_engine
from app.jobs.runtime import JobRuntime
from app.metrics import make_metrics
from app.settings import Settings
from app.warming import leave_alone_what_is_loaded


def run_worker(settings: Settings) -> None:
    """Solve one plan after the other until a signal ends the process."""
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: end.set())
    metrics = make_metrics()
    engine = prepared_engine(settings)
    runtime = JobRuntime(settings, make_session_factory(engine, tenant=None), metrics)
    runtime.start()
    leave_alone_what_is_loaded()
    if settings.metrics_port is not None:
        start_http_server(settings.metrics_port, registry=metrics.registry)
    end.wait()
    runtime.stop()
    engine.dispose()
