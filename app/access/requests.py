"""Sender of a request, by its ``Authorization`` header or its cookie."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from fastapi import Request

from app.access import keys, sign_ins
from app.access.principals import Principal
from app.access.tokens import PREFIX, digest_of
from app.resources import TENANT, Service, whole_service_of
from app.services.decisions.replan_steps import Actor

COOKIE: Final = "meshwright_session"
PRINCIPAL: Final = "principal"
"""Key in the state of a request: who sends it."""


class InvalidCredentials(Exception):
    """The request carries a key that opens nothing."""


def credentials_digest(request: Request) -> str | None:
    """Digest of the key or the cookie that a request carries, valid or not; ``None`` without either."""
    if (key := bearer_of(request)) is not None:
        return digest_of(f"key {key}")
    cookie = request.cookies.get(COOKIE)
    return None if cookie is None else digest_of(f"cookie {cookie}")


def bearer_of(request: Request) -> str | None:
    """The key in ``Authorization: Bearer``; ``None`` where there is none of ours."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.casefold() == "bearer" and token.strip().startswith(PREFIX) else None


def read_credentials(request: Request) -> Principal | None:
    """Principal that a request's credentials stand for; asks the database.

    A cookie that is over stands for none.  Raises ``InvalidCredentials``: a key is unknown, expired or revoked.
    """
    now, key, cookie = datetime.now(UTC), bearer_of(request), request.cookies.get(COOKIE)
    with whole_service_of(request).read_sessions() as session:
        if key is not None:
            known = keys.recognise(session, key, now=now)
            if known is None:
                raise InvalidCredentials
            return keys.principal_of(known)
        return sign_ins.signed_in(session, cookie or "", now=now)


def admit(request: Request, principal: Principal) -> None:
    """Let routes see the request as its sender's, with the rows of the sender's tenant and no others."""
    state = request.scope.setdefault("state", {})
    state[PRINCIPAL] = principal
    state[TENANT] = principal.tenant_id


def service_for(request: Request, tenant: str) -> Service:
    """The service that got a request, as a tenant sees it."""
    return whole_service_of(request).of_tenant(tenant)


def principal_of(request: Request) -> Principal:
    """Sender of a request that came through access control."""
    principal: Principal = request.scope["state"][PRINCIPAL]
    return principal


def known_actor(request: Request) -> Actor | None:
    """Actor, where the request proves it: the name of the key, or of who is signed in."""
    principal = request.scope.get("state", {}).get(PRINCIPAL)
    return Actor(principal.name, verified=True) if principal is not None and principal.name else None


def note_use(request: Request, key_id: str) -> None:
    """Write down that a key was used."""
    service = whole_service_of(request)
    with service.sessions() as session, session.begin():
        keys.note_use(session, key_id=key_id, now=datetime.now(UTC))
