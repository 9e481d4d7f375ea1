"""Addresses that get failures and decisions as messages, and these messages (Standard Webhooks)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from app.answers.addresses import addresses
from app.api.v1.answers import Links, Moment, PageAnswer, address, page_answer
from app.api.v1.bodies import BodyRoute
from app.api.v1.parameters import (
    Cursor,
    ExpectedTag,
    IdempotencyKey,
    Limit,
    ServiceDep,
    WebhookPath,
    content_tag,
    tagged,
)
from app.api.v1.webhook_bodies import WebhookDocument, WebhookPatch
from app.db.engine import transaction
from app.db.status import DeliveryStatus
from app.documents.values import Computed, Given, ValueAnswer
from app.services import idempotency
from app.services.preconditions import ExpectedTags, check_tag
from app.services.webhooks import webhook_deliveries, webhooks
from app.services.webhooks.webhooks import Delivery, Endpoint, EventType, NewEndpoint

router = APIRouter(tags=["webhooks"], route_class=BodyRoute)


def _links(endpoint: Endpoint) -> dict[str, str]:
    return addresses("webhooks", endpoint.id, parts=("deliveries", "ping", "secret"))


class WebhookAnswer(ValueAnswer[Endpoint]):
    """An address that gets events."""

    id: str = Field(description="Its id.", examples=["0f4d2c8e6b7a4c55a1b2c3d4e5f60718"])
    url: str = Field(description="The address.", examples=["https://hooks.example/meshwright"])
    event_types: list[EventType] = Field(description="Events that are sent to it; empty = all.", examples=[[]])
    enabled: bool = Field(description="Whether messages are sent.", examples=[True])
    disabled_because: str = Field(description="Why not; empty while they are.", examples=[""])
    created_at: Moment
    updated_at: Moment
    links: Annotated[Links, Computed(_links)]


class NewWebhookAnswer(WebhookAnswer):
    """An address with the secret that its messages are signed with, which is shown this once."""

    secret: Annotated[str, Given()] = Field(
        description="Messages are signed with it as Standard Webhooks says.",
        examples=["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
    )

    @classmethod
    def make(cls, made: NewEndpoint) -> NewWebhookAnswer:
        """The answer for a new address or secret."""
        return cls.from_value(made.endpoint, secret=made.secret)


class DeliveryAnswer(ValueAnswer[Delivery]):
    """One message to one address."""

    id: str = Field(description="Its id, which receivers see as webhook-id.", examples=["msg_0f4d2c8e6b7a4c55"])
    event_type: str = Field(description="Event that it tells of.", examples=["replan.proposed"])
    status: DeliveryStatus = Field(
        description="pending; delivered; failed: every attempt failed, or the address is gone or disabled.",
        examples=["delivered"],
    )
    attempts: int = Field(description="Attempts so far.", examples=[1])
    last_status: int | None = Field(
        description="HTTP status of the last attempt that was answered; null where none was.", examples=[204]
    )
    last_error: str | None = Field(description="What was wrong with the last one.", examples=[None])
    next_attempt_at: Moment
    created_at: Moment
    finished_at: datetime | None = Field(
        description="When it was delivered or given up, in UTC; null before.", examples=["2026-11-21T09:00:01Z"]
    )


class PingAnswer(BaseModel):
    """A test message is on its way."""

    delivery: str = Field(description="Id of the message.", examples=["msg_0f4d2c8e6b7a4c55"])


class RetryAnswer(BaseModel):
    """Whether a message is sent once more."""

    retried: bool = Field(description="False where it was not one that had been given up.", examples=[True])


@router.post("/webhooks", status_code=201)
def create_webhook(
    document: WebhookDocument, service: ServiceDep, response: Response, idempotency_key: IdempotencyKey = None
) -> NewWebhookAnswer:
    """Store an address that gets events.  Its secret is in this answer only."""
    keyed = idempotency.keyed("webhook", idempotency_key, document)
    with transaction(service.sessions) as session:

        def make() -> str:
            types, secret = document.event_types, document.secret
            made = webhooks.create_endpoint(session, url=document.url, event_types=types, secret=secret)
            return made.endpoint.id

        def find(endpoint_id: str) -> NewEndpoint:
            return webhooks.get_new_endpoint(session, endpoint_id=endpoint_id)

        made = find(idempotency.once(session, keyed, make=make, find=find))
    response.headers["Location"] = address("webhooks", made.endpoint.id)
    return NewWebhookAnswer.make(made)


@router.get("/webhooks")
def list_webhooks(
    request: Request, service: ServiceDep, limit: Limit = 50, cursor: Cursor = None
) -> PageAnswer[WebhookAnswer]:
    """Every address, newest first, without secrets."""
    with service.read_sessions() as session:
        page = webhooks.list_endpoints(session, limit=limit, cursor=cursor)
    return page_answer(request, page, WebhookAnswer.from_value)


@router.get("/webhooks/{webhook}")
def get_webhook(webhook: WebhookPath, service: ServiceDep, response: Response) -> WebhookAnswer:
    """One address, without its secret."""
    with service.read_sessions() as session:
        return tagged(response, WebhookAnswer.from_value(webhooks.get_endpoint(session, endpoint_id=webhook)))


@router.patch("/webhooks/{webhook}")
def change_webhook(
    webhook: WebhookPath, patch: WebhookPatch, service: ServiceDep, response: Response, expected: ExpectedTag
) -> WebhookAnswer:
    """Change an address, its kinds of events, or whether it gets any."""
    with transaction(service.sessions) as session:
        _check_tag(session, webhook, expected)
        changed = webhooks.change_endpoint(
            session,
            endpoint_id=webhook,
            url=patch.url,
            event_types=patch.event_types,
            enabled=patch.enabled,
        )
    return tagged(response, WebhookAnswer.from_value(changed))


@router.delete("/webhooks/{webhook}", status_code=204)
def delete_webhook(webhook: WebhookPath, service: ServiceDep, expected: ExpectedTag) -> None:
    """Forget an address and its messages."""
    with transaction(service.sessions) as session:
        _check_tag(session, webhook, expected)
        webhooks.delete_endpoint(session, endpoint_id=webhook)


def _check_tag(session: Session, webhook: str, expected: ExpectedTags) -> None:
    """Keep others from changing an address, and compare it with what the caller has read of it."""
    before = WebhookAnswer.from_value(webhooks.lock_endpoint(session, endpoint_id=webhook))
    check_tag("webhook", webhook, expected=expected, current=content_tag(before))


@router.post("/webhooks/{webhook}/secret")
def renew_webhook_secret(webhook: WebhookPath, service: ServiceDep) -> NewWebhookAnswer:
    """Give an address a new secret, shown in this answer only; messages are signed with it from now on."""
    with transaction(service.sessions) as session:
        return NewWebhookAnswer.make(webhooks.renew_secret(session, endpoint_id=webhook))


@router.post("/webhooks/{webhook}/ping", status_code=202)
def ping_webhook(webhook: WebhookPath, service: ServiceDep, idempotency_key: IdempotencyKey = None) -> PingAnswer:
    """Send a test message; what came of it is listed under deliveries.  409 where the address is disabled."""
    keyed = idempotency.keyed("ping", idempotency_key, webhook)
    with transaction(service.sessions) as session:
        message_id = idempotency.once(
            session,
            keyed,
            make=lambda: webhooks.ping(session, endpoint_id=webhook),
            find=lambda message: webhooks.find_delivery(session, endpoint_id=webhook, delivery_id=message),
        )
    return PingAnswer(delivery=message_id)


@router.get("/webhooks/{webhook}/deliveries")
def list_deliveries(
    request: Request,
    webhook: WebhookPath,
    service: ServiceDep,
    status: Annotated[DeliveryStatus | None, Query(description="Only messages in this status.")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> PageAnswer[DeliveryAnswer]:
    """The messages to an address, newest first."""
    with service.read_sessions() as session:
        page = webhooks.list_deliveries(session, endpoint_id=webhook, limit=limit, cursor=cursor, status=status)
    return page_answer(request, page, DeliveryAnswer.from_value)


@router.post("/webhooks/{webhook}/deliveries/{delivery}/retry")
def retry_delivery(
    webhook: WebhookPath,
    delivery: Annotated[str, Path(description="Id of the message.", examples=["msg_0f4d2c8e6b7a4c55"])],
    service: ServiceDep,
) -> RetryAnswer:
    """Send a message that was given up once more."""
    with transaction(service.sessions) as session:
        webhooks.find_delivery(session, endpoint_id=webhook, delivery_id=delivery)
        return RetryAnswer(retried=webhook_deliveries.retry(session, delivery_id=delivery, now=datetime.now(UTC)))
