"""Tables of failures: reports about the health of clusters, and the decisions on them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, Text, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.status import OPEN_REPLANS, ReplanStatus
from app.db.tenancy import Owned

_OPEN = text("status IN ({})".format(", ".join(f"'{each}'" for each in OPEN_REPLANS)))


class EventSourceRow(Owned, Base):
    """A monitoring system that reports to an address of its own."""

    __tablename__ = "event_sources"
    __table_args__ = (UniqueConstraint("cluster_id", "name"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"))
    name: Mapped[str] = mapped_column(String(100))
    adapter: Mapped[str] = mapped_column(String(40))
    secret: Mapped[str] = mapped_column(String(200))
    options: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class HealthEventRow(Owned, Base):
    """A report about a part of a cluster; the entity's columns are as told where the node is not known."""

    __tablename__ = "health_events"
    __table_args__ = (
        UniqueConstraint("cluster_id", "source", "source_id", "state"),
        Index("ix_health_events_cluster_id_occurred_at", "cluster_id", "occurred_at"),
        Index("ix_health_events_cluster_id_received_at", "cluster_id", "received_at", "id"),
        Index("ix_health_events_replan_id", "replan_id"),
        Index("ix_health_events_leave_by", "leave_by"),
        Index("ix_health_events_cluster_id_device", "cluster_id", "device"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"))
    source: Mapped[str] = mapped_column(String(100))
    source_id: Mapped[str] = mapped_column(String(300))
    kind: Mapped[str] = mapped_column(String(20))
    node: Mapped[str] = mapped_column(String(253))
    part: Mapped[str] = mapped_column(String(300))
    told_name: Mapped[str] = mapped_column(String(300))
    """The name that the source uses."""
    known: Mapped[bool]
    """Whether the cluster has the part under that name or an alias; reports on others change nothing."""
    state: Mapped[str] = mapped_column(String(20))
    occurred_at: Mapped[datetime]
    received_at: Mapped[datetime]
    text: Mapped[str] = mapped_column(Text)
    code: Mapped[str] = mapped_column(String(200))
    compute_slowdown: Mapped[float]
    bandwidth_share: Mapped[float]
    leave_by: Mapped[datetime | None]
    """Until when a part that drains works."""
    device: Mapped[str] = mapped_column(String(200), server_default="")
    """Serial number or UUID of the hardware, empty where not told."""
    repeats: Mapped[int] = mapped_column(default=0)
    """How often the same report came again."""
    replan_id: Mapped[str | None] = mapped_column(ForeignKey("replans.id", ondelete="SET NULL"))
    """The replan that decides (or decided) on it."""


class ReplanSettingsRow(Base):
    """How failures on one cluster are handled, where that is not the default."""

    __tablename__ = "replan_settings"

    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"), primary_key=True)
    document: Mapped[dict[str, Any]]
    updated_at: Mapped[datetime]


class ReplanRow(Owned, Base):
    """One decision for all jobs that a batch of failures touched; a cluster has one open at a time."""

    __tablename__ = "replans"
    __table_args__ = (
        CheckConstraint(
            "status IN ({})".format(", ".join(f"'{each}'" for each in ReplanStatus)), name="status_known"
        ),
        Index("ix_replans_cluster_id_created_at", "cluster_id", "created_at"),
        UniqueConstraint("tenant_id", "idempotency_key"),
        Index("ix_replans_status", "status"),
        Index("uq_replans_open", "cluster_id", unique=True, sqlite_where=_OPEN, postgresql_where=_OPEN),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"))
    status: Mapped[str] = mapped_column(String(20))
    window_ends_at: Mapped[datetime]
    revision: Mapped[int] = mapped_column(default=1)
    """Counts up with every report that joins it."""
    safe_revision: Mapped[int] = mapped_column(default=0)
    """The revision that the safe answer knows of."""
    snapshot_id: Mapped[str | None] = mapped_column(String(80))
    """The cluster after the failures, as it was solved for; empty until then."""
    request: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """Problem that was solved, without the snapshot and the plans: jobs by their running plans, spares, options."""
    summary: Mapped[dict[str, Any] | None]
    """The decision as lists show it."""
    progress: Mapped[dict[str, Any] | None]
    safe: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """The answer prepared in advance, with the running plans that it starts from."""
    has_decision: Mapped[bool] = mapped_column(default=False)
    decision: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    error: Mapped[dict[str, Any] | None]
    chosen: Mapped[str | None] = mapped_column(String(20))
    """Name of the approved answer."""
    superseded_by: Mapped[str | None] = mapped_column(String(32))
    reason: Mapped[str] = mapped_column(Text)
    """Why it was opened, in a sentence."""
    objections: Mapped[dict[str, Any] | None]
    """``{"reasons": [...]}``: what speaks against approving it unseen."""
    idempotency_key: Mapped[str | None] = mapped_column(String(255))
    request_hash: Mapped[str | None] = mapped_column(String(64))
    attempts: Mapped[int] = mapped_column(default=0)
    rescues: Mapped[int] = mapped_column(default=0)
    created_at: Mapped[datetime]
    solving_at: Mapped[datetime | None]
    proposed_at: Mapped[datetime | None]
    approved_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]


class ReplanStepRow(Base):
    """A step that was taken with a replan, by whom, and when."""

    __tablename__ = "replan_steps"
    __table_args__ = (Index("ix_replan_steps_replan_id_taken_at", "replan_id", "taken_at"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    replan_id: Mapped[str] = mapped_column(ForeignKey("replans.id", ondelete="CASCADE"))
    step: Mapped[str] = mapped_column(String(20))
    job_id: Mapped[str | None] = mapped_column(String(32))
    """The job that runs as decided, where the step is about one."""
    actor: Mapped[str] = mapped_column(String(200))
    """Actor who took it; empty where nobody said."""
    verified: Mapped[bool]
    """Whether a proxy that is trusted named the actor, or it is this service; else it is what the request said."""
    taken_at: Mapped[datetime]
