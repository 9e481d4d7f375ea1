"""Access control before every route: who sends a request is found out before its body is read.

The scope that a route needs is checked by ``app.access.admission``, and what was done is written down here.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote

import structlog
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access import audit
from app.access.audit import Act
from app.access.keys import USE_NOTED_EVERY
from app.access.limits import RequestLimits
from app.access.principals import ANYBODY, NOBODY, Principal
from app.access.requests import (
    InvalidCredentials,
    admit,
    credentials_digest,
    known_actor,
    note_use,
    read_credentials,
)
from app.access.rights import name_of, right_of
from app.db.engine import DATABASE_AWAY, transaction
from app.kept import Kept
from app.looks import Looks
from app.problems import problem_response
from app.resources import service_of
from app.settings import Settings
from app.web.error_pages import failure_page, wants_page

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})
SIGN_IN: Final = "/sign-in"
MOST_KNOWN: Final = 1000
"""Keys and cookies that a process recognises without reading them again."""
PUBLIC: Final = re.compile(
    r"/healthz|/readyz|/problems/[^/]*|/static/[^/]*|/profiler/[^/]*|/sign-in(/.*)?|/sign-out|/api/v1/openapi\.json"
)
SIGNED: Final = re.compile(r"/api/v1/clusters/.+/events/[^/]+")
"""Messages of monitoring systems: their signatures say whose they are (``app.access.ingress``)."""

log = structlog.get_logger(__name__)


class AccessControl:
    """Refuses requests without credentials, those over their limit, and forms that no page of ours sent."""

    def __init__(self, app: ASGIApp, settings: Settings, tenant: str, looks: Looks) -> None:
        self._app = app
        self._looks = looks
        self._known = Kept[str, tuple[str, Principal]](MOST_KNOWN)
        self._noted = Kept[str, float](MOST_KNOWN)
        self._limits = RequestLimits(settings.requests_per_minute)
        self._unknown = replace(ANYBODY, tenant_id=tenant) if settings.is_open else NOBODY

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve or refuse one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request = Request(scope)
        try:
            principal = await self._principal(request) or self._unknown
        except InvalidCredentials:
            await _refusal(request, "The key is unknown, expired or revoked.")(scope, receive, send)
            return
        except DATABASE_AWAY as error:
            log.warning("database_away", path=request.url.path, reason=str(error)[:300])
            await _answer(request, 503, "not-ready", "The database does not answer.")(scope, receive, send)
            return
        refusal = self._refused(request, principal)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        admit(request, principal)
        await self._app(scope, receive, _with_audit(request, principal, send))
        if principal.key_id is not None:
            await self._note_use(request, principal.key_id)

    async def _principal(self, request: Request) -> Principal | None:
        """Principal that the credentials of a request stand for; raises ``InvalidCredentials``.

        The database is asked again once anything was stored in it.
        """
        if (digest := credentials_digest(request)) is None:
            return None
        mark = await self._looks.mark(request)
        known_at, known = self._known.find(digest) or (None, NOBODY)
        if mark is not None and known_at == mark and not known.is_over(datetime.now(UTC)):
            return known
        found = await run_in_threadpool(read_credentials, request)
        if found is not None and mark is not None:
            self._known.keep(digest, (mark, found))
        return found

    async def _note_use(self, request: Request, key_id: str) -> None:
        """Write down that a key was used, unless this process did a moment ago."""
        now, noted = time.monotonic(), self._noted.find(key_id)
        if noted is None or now - noted > USE_NOTED_EVERY.total_seconds():
            self._noted.keep(key_id, now)
            await run_in_threadpool(_note_use, request, key_id)

    def _refused(self, request: Request, principal: Principal) -> Response | None:
        path, is_change = request.url.path, request.method not in SAFE_METHODS
        is_open = PUBLIC.fullmatch(path) or (request.method == "POST" and SIGNED.fullmatch(path))
        if principal is NOBODY and not is_open:
            return _refusal(request, "This needs a key: send it as Authorization: Bearer.")
        if principal.by_cookie and is_change and not _is_from_browser(request):
            detail = "A form must say which page it is from, as every browser does."
            return _answer(request, 403, "foreign-origin", detail)
        if wait_s := self._limits.wait_s(principal):
            return too_many(request, "This key has sent as many requests as it may in a minute.", wait_s)
        return None


def too_many(request: Request, detail: str, wait_s: int) -> Response:
    """The answer to a request over a limit."""
    return _answer(request, 429, "too-many-requests", detail, {"Retry-After": str(wait_s)})


def _is_from_browser(request: Request) -> bool:
    """Whether a request says where it is from; ``app.trusted_requests`` has refused those from elsewhere."""
    return "sec-fetch-site" in request.headers or "origin" in request.headers


def _refusal(request: Request, detail: str) -> Response:
    """The answer to a request without valid credentials: a person is sent to sign in."""
    if wants_page(request) and request.method in SAFE_METHODS:
        place = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        return RedirectResponse(f"{SIGN_IN}?next={quote(place, safe='')}", 303)
    return _answer(request, 401, "not-signed-in", detail, {"WWW-Authenticate": 'Bearer realm="meshwright"'})


def _answer(
    request: Request, status: int, kind: str, detail: str, headers: dict[str, str] | None = None
) -> Response:
    if wants_page(request):
        return failure_page(request, status, detail, headers=headers)
    return problem_response(request, kind=kind, status=status, detail=detail, headers=headers)


def _with_audit(request: Request, principal: Principal, send: Send) -> Send:
    """Sends an answer once the audit log has what was done."""

    async def send_audited(message: Message) -> None:
        if message["type"] == "http.response.start" and (act := _act(request, principal, message)) is not None:
            await run_in_threadpool(_record, request, act)
        await send(message)

    return send_audited


def _act(request: Request, principal: Principal, message: Message) -> Act | None:
    """Entry of the audit log for an answer; ``None`` where nothing was changed or refused for want of a scope."""
    endpoint, status = request.scope.get("endpoint"), message["status"]
    if endpoint is None or request.method in SAFE_METHODS or not right_of(endpoint).changes:
        return None
    if status >= 400 and status != 403:
        return None
    actor, made = known_actor(request), Headers(raw=message.get("headers", [])).get("location")
    return Act(
        actor=actor.name if actor else "",
        key_id=principal.key_id,
        action=name_of(endpoint),
        subject=made if made is not None and status in (201, 202) else request.url.path,
        status=status,
        request_id=request.scope["state"].get("request_id", ""),
        address=request.client.host if request.client else "",
    )


def _record(request: Request, act: Act) -> None:
    """Write an act down; where the database is away the service's own log has it at least."""
    log.info("act", actor=act.actor, action=act.action, subject=act.subject, status=act.status, address=act.address)
    try:
        with transaction(service_of(request).sessions) as session:
            audit.record(session, act)
    except SQLAlchemyError as error:
        log.exception("act_not_recorded", action=act.action, subject=act.subject, reason=str(error)[:300])


def _note_use(request: Request, key_id: str) -> None:
    try:
        note_use(request, key_id)
    except SQLAlchemyError as error:
        log.warning("use_of_key_not_noted", reason=str(error)[:300])
