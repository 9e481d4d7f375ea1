"""Requests that a page of another site may have made a browser send are refused, by whatever address they came."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.problems import problem_response
from app.web.error_pages import failure_page, wants_page

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_FOREIGN: Final = "This was sent from a page of another site, so nothing was done."


class TrustedRequests:
    """Lets requests through that name the service as it is known and change nothing for another site's page.

    A page elsewhere can make a visitor's browser post to an address of her own machine, and by a name that its
    owner points there it can read the answers as well (DNS rebinding).  ``hosts`` are the names under which the
    service is reached, without ports; none means any.
    """

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self._app = app
        self._hosts = frozenset(host.casefold() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        name = _without_port(host).casefold()
        if self._hosts and name not in self._hosts:
            known = ", ".join(sorted(self._hosts))
            remedy = f"use one of them, or add yours to MESHWRIGHT_ALLOWED_HOSTS, such as [{name[:200]!r}]"
            detail = f"This service is known as {known}, not as {name[:200]!r}: {remedy}."
            return _refused(request, 421, "unknown-host", detail)
        if request.method not in _SAFE_METHODS and is_foreign(request):
            return _refused(request, 403, "foreign-origin", _FOREIGN)
        return None


def _refused(request: Request, status: int, kind: str, detail: str) -> Response:
    if wants_page(request):
        return failure_page(request, status, detail)
    return problem_response(request, kind=kind, status=status, detail=detail)


def is_foreign(request: Request) -> bool:
    """Whether a browser says that a page of another site sent this.

    ``Sec-Fetch-Site`` is set by every current browser and cannot be set by a page; older ones send ``Origin`` with
    each post.  A client that sends neither is not a browser, and so carries nobody's credentials by accident.
    """
    fetch_site = request.headers.get("sec-fetch-site")
    if fetch_site is not None:
        return fetch_site not in ("same-origin", "none")
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host")


def _without_port(host: str) -> str:
    """The name or address in a ``Host`` header; IPv6 addresses keep their brackets."""
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
