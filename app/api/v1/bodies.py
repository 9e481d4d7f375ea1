"""Bodies of requests, read by the rules of files (UTF-8, no key twice, no number that is none), and of answers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import isasyncgenfunction, iscoroutinefunction
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.exceptions import ResponseValidationError
from fastapi.routing import APIRoute
from pydantic.warnings import UnsupportedFieldAttributeWarning

from app.documents.text import parse_json

# FastAPI's own way of naming a body; it is quiet about that itself where models are not built late, as ours are.
warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)


class BodyRoute(APIRoute):
    """A route whose JSON is read by ``parse_json``, and whose answer is written in the thread that made it."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        waits = iscoroutinefunction(endpoint) or isasyncgenfunction(endpoint)
        super().__init__(path, endpoint if waits else self._written(endpoint), **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, given requests that read their bodies so."""
        handle = super().get_route_handler()

        async def handle_read(request: Request) -> Response:
            return await handle(_DocumentRequest(request.scope, request.receive))

        return handle_read

    def _written(self, endpoint: Callable[..., Any]) -> Callable[..., Any]:
        """``endpoint`` with its answer as a response, which the framework would write in two more steps."""

        @wraps(endpoint)
        def answer(**arguments: Any) -> Any:
            content = endpoint(**arguments)
            if self.response_field is None or isinstance(content, Response):
                return content
            value, errors = self.response_field.validate(content, {}, loc=("response",))
            if errors:
                raise ResponseValidationError(errors=errors, body=content)
            body = self.response_field.serialize_json(value)
            made = Response(body, self.status_code or 200, media_type="application/json")
            for sent in arguments.values():
                if isinstance(sent, Response):
                    made.status_code = sent.status_code or made.status_code
                    made.raw_headers.extend(sent.raw_headers)
            return made

        return answer


class _DocumentRequest(Request):
    async def json(self) -> Any:
        """The body's value; raises ``InvalidInput``.  Large bodies are read beside the loop."""
        return await run_in_threadpool(parse_json, await self.body(), what="document")
