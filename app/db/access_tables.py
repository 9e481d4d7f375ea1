"""Tables of access: tenants, their keys, who is signed in on pages, and who changed what."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.tenancy import LONGEST_TENANT, Owned

LONGEST_NAME = 200


class TenantRow(Base):
    """Somebody whose things nobody else sees; never deleted, so that no row is without an owner."""

    __tablename__ = "tenants"

    id: Mapped[str] = mapped_column(String(LONGEST_TENANT), primary_key=True)
    """Its name, which never changes."""
    max_queued_plans: Mapped[int | None]
    """Quotas; empty means those of the settings."""
    max_solver_s_per_day: Mapped[float | None]
    max_stored_samples: Mapped[int | None]
    created_at: Mapped[datetime]


class ApiKeyRow(Owned, Base):
    """A key without its secret, of which only a digest is kept."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    """The public part of the key, by which it is looked up."""
    digest: Mapped[str] = mapped_column(String(64))
    name: Mapped[str] = mapped_column(String(LONGEST_NAME))
    scopes: Mapped[dict[str, Any]]
    """``{"scopes": [...]}``"""
    requests_per_minute: Mapped[int | None]
    """Its own limit; empty means that of the settings."""
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class SignInRow(Owned, Base):
    """A browser that is signed in, by a key or by an identity provider."""

    __tablename__ = "sign_ins"
    __table_args__ = (Index("ix_sign_ins_expires_at", "expires_at"),)

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    """Digest of the cookie."""
    key_id: Mapped[str | None] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"))
    """The key that it was made with; it ends with that."""
    name: Mapped[str] = mapped_column(String(LONGEST_NAME))
    scopes: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime]


class AuditRow(Owned, Base):
    """A request that changed something, or was refused to; never changed."""

    __tablename__ = "audit_log"
    __table_args__ = (Index("ix_audit_log_tenant_id_id", "tenant_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    occurred_at: Mapped[datetime]
    actor: Mapped[str] = mapped_column(String(LONGEST_NAME))
    """Name of the key, or of who is signed in."""
    key_id: Mapped[str | None] = mapped_column(String(32))
    action: Mapped[str] = mapped_column(String(100))
    """Operation of the API, form of a page, or command."""
    subject: Mapped[str] = mapped_column(String(2000))
    """Path of what was changed, or of what was made."""
    status: Mapped[int]
    """HTTP status of the answer; 0 at the command line."""
    request_id: Mapped[str] = mapped_column(String(64))
    address: Mapped[str] = mapped_column(String(64))
    """Network address that the request came from."""
