"""Addresses that get events, and the messages to them (Standard Webhooks).

A message is stored in the transaction of what it tells of, so neither is there without the other; whoever sends it
reads it from here (``app.jobs.delivering``).
"""

from __future__ import annotations

import base64
import json
import secrets
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final
from urllib.parse import urlsplit

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.db.status import DeliveryStatus
from app.db.webhook_tables import WebhookDeliveryRow, WebhookEndpointRow
from app.services.errors import NotFound, WrongStatus
from app.services.pagination import Page, newest_first
from app.services.rows import row_by_id
from cluster_models.errors import InvalidInput

SECRET_PREFIX: Final = "whsec_"  # noqa: S105 - what secrets begin with
PING: Final = "webhook.ping"
"""Name of a message that only tests an endpoint."""
_LEAST_SECRET_BYTES: Final = 24
_MOST_SECRET_BYTES: Final = 64
_LONGEST_URL: Final = 2000


class EventType(StrEnum):
    """Kind of event that addresses get."""

    SAFE_ANSWER = "replan.safe_answer"
    """Within a second of a failure: what was prepared for it."""
    PROPOSED = "replan.proposed"
    APPROVED = "replan.approved"
    STARTED = "replan.started"
    JOB_COMPLETED = "replan.job_completed"
    """One job runs, or stands still, as decided."""
    APPLIED = "replan.applied"
    FAILED = "replan.failed"
    CANCELLED = "replan.cancelled"
    SUPERSEDED = "replan.superseded"
    UNKNOWN_NAME = "event.unknown_name"
    """A report names a part that the cluster does not have."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address that gets events; no types means all.  The secret is shown once, when it is made."""

    id: str
    url: str
    event_types: tuple[EventType, ...]
    enabled: bool
    disabled_because: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class NewEndpoint:
    """An endpoint with the secret that its messages are signed with."""

    endpoint: Endpoint
    secret: str


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message to one endpoint; ``last_status`` is the HTTP status of the last attempt that was answered."""

    id: str
    endpoint_id: str
    event_type: str
    status: DeliveryStatus
    attempts: int
    last_status: int | None
    last_error: str | None
    next_attempt_at: datetime
    created_at: datetime
    finished_at: datetime | None


def create_endpoint(
    session: Session,
    *,
    url: str,
    event_types: Sequence[EventType] = (),
    secret: str | None = None,
) -> NewEndpoint:
    """Store an address; without a secret one is made.  Raises ``InvalidInput``."""
    check_url(url)
    kept = new_secret() if secret is None else checked_secret(secret)
    now = datetime.now(UTC)
    row = WebhookEndpointRow(
        id=uuid.uuid4().hex,
        url=url,
        secret=kept,
        event_types={"types": sorted(set(event_types))},
        enabled=True,
        disabled_because="",
        created_at=now,
        updated_at=now,
    )
    session.add(row)
    session.flush()
    return NewEndpoint(_endpoint(row), row.secret)


def get_new_endpoint(session: Session, *, endpoint_id: str) -> NewEndpoint:
    """The endpoint of that id with its secret, for whoever made it; raises ``NotFound``."""
    row = _row(session, endpoint_id)
    return NewEndpoint(_endpoint(row), row.secret)


def change_endpoint(
    session: Session,
    *,
    endpoint_id: str,
    url: str | None = None,
    event_types: Sequence[EventType] | None = None,
    enabled: bool | None = None,
) -> Endpoint:
    """Change an endpoint; ``None`` leaves a value alone.  Raises ``NotFound``, ``InvalidInput``."""
    row = _row(session, endpoint_id)
    if url is not None:
        check_url(url)
        row.url = url
    if event_types is not None:
        row.event_types = {"types": sorted(set(event_types))}
    if enabled is not None:
        row.enabled, row.disabled_because = enabled, "" if enabled else "It was disabled."
    row.updated_at = datetime.now(UTC)
    session.flush()
    return _endpoint(row)


def renew_secret(session: Session, *, endpoint_id: str) -> NewEndpoint:
    """Give an endpoint a new secret; messages on their way are signed with it from now on."""
    row = _row(session, endpoint_id)
    row.secret, row.updated_at = new_secret(), datetime.now(UTC)
    session.flush()
    return NewEndpoint(_endpoint(row), row.secret)


def get_endpoint(session: Session, *, endpoint_id: str) -> Endpoint:
    """The endpoint of that id; raises ``NotFound``."""
    return _endpoint(_row(session, endpoint_id))


def lock_endpoint(session: Session, *, endpoint_id: str) -> Endpoint:
    """The same, which nobody else changes until the transaction ends."""
    row = _row(session, endpoint_id)
    session.refresh(row, with_for_update=True)
    return _endpoint(row)


def list_endpoints(session: Session, *, limit: int, cursor: str | None = None) -> Page[Endpoint]:
    """Endpoints, newest first."""
    query = select(WebhookEndpointRow)
    return newest_first(session, query, WebhookEndpointRow.created_at, _endpoint, limit, cursor)


def delete_endpoint(session: Session, *, endpoint_id: str) -> None:
    """Forget an endpoint and its messages; raises ``NotFound``."""
    _row(session, endpoint_id)
    session.execute(delete(WebhookEndpointRow).where(WebhookEndpointRow.id == endpoint_id))


def list_deliveries(
    session: Session,
    *,
    endpoint_id: str,
    limit: int,
    cursor: str | None = None,
    status: DeliveryStatus | None = None,
) -> Page[Delivery]:
    """The messages to an endpoint, newest first; raises ``NotFound``."""
    query = select(WebhookDeliveryRow).where(WebhookDeliveryRow.endpoint_id == _row(session, endpoint_id).id)
    if status is not None:
        query = query.where(WebhookDeliveryRow.status == status)
    return newest_first(session, query, WebhookDeliveryRow.created_at, _delivery, limit, cursor)


def find_delivery(session: Session, *, endpoint_id: str, delivery_id: str) -> Delivery:
    """One message to an endpoint; raises ``NotFound``."""
    row = session.get(WebhookDeliveryRow, delivery_id)
    if row is None or row.endpoint_id != _row(session, endpoint_id).id:
        raise NotFound("message", delivery_id)
    return _delivery(row)


def ping(session: Session, *, endpoint_id: str) -> str:
    """Store a message that tests an endpoint, whichever events it wants; returns its id.

    Raises ``NotFound``, and ``WrongStatus`` where the endpoint is disabled.
    """
    row = _row(session, endpoint_id)
    if not row.enabled:
        raise WrongStatus("webhook endpoint", row.id, "disabled", "enable it first")
    now = datetime.now(UTC)
    message_id = _add_message(session, row.id, PING, _body(PING, now, {"endpoint": row.id}), now)
    session.flush()
    return message_id


def announce(session: Session, *, event_type: EventType, data: Mapping[str, Any]) -> tuple[str, ...]:
    """Store a message to every endpoint that wants the event; returns their ids.  A keeper sends them."""
    now = datetime.now(UTC)
    body = _body(event_type, now, data)
    ids = []
    for endpoint in session.scalars(select(WebhookEndpointRow).where(WebhookEndpointRow.enabled.is_(True))):
        wanted = endpoint.event_types["types"]
        if wanted and event_type not in wanted:
            continue
        ids.append(_add_message(session, endpoint.id, event_type, body, now))
    session.flush()
    return tuple(ids)


def check_url(url: str) -> None:
    """Raise ``InvalidInput`` for what cannot be an endpoint; whether its address may be used shows when it is."""
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError:
        parts, host = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not host or len(url) > _LONGEST_URL or not url.isprintable():
        raise InvalidInput("url", url, "is not an http or https address", "write https://host/path")
    if parts.username is not None or parts.fragment:
        raise InvalidInput("url", url, "has a user or a fragment", "messages are signed: leave it out")


def new_secret() -> str:
    """A secret as Standard Webhooks writes it."""
    return SECRET_PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def checked_secret(secret: str) -> str:
    """The secret; raises ``InvalidInput`` where it is not 24 to 64 bytes in base64 after ``whsec_``."""
    try:
        key = base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(SECRET_PREFIX) or not _LEAST_SECRET_BYTES <= len(key) <= _MOST_SECRET_BYTES:
        problem = f"must be {SECRET_PREFIX} and {_LEAST_SECRET_BYTES} to {_MOST_SECRET_BYTES} bytes in base64"
        raise InvalidInput("secret", "...", problem, "leave it out to have one made")
    return secret


def _body(event_type: str, now: datetime, data: Mapping[str, Any]) -> str:
    return json.dumps(
        {"type": event_type, "timestamp": now.isoformat().replace("+00:00", "Z"), "data": data},
        separators=(",", ":"),
        ensure_ascii=False,
        allow_nan=False,
    )


def _add_message(session: Session, endpoint_id: str, event_type: str, body: str, now: datetime) -> str:
    message_id = f"msg_{uuid.uuid4().hex}"
    session.add(
        WebhookDeliveryRow(
            id=message_id,
            endpoint_id=endpoint_id,
            event_type=event_type,
            payload=body,
            status=DeliveryStatus.PENDING,
            next_attempt_at=now,
            created_at=now,
        )
    )
    return message_id


def _row(session: Session, endpoint_id: str) -> WebhookEndpointRow:
    return row_by_id(session, WebhookEndpointRow, endpoint_id, "webhook endpoint")


def _endpoint(row: WebhookEndpointRow) -> Endpoint:
    return Endpoint(
        id=row.id,
        url=row.url,
        event_types=tuple(EventType(each) for each in row.event_types["types"]),
        enabled=row.enabled,
        disabled_because=row.disabled_because,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def _delivery(row: WebhookDeliveryRow) -> Delivery:
    return Delivery(
        id=row.id,
        endpoint_id=row.endpoint_id,
        event_type=row.event_type,
        status=DeliveryStatus(row.status),
        attempts=row.attempts,
        last_status=row.last_status,
        last_error=row.last_error,
        next_attempt_at=row.next_attempt_at,
        created_at=row.created_at,
        finished_at=row.finished_at,
    )
