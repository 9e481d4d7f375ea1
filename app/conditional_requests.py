"""Answers that the client has already (RFC 9110, section 13): 304 without a body."""

from __future__ import annotations

import re
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ANY_TAG: Final = "*"
_TAG: Final = r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"'
_TAGS: Final = re.compile(rf"[\s,]*+(?:{_TAG}\s*+(?:,[\s,]*+|\Z))*+")
"""Possessive: a blank that two parts could take makes the time to refuse a header double with each."""


def tags_in(header: str) -> tuple[str, ...] | None:
    """The entity tags of ``If-Match`` or ``If-None-Match``, as written; ``None`` of what is not a list of them."""
    if header.strip() == ANY_TAG:
        return (ANY_TAG,)
    if not _TAGS.fullmatch(header):
        return None
    return tuple(re.findall(_TAG, header)) or None


class ConditionalRequests:
    """Answers ``GET`` with 304 where ``If-None-Match`` names the ETag that the answer would have."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        asked = Headers(scope=scope).getlist("if-none-match") if scope["type"] == "http" else []
        if not asked or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        known = {_weak(tag) for tag in tags_in(", ".join(asked)) or ()}
        is_known = False

        async def send_unless_known(message: Message) -> None:
            nonlocal is_known
            if message["type"] == "http.response.start" and message["status"] == 200:
                headers = MutableHeaders(raw=message["headers"])
                tag = headers.get("etag")
                is_known = tag is not None and (ANY_TAG in known or _weak(tag) in known)
                if is_known:
                    message["status"] = 304
                    del headers["content-length"], headers["content-type"]
            elif message["type"] == "http.response.body" and is_known:
                message = {**message, "body": b""}
            await send(message)

        await self._app(scope, receive, send_unless_known)


def _weak(tag: str) -> str:
    """The tag for weak comparison, which is what ``If-None-Match`` wants."""
    return tag.removeprefix("W/")
