"""Tables of measured runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.tenancy import Owned


class MeasuredRunRow(Owned, Base):
    """A run of a plan: what was measured, beside what the plan had predicted."""

    __tablename__ = "measured_runs"
    __table_args__ = (
        Index("ix_measured_runs_tenant_id_ended_at", "tenant_id", "ended_at", "id"),
        Index("ix_measured_runs_cluster_id_ended_at", "cluster_id", "ended_at"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    cluster_id: Mapped[str | None] = mapped_column(ForeignKey("clusters.id", ondelete="SET NULL"))
    """Empty where the cluster came with the plan's request, or is gone."""
    cluster_name: Mapped[str] = mapped_column(String(200))
    plan_id: Mapped[str | None] = mapped_column(ForeignKey("plans.id", ondelete="SET NULL"))
    """The plan of this service that it ran by."""
    running_plan_id: Mapped[str | None] = mapped_column(ForeignKey("running_plans.id", ondelete="SET NULL"))
    """The plan of a job that it ran by."""
    framework: Mapped[str] = mapped_column(String(200))
    model: Mapped[str] = mapped_column(String(200))
    report: Mapped[dict[str, Any]]
    """Measured figures (``app.services.feedback.measured_runs.RunReport``)."""
    predicted: Mapped[dict[str, Any]]
    """Prediction of the plan, and the nodes that the run had."""
    run: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    """The run as parameters are fitted to it."""
    ended_at: Mapped[datetime]
    received_at: Mapped[datetime]
