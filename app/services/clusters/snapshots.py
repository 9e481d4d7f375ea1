"""Snapshots: a cluster and its measurements, frozen under a name that follows from the content."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db.insert import insert_if_absent
from app.db.tables import SnapshotRow
from app.documents.cluster import samples_of
from app.documents.measurements import MeasurementsDocument
from app.serialization import jsonable, load, make_snapshot
from app.services.clusters import clusters, measurements
from app.services.clusters.clusters import ClusterRecord, StoredCluster
from app.services.errors import NotFound
from app.services.pagination import Page, newest_first
from app.services.preconditions import ExpectedVersions
from app.services.rows import row_where
from cluster_models.cluster.measurements import Sample
from cluster_models.cluster.snapshot import ClusterSnapshot
from cluster_models.cluster.topology import Cluster
from cluster_models.links.classes import classify
from cluster_models.links.suspicions import reject_absurd


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """A stored snapshot without its content.

    ``cluster_version`` is empty for clusters given in a request, and where jobs or failures changed what is stored.
    """

    id: str
    cluster_name: str
    cluster_version: int | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class NewMeasurements:
    """Measurements that a cluster did not have at a version, and how many of the same upload it had."""

    cluster_id: str
    version: int
    fresh: tuple[Sample, ...]
    already_known: int


@dataclass(frozen=True, slots=True)
class AddedMeasurements:
    """Outcome of storing new measurements."""

    version: int
    added: int
    already_known: int


def take_snapshot(session: Session, *, reference: str) -> ClusterSnapshot:
    """Freeze a stored cluster as it is now."""
    record = clusters.get_cluster(session, reference=reference)
    return _store(session, current_snapshot(session, stored=record), record)


def newest_snapshot(session: Session, *, reference: str) -> ClusterSnapshot:
    """A stored cluster as it is now, from the last time it was frozen unless it has changed since."""
    record = clusters.find_cluster(session, reference=reference)
    document = session.scalar(
        select(SnapshotRow.document).where(
            SnapshotRow.cluster_id == record.id, SnapshotRow.cluster_version == record.version
        )
    )
    return take_snapshot(session, reference=record.id) if document is None else load(ClusterSnapshot, document)


def store_derived(session: Session, *, snapshot: ClusterSnapshot, cluster_id: str) -> ClusterSnapshot:
    """Keep a snapshot of a stored cluster that differs from what is stored: GPUs in use, parts that failed."""
    insert_if_absent(
        session,
        SnapshotRow,
        id=snapshot.id,
        cluster_id=cluster_id,
        cluster_name=snapshot.cluster.name,
        cluster_version=None,
        document=jsonable(snapshot),
        created_at=datetime.now(UTC),
    )
    return snapshot


def current_snapshot(session: Session, *, stored: StoredCluster) -> ClusterSnapshot:
    """A stored cluster as it is now, to be looked at; nothing is stored."""
    return _snapshot_of(stored.cluster, measurements.read_all(session, cluster_id=stored.id))


def store_inline(session: Session, *, cluster: Cluster, samples: tuple[Sample, ...]) -> ClusterSnapshot:
    """Freeze a cluster that came with a request."""
    return _store(session, _snapshot_of(cluster, samples), None)


def read_measurements(session: Session, *, reference: str, document: MeasurementsDocument) -> NewMeasurements:
    """The measurements of a document, checked against the cluster as it is; writes nothing.

    A large document takes half a minute, during which nobody should have to wait.
    """
    stored = clusters.get_cluster(session, reference=reference)
    samples = samples_of(document, stored.cluster)
    fresh = measurements.unknown(session, cluster_id=stored.id, samples=samples)
    if fresh:
        # Figures that no link can have must not get in: nothing could be planned any more.
        reject_absurd(ClusterSnapshot("", stored.cluster, samples), *classify(stored.cluster))
    return NewMeasurements(stored.id, stored.version, fresh, len(samples) - len(fresh))


def add_measurements(
    session: Session,
    *,
    reference: str,
    document: MeasurementsDocument,
    read: NewMeasurements | None = None,
    expected_version: ExpectedVersions = None,
) -> AddedMeasurements:
    """Add measurements to a cluster, all or none; those it has already are not added again.

    Measurements that the caller has ``read`` before need no reading under the lock, if the cluster has not changed
    since.
    """
    row = clusters.lock(session, reference=reference, expected_version=expected_version)
    if read is None or (read.cluster_id, read.version) != (row.id, row.version):
        read = read_measurements(session, reference=row.id, document=document)
    if read.fresh:
        clusters.raise_version(row)
        measurements.store(session, cluster_id=row.id, version=row.version, samples=read.fresh)
    return AddedMeasurements(version=row.version, added=len(read.fresh), already_known=read.already_known)


def get_snapshot(session: Session, *, snapshot_id: str) -> ClusterSnapshot:
    """A stored snapshot with its content."""
    return load(ClusterSnapshot, _document(session, snapshot_id))


def get_snapshot_cluster(session: Session, *, snapshot_id: str) -> Cluster:
    """The cluster of a stored snapshot, without its measurements, which may be many."""
    return load(Cluster, _document(session, snapshot_id)["cluster"])


def find_snapshot(session: Session, *, snapshot_id: str) -> SnapshotRecord:
    """Record of a snapshot, without its content."""
    return _record(row_where(session, SnapshotRow, SnapshotRow.id == snapshot_id, "snapshot", snapshot_id))


def list_snapshots(
    session: Session, *, reference: str, limit: int, cursor: str | None = None
) -> Page[SnapshotRecord]:
    """Snapshots of a stored cluster, newest first."""
    record = clusters.find_cluster(session, reference=reference)
    query = select(SnapshotRow).where(SnapshotRow.cluster_id == record.id)
    return newest_first(session, query, SnapshotRow.created_at, _record, limit, cursor)


def _document(session: Session, snapshot_id: str) -> dict[str, Any]:
    query = select(SnapshotRow.document).where(SnapshotRow.id == snapshot_id)
    document: dict[str, Any] | None = session.scalar(query)
    if document is None:
        raise NotFound("snapshot", snapshot_id)
    return document


def _snapshot_of(cluster: Cluster, samples: tuple[Sample, ...]) -> ClusterSnapshot:
    """The snapshot, without samples of nodes that the cluster does not have any more."""
    names = {node.name for node in cluster.nodes}
    present = [sample for sample in samples if sample.source in names and sample.destination in names]
    return make_snapshot(cluster, present)


def _store(session: Session, snapshot: ClusterSnapshot, record: ClusterRecord | None) -> ClusterSnapshot:
    insert_if_absent(
        session,
        SnapshotRow,
        id=snapshot.id,
        cluster_id=record and record.id,
        cluster_name=snapshot.cluster.name,
        cluster_version=record and record.version,
        document=jsonable(snapshot),
        created_at=datetime.now(UTC),
    )
    return snapshot


def _record(row: SnapshotRow) -> SnapshotRecord:
    return SnapshotRecord(row.id, row.cluster_name, row.cluster_version, row.created_at)
