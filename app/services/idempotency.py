"""Requests that a client may repeat without asking twice (header ``Idempotency-Key``)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from pydantic import BaseModel
from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.tables import IdempotencyKeyRow
from app.services.errors import IdempotencyKeyReused, NotFound

KEPT_FOR: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request that may come again; ``id`` is of its kind and key, ``asked`` of all that it asks for."""

    key: str
    id: str
    asked: str


def fingerprint(body: bytes) -> str:
    """Hash that tells one request body from another."""
    return hashlib.sha256(body).hexdigest()


def keyed(kind: str, key: str | None, *asked: BaseModel | str) -> KeyedRequest | None:
    """The request of a kind with this key that asks for all of ``asked``; ``None`` without a key."""
    if key is None:
        return None
    parts = [part if isinstance(part, str) else part.model_dump_json() for part in asked]
    return KeyedRequest(key, fingerprint(f"{kind} {key}".encode())[:32], fingerprint("\n".join(parts).encode()))


def once(
    session: Session, request: KeyedRequest | None, *, make: Callable[[], str], find: Callable[[str], object]
) -> str:
    """Id of the resource that ``make`` makes; the same request again gets the same.

    ``find`` raises ``NotFound`` where that is gone: it is made anew then.  Raises ``IdempotencyKeyReused``.
    """
    if request is None:
        return make()
    if (found := made_before(session, request, find=find)) is not None:
        return found
    with session.begin_nested() as savepoint:
        made = make()
        if _remember(session, request, made):
            return made
        savepoint.rollback()  # another request with the key was faster by a moment
    found = made_before(session, request, find=find)
    assert found is not None, "the key was taken a moment ago"
    return found


def made_before(session: Session, request: KeyedRequest | None, *, find: Callable[[str], object]) -> str | None:
    """Resource made before by the same request and still there; raises ``IdempotencyKeyReused``."""
    if request is None:
        return None
    row = session.scalar(select(IdempotencyKeyRow).where(IdempotencyKeyRow.id == request.id))
    if row is None:
        return None
    if row.request_hash != request.asked:
        raise IdempotencyKeyReused(request.key)
    try:
        find(row.resource)
    except NotFound:
        session.delete(row)
        session.flush()
        return None
    return row.resource


def claim(session: Session, request: KeyedRequest | None) -> bool:
    """Whether this is the first time of a request that does no harm when it is done again.

    Raises ``IdempotencyKeyReused``.
    """
    if request is None or _remember(session, request, ""):
        return True
    made_before(session, request, find=lambda nothing: nothing)
    return False


def forget(session: Session, *, before: datetime) -> None:
    """Drop keys that no client will repeat any more."""
    session.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < before))


def _remember(session: Session, request: KeyedRequest, resource: str) -> bool:
    values = {"request_hash": request.asked, "resource": resource, "created_at": datetime.now(UTC)}
    return insert_if_absent(session, IdempotencyKeyRow, id=request.id, **values)
