"""Metrics that operators watch; one registry per process, read at ``/metrics``."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SOLVE_SECONDS = (0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600)
_GAPS = (0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True, slots=True)
class Metrics:
    """The measurements of one process."""

    registry: CollectorRegistry
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


def make_metrics() -> Metrics:
    """A fresh set of measurements, all at zero."""
    registry = CollectorRegistry()
    return Metrics(
        registry=registry,
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
        plans=Gauge("meshwright_plans", "Plans by status.", ("status",), registry=registry),
    )
