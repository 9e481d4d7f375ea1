"""Answers about clusters, their nodes, snapshots and measurements."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from app.answers.addresses import Links, Moment, addresses
from app.documents.cluster import ClusterDocument
from app.documents.remarks import RemarkDocument
from app.documents.values import Computed, Given, ValueAnswer
from app.services.clusters.clusters import ClusterRecord
from app.services.clusters.snapshots import AddedMeasurements, SnapshotRecord


def _cluster_links(record: ClusterRecord) -> dict[str, str]:
    return addresses("clusters", record.name, parts=("nodes", "topology", "measurements", "snapshots"))


class ClusterSummary(ValueAnswer[ClusterRecord]):
    """A stored cluster without its nodes."""

    id: str = Field(description="Stays when nothing else does.", examples=["5f0c2b7e8d9a4c11b6e0a1f2c3d4e5f6"])
    name: str = Field(description="Unique name.", examples=["h100-17-nodes"])
    version: int = Field(description="Counts up with every change.", examples=[3])
    node_count: int = Field(description="Nodes, whatever their state.", examples=[17])
    gpu_count: int = Field(description="GPUs of all nodes.", examples=[136])
    measurement_count: int = Field(description="Stored samples of links.", examples=[595])
    created_at: Moment
    updated_at: Moment
    links: Annotated[Links, Computed(_cluster_links)]


class ClusterAnswer(ClusterSummary):
    """A stored cluster."""

    cluster: Annotated[ClusterDocument, Computed(lambda stored: ClusterDocument.from_cluster(stored.cluster))] = (
        Field(description="Its nodes and GPU kinds; measurements have their own address.")
    )


class SnapshotSummary(ValueAnswer[SnapshotRecord]):
    """A cluster frozen with its measurements."""

    id: str = Field(description="Follows from the content.", examples=["7f6d1c0f9a3b2e45"])
    cluster_name: str = Field(description="Name of the cluster.", examples=["h100-17-nodes"])
    cluster_version: int | None = Field(description="Its version; null where it came with a request.", examples=[3])
    created_at: Moment
    links: Annotated[Links, Computed(lambda record: addresses("snapshots", record.id))]


class SnapshotAnswer(SnapshotSummary):
    """A snapshot with its content and what looks wrong about it."""

    suspicions: Annotated[list[RemarkDocument], Given()] = Field(
        description="Figures that look wrong or missing.", examples=[[]]
    )
    cluster: Annotated[ClusterDocument, Given()] = Field(description="Nodes, GPU kinds and every measurement.")


class MeasurementsAdded(ValueAnswer[AddedMeasurements]):
    """Outcome of adding measurements."""

    added: int = Field(description="Samples stored.", examples=[595])
    already_known: int = Field(description="Samples that the cluster had already.", examples=[0])
    version: int = Field(description="The cluster's version now.", examples=[2])
