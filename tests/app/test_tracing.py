"""Traces run from the request for a plan to the phases of its solve, and reach the collector that is named."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

pytest.importorskip("opentelemetry.sdk", reason="installed with requirements.lock")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from app import tracing
from tests.app.api_client import API, ended, plan_body, running
from tests.app.plan_rows import wait_until

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Every span that this process has ended."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(tracing, "tracer", lambda: provider.get_tracer("test"))
    return exporter


def test_one_trace_runs_from_the_request_to_the_phases_of_the_solve(
    tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    """It begins where the caller's own began; the solve hangs below the request that asked for it."""
    with running(tmp_path, f"sqlite:///{tmp_path}/a.sqlite") as client:
        sent = client.post(f"{API}/plans", json=plan_body(), headers={"traceparent": PARENT})
        plan = ended(client, sent.headers["Location"])
        wait_until(lambda: any(span.name == "solve" for span in spans.get_finished_spans()))
    found = {span.name: span for span in spans.get_finished_spans()}
    request, solve, phase = found["create_plan"], found["solve"], found["search"]
    assert request.context.trace_id == int(PARENT.split("-")[1], 16)
    assert request.attributes is not None
    assert request.attributes["http.response.status_code"] == 202
    assert request.attributes["meshwright.request_id"] == sent.headers["X-Request-Id"]
    for child, parent in ((solve, request), (phase, solve)):
        assert child.context.trace_id == request.context.trace_id
        assert child.parent is not None
        assert child.parent.span_id == parent.context.span_id
    assert solve.attributes is not None
    assert solve.attributes["meshwright.plan"] == plan["id"]
    assert solve.attributes["meshwright.outcome"] == "succeeded"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[bytes]]]:
    """Address of a collector on this machine, and the bodies that it got."""
    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.path.encode() + self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", bodies
    server.shutdown()
    thread.join()
    server.server_close()


def test_spans_reach_the_collector_that_the_environment_names(
    monkeypatch: pytest.MonkeyPatch, collector: tuple[str, list[bytes]]
) -> None:
    """At the latest when the process ends; without a collector nothing is set up."""
    address, bodies = collector
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    set_up: list[TracerProvider] = []
    monkeypatch.setattr("opentelemetry.trace.set_tracer_provider", set_up.append)
    tracing.start_tracing("web")()
    assert set_up == []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    send = tracing.start_tracing("web")
    with set_up[0].get_tracer("test").start_as_current_span("a span of ours"):
        assert tracing.carried().startswith("00-")
    send()
    assert bodies[0].startswith(b"/v1/traces")
    assert b"a span of ours" in bodies[0]
    assert b"meshwright" in bodies[0]
