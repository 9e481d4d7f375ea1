"""People who sign in with an identity provider: OpenID Connect, authorization code with PKCE (Authlib).

Authlib reads the provider's own description, and checks state, nonce, signature, issuer, audience and times.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any, Final

from fastapi import FastAPI, Request, Response
from sqlalchemy.orm import Session
from starlette.middleware.sessions import SessionMiddleware

from app.access import tenants
from app.access.principals import ROLES, Principal
from app.db.access_tables import LONGEST_NAME
from app.services.errors import NotFound
from app.settings import DEFAULT_TENANT, LOOPBACK, Settings
from app.startup import CannotStart
from cluster_models.errors import MeshwrightError

ANSWER_PATH: Final = "/sign-in/answer"
COOKIE: Final = "meshwright_sign_in"
_ATTEMPT_S: Final = 600
_NAMES: Final = ("email", "preferred_username", "name", "sub")
"""Claims that name a person, the best first."""


class SignInFailed(MeshwrightError):
    """The provider did not say who somebody is, or they have no role here."""


def install(app: FastAPI, settings: Settings) -> None:
    """Let people sign in with the provider of the settings, if there is one; raises ``CannotStart``.

    Between the way there and the way back a signed cookie holds what belongs together.
    """
    if not settings.oidc_issuer:
        return
    _check(settings)
    # Imported late: a fifth of a second of the start, and most services have no provider.
    from authlib.integrations.starlette_client import OAuth  # noqa: PLC0415

    oauth = OAuth()
    oauth.register(
        name="provider",
        client_id=settings.oidc_client_id,
        client_secret=settings.oidc_client_secret,
        server_metadata_url=f"{settings.oidc_issuer.rstrip('/')}/.well-known/openid-configuration",
        client_kwargs={"scope": settings.oidc_scope, "code_challenge_method": "S256"},
    )
    app.state.provider = oauth.provider
    app.add_middleware(
        SessionMiddleware,
        secret_key=hashlib.sha256(f"sign-in {settings.oidc_client_secret}".encode()).hexdigest(),
        session_cookie=COOKIE,
        max_age=_ATTEMPT_S,
        path="/sign-in",
        same_site="lax",
        https_only=settings.host not in LOOPBACK,
    )


def _check(settings: Settings) -> None:
    for name in ("oidc_client_id", "oidc_client_secret", "oidc_roles"):
        if not getattr(settings, name):
            raise CannotStart(
                f"MESHWRIGHT_OIDC_ISSUER is set, and MESHWRIGHT_{name.upper()} is not: set both or none"
            )
    for value, granted in settings.oidc_roles.items():
        if granted.partition("@")[0] not in ROLES:
            told = f"{granted!r} of {value!r} is not a role; write one of {', '.join(ROLES)}, or ROLE@TENANT"
            raise CannotStart(f"MESHWRIGHT_OIDC_ROLES: {told}")


@cache
def _failures() -> tuple[type[Exception], ...]:
    """Errors that Authlib raises where a provider does not answer as it should."""
    from authlib.integrations.starlette_client import OAuthError  # noqa: PLC0415 - see ``install``
    from httpx2 import HTTPError  # noqa: PLC0415 - likewise
    from joserfc.errors import JoseError  # noqa: PLC0415 - likewise

    return OAuthError, JoseError, HTTPError, RuntimeError


def is_there(request: Request) -> bool:
    """Whether people can sign in with a provider."""
    return hasattr(request.app.state, "provider")


async def way_there(request: Request) -> Response:
    """The redirect to the provider; raises ``SignInFailed``."""
    address = str(request.base_url).rstrip("/") + ANSWER_PATH
    try:
        answer: Response = await request.app.state.provider.authorize_redirect(request, address)
    except _failures() as error:
        raise SignInFailed("The identity provider does not answer; try again in a moment.") from error
    return answer


async def claims_of_answer(request: Request) -> dict[str, Any]:
    """Claims of the identity token that the provider's answer leads to; raises ``SignInFailed``."""
    try:
        token = await request.app.state.provider.authorize_access_token(request)
    except _failures() as error:
        raise SignInFailed("The identity provider's answer cannot be used; sign in again.") from error
    claims: dict[str, Any] = token.get("userinfo") or {}
    if not claims.get("sub"):
        raise SignInFailed("The identity provider did not say who you are.")
    return claims


def person_of(session: Session, claims: dict[str, Any], settings: Settings) -> Principal:
    """Person who signs in, with the role of the first of ``oidc_roles`` that they have; raises ``SignInFailed``."""
    name = next(str(claims[each]) for each in _NAMES if claims.get(each))
    values = claims.get(settings.oidc_claim) or []
    values = values if isinstance(values, list) else [values]
    for value, granted in settings.oidc_roles.items():
        role, _, tenant = granted.partition("@")
        if value not in values:
            continue
        try:
            found = tenants.get_tenant(session, name=tenant or DEFAULT_TENANT)
        except NotFound:
            continue
        shown = "".join(letter if letter.isprintable() else "?" for letter in name)[:LONGEST_NAME]
        return Principal(found.id, shown, ROLES[role])
    raise SignInFailed(f"{name[:LONGEST_NAME]} is known, and has no role here; ask who runs this service for one.")
