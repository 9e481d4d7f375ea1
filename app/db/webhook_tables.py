"""Tables of messages to other programs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.status import DeliveryStatus
from app.db.tenancy import Owned


class WebhookEndpointRow(Owned, Base):
    """An address that gets events."""

    __tablename__ = "webhook_endpoints"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    url: Mapped[str] = mapped_column(String(2000))
    secret: Mapped[str] = mapped_column(String(200))
    event_types: Mapped[dict[str, Any]]
    """``{"types": [...]}``; an empty list means all."""
    enabled: Mapped[bool]
    disabled_because: Mapped[str] = mapped_column(Text, default="")
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class WebhookDeliveryRow(Owned, Base):
    """One message to one endpoint, and how far it got."""

    __tablename__ = "webhook_deliveries"
    __table_args__ = (
        CheckConstraint(
            "status IN ({})".format(", ".join(f"'{each}'" for each in DeliveryStatus)), name="status_known"
        ),
        Index("ix_webhook_deliveries_status_next_attempt_at", "status", "next_attempt_at"),
        Index("ix_webhook_deliveries_endpoint_id_created_at", "endpoint_id", "created_at"),
    )

    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    """Also the id that receivers see: it stays the same over all attempts."""
    endpoint_id: Mapped[str] = mapped_column(ForeignKey("webhook_endpoints.id", ondelete="CASCADE"))
    event_type: Mapped[str] = mapped_column(String(60))
    payload: Mapped[str] = mapped_column(Text, deferred=True)
    """The body to the byte, as it is signed."""
    status: Mapped[str] = mapped_column(String(20), default=DeliveryStatus.PENDING)
    attempts: Mapped[int] = mapped_column(default=0)
    last_status: Mapped[int | None]
    last_error: Mapped[str | None] = mapped_column(Text)
    next_attempt_at: Mapped[datetime]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
