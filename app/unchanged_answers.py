"""Answers to reads that others have just had, given again as long as nothing was stored since.

Pages and scripts of a team ask for the same lists and plans again and again.  Before such an answer is given again
the database says whether it has changed, so nobody reads anything older than without.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Final

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.requests import principal_of
from app.api.v1.answers import PREFIX
from app.kept import Kept
from app.looks import Looks
from cluster_models.units import KIB, MIB

STORED: Final = re.compile(rf"{PREFIX}/(clusters(/[^/]+(/nodes)?)?|plans(/[^/]+)?)")
"""Addresses whose answers follow from address, tenant and database alone: no clock, no other process."""
MOST_BYTES: Final = 32 * MIB


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer as it was sent, the route that made it, and the mark of the database before."""

    mark: str
    route: Any
    headers: list[tuple[bytes, bytes]]
    body: bytes


class UnchangedAnswers:
    """Gives an answer again while the database shows the same; after access control."""

    def __init__(self, app: ASGIApp, looks: Looks) -> None:
        self._app = app
        self._looks = looks
        self._kept = Kept[Hashable, _Answer](MOST_BYTES, lambda answer: len(answer.body) + KIB)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        is_read = scope["type"] == "http" and scope["method"] == "GET" and STORED.fullmatch(scope["path"])
        mark = await self._looks.mark(Request(scope)) if is_read else None
        if mark is None:
            await self._app(scope, receive, send)
            return
        key = _key(Request(scope))
        answer = self._kept.find(key)
        if answer is not None and answer.mark == mark:
            scope["route"] = answer.route
            await send({"type": "http.response.start", "status": 200, "headers": [*answer.headers]})
            await send({"type": "http.response.body", "body": answer.body})
            return
        started: Message = {}

        async def send_and_keep(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.update(message, headers=[*message["headers"]])
            elif started["status"] == 200 and not message.get("more_body"):
                self._kept.keep(key, _Answer(mark, scope["route"], started["headers"], message["body"]))
            await send(message)

        await self._app(scope, receive, send_and_keep)


def _key(request: Request) -> Hashable:
    """All that an answer depends on beside the database: its address, who may see what, and how it is packed."""
    principal, is_packed = principal_of(request), "gzip" in request.headers.get("accept-encoding", "")
    return principal.tenant_id, principal.scopes, request.scope["path"], request.scope["query_string"], is_packed
