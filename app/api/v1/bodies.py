"""Request bodies, read by the rules of files: UTF-8, no key twice, no number that is none."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute

from app.documents.text import parse_json


class BodyRoute(APIRoute):
    """A route whose JSON is read by ``parse_json``."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given requests that read their bodies so."""
        handle = super().get_route_handler()

        async def handle_read(request: Request) -> Response:
            return await handle(_DocumentRequest(request.scope, request.receive))

        return handle_read


class _DocumentRequest(Request):
    async def json(self) -> Any:
        """The body's value; raises ``InvalidInput``.  Large bodies are read beside the loop."""
        return await run_in_threadpool(parse_json, await self.body(), what="document")
