"""Answers about clusters, their nodes, snapshots and measurements."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from app.api.v1.answers import Links, Moment, address
from app.documents.cluster import ClusterDocument
from app.services.clusters import ClusterRecord, StoredCluster
from app.services.snapshots import SnapshotRecord


class ClusterSummary(BaseModel):
    """A stored cluster without its nodes."""

    id: str = Field(description="Stays when nothing else does.", examples=["5f0c2b7e8d9a4c11b6e0a1f2c3d4e5f6"])
    name: str = Field(description="Unique name.", examples=["h100-17-nodes"])
    version: int = Field(description="Counts up with every change.", examples=[3])
    node_count: int = Field(description="Nodes, whatever their state.", examples=[17])
    gpu_count: int = Field(description="GPUs of all nodes.", examples=[136])
    measurement_count: int = Field(description="Stored samples of links.", examples=[595])
    created_at: Moment
    updated_at: Moment
    links: Links

    @classmethod
    def from_record(cls, record: ClusterRecord) -> ClusterSummary:
        """The answer for a stored cluster."""
        return cls(**_summary(record))


class ClusterAnswer(ClusterSummary):
    """A stored cluster."""

    cluster: ClusterDocument = Field(description="Its nodes and GPU kinds; measurements have their own address.")

    @classmethod
    def make(cls, stored: StoredCluster) -> ClusterAnswer:
        """The answer for a stored cluster with its nodes."""
        return cls(**_summary(stored), cluster=ClusterDocument.from_cluster(stored.cluster))


class SnapshotSummary(BaseModel):
    """A cluster frozen with its measurements."""

    id: str = Field(description="Follows from the content.", examples=["7f6d1c0f9a3b2e45"])
    cluster_name: str = Field(description="Name of the cluster.", examples=["h100-17-nodes"])
    cluster_version: int | None = Field(description="Its version; null where it came with a request.", examples=[3])
    created_at: Moment
    links: Links

    @classmethod
    def from_record(cls, record: SnapshotRecord) -> SnapshotSummary:
        """The answer for a stored snapshot."""
        return cls(**_snapshot(record))


class SnapshotAnswer(SnapshotSummary):
    """A snapshot with its content and what looks wrong about it."""

    suspicions: list[str] = Field(description="Figures that look wrong or missing, in sentences.", examples=[[]])
    cluster: ClusterDocument = Field(description="Nodes, GPU kinds and every measurement.")

    @classmethod
    def make(cls, record: SnapshotRecord, cluster: ClusterDocument, suspicions: tuple[str, ...]) -> SnapshotAnswer:
        """The answer for a stored snapshot with its content."""
        return cls(**_snapshot(record), cluster=cluster, suspicions=list(suspicions))


class MeasurementsAdded(BaseModel):
    """What became of new measurements."""

    added: int = Field(description="Samples stored.", examples=[595])
    already_known: int = Field(description="Samples that the cluster had already.", examples=[0])
    version: int = Field(description="The cluster's version now.", examples=[2])


def _summary(record: ClusterRecord) -> dict[str, Any]:
    parts = ("nodes", "topology", "measurements", "snapshots")
    return {
        "id": record.id,
        "name": record.name,
        "version": record.version,
        "node_count": record.node_count,
        "gpu_count": record.gpu_count,
        "measurement_count": record.measurement_count,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "links": {"self": address("clusters", record.name)}
        | {part: address("clusters", record.name, part) for part in parts},
    }


def _snapshot(record: SnapshotRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "cluster_name": record.cluster_name,
        "cluster_version": record.cluster_version,
        "created_at": record.created_at,
        "links": {"self": address("snapshots", record.id)},
    }
