"""Pages to sign in, by a key or by an identity provider, and to sign out."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import RedirectResponse, Response
from starlette.datastructures import FormData

from app.access import audit, keys, provider, sign_ins
from app.access.audit import Act
from app.access.principals import Principal
from app.access.provider import SignInFailed
from app.access.requests import COOKIE, service_for
from app.db.engine import transaction
from app.resources import whole_service_of
from app.settings import LOOPBACK, Settings
from app.web.error_pages import PageRoute
from app.web.origin import sent_form
from app.web.rendering import page

router = APIRouter(route_class=PageRoute, include_in_schema=False)

_NEXT: Final = "next"


@router.get("/sign-in")
def sign_in(request: Request) -> Response:
    """The form that takes a key, and the way to the provider."""
    place = local(request.query_params.get(_NEXT, ""))
    if whole_service_of(request).settings.is_open:
        return RedirectResponse(place, 303)
    return _form(request, place)


@router.post("/sign-in")
def sign_in_by_key(request: Request, data: Annotated[FormData, Depends(sent_form)]) -> Response:
    """Sign a browser in with a key."""
    place, now = local(str(data.get(_NEXT) or "")), datetime.now(UTC)
    with whole_service_of(request).read_sessions() as session:
        known = keys.recognise(session, str(data.get("key") or "").strip(), now=now)
    if known is None:
        return _form(request, place, problem="This key is unknown, expired or revoked.")
    return _signed_in(request, keys.principal_of(known), place, now)


@router.get("/sign-in/provider")
async def sign_in_by_provider(request: Request) -> Response:
    """Send a browser to the identity provider."""
    if not provider.is_there(request):
        return _form(request, "/", problem="No identity provider is set up here; sign in with a key.")
    try:
        answer = await provider.way_there(request)
    except SignInFailed as error:
        return _form(request, "/", problem=str(error))
    request.session[_NEXT] = local(request.query_params.get(_NEXT, ""))
    return answer


@router.get(provider.ANSWER_PATH)
async def provider_answer(request: Request) -> Response:
    """Sign a browser in that comes back from the identity provider."""
    if not provider.is_there(request):
        return RedirectResponse("/sign-in", 303)
    try:
        claims = await provider.claims_of_answer(request)
        person = await run_in_threadpool(_person, request, claims)
    except SignInFailed as error:
        return _form(request, "/", problem=str(error))
    place = local(request.session.pop(_NEXT, ""))
    return await run_in_threadpool(_signed_in, request, person, place, datetime.now(UTC))


@router.post("/sign-out")
def sign_out(request: Request) -> Response:
    """Sign a browser out."""
    if cookie := request.cookies.get(COOKIE):
        with transaction(whole_service_of(request).sessions) as session:
            sign_ins.sign_out(session, cookie)
    answer = RedirectResponse("/sign-in", 303)
    answer.delete_cookie(COOKIE)
    return answer


def local(place: str) -> str:
    """A path of ours that a browser is to go to; the start page in place of anything else."""
    is_path = place.startswith("/") and not place.startswith(("//", "/\\")) and place.isprintable()
    return place if is_path else "/"


def _form(request: Request, place: str, *, problem: str = "") -> Response:
    has_provider, status = provider.is_there(request), 401 if problem else 200
    return page(request, "sign_in.html", status=status, place=place, problem=problem, has_provider=has_provider)


def _person(request: Request, claims: dict[str, object]) -> Principal:
    service = whole_service_of(request)
    with service.read_sessions() as session:
        return provider.person_of(session, claims, service.settings)


def _signed_in(request: Request, principal: Principal, place: str, now: datetime) -> Response:
    """Send a browser on with the cookie that it is signed in by."""
    service = service_for(request, principal.tenant_id)
    lasting = timedelta(hours=service.settings.sign_in_hours)
    with transaction(service.sessions) as session:
        cookie = sign_ins.sign_in(session, principal, now=now, lasting=lasting)
        address = request.client.host if request.client else ""
        request_id = request.scope["state"].get("request_id", "")
        act = Act(principal.name, principal.key_id, "sign_in", request.url.path, 303, request_id, address)
        audit.record(session, act)
    answer = RedirectResponse(place, 303)
    answer.set_cookie(
        COOKIE,
        cookie,
        max_age=int(lasting.total_seconds()),
        httponly=True,
        samesite="lax",
        secure=_is_secure(request, service.settings),
    )
    return answer


def _is_secure(request: Request, settings: Settings) -> bool:
    """Whether cookies go over HTTPS only: always, but on this machine without a proxy that speaks it."""
    return settings.host not in LOOPBACK or request.url.scheme == "https"
