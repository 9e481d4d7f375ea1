"""Around every request: an id that the log and the answer share, and what the metrics count."""

from __future__ import annotations

import re
import time
import uuid
from typing import Final

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.metrics import Metrics

_GIVEN_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_HEADER: Final = b"x-request-id"


class ObservedRequests:
    """Gives requests an id (the caller's own in ``X-Request-Id`` is kept) and counts them by operation."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

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

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, send_with_id)
            finally:
                self._count(scope, status, time.perf_counter() - started)

    def _count(self, scope: Scope, status: int, seconds: float) -> None:
        operation = getattr(scope.get("route"), "name", "unknown")
        self._metrics.requests.labels(operation, str(status)).inc()
        self._metrics.request_seconds.labels(operation).observe(seconds)


def _given_id(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == _HEADER and _GIVEN_ID.fullmatch(value):
            text: bytes = value
            return text.decode()
    return None
