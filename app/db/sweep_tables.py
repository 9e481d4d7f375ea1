"""Tables of sweeps: many supposed failures of one cluster, each answered by a job of its own."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.tenancy import Owned


class SweepRow(Owned, Base):
    """A sweep that was asked for; how far it is follows from its failures."""

    __tablename__ = "what_if_sweeps"
    __table_args__ = (Index("ix_what_if_sweeps_tenant_id_created_at", "tenant_id", "created_at", "id"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"))
    each: Mapped[str | None] = mapped_column(String(200))
    """Label whose places fail one after the other; empty where failures were listed."""
    created_at: Mapped[datetime]
    cancelled_at: Mapped[datetime | None]


class SweptFailureRow(Base):
    """One failure of a sweep, and its answer once a job has worked it out."""

    __tablename__ = "swept_failures"

    sweep_id: Mapped[str] = mapped_column(ForeignKey("what_if_sweeps.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(500))
    losses: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    """``{"losses": [...]}``: the reports that are supposed."""
    answered_at: Mapped[datetime | None]
    state: Mapped[str | None] = mapped_column(String(64))
    """Digest of cluster, jobs and reports that the answer starts from."""
    spent_s: Mapped[float | None]
    """Seconds that the answer took."""
    lost_tokens_per_s: Mapped[float | None]
    lost_requests_per_s: Mapped[float | None]
    lost_gpu_hours: Mapped[float | None]
    """Upper end; failures are ranked by the three."""
    summary: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """The safe answer without plans and moves."""
    error: Mapped[str | None] = mapped_column(Text)
    """Why there is no answer."""
