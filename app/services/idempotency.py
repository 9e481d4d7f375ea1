"""Requests that a client may repeat without asking twice (header ``Idempotency-Key``)."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import delete
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.tables import IdempotencyKeyRow
from app.services.errors import IdempotencyKeyReused

KEPT_FOR: Final = timedelta(days=7)


def fingerprint(body: bytes) -> str:
    """What tells one request body from another."""
    return hashlib.sha256(body).hexdigest()


def id_of(kind: str, key: str) -> str:
    """The id of what a request with this key makes: the same request finds it, for as long as it is kept."""
    return fingerprint(f"{kind} {key}".encode())[:32]


def find_plan(session: Session, *, key: str, request_hash: str) -> str | None:
    """The plan that the same request made before; raises when the key came with another request."""
    row = session.get(IdempotencyKeyRow, key)
    if row is None:
        return None
    if row.request_hash != request_hash:
        raise IdempotencyKeyReused(key)
    return row.plan_id


def remember(session: Session, *, key: str, request_hash: str, plan_id: str) -> bool:
    """Tie a key to the plan it made; false when another request did so just now."""
    values = {"request_hash": request_hash, "plan_id": plan_id, "created_at": datetime.now(UTC)}
    return insert_if_absent(session, IdempotencyKeyRow, key=key, **values)


def forget(session: Session, *, before: datetime) -> None:
    """Drop keys that no client will repeat any more."""
    session.execute(delete(IdempotencyKeyRow).where(IdempotencyKeyRow.created_at < before))
