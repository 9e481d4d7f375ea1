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
from cluster_models.links.slow_links import SlowLink
from cluster_models.links.summaries import ClassSummary


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


class LinkClassAnswer(ValueAnswer[ClassSummary]):
    """Pairs of nodes of one class at one load."""

    link_class: str = Field(description="How close the nodes sit, and their cards.", examples=["same leaf"])
    flows: int = Field(description="Flows that leave each node at once.", examples=[8])
    message_bytes: float = Field(description="Size of their messages.", examples=[268435456.0])
    pairs: int = Field(description="Pairs of nodes of the class.", examples=[136])
    measured_pairs: int = Field(description="Those measured at such a load, in some direction.", examples=[120])
    median_bytes_per_s: float = Field(description="Median bandwidth of a flow.", examples=[4.6e10])
    p10_bytes_per_s: float = Field(description="10th percentile of it.", examples=[4.1e10])
    median_latency_s: float = Field(description="Median time of a transfer of no bytes.", examples=[1.2e-5])


class SlowLinkAnswer(ValueAnswer[SlowLink]):
    """A directed link far slower than others of its class, at the load where it falls behind most."""

    source: str = Field(description="Node that sends.", examples=["n1"])
    destination: str = Field(description="Node that receives.", examples=["n2"])
    flows: float = Field(description="Flows of each node at once.", examples=[8.0])
    message_bytes: float = Field(description="Size of their messages.", examples=[67108864.0])
    bytes_per_s: float = Field(description="Bandwidth of a flow.", examples=[1.7e9])
    class_bytes_per_s: float = Field(description="Usual in its class.", examples=[1.35e10])


class SnapshotAnswer(SnapshotSummary):
    """A snapshot with its content, its links in figures, and what looks wrong about it."""

    suspicions: Annotated[list[RemarkDocument], Given()] = Field(
        description="Figures that look wrong or missing.", examples=[[]]
    )
    link_classes: Annotated[list[LinkClassAnswer], Given()] = Field(
        description="Links by class, at the load that most were measured with."
    )
    slow_links: Annotated[list[SlowLinkAnswer], Given()] = Field(
        description="Links that stand out from their class, slowest share first; both directions."
    )
    cluster: Annotated[ClusterDocument, Given()] = Field(description="Nodes, GPU kinds and every measurement.")


class MeasurementsAdded(ValueAnswer[AddedMeasurements]):
    """Outcome of adding measurements."""

    added: int = Field(description="Samples stored.", examples=[595])
    already_known: int = Field(description="Samples that the cluster had already.", examples=[0])
    version: int = Field(description="The cluster's version now.", examples=[2])
