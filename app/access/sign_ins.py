"""Browsers that are signed in: one row each, found by the digest of their cookie, gone when they sign out."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import delete
from sqlalchemy.orm import Session

from app.access import tokens
from app.access.principals import Principal, Scope
from app.db.access_tables import ApiKeyRow, SignInRow


def sign_in(session: Session, principal: Principal, *, now: datetime, lasting: timedelta) -> str:
    """Sign somebody in for a while; returns the content of the cookie.  The session is of their tenant."""
    token = tokens.new_cookie()
    session.add(
        SignInRow(
            digest=token.digest,
            key_id=principal.key_id,
            name=principal.name,
            scopes={"scopes": sorted(principal.scopes)},
            created_at=now,
            expires_at=now + lasting,
        )
    )
    session.flush()
    return token.text


def signed_in(session: Session, cookie: str, *, now: datetime) -> Principal | None:
    """Principal that the cookie of a browser stands for; nobody once it or the key behind it has ended."""
    row = session.get(SignInRow, tokens.digest_of(cookie))
    if row is None or row.expires_at <= now:
        return None
    ends = [row.expires_at]
    if row.key_id is not None:
        key = session.get(ApiKeyRow, row.key_id)
        if key is None or key.revoked_at is not None or (key.expires_at is not None and key.expires_at <= now):
            return None
        ends += [key.expires_at] if key.expires_at is not None else []
    scopes = frozenset(Scope(scope) for scope in row.scopes["scopes"])
    counted = f"key:{row.key_id}" if row.key_id else f"person:{row.tenant_id}:{row.name}"
    return Principal(row.tenant_id, row.name, scopes, row.key_id, counted, by_cookie=True, expires_at=min(ends))


def sign_out(session: Session, cookie: str) -> None:
    """End one sign-in."""
    session.execute(delete(SignInRow).where(SignInRow.digest == tokens.digest_of(cookie)))


def forget_ended(session: Session, *, now: datetime) -> None:
    """Drop sign-ins that are over."""
    session.execute(delete(SignInRow).where(SignInRow.expires_at <= now))
