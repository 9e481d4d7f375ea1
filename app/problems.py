"""Errors over HTTP: RFC 9457 problem details for programs, and a page for a person at a wrong address."""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, Field
from sqlalchemy.exc import DataError
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from app.db.engine import DATABASE_AWAY, why_away
from app.documents.reading import FieldProblem, problems_of, problems_of_validation
from app.services.errors import (
    Conflict,
    Forbidden,
    IdempotencyKeyReused,
    NotAuthentic,
    NotFound,
    Refused,
    VersionMismatch,
)
from app.services.planning.requests import BY_NAME, IN_FULL
from app.web.error_pages import AGAIN_SOON, failure_page, wants_page
from cluster_models.errors import InvalidInput
from cluster_models.units import MIB

MEDIA_TYPE: Final = "application/problem+json"
TYPES: Final[Mapping[str, str]] = {
    "invalid-input": "A value in the request is wrong; errors lists each with its field and a remedy.",
    "not-found": "There is no such thing under this address.",
    "method-not-allowed": "This address does not know this method.",
    "conflict": "The request does not fit the state it meets.",
    "idempotency-key-reused": "The Idempotency-Key was used with another request.",
    "version-mismatch": "Somebody else changed the thing meanwhile; read it again.",
    "not-signed-in": "The request carries no valid key.",
    "insufficient-scope": "The key or role does not have the scope that this needs.",
    "too-many-requests": "A limit or a quota is used up; Retry-After says when to try again.",
    "foreign-origin": "A page of another site sent the request.",
    "unknown-host": "The request names the service as it is not known.",
    "not-authentic": "The request does not prove who sent it.",
    "content-too-large": "The request's body is larger than this service takes.",
    "unsupported-media-type": "The request's body is not of a type that this address reads.",
    "bad-request": "The request cannot be read.",
    "not-ready": "The service cannot serve requests just now.",
    "internal": "The service broke; its log says where, under the request's id.",
}
"""Each type's URI is ``/problems/`` and its name; names stay for ever."""

_REFERENCE: Final = "#/components/schemas/{model}"
_LONGEST_VALUE: Final = 200
_SHORT: Final = reprlib.Repr()
_SHORT.maxlist = _SHORT.maxtuple = _SHORT.maxdict = 20
_SHORT.maxstring = _SHORT.maxother = _LONGEST_VALUE
_TAGGED: Final = frozenset(
    {
        "get_cluster",
        "get_topology",
        "list_nodes",
        "get_node",
        "get_routing",
        "get_job",
        "list_spares",
        "get_replan_settings",
        "get_plan",
        "get_run",
        "list_aliases",
        "get_calibration",
        "get_event_source",
        "get_key",
        "get_model",
        "get_webhook",
    }
)
"""Operations whose answers have an ETag."""
_HEADERS: Final = {
    "X-Request-Id": "Id of the request in the service's log; the client's own where it sent one.",
    "Location": "Address of what was made.",
    "Retry-After": "Seconds after which to try again; with 429 and 503.",
    "ETag": "Tag of this content, for If-Match and If-None-Match.",
}
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_BY_STATUS: Final = {
    400: "bad-request",
    404: "not-found",
    405: "method-not-allowed",
    413: "content-too-large",
    415: "unsupported-media-type",
    429: "too-many-requests",
}

log = structlog.get_logger(__name__)


class FieldErrorView(BaseModel):
    """One wrong value."""

    field: str = Field(description="Where it stands in the request.", examples=["workload.pinned.tensor"])
    value: Any = Field(description="The value of the field; long ones are cut.", examples=[3])
    problem: str = Field(description="What is wrong with it.", examples=["must divide the 64 heads"])
    remedy: str = Field(description="The remedy; may be empty.", examples=["pin another value, or none"])


class ProblemView(BaseModel):
    """An RFC 9457 problem."""

    type: str = Field(description="Kind of problem; a stable address.", examples=["/problems/invalid-input"])
    title: str = Field(description="The kind in words.", examples=[TYPES["invalid-input"]])
    status: int = Field(description="The HTTP status.", examples=[422])
    detail: str = Field(description="What happened here.", examples=["2 values are wrong."])
    instance: str = Field(description="The request's path.", examples=["/api/v1/plans"])
    request_id: str = Field(description="The id of the request in the service's log.", examples=["3f0c..."])
    errors: list[FieldErrorView] = Field(default=[], description="Every wrong value, with invalid-input.")


PROBLEM_RESPONSE: Final[dict[str, Any]] = {
    "description": "A problem (RFC 9457).",
    "content": {MEDIA_TYPE: {"schema": {"$ref": _REFERENCE.format(model=ProblemView.__name__)}}},
}
"""How the API's description shows every error; ``describe`` adds the schema that it refers to."""


def install(app: FastAPI) -> None:
    """Answer every error of the application with a problem."""
    app.add_exception_handler(InvalidInput, _invalid_input)
    app.add_exception_handler(RequestValidationError, _unreadable_values)
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(DataError, _unstorable)
    for kind in DATABASE_AWAY:
        app.add_exception_handler(kind, _database_away)
    app.add_exception_handler(Exception, _broken)


def describe(description: dict[str, Any]) -> None:
    """Add to an OpenAPI description what ``PROBLEM_RESPONSE`` refers to, and the headers of answers."""
    schemas = description["components"]["schemas"]
    schema = ProblemView.model_json_schema(ref_template=_REFERENCE)
    schemas |= schema.pop("$defs") | {ProblemView.__name__: schema}
    for path in description["paths"].values():
        for operation in path.values():
            answers = operation["responses"]
            if (tagged := operation["operationId"] in _TAGGED) and "304" not in answers:
                answers["304"] = {"description": "The client has this answer: If-None-Match names its ETag."}
            for status, answer in answers.items():
                answer["headers"] = _headers(status, tagged=tagged)


def _headers(status: str, *, tagged: bool) -> dict[str, Any]:
    """The headers of an answer with this status."""
    names = ["X-Request-Id"]
    names += ["Location"] if status == "201" else []
    names += ["Retry-After"] if status in ("503", "5XX", "4XX") else []
    names += ["ETag"] if tagged and status in ("200", "304") else []
    return {name: {"description": _HEADERS[name], "schema": {"type": "string"}} for name in names}


def problem_response(
    request: Request,
    *,
    kind: str,
    status: int,
    detail: str,
    errors: Sequence[FieldProblem] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The response that tells of a problem."""
    body = {
        "type": f"/problems/{kind}",
        "title": TYPES[kind],
        "status": status,
        "detail": detail,
        "instance": request.url.path,
        "request_id": request.scope.get("state", {}).get("request_id", ""),
    }
    if errors:
        body["errors"] = [
            {"field": e.field, "value": _shown(e.value), "problem": e.problem, "remedy": e.remedy} for e in errors
        ]
    headers = dict(headers or {}) | (AGAIN_SOON if status == 503 else {})
    # Escaped to ASCII: what was sent may hold half a surrogate pair, which UTF-8 cannot.
    return Response(json.dumps(body, allow_nan=False), status, headers, MEDIA_TYPE)


class DeclaredSize:
    """Refuses a body that says it is too large before it is sent, with a problem as the answer."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        declared = dict(scope["headers"]).get(b"content-length", b"0") if scope["type"] == "http" else b"0"
        if not declared.isdigit() or int(declared) <= self._max_bytes:
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        if wants_page(request):
            sizes = f"{int(declared) / MIB:.1f} MiB, and this service takes {self._max_bytes / MIB:.1f} MiB at once"
            detail = f"What was sent has {sizes}. Send files in several parts, or packed as .zip or .tar.gz."
            refusal = failure_page(request, 413, detail)
        else:
            detail = f"The body has {int(declared)} bytes; this service takes {self._max_bytes}."
            refusal = problem_response(request, kind="content-too-large", status=413, detail=detail)
        await refusal(scope, receive, send)


async def _invalid_input(request: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidInput)
    return _unprocessable(request, problems_of(error))


async def _unreadable_values(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    if isinstance(error.body, bytes):
        kind = request.headers.get("content-type", "")
        detail = f"The body must be JSON with Content-Type: application/json, not {kind[:_LONGEST_VALUE]!r}."
        return problem_response(request, kind="unsupported-media-type", status=415, detail=detail)
    found = [
        {**entry, "loc": [part for part in entry["loc"][1:] if part not in (BY_NAME, IN_FULL)]}
        for entry in error.errors()
    ]
    return _unprocessable(request, problems_of_validation(found, kind=_body_kind(request)))


def _unprocessable(request: Request, errors: Sequence[FieldProblem]) -> Response:
    detail = str(errors[0]) if len(errors) == 1 else f"{len(errors)} values are wrong; the first: {errors[0]}"
    return problem_response(request, kind="invalid-input", status=422, detail=detail, errors=errors)


async def _refused(request: Request, error: Exception) -> Response:
    kinds: list[tuple[type[Exception], str, int]] = [
        (NotFound, "not-found", 404),
        (VersionMismatch, "version-mismatch", 412),
        (IdempotencyKeyReused, "idempotency-key-reused", 422),
        (NotAuthentic, "not-authentic", 401),
        (Forbidden, "insufficient-scope", 403),
        (Conflict, "conflict", 409),
    ]
    kind, status = next((kind, status) for cls, kind, status in kinds if isinstance(error, cls))
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, NotAuthentic) else None
    if isinstance(error, Forbidden):
        headers = {"WWW-Authenticate": f'Bearer error="insufficient_scope", scope="{error.scope}"'}
    return problem_response(request, kind=kind, status=status, detail=str(error), headers=headers)


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, InvalidInput):  # what FastAPI makes of a body that cannot be read
        return await _invalid_input(request, error.__cause__)
    headers = error.headers
    if error.status_code == 405:
        headers = {"Allow": ", ".join(_methods_at(request, request.url.path))}
    path = request.url.path
    short = path.rstrip("/")
    if error.status_code == 404 and short != path and not path.startswith("//") and _methods_at(request, short):
        # Without a host: which one the sender named is for nobody else to follow.
        return RedirectResponse(f"{short}?{request.url.query}" if request.url.query else short, 307)
    if wants_page(request):
        return failure_page(request, error.status_code, str(error.detail), headers=headers)
    fallback = "bad-request" if error.status_code < 500 else "internal"
    return problem_response(
        request,
        kind=_BY_STATUS.get(error.status_code, fallback),
        status=error.status_code,
        detail=str(error.detail) or HTTPStatus(error.status_code).phrase,
        headers=headers,
    )


def _methods_at(request: Request, path: str) -> list[str]:
    """The methods that some route knows at an address."""
    routes = request.app.router.routes

    def is_known(method: str) -> bool:
        scope = {**request.scope, "path": path, "method": method}
        return any(route.matches(scope)[0] is Match.FULL for route in routes)

    known = [method for method in _METHODS if is_known(method)]
    return ["HEAD", *known] if "GET" in known else known


async def _unstorable(request: Request, error: Exception) -> Response:
    log.info("value_refused_by_database", path=request.url.path, reason=str(error)[:300])
    problem = "a value in the request holds a character or a size that cannot be stored"
    return _unprocessable(request, [FieldProblem("request", request.url.path, problem, "leave out NUL characters")])


async def _database_away(request: Request, error: Exception) -> Response:
    log.warning("database_away", path=request.url.path, reason=str(error)[:300])
    return problem_response(request, kind="not-ready", status=503, detail=why_away(error))


async def _broken(request: Request, error: Exception) -> Response:
    log.error("request_broke", path=request.url.path, exc_info=error)
    detail = "The service broke while it answered; nothing was stored."
    return problem_response(request, kind="internal", status=500, detail=detail)


def _body_kind(request: Request) -> Any:
    """The annotation of the body that the route takes, for suggestions of field names."""
    body = getattr(request.scope.get("route"), "body_field", None)
    return getattr(getattr(body, "field_info", None), "annotation", None)


def _shown(value: object) -> Any:
    """A value short and harmless enough to be sent back."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    text = value if isinstance(value, str) else _SHORT.repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."
