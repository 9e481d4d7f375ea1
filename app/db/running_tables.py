"""Tables of what runs on clusters: jobs, the plans they run by, the GPUs they hold, spare nodes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.base import Base
from app.db.status import STORED_STANDINGS, JobStanding, PlanKind, RunningPlanStatus
from app.db.tenancy import Owned

_APPLIED = text(f"status = '{RunningPlanStatus.APPLIED}'")


class RunningJobRow(Owned, Base):
    """A job on a cluster; what it runs by is in its running plans."""

    __tablename__ = "running_jobs"
    __table_args__ = (
        UniqueConstraint("cluster_id", "name"),
        CheckConstraint(
            "standing IN ({})".format(", ".join(f"'{each}'" for each in STORED_STANDINGS)), name="standing_known"
        ),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"))
    kind: Mapped[str] = mapped_column(String(20), server_default=PlanKind.TRAINING)
    """Kind of the plans that it runs by."""
    name: Mapped[str] = mapped_column(String(200))
    weight: Mapped[float]
    recovery: Mapped[dict[str, Any]]
    """A ``RecoveryPolicy``, or of a deployment the ``ServingPolicy``."""
    standing: Mapped[str] = mapped_column(String(20), default=JobStanding.IDLE)
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class RunningPlanRow(Owned, Base):
    """A plan for a job, proposed by a user or decided by a replan; at most one of a job is applied."""

    __tablename__ = "running_plans"
    __table_args__ = (
        CheckConstraint(
            "status IN ({})".format(", ".join(f"'{each}'" for each in RunningPlanStatus)), name="status_known"
        ),
        Index("ix_running_plans_job_id_created_at", "job_id", "created_at"),
        Index("uq_running_plans_applied", "job_id", unique=True, sqlite_where=_APPLIED, postgresql_where=_APPLIED),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    job_id: Mapped[str] = mapped_column(ForeignKey("running_jobs.id", ondelete="CASCADE"))
    plan_id: Mapped[str | None] = mapped_column(ForeignKey("plans.id", ondelete="SET NULL"))
    """The plan of this service that it was taken from."""
    replan_id: Mapped[str | None] = mapped_column(ForeignKey("replans.id", ondelete="SET NULL"))
    """The replan that decided it."""
    status: Mapped[str] = mapped_column(String(20))
    plan: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    fitted: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    """The user's own parameters that it was priced with."""
    summary: Mapped[dict[str, Any]]
    """The plan as lists show it: degrees, GPUs, throughput, model, hosts."""
    preparations: Mapped[int] = mapped_column(default=0)
    """Counts up whenever what was prepared for it is out of date."""
    created_at: Mapped[datetime]
    approved_at: Mapped[datetime | None]
    applied_at: Mapped[datetime | None]
    ended_at: Mapped[datetime | None]


class OccupiedGpuRow(Base):
    """A GPU that a job holds: the key makes sure that no GPU is given twice."""

    __tablename__ = "occupied_gpus"
    __table_args__ = (Index("ix_occupied_gpus_job_id", "job_id"), Index("ix_occupied_gpus_claim_id", "claim_id"))

    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"), primary_key=True)
    node: Mapped[str] = mapped_column(String(253), primary_key=True)
    gpu: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(ForeignKey("running_jobs.id", ondelete="CASCADE"))
    claim_id: Mapped[str | None] = mapped_column(String(32))
    """The replan or running plan, approved and not applied yet, that the GPU changes hands for; else empty."""
    previous_job_id: Mapped[str | None] = mapped_column(String(32))
    """Job that gets it back when the claim is given back; empty where none does."""
    releasing: Mapped[bool] = mapped_column(default=False)
    """The claim's end frees it."""


class SpareNodeRow(Base):
    """A node that is kept for jobs that lose one."""

    __tablename__ = "spare_nodes"

    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"), primary_key=True)
    node: Mapped[str] = mapped_column(String(253), primary_key=True)


class PreparedJobRow(Base):
    """Answers to the loss of any one node of a job, worked out in advance."""

    __tablename__ = "prepared_jobs"

    running_plan_id: Mapped[str] = mapped_column(
        ForeignKey("running_plans.id", ondelete="CASCADE"), primary_key=True
    )
    generation: Mapped[int]
    """``preparations`` of the running plan when this was asked for."""
    snapshot_id: Mapped[str] = mapped_column(String(80))
    document: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    created_at: Mapped[datetime]
