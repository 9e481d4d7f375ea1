"""Posts are taken from our own pages only (see docs/decisions on pages)."""

from __future__ import annotations

from urllib.parse import urlsplit

from fastapi import Request
from starlette.datastructures import FormData

from app.resources import service_of


class ForeignOriginError(Exception):
    """A form was sent from a page of another site."""


def require_same_origin(request: Request) -> None:
    """Raise ``ForeignOriginError`` unless the browser says that one of our pages sent this.

    ``Sec-Fetch-Site`` is set by every current browser and cannot be set by a page; older ones send ``Origin`` with
    each post.  A client that sends neither is no browser, and so carries nobody's credentials by accident.
    """
    fetch_site = request.headers.get("sec-fetch-site")
    if fetch_site is not None:
        if fetch_site not in ("same-origin", "none"):
            raise ForeignOriginError
        return
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise ForeignOriginError


async def sent_form(request: Request) -> FormData:
    """What a form of ours sent; boxes may be as large as the service's limit for bodies."""
    require_same_origin(request)
    return await request.form(max_part_size=service_of(request).settings.max_body_bytes)
