"""Metrics that operators watch; one registry per process, read at ``/metrics``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector

_SOLVE_SECONDS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
_QUEUE_SECONDS = (0.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600, 14400, 86400)
_GAPS = (0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The measurements of one process; ``asked`` has those that the database is asked for, which workers do not."""

    registry: CollectorRegistry
    asked: CollectorRegistry
    requests: Counter
    request_seconds: Histogram
    solves: Counter
    solve_seconds: Histogram
    gap_at_stop: Histogram
    child_crashes: Counter
    rescues: Counter
    replans: Counter
    webhook_attempts: Counter
    plans: Gauge
    queue_seconds: Histogram
    oldest_queued_seconds: Gauge
    workers: Gauge
    replans_open: Gauge
    messages_waiting: Gauge
    measured_runs: Gauge
    step_ratio: Gauge
    step_error: Gauge
    database_up: Gauge
    build: Info


def make_metrics() -> Metrics:
    """A fresh set of measurements, all at zero; gauges are set when they are asked for."""
    registry, asked = CollectorRegistry(), CollectorRegistry()
    ProcessCollector(registry=registry)
    build = Info("meshwright_build", "Version of the program.", registry=registry)
    build.info({"version": version("meshwright")})
    return Metrics(
        registry=registry,
        asked=asked,
        requests=Counter(
            "meshwright_http_requests",
            "HTTP requests by operation.",
            ("operation", "status"),
            registry=registry,
        ),
        request_seconds=Histogram(
            "meshwright_http_request_seconds",
            "Seconds to answer an HTTP request.",
            ("operation",),
            registry=registry,
        ),
        solves=Counter("meshwright_solves", "Solves that ended.", ("status",), registry=registry),
        solve_seconds=Histogram(
            "meshwright_solve_seconds",
            "Seconds from start to end of a solve.",
            ("backend", "status"),
            buckets=_SOLVE_SECONDS,
            registry=registry,
        ),
        gap_at_stop=Histogram(
            "meshwright_gap_at_stop",
            "Proven distance from the optimum when the search stopped.",
            ("backend",),
            buckets=_GAPS,
            registry=registry,
        ),
        child_crashes=Counter(
            "meshwright_solve_crashes", "Solving processes that died without an answer.", registry=registry
        ),
        rescues=Counter("meshwright_rescues", "Solves taken over from workers that vanished.", registry=registry),
        replans=Counter(
            "meshwright_replans", "Attempts to decide on failures, by outcome.", ("outcome",), registry=registry
        ),
        webhook_attempts=Counter(
            "meshwright_webhook_attempts",
            "Attempts to deliver messages, by outcome.",
            ("outcome",),
            registry=registry,
        ),
        plans=Gauge("meshwright_plans", "Plans by status.", ("status",), registry=asked),
        queue_seconds=Histogram(
            "meshwright_queue_seconds",
            "Seconds from the request for a plan to the first attempt at it.",
            buckets=_QUEUE_SECONDS,
            registry=registry,
        ),
        oldest_queued_seconds=Gauge(
            "meshwright_oldest_queued_seconds",
            "Age of the plan that has waited longest; 0: none.",
            registry=asked,
        ),
        workers=Gauge("meshwright_workers", "Processes that solve, seen within 30 s.", registry=asked),
        replans_open=Gauge(
            "meshwright_replans_open",
            "Decisions on failures that are not done, by status.",
            ("status",),
            registry=asked,
        ),
        messages_waiting=Gauge(
            "meshwright_webhook_messages_waiting", "Messages that are still to be delivered.", registry=asked
        ),
        measured_runs=Gauge(
            "meshwright_measured_runs",
            "Runs that were reported, of the newest 100 of the last 30 days.",
            registry=asked,
        ),
        step_ratio=Gauge(
            "meshwright_step_ratio", "Median of measured over predicted step of these runs.", registry=asked
        ),
        step_error=Gauge(
            "meshwright_step_error",
            "Median distance of measured from predicted step of these runs.",
            registry=asked,
        ),
        database_up=Gauge("meshwright_database_up", "1 where the database answers, else 0.", registry=asked),
        build=build,
    )
