"""Error pages for a person, where a page cannot be made."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from app.db.engine import DATABASE_AWAY, why_away
from app.documents.reading import problems_of
from app.services.errors import Conflict, Forbidden, NotFound
from app.web.rendering import page
from cluster_models.errors import InvalidInput

AGAIN_SOON: Final = {"Retry-After": "5"}
"""Header of every 503: seconds after which a client may try again."""
_TITLES: Final = {
    401: "Please sign in",
    403: "Not allowed",
    404: "Nothing here",
    405: "Not possible here",
    409: "Not now",
    413: "Too large",
    421: "Not known under this name",
    422: "That does not fit together",
    429: "Too much at once",
    500: "Something broke on our side",
    503: "Not just now",
}
_STATUSES: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (NotFound, 404, ""),
    (Forbidden, 403, ""),
    (Conflict, 409, ""),
    (InvalidInput, 422, "The request cannot be served as it is."),
    (RequestValidationError, 422, "The address of this page holds a value that the page does not know."),
)
"""Errors that a user can cause, with their status and what to say (empty: the error's own words)."""

_SENTENCES: Final = {
    404: "There is no page at this address.",
    405: "This address takes no request of this kind.",
}

log = structlog.get_logger(__name__)


def wants_page(request: Request) -> bool:
    """Whether a person's browser asks, and not for the API."""
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith("/api/")


def failure_page(
    request: Request,
    status: int,
    detail: str,
    problems: Sequence[str] = (),
    *,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The page for an error; the bare phrase of a status is put into a sentence."""
    if detail == HTTPStatus(status).phrase:
        detail = _SENTENCES.get(status, f"{detail}.")
    title = _TITLES.get(status, "That went wrong")
    more = dict(headers or {}) | (AGAIN_SOON if status == 503 else {})
    values = {"title": title, "detail": detail, "problems": tuple(problems)}
    return page(request, "error.html", status=status, headers=more, **values)


class PageRoute(APIRoute):
    """A route whose errors are pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its errors turned into pages."""
        handle = super().get_route_handler()

        async def handle_as_page(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:  # noqa: BLE001 - whatever broke, a person gets a page and the log the reason
                return _page_of(request, error)

        return handle_as_page


def _page_of(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        return failure_page(request, error.status_code, str(error.detail), headers=error.headers)
    if isinstance(error, DATABASE_AWAY):
        return failure_page(request, 503, f"{why_away(error)} Nothing was stored.")
    problems = [str(problem) for problem in problems_of(error)] if isinstance(error, InvalidInput) else []
    for kind, status, words in _STATUSES:
        if isinstance(error, kind):
            return failure_page(request, status, words or str(error), problems)
    log.error("page_broke", path=request.url.path, exc_info=error)
    return failure_page(request, 500, "The service broke while it made this page; its log says why.")
