"""Traces of requests and of the jobs that they ask for, sent where an OpenTelemetry collector is named.

The standard variables (``OTEL_EXPORTER_OTLP_ENDPOINT`` and its kin) say where to, how often and under which name;
where none names a collector nothing is recorded.  A job carries the trace of its request in the W3C form
(``traceparent``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider

PARENT: Final = "traceparent"
_COLLECTOR: Final = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROPAGATOR: Final = TraceContextTextMapPropagator()


def start_tracing(role: str) -> Callable[[], None]:
    """Record from now on, if a collector is named; returns what sends the rest at the end of the process."""
    is_off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if is_off or not any(os.environ.get(name) for name in _COLLECTOR):
        return lambda: None
    provider = make_provider(role)
    trace.set_tracer_provider(provider)
    return provider.shutdown


def make_provider(role: str) -> TracerProvider:
    """A provider that sends spans of this process to the collector that the environment names."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 - most services send none
        OTLPSpanExporter,
    )
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - see above
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - see above

    named = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "meshwright"}
    resource = Resource.create({**named, "service.version": version("meshwright"), "meshwright.role": role})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return provider


def tracer() -> Tracer:
    """The tracer of this program."""
    return trace.get_tracer("meshwright")


def carried() -> str:
    """The current trace as a job can carry it; empty where there is none."""
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    return carrier.get(PARENT, "")


@contextmanager
def request_span(method: str, headers: Mapping[str, str]) -> Iterator[Span]:
    """The span of a request, within the trace that its ``traceparent`` names."""
    context = _PROPAGATOR.extract(headers)
    with tracer().start_as_current_span(method, context=context, kind=SpanKind.SERVER) as span:
        yield span


@contextmanager
def job_span(name: str, parent: str, attributes: Mapping[str, Any]) -> Iterator[Span]:
    """The span of one attempt at a job, within the trace that asked for it."""
    context = _PROPAGATOR.extract({PARENT: parent} if parent else {})
    with tracer().start_as_current_span(name, context=context, kind=SpanKind.CONSUMER) as span:
        span.set_attributes(dict(attributes))
        yield span


class Phases:
    """Spans of what a child does, one after the other; a context manager that ends the last one."""

    def __init__(self, first: str) -> None:
        self._name = first
        self._span = tracer().start_span(first)

    def __enter__(self) -> Self:
        return self

    def enter(self, name: str) -> None:
        """Begin a phase, unless it is the one that goes on."""
        if name != self._name:
            self._span.end()
            self._name, self._span = name, tracer().start_span(name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._span.end()
