"""The tables, and nothing about what they are for: that is in ``app.services``.

Documents are JSON of the domain values (``app.serialization``); a column stands beside a document only where
something is looked up, ordered or counted by it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    String,
    Text,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import Mapped, mapped_column

import app.db.access_tables
import app.db.feedback_tables
import app.db.page_tables
import app.db.portfolio_tables
import app.db.replan_tables
import app.db.running_tables
import app.db.sweep_tables
import app.db.webhook_tables  # noqa: F401 - the schema is whole wherever one table of it is known
from app.db.base import Base
from app.db.status import PlanKind, PlanStatus
from app.db.tenancy import LONGEST_TENANT, Owned, stamp


class ClusterRow(Owned, Base):
    """A cluster by name; its content is in its versions."""

    __tablename__ = "clusters"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    version: Mapped[int] = mapped_column(Integer)
    """The newest version; counts up with every change of nodes or measurements."""
    node_count: Mapped[int]
    gpu_count: Mapped[int]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class ClusterVersionRow(Base):
    """Nodes of a cluster at one version; versions that only add measurements have none."""

    __tablename__ = "cluster_versions"
    __table_args__ = (UniqueConstraint("cluster_id", "version"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"))
    version: Mapped[int]
    document: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class MeasurementRow(Base):
    """One sample of a link; columns as in ``cluster_models.cluster.measurements.Sample``, SI units."""

    __tablename__ = "measurements"
    __table_args__ = (Index("ix_measurements_cluster_id_id", "cluster_id", "id"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"))
    version: Mapped[int]
    """The cluster version that the sample came with."""
    source: Mapped[str] = mapped_column(String(253))
    destination: Mapped[str] = mapped_column(String(253))
    direction: Mapped[str] = mapped_column(String(20))
    tool: Mapped[str] = mapped_column(String(100))
    collective: Mapped[str] = mapped_column(String(40))
    message_bytes: Mapped[float]
    ranks_per_node: Mapped[int]
    pairs_active: Mapped[int]
    status: Mapped[str] = mapped_column(String(20))
    bytes_per_s: Mapped[float | None]
    latency_s: Mapped[float | None]
    measured_at: Mapped[datetime | None]


class NodeAliasRow(Base):
    """Another name of a node, of whatever naming; no part of the cluster's versions."""

    __tablename__ = "node_aliases"
    __table_args__ = (UniqueConstraint("cluster_id", "alias"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    cluster_id: Mapped[str] = mapped_column(ForeignKey("clusters.id", ondelete="CASCADE"))
    alias: Mapped[str] = mapped_column(String(253))
    kind: Mapped[str] = mapped_column(String(20))
    node: Mapped[str] = mapped_column(String(253))


class SnapshotRow(Owned, Base):
    """A cluster with its measurements, frozen; the id follows from the content, whosever it is."""

    __tablename__ = "snapshots"
    __table_args__ = (Index("ix_snapshots_cluster_id_created_at", "cluster_id", "created_at"),)

    tenant_id: Mapped[str] = mapped_column(String(LONGEST_TENANT), primary_key=True, default=stamp)
    id: Mapped[str] = mapped_column(String(80), primary_key=True)
    cluster_id: Mapped[str | None] = mapped_column(ForeignKey("clusters.id", ondelete="SET NULL"))
    """Empty where the cluster came with the request, or is gone."""
    cluster_name: Mapped[str] = mapped_column(String(200))
    cluster_version: Mapped[int | None]
    """Empty also where GPUs in use and failures of that moment are in it."""
    document: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    created_at: Mapped[datetime]


class ModelRow(Owned, Base):
    """A model that a user stored under a name."""

    __tablename__ = "models"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    document: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class CalibrationRow(Owned, Base):
    """A calibration that a user stored under a name."""

    __tablename__ = "calibrations"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    label: Mapped[str] = mapped_column(String(300))
    """Name and hash of the content, as plans carry it."""
    source: Mapped[str] = mapped_column(Text)
    document: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class CalibrationKindRow(Base):
    """A GPU kind that a calibration has parameters of."""

    __tablename__ = "calibration_kinds"
    __table_args__ = (Index("ix_calibration_kinds_gpu_kind", "gpu_kind"),)

    calibration_id: Mapped[str] = mapped_column(ForeignKey("calibrations.id", ondelete="CASCADE"), primary_key=True)
    gpu_kind: Mapped[str] = mapped_column(String(200), primary_key=True)


class RoutingRow(Owned, Base):
    """Routing statistics of one model, several workloads, under a name."""

    __tablename__ = "routing"
    __table_args__ = (UniqueConstraint("tenant_id", "name"),)

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    version: Mapped[int]
    """Counts up whenever the content is replaced."""
    summary: Mapped[dict[str, Any]]
    """The set as lists show it: workloads without their counts."""
    counts: Mapped[bytes] = mapped_column(LargeBinary, deferred=True)
    """All counts, packed (``app.services.experts.packed_counts``)."""
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]


class PlanRow(Owned, Base):
    """A plan asked for: what was asked, how far it is, and what came out."""

    __tablename__ = "plans"
    __table_args__ = (
        CheckConstraint(
            "status IN ({})".format(", ".join(f"'{status}'" for status in PlanStatus)), name="status_known"
        ),
        ForeignKeyConstraint(["tenant_id", "snapshot_id"], ["snapshots.tenant_id", "snapshots.id"]),
        Index("ix_plans_tenant_id_created_at", "tenant_id", "created_at", "id"),
        Index("ix_plans_status", "status"),
    )

    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    kind: Mapped[str] = mapped_column(String(20), server_default=PlanKind.TRAINING)
    """Kind of plan, of which problem and result are values."""
    status: Mapped[str] = mapped_column(String(20), default=PlanStatus.QUEUED)
    snapshot_id: Mapped[str] = mapped_column(String(80))
    cluster_name: Mapped[str] = mapped_column(String(200))
    model_name: Mapped[str] = mapped_column(String(200))
    problem: Mapped[dict[str, Any]] = mapped_column(deferred=True)
    options: Mapped[dict[str, Any]]
    progress: Mapped[dict[str, Any] | None]
    result: Mapped[dict[str, Any] | None] = mapped_column(deferred=True)
    error: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    attempts: Mapped[int] = mapped_column(default=0)
    """How often a solve was started."""
    rescues: Mapped[int] = mapped_column(default=0)
    """How often the solve was taken over from a worker that vanished."""
    turn: Mapped[int] = mapped_column(default=0, server_default="0")
    """Turn of a plan that waits; the smallest is next (``app.services.planning.turns``)."""
    stop_asked: Mapped[bool] = mapped_column(default=False, server_default=false())
    """Whether somebody wants the best plan so far, and no further search."""


class IdempotencyKeyRow(Owned, Base):
    """Resource that a request with a key made (``app.services.idempotency``)."""

    __tablename__ = "idempotency_keys"

    tenant_id: Mapped[str] = mapped_column(String(LONGEST_TENANT), primary_key=True, default=stamp)
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    """Digest of the kind of the request and its key."""
    request_hash: Mapped[str] = mapped_column(String(64))
    resource: Mapped[str] = mapped_column(String(200))
    """Id or name; empty where the request does no harm when it is done again."""
    created_at: Mapped[datetime]


class WorkerRow(Base):
    """A process that runs solves, and its signs of life."""

    __tablename__ = "workers"

    executor_id: Mapped[str] = mapped_column(String(200), primary_key=True)
    pid: Mapped[int]
    pid_scope: Mapped[str] = mapped_column(String(200))
    """Where the process number means something: this boot of this machine, this container."""
    beats: Mapped[int] = mapped_column(default=0)
    """Counts up; watchers notice that it stands still, so clocks need not agree."""
    started_at: Mapped[datetime]
    beat_at: Mapped[datetime]
