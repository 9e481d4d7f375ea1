"""Messages on their way: what is due, and what became of each attempt.

Attempts are spaced as the Standard Webhooks recommend, over about three days, each delay shortened or lengthened by
up to a fifth so that receivers which come back are not met by everybody at once.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlalchemy import CursorResult, delete, func, select, update
from sqlalchemy.orm import Session
from standardwebhooks import Webhook

from app.db.status import DeliveryStatus
from app.db.webhook_tables import WebhookDeliveryRow, WebhookEndpointRow

RETRY_AFTER_S: Final = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)
"""Seconds from one failed attempt to the next; after the last the message is given up."""
LEASE: Final = timedelta(minutes=2)
"""While an attempt runs, nobody else makes one."""
_OF_EACH_AT_ONCE: Final = 20
_GONE: Final = 410


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One attempt: where to, the body, and the headers that sign it."""

    url: str
    body: bytes
    headers: dict[str, str]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of an attempt: the HTTP status, if there was an answer, and the error, if there was one."""

    status: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Due:
    """A message to be sent after so many attempts, and the id of the job that is to make the next."""

    job_id: str
    delivery_id: str
    endpoint_id: str
    attempts: int


def due(session: Session, *, now: datetime) -> tuple[Due, ...]:
    """Messages to be sent now, those first that wait longest; of each endpoint some at a time."""
    row = WebhookDeliveryRow
    number = func.row_number().over(partition_by=row.endpoint_id, order_by=row.next_attempt_at)
    waiting = (
        select(row.id, row.endpoint_id, row.attempts, row.next_attempt_at, number.label("number"))
        .where(row.status == DeliveryStatus.PENDING, row.next_attempt_at <= now)
        .subquery()
    )
    query = (
        select(waiting.c.id, waiting.c.endpoint_id, waiting.c.attempts)
        .where(waiting.c.number <= _OF_EACH_AT_ONCE)
        .order_by(waiting.c.next_attempt_at)
    )
    return tuple(
        Due(f"{delivery}.{attempts}", delivery, endpoint, attempts)
        for delivery, endpoint, attempts in session.execute(query)
    )


def begin(session: Session, *, delivery_id: str, attempts: int, now: datetime) -> Outgoing | None:
    """The message, held for this attempt; ``None`` where it is not to be sent any more."""
    row = session.get(WebhookDeliveryRow, delivery_id)
    if row is None or row.status != DeliveryStatus.PENDING or row.attempts != attempts:
        return None
    endpoint = session.get_one(WebhookEndpointRow, row.endpoint_id)
    if not endpoint.enabled:
        told = {"attempts": attempts + 1, "last_error": "The endpoint is disabled."}
        _end(session, delivery_id, DeliveryStatus.FAILED, now, after=attempts, **told)
        return None
    row.next_attempt_at = now + LEASE
    session.flush()
    moment = now.astimezone(UTC).replace(microsecond=0)
    signature = Webhook(endpoint.secret).sign(row.id, moment, row.payload)
    headers = {
        "content-type": "application/json",
        "webhook-id": row.id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": signature,
    }
    return Outgoing(endpoint.url, row.payload.encode(), headers)


def record(session: Session, *, delivery_id: str, attempts: int, outcome: Outcome, now: datetime) -> bool:
    """Write down the attempt after ``attempts`` others; returns whether it was the first to be written down.

    A failed one is followed by the next after a while, until all are used up.  An endpoint that answers 410 (gone)
    is disabled.
    """
    values: dict[str, Any] = {
        "attempts": attempts + 1,
        "last_status": outcome.status,
        "last_error": outcome.error,
    }
    if outcome.error is None:
        return _end(session, delivery_id, DeliveryStatus.DELIVERED, now, after=attempts, **values)
    if outcome.status == _GONE:
        _disable(session, delivery_id, now)
    if outcome.status == _GONE or attempts >= len(RETRY_AFTER_S):
        return _end(session, delivery_id, DeliveryStatus.FAILED, now, after=attempts, **values)
    wait_s = RETRY_AFTER_S[attempts] * _spread(delivery_id)
    values["next_attempt_at"] = now + timedelta(seconds=wait_s)
    return _change(session, delivery_id, attempts, **values)


def retry(session: Session, *, delivery_id: str, now: datetime) -> bool:
    """Send a message that was given up once more, at once; returns whether there was one."""
    done = session.execute(
        update(WebhookDeliveryRow)
        .where(WebhookDeliveryRow.id == delivery_id, WebhookDeliveryRow.status == DeliveryStatus.FAILED)
        .values(status=DeliveryStatus.PENDING, next_attempt_at=now, finished_at=None)
        .execution_options(synchronize_session=False)
    )
    assert isinstance(done, CursorResult)
    session.expire_all()
    return done.rowcount == 1


def forget(session: Session, *, before: datetime) -> None:
    """Drop messages that ended before a moment."""
    session.execute(delete(WebhookDeliveryRow).where(WebhookDeliveryRow.finished_at < before))


def _spread(delivery_id: str) -> float:
    """Between 0.8 and 1.2, by the message: no clock and no dice, so that an attempt done over does the same."""
    return 0.8 + 0.4 * (zlib.crc32(delivery_id.encode()) % 1000) / 999


def _disable(session: Session, delivery_id: str, now: datetime) -> None:
    mine = select(WebhookDeliveryRow.endpoint_id).where(WebhookDeliveryRow.id == delivery_id).scalar_subquery()
    session.execute(
        update(WebhookEndpointRow)
        .where(WebhookEndpointRow.id == mine)
        .values(enabled=False, disabled_because="It answered 410: it is gone.", updated_at=now)
        .execution_options(synchronize_session=False)
    )
    session.expire_all()


def _end(
    session: Session, delivery_id: str, status: DeliveryStatus, now: datetime, *, after: int, **values: object
) -> bool:
    return _change(session, delivery_id, after, status=status, finished_at=now, **values)


def _change(session: Session, delivery_id: str, after: int, **values: object) -> bool:
    """Change a pending message, if so many attempts were written down."""
    mine = (
        WebhookDeliveryRow.id == delivery_id,
        WebhookDeliveryRow.status == DeliveryStatus.PENDING,
        WebhookDeliveryRow.attempts == after,
    )
    done = session.execute(
        update(WebhookDeliveryRow).where(*mine).values(**values).execution_options(synchronize_session=False)
    )
    assert isinstance(done, CursorResult)
    session.expire_all()
    return done.rowcount == 1
