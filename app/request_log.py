"""Around every request: an id that log and answer share, its line in the log, its span, and what metrics count."""

from __future__ import annotations

import re
import time
import uuid
from typing import Final

import structlog
from opentelemetry.trace import Span, StatusCode
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.requests import PRINCIPAL
from app.metrics import Metrics
from app.tracing import request_span

_GIVEN_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADER: Final = b"x-request-id"
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})

log = structlog.get_logger(__name__)


class ObservedRequests:
    """Gives requests an id (the caller's own in ``X-Request-Id`` is kept), and counts and logs them by operation.

    Requests that only read and succeed are logged where ``logs_reads``.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, *, logs_reads: bool) -> None:
        self._app = app
        self._metrics = metrics
        self._logs_reads = logs_reads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _given_id(scope) or uuid.uuid4().hex
        scope.setdefault("state", {})["request_id"] = request_id
        status, started = 500, time.perf_counter()

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (_HEADER, request_id.encode())]
            await send(message)

        with (
            structlog.contextvars.bound_contextvars(request_id=request_id),
            request_span(scope["method"], Headers(scope=scope)) as span,
        ):
            try:
                await self._app(scope, receive, send_with_id)
            finally:
                self._note(scope, status, time.perf_counter() - started, span)

    def _note(self, scope: Scope, status: int, seconds: float, span: Span) -> None:
        operation, method = getattr(scope.get("route"), "name", "unknown"), scope["method"]
        self._metrics.requests.labels(operation, str(status)).inc()
        self._metrics.request_seconds.labels(operation).observe(seconds)
        sender = scope["state"].get(PRINCIPAL)
        tenant, actor = (sender.tenant_id, sender.name) if sender else ("", "")
        if self._logs_reads or method not in _READING or status >= 400:
            told = {"method": method, "path": scope["path"], "status": status, "seconds": round(seconds, 4)}
            log.info("request", operation=operation, tenant=tenant, actor=actor, **told)
        if span.is_recording():
            span.update_name(operation)
            span.set_attributes(
                {
                    "http.request.method": method,
                    "http.response.status_code": status,
                    "url.path": scope["path"],
                    "meshwright.request_id": scope["state"]["request_id"],
                    "meshwright.tenant": tenant,
                }
            )
            if status >= 500:
                span.set_status(StatusCode.ERROR)


def _given_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _HEADER and _GIVEN_ID.fullmatch(value):
            text: bytes = value
            return text.decode()
    return None
