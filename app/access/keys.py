"""Keys of a tenant: made, listed, revoked, and recognised when a request carries one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from app.access import tokens
from app.access.principals import Principal, Scope
from app.db.access_tables import LONGEST_NAME, ApiKeyRow
from app.services.errors import NotFound
from app.services.pagination import Page, newest_first
from cluster_models.errors import InvalidInput

USE_NOTED_EVERY: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key without its secret; ``id`` is its public part."""

    id: str
    tenant_id: str
    name: str
    scopes: tuple[Scope, ...]
    requests_per_minute: int | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def is_valid(self, now: datetime) -> bool:
        """Whether it opens anything: neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key with its text, which is shown this once."""

    key: ApiKey
    text: str


def create_key(
    session: Session,
    *,
    name: str,
    scopes: Iterable[Scope],
    expires_at: datetime | None = None,
    requests_per_minute: int | None = None,
) -> NewApiKey:
    """Make a key of the session's tenant; raises ``InvalidInput``."""
    now = datetime.now(UTC)
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise InvalidInput("name", name[:LONGEST_NAME], f"must have 1 to {LONGEST_NAME} printable characters")
    if expires_at is not None and expires_at <= now:
        raise InvalidInput("expires_at", expires_at.isoformat(), "is past", "name a moment to come, or none")
    token = tokens.new_key()
    row = ApiKeyRow(
        id=token.id,
        digest=token.digest,
        name=name.strip(),
        scopes={"scopes": sorted(scopes)},
        requests_per_minute=requests_per_minute,
        created_at=now,
        expires_at=expires_at,
    )
    session.add(row)
    session.flush()
    return NewApiKey(_key(row), token.text)


def get_key(session: Session, *, key_id: str) -> ApiKey:
    """The key with that public part; raises ``NotFound``."""
    return _key(_row(session, key_id))


def list_keys(session: Session, *, limit: int, cursor: str | None = None) -> Page[ApiKey]:
    """Keys, newest first."""
    return newest_first(session, select(ApiKeyRow), ApiKeyRow.created_at, _key, limit, cursor)


def revoke_key(session: Session, *, key_id: str) -> ApiKey:
    """End a key for good, and whoever is signed in by it; raises ``NotFound``."""
    row = _row(session, key_id)
    row.revoked_at = row.revoked_at or datetime.now(UTC)
    session.flush()
    return _key(row)


def recognise(session: Session, text: str, *, now: datetime) -> ApiKey | None:
    """The valid key of any tenant with that text."""
    row = session.get(ApiKeyRow, tokens.key_id_of(text) or "")
    if row is None or not tokens.is_same(text, row.digest):
        return None
    key = _key(row)
    return key if key.is_valid(now) else None


def note_use(session: Session, *, key_id: str, now: datetime) -> None:
    """Write down that a key was used, unless that was done a moment ago."""
    long_ago = or_(ApiKeyRow.last_used_at.is_(None), ApiKeyRow.last_used_at < now - USE_NOTED_EVERY)
    session.execute(update(ApiKeyRow).where(ApiKeyRow.id == key_id, long_ago).values(last_used_at=now))


def principal_of(key: ApiKey) -> Principal:
    """Sender of requests with a key."""
    return Principal(
        key.tenant_id,
        key.name,
        frozenset(key.scopes),
        key.id,
        f"key:{key.id}",
        key.requests_per_minute,
        expires_at=key.expires_at,
    )


def _row(session: Session, key_id: str) -> ApiKeyRow:
    row = session.get(ApiKeyRow, key_id)
    if row is None:
        raise NotFound("key", key_id)
    return row


def _key(row: ApiKeyRow) -> ApiKey:
    return ApiKey(
        id=row.id,
        tenant_id=row.tenant_id,
        name=row.name,
        scopes=tuple(Scope(scope) for scope in row.scopes["scopes"]),
        requests_per_minute=row.requests_per_minute,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )
